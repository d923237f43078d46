"""``patchkit doctor``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import click

from patchkit.base.text import counted
from patchkit.cli.complaint import exit_code_of
from patchkit.cli.completing import gpus
from patchkit.cli.doctor import Check, State, run_doctor
from patchkit.cli.screen import Cell, Screen
from patchkit.cli.settings import Settings, verb

_ROLES: Mapping[State, str] = {"ok": "good", "warn": "caution", "absent": "muted", "failed": "bad"}


@verb("doctor", example=("patchkit doctor",))
@click.option(
    "--arch",
    "archs",
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="GPU to build for (default: this machine's, else gfx1151). May be repeated.",
)
def command(settings: Settings, archs: tuple[str, ...]) -> int:
    """Check that this machine has what patchkit, and a build of llama.cpp, need.

    Installs nothing. Only failed checks affect the exit code, which is that of the first one; warnings and
    missing optional parts do not.
    """
    checks = run_doctor(
        series_dir=settings.series_dir,
        cache_root=settings.cache_root(),
        environ=os.environ,
        reporter=settings.reporter(),
        archs=archs,
    )
    errors = [check.error for check in checks if check.error is not None]
    settings.show_screen({"ok": not errors, "checks": checks}, lambda screen: _draw(screen, checks))
    if not settings.json:
        for error in errors:
            settings.terminal.write_error(error)
    return exit_code_of(errors[0]) if errors else 0


def _draw(screen: Screen, checks: Sequence[Check]) -> None:
    rows: list[tuple[Cell, ...]] = []
    for check in _without_repeats(checks):
        rows.append(((check.state, _ROLES[check.state]), check.name, check.detail))
        if check.hint and check.error is None:
            rows.append(("", "", (f"-> {check.hint}", "hint")))
    screen.table(rows, indent=0)
    failed = sum(check.state == "failed" for check in checks)
    screen.blank()
    if failed:
        screen.prose(
            f"{counted(failed, 'check')} failed; patchkit does not work until that is fixed.", role="bad"
        )
    else:
        screen.prose(
            "patchkit works here. What is marked absent is optional; its line describes when you need it."
        )


_TOOLCHAIN = ("rocm", "sdk", "hip toolchain")


def _without_repeats(checks: Sequence[Check]) -> list[Check]:
    """Show one row where neither ROCm nor the SDK is installed, because one of them is enough."""
    states = [check.state for check in checks if check.name in _TOOLCHAIN]
    if states != ["absent"] * len(_TOOLCHAIN):
        return list(checks)
    (rocm,) = (check for check in checks if check.name == "rocm")
    if not rocm.detail.startswith("no ROCm found"):
        return list(checks)
    detail = "no ROCm, and no SDK of patchkit"
    return [
        replace(check, detail=detail) if check.name == "hip toolchain" else check
        for check in checks
        if check.name not in ("rocm", "sdk")
    ]

"""``patchkit doctor``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import click

from patchkit.base.text import counted
from patchkit.cli.completing import gpus
from patchkit.cli.doctor import Check, State, default_archs, run_doctor
from patchkit.cli.error_text import exit_code_of
from patchkit.cli.screen import Cell, Screen
from patchkit.cli.settings import Settings, verb
from patchkit.gpu.hardware.host.check import check_host
from patchkit.gpu.hardware.host.finding import Finding
from patchkit.gpu.hardware.host.finding import State as HostState
from patchkit.gpu.hardware.host.root import HostRoot

_ROLES: Mapping[State, str] = {"ok": "good", "absent": "muted", "failed": "bad"}
_HOST_ROLES: Mapping[HostState, str] = {
    "ok": "good",
    "costs speed": "caution",
    "broken": "bad",
    "unknown": "muted",
}


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
    """Check that this machine has what patchkit needs, and find host settings that cost speed.

    Installs and changes nothing, and needs no root rights. The first table has what patchkit and a build of
    llama.cpp need; the exit code is that of its first failed check. The second table, Host, has settings of
    the machine that runs llama.cpp: what each costs, how to change it, and how to check the change. It does
    not affect the exit code. See docs/guide/host.md.
    """
    archs = archs or default_archs()
    checks = run_doctor(
        series_dir=settings.series_dir,
        cache_root=settings.cache_root(),
        environ=os.environ,
        reporter=settings.reporter(),
        archs=archs,
    )
    findings = check_host(HostRoot(), environ=os.environ, archs=archs)
    errors = [check.error for check in checks if check.error is not None]
    result = {"ok": not errors, "checks": checks, "findings": findings}
    settings.show_screen(result, lambda screen: _draw(screen, checks, findings))
    if not settings.json:
        for error in errors:
            settings.terminal.write_error(error)
    return exit_code_of(errors[0]) if errors else 0


def _draw(screen: Screen, checks: Sequence[Check], findings: Sequence[Finding]) -> None:
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
            "patchkit works here. Items marked absent are optional; each line explains when you need them."
        )
    draw_host(screen, findings)


def draw_host(screen: Screen, findings: Sequence[Finding]) -> None:
    """Show the findings in a table, then for each that is not ok what it costs and how to change it."""
    screen.heading("Host")
    screen.table(
        [((each.state, _HOST_ROLES[each.state]), each.name, each.detail) for each in findings], indent=0
    )
    for finding in findings:
        if finding.state == "ok" or finding.change is None:
            continue
        screen.blank()
        screen.prose(f"{finding.name}: {finding.state}", role=_HOST_ROLES[finding.state])
        lines = [("cost", finding.cost), *(("source", each) for each in finding.sources)]
        for label, text in (*lines, ("change", finding.change), ("check", finding.check)):
            if text is not None:
                screen.prose(f"{label}: {text}", indent=2, hang=2)


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

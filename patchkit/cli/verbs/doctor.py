"""``patchkit doctor``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import click

from patchkit.cli.complaint import exit_code_of
from patchkit.cli.completing import gpus
from patchkit.cli.doctor import Check, run_doctor
from patchkit.cli.settings import Settings, verb


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
    settings.show({"ok": not errors, "checks": checks}, _lines(checks))
    if not settings.json:
        for error in errors:
            settings.terminal.complain(error)
    return exit_code_of(errors[0]) if errors else 0


def _lines(checks: Iterable[Check]) -> Iterator[str]:
    for check in checks:
        yield f"{check.state:<6}  {check.name:<13}  {check.detail}"
        if check.hint and check.error is None:
            yield f"{'':23}{check.hint}"

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
    help="The GPU to build for (default: this machine's, else gfx1151).",
)
def command(settings: Settings, archs: tuple[str, ...]) -> int:
    """Check what patchkit needs on this machine, and what a build will need.

    Installs nothing. The exit code is that of the first check that failed; warnings and what is absent do
    not count.
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

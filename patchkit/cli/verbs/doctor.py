"""``patchkit doctor``."""

from __future__ import annotations

import os

import click

from patchkit.cli.complaint import complain, exit_code_of
from patchkit.cli.settings import Settings, verb


@verb("doctor", example=("patchkit doctor",))
@click.option(
    "--arch",
    "archs",
    multiple=True,
    metavar="GFX",
    help="The GPU to build for (default: this machine's, else gfx1151).",
)
def command(settings: Settings, archs: tuple[str, ...]) -> int:
    """Check what patchkit needs on this machine, and what a build will need.

    Installs nothing. The exit code is that of the first check that failed; what is only absent does not
    count.
    """
    from patchkit.cli.doctor import run_doctor

    checks = run_doctor(
        series_dir=settings.series_dir,
        cache_root=settings.cache_root(),
        environ=os.environ,
        reporter=settings.reporter(),
        archs=archs,
    )
    terminal = settings.terminal
    errors = [check.error for check in checks if check.error is not None]
    if settings.json:
        terminal.document({"ok": not errors, "checks": [check.as_json() for check in checks]})
    else:
        for check in checks:
            terminal.data(f"{check.state:<6}  {check.name:<13}  {check.detail}")
            if check.hint and check.error is None:
                terminal.data(f"{'':23}{check.hint}")
        for error in errors:
            terminal.talk(complain(error, terminal.paint))
    return exit_code_of(errors[0]) if errors else 0

"""``patchkit sdk``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import click

from patchkit.base.errors import UsageError
from patchkit.cli.settings import Settings, verb

if TYPE_CHECKING:
    from patchkit.build.sdk.install import RocWmmaChoice

Action = Literal["install", "status", "remove"]


@verb("sdk", example=("patchkit sdk install", "patchkit sdk status", "patchkit sdk remove"))
@click.argument("action", type=click.Choice(["install", "status", "remove"]))
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="NAME",
    help="Take the packages from this suite of the distribution (default: forky, else sid).",
)
@click.option(
    "--rocwmma",
    type=click.Choice(["auto", "git", "stand-in"]),
    default="auto",
    help="Where rocWMMA comes from (auto: git, else patchkit's stand-in header, saying so).",
)
@click.option("--rocwmma-url", metavar="URL", help="A mirror or a local clone of rocWMMA.")
@click.option("--again", is_flag=True, help="Make the prefix anew, with today's packages.")
def command(
    settings: Settings,
    action: Action,
    suites: tuple[str, ...],
    rocwmma: RocWmmaChoice,
    rocwmma_url: str | None,
    again: bool,
) -> None:
    """Install, show or remove a private HIP SDK, for compiling without ROCm and without a GPU.

    It goes into the cache folder and needs no root. The machine's own apt fetches and verifies the
    packages; nothing is installed on the system. A real ROCm is preferred wherever there is one.
    """
    if action != "install" and (suites or rocwmma_url or again or rocwmma != "auto"):
        raise UsageError(
            f"'patchkit sdk {action}' takes no option of install",
            code="USAGE_SYNTAX",
            hint="patchkit sdk --help",
        )
    if action == "remove":
        _remove(settings)
        return
    from patchkit.build.sdk.install import run_sdk_install, sdk_status

    if action == "install":
        state = run_sdk_install(
            settings.cache_root(),
            environ=os.environ,
            suites=suites,
            rocwmma=rocwmma,
            rocwmma_url=rocwmma_url,
            again=again,
            reporter=settings.reporter(),
        )
    else:
        state = sdk_status(settings.cache_root())
    lines = list(state.lines())
    if action == "install":
        lines.append("made just now" if state.made else "it was there already; make it anew with --again")
    settings.show(state.as_json(), lines)


def _remove(settings: Settings) -> None:
    from patchkit.build.sdk.install import run_sdk_remove

    gone = run_sdk_remove(settings.cache_root(), settings.reporter())
    lines = [f"removed {path}" for path in gone] or ["there was no SDK"]
    settings.show({"removed": [str(path) for path in gone]}, lines)

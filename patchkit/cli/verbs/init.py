"""``patchkit init``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchkit.base.text import counted
from patchkit.cli.completing import pins
from patchkit.cli.request import ARCHS
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb

if TYPE_CHECKING:
    from patchkit.carry.authoring.own import OwnSeries


@verb(
    "init",
    example=(
        "patchkit init my-series --arch gfx1151",
        "patchkit init my-series --arch gfx1151 --upstream b9538",
    ),
)
@click.argument("folder", type=FOLDER, metavar="DIR")
@ARCHS
@click.option(
    "--upstream",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="Where to begin: a known build (default: the newest pin that has these GPUs).",
)
def command(settings: Settings, folder: Path, archs: tuple[str, ...], upstream: str | None) -> None:
    """Make a series of your own: a copy of patches, templates and profiles, to be a repository of its own.

    import and new put your patches beside ours, bump carries all of them from build to build. The lock begins
    with what is recorded for these GPUs; without --arch for all.
    """
    from patchkit.carry.authoring.own import make_own_series

    made = make_own_series(folder, archs, upstream, settings.workspace())
    settings.show(made.as_json(), _lines(made))


def _lines(made: OwnSeries) -> Iterator[str]:
    folder = shlex.quote(str(made.folder))
    yield f"{made.folder}: {counted(len(made.patches), 'patch', 'patches')}, at b{made.build}"
    yield from (f"  recorded: {name}" for name in made.recorded)
    yield "from now on, in this shell:"
    yield f"  export PATCHKIT_SERIES={folder}"
    if not made.in_git:
        yield "next:"
        yield f"  cd {folder} && git init -q && git add -A && git commit -q -m 'the series'"
    if not made.recorded:
        archs = "".join(f" --arch {arch}" for arch in made.archs) or " --arch gfx1151"
        yield f"  patchkit lock{archs}"

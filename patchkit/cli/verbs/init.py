"""``patchkit init``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from patchkit.base.errors import UsageError
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.carry.init import OwnSeries, make_own_series, make_plain_series
from patchkit.cli.completing import pins
from patchkit.cli.request import ARCHS
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb


@verb(
    "init",
    example=(
        "patchkit init my-series --arch gfx1151",
        "patchkit init my-series --arch gfx1151 --upstream b9538",
        "patchkit init my-queue --plain --upstream b9538",
    ),
)
@click.argument("folder", type=FOLDER, metavar="DIR")
@ARCHS
@click.option(
    "--plain",
    "is_plain",
    is_flag=True,
    help="Start with no patches and no GPUs, for plain patches (without a GPU guard).",
)
@click.option(
    "--upstream",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="llama.cpp build to start at (default: the newest in the lock file with these GPUs).",
)
@click.option(
    "--upstream-url",
    type=TEXT,
    metavar="URL",
    help="With --plain: mirror or local clone to get llama.cpp from; --upstream may be any build it has.",
)
def command(
    settings: Settings,
    folder: Path,
    archs: tuple[str, ...],
    upstream: str | None,
    upstream_url: str | None,
    *,
    is_plain: bool,
) -> None:
    """Create a patch series of your own: a copy of our patches, templates and GPU profiles.

    Put it into a git repository of its own. import and new add your patches to ours, and bump moves all of
    them from build to build. The lock file starts with the results recorded for these GPUs (without --arch:
    for all).

    With --plain, the series starts empty and has no GPUs. This is for plain patches (without a GPU guard),
    for example those of a server operator or a distribution. Commands then need no --arch.
    """
    if is_plain and archs:
        raise UsageError(
            f"--plain cannot be combined with --arch {archs[0]}",
            code="OPTIONS_CONTRADICT",
            why="a plain series has no GPUs; each of its patches is for every backend",
        )
    if upstream_url is not None and not is_plain:
        raise UsageError(
            "--upstream-url requires --plain",
            code="OPTIONS_CONTRADICT",
            why="a copy of our series starts at a build of its lock file",
            hint="move it afterwards: patchkit bump --to BUILD --upstream-url URL",
        )
    workspace = settings.workspace()
    if is_plain:
        made = make_plain_series(folder, upstream, upstream_url, workspace)
    else:
        made = make_own_series(folder, archs, upstream, workspace)
    settings.show(made, _lines(made))


def _lines(made: OwnSeries) -> Iterator[str]:
    folder = shlex.quote(str(made.folder))
    many = counted(len(made.patches), "patch", "patches")
    yield f"created {made.folder}: {many} on {build_name(made.build)}"
    yield from (f"  recorded result: {name}" for name in made.recorded)
    yield "to use this series in this shell:"
    yield f"  export PATCHKIT_SERIES={folder}"
    following = list(_next(made, folder))
    if following:
        yield from ("next:", *following)


def _next(made: OwnSeries, folder: str) -> Iterator[str]:
    if not made.in_git:
        yield f"  cd {folder} && git init -q && git add -A && git commit -q -m 'the series'"
    if made.plain:
        yield "  patchkit lock" if made.patches else "  patchkit import FOLDER-OR-FILE"
    elif not made.recorded:
        archs = "".join(f" --arch {arch}" for arch in made.archs) or " --arch gfx1151"
        yield f"  patchkit lock{archs}"

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
    help="Without our patches and without GPUs: for patches that are for every build.",
)
@click.option(
    "--upstream",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="Where to begin: a known build (default: the newest pin that has these GPUs).",
)
@click.option(
    "--upstream-url",
    type=TEXT,
    metavar="URL",
    help="With --plain: a mirror or local clone to ask for the build, which may be any that it has.",
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
    """Make a series of your own: a copy of patches, templates and profiles, to be a repository of its own.

    import and new put your patches beside ours, bump carries all of them from build to build. The lock begins
    with what is recorded for these GPUs; without --arch for all.

    With --plain it begins without a patch and knows no GPU: it is for a queue of patches that are for every
    build, as a server's or a packager's. No command asks for --arch in it.
    """
    if is_plain and archs:
        raise UsageError(
            f"--plain and --arch {archs[0]} contradict each other",
            code="OPTIONS_CONTRADICT",
            why="a plain series knows no GPU: each of its patches is for every build",
            hint="drop one of them",
        )
    if upstream_url is not None and not is_plain:
        raise UsageError(
            "--upstream-url goes with --plain",
            code="OPTIONS_CONTRADICT",
            why="a copy begins at a build that is known here",
            hint="patchkit bump --to BUILD --upstream-url URL goes on from there",
        )
    workspace = settings.workspace()
    if is_plain:
        made = make_plain_series(folder, upstream, upstream_url, workspace)
    else:
        made = make_own_series(folder, archs, upstream, workspace)
    settings.show(made, _lines(made))


def _lines(made: OwnSeries) -> Iterator[str]:
    folder = shlex.quote(str(made.folder))
    yield f"{made.folder}: {counted(len(made.patches), 'patch', 'patches')}, at {build_name(made.build)}"
    yield from (f"  recorded: {name}" for name in made.recorded)
    yield "from now on, in this shell:"
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

"""The options that select a commit of the user's own clone.

``emulate`` and ``sanitize`` have them too. They must not import the patch manager unless a commit is named
(tests/integration/emulator/test_standing_alone.py).
"""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.base.errors import UsageError
from patchkit.carry.onto.pin import AsBuild, Onto
from patchkit.carry.series.lock import PinWanted
from patchkit.cli.settings import FOLDER, TEXT, options

CLONE = options(
    click.option(
        "--onto",
        type=TEXT,
        is_flag=False,
        flag_value="HEAD",
        metavar="REV",
        help="Use this commit of your own clone, of llama.cpp or another project on ggml, instead of a build "
        "of the lock file (default REV: HEAD).",
    ),
    click.option(
        "--repo", type=FOLDER, metavar="DIR", help="The clone for --onto (default: the current folder's)."
    ),
)


def make_onto(
    revision: str | None, repo: Path | None, build: AsBuild = None, upstream: PinWanted = None
) -> Onto | None:
    """Combine --onto, --repo and --as-build; None if none of them is given.

    Raises OPTIONS_CONTRADICT.
    """
    if revision is None and repo is None and build is None:
        return None
    if upstream is not None:
        raise UsageError(
            "--upstream and --onto cannot be combined",
            code="OPTIONS_CONTRADICT",
            why="--upstream selects a build of the lock file, --onto a commit of your clone",
        )
    directory = repo or FOLDER.convert(".", None, None)
    return Onto(revision=revision or "HEAD", directory=directory, as_build=build)

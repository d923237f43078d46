"""The options that name a commit of the user's own clone of llama.cpp.

Whoever only emulates has them too, so nothing of the patch manager is imported before a commit was named
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
        help="A commit of your own clone of llama.cpp (without REV: its HEAD).",
    ),
    click.option(
        "--repo", type=FOLDER, metavar="DIR", help="Your clone, for --onto (default: the one you are in)."
    ),
)


def make_onto(
    revision: str | None, repo: Path | None, build: AsBuild = None, upstream: PinWanted = None
) -> Onto | None:
    """What --onto, --repo and --as-build name; None when none of them was given.

    Raises OPTIONS_CONTRADICT.
    """
    if revision is None and repo is None and build is None:
        return None
    if upstream is not None:
        raise UsageError(
            "--upstream and --onto contradict each other",
            code="OPTIONS_CONTRADICT",
            why="one is a pin of the lock, the other a commit of your clone",
            hint="drop one of them",
        )
    directory = repo or FOLDER.convert(".", None, None)
    return Onto(revision=revision or "HEAD", directory=directory, as_build=build)

"""``patchkit series`` and its commands ``drop``, ``fold``, ``move`` and ``split``."""

from __future__ import annotations

import click

from patchkit.base.errors import UsageError
from patchkit.carry.amending.drop import run_drop
from patchkit.carry.amending.fold import run_fold
from patchkit.carry.amending.move import run_move
from patchkit.carry.amending.split import run_split
from patchkit.cli.amended_text import dropped_lines, folded_lines, moved_lines, split_lines
from patchkit.cli.completing import patches
from patchkit.cli.settings import TEXT, Settings, verb, verb_group


@verb_group(
    "series",
    example=(
        "patchkit series drop more-slots",
        "patchkit series fold more-slots slots-help",
        "patchkit series move more-slots --before kv-fix",
    ),
)
def command() -> None:
    """Drop, combine, split and reorder the patches of a series.

    Each command changes a copy of the series, places it on the builds that the lock records, and moves it
    into place in one step. If a patch cannot be placed any more, the series is unchanged. To give a patch a
    new version, use patchkit import --replace.
    """


_dry_run = click.option("--dry-run", is_flag=True, help="Show the result without writing anything.")


@verb(
    "drop",
    group=command,
    about="Remove patches from the series.",
    example=("patchkit series drop more-slots", "patchkit series drop more-slots kv-fix --dry-run"),
)
@click.argument("names", type=TEXT, nargs=-1, required=True, metavar="ID...", shell_complete=patches)
@_dry_run
def _drop(settings: Settings, names: tuple[str, ...], *, dry_run: bool) -> None:
    """Remove the folders of patches, and the lines that name them in GPU profiles and in series.toml.

    A patch that another one requires is not removed, unless you name both. The rest of the series is placed
    again. To stop using a patch from some build on, end its range instead: [builds] last in its patch.toml.
    """
    done = run_drop(names, settings.workspace(), dry_run=dry_run)
    settings.show(done, dropped_lines(done))


@verb(
    "fold",
    group=command,
    about="Make one patch a part of another.",
    example=("patchkit series fold more-slots slots-help",),
)
@click.argument("into", type=TEXT, metavar="INTO", shell_complete=patches)
@click.argument("name", type=TEXT, metavar="ID", shell_complete=patches)
@_dry_run
def _fold(settings: Settings, into: str, name: str, *, dry_run: bool) -> None:
    """Make the edits of the patch ID a part of the patch INTO, and remove ID.

    INTO keeps its id, number, title and gates, and gets the reason, links, authors and requirements of ID.
    Patches that require ID then require INTO. The files at the end of the series must stay the same.
    """
    done = run_fold(into, name, settings.workspace(), dry_run=dry_run)
    settings.show(done, folded_lines(done))


@verb(
    "move",
    group=command,
    about="Move a patch before or after another one.",
    example=(
        "patchkit series move more-slots --before kv-fix",
        "patchkit series move more-slots --after kv-fix",
    ),
)
@click.argument("name", type=TEXT, metavar="ID", shell_complete=patches)
@click.option(
    "--before", type=TEXT, metavar="ID", shell_complete=patches, help="Move it right before this one."
)
@click.option(
    "--after", type=TEXT, metavar="ID", shell_complete=patches, help="Move it right after this one."
)
@_dry_run
def _move(settings: Settings, name: str, before: str | None, after: str | None, *, dry_run: bool) -> None:
    """Change the order of the patches, and with it the numbers of their folders.

    The files at the end of the series must stay the same, and a patch must come after those that it requires.
    """
    other = before if before is not None else after
    if other is None or (before is not None and after is not None):
        raise UsageError(
            "exactly one position is required", code="USAGE_MISSING", hint="use --before ID or --after ID"
        )
    done = run_move(name, other, settings.workspace(), before=before is not None, dry_run=dry_run)
    settings.show(done, moved_lines(done))


@verb(
    "split",
    group=command,
    about="Move some edits of a patch into a new patch.",
    example=("patchkit series split more-slots slots-help --edit help-text",),
)
@click.argument("name", type=TEXT, metavar="ID", shell_complete=patches)
@click.argument("new", type=TEXT, metavar="NEW")
@click.option(
    "--edit",
    "edits",
    type=TEXT,
    multiple=True,
    required=True,
    metavar="EDIT",
    help="Edit to move, by its id, or a file by its path. May be repeated.",
)
@click.option("--title", type=TEXT, metavar="TEXT", help="Title of the new patch (default: from its id).")
@_dry_run
def _split(
    settings: Settings, name: str, new: str, edits: tuple[str, ...], title: str | None, *, dry_run: bool
) -> None:
    """Make a new patch of some edits, right after the patch that they are from.

    The new patch gets a copy of the reason, links, authors, builds, guard and requirements, which you adapt
    then. The files at the end of the series must stay the same.
    """
    done = run_split(name, new, edits, settings.workspace(), title=title, dry_run=dry_run)
    settings.show(done, split_lines(done))

"""``patchkit absorb``."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.carry.amending.absorb import AbsorbRequest, run_absorb
from patchkit.carry.series.lock import PinWanted
from patchkit.cli.amended_text import absorbed_lines
from patchkit.cli.completing import pins
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb


@verb(
    "absorb",
    example=(
        "patchkit absorb --repo ~/llama.cpp",
        "patchkit absorb my-branch --repo ~/llama.cpp --dry-run",
    ),
)
@click.argument("revision", type=TEXT, default="HEAD", metavar="[REV]")
@click.option(
    "--repo", type=FOLDER, metavar="DIR", help="Clone that has the branch (default: the current folder's)."
)
@click.option(
    "--upstream",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="llama.cpp build that the branch is based on (default: the newest of the lock below it).",
)
@click.option("--drop", is_flag=True, help="Remove patches that have no commit on the branch.")
@click.option("--dry-run", is_flag=True, help="Show the result without writing anything.")
def command(
    settings: Settings,
    revision: str,
    repo: Path | None,
    upstream: PinWanted,
    *,
    drop: bool,
    dry_run: bool,
) -> None:
    """Put changes that you made to a branch with git into the series.

    The branch is the one that apply makes, in your clone: one commit per patch, with a trailer Patchkit-Id.
    Change it with git commit --amend or git rebase -i, then run this command. A changed commit becomes the
    new version of its patch, a commit without the trailer a new patch, and a commit with the trailers of
    several patches combines them. The order of the commits becomes the order of the patches. Edits that did
    not change are kept as they are.

    The series changes in one step, and only if its result is exactly the tree of the branch. An
    imported patch also gets the author, date and message of its commit; for other patches, edit why and title
    in patch.toml. Patches with a GPU guard may be on the branch, but not changed there.
    """
    request = AbsorbRequest(revision=revision, repo=repo, upstream=upstream, drop=drop, dry_run=dry_run)
    done = run_absorb(request, settings.workspace())
    settings.show(done, absorbed_lines(done))

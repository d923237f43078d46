"""``patchkit diff``."""

from __future__ import annotations

import click

from patchkit.carry.candidate.diff import make_diff
from patchkit.cli.completing import patches
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import Settings, verb


@verb(
    "diff",
    example=("patchkit diff --arch gfx1151", "patchkit diff --arch gfx1151 --patch mmq-tile-config --stat"),
)
@candidate_options
@click.option("--patch", metavar="ID", shell_complete=patches, help="Show the changes of this patch only.")
@click.option("--stat", is_flag=True, help="List the files with added and removed lines only.")
def command(settings: Settings, choice: CandidateChoice, patch: str | None, *, stat: bool) -> None:
    """Show what the patches change in llama.cpp, as a git diff."""
    workspace = settings.workspace()
    chosen = choice.choose(workspace)
    shown = make_diff(workspace, archs=chosen.archs, upstream=chosen.upstream, patch=patch)
    if not (settings.json or stat):
        settings.terminal.raw(shown.text)
        return
    rows = [f"+{change.added:<6d} -{change.removed:<6d} {change.path}" for change in shown.files]
    settings.show(shown, [*rows, f"{len(rows)} files, {shown.base[:12]}..{shown.tip[:12]}"])

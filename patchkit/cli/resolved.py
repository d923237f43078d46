"""What became of patches that were merged onto a new upstream, as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.carry.resolving.case import Resolved
from patchkit.carry.resolving.run import Regenerated, ResolveRequest

_TOLD = {
    "regenerated": "git's merge takes it",
    "resolved": "as you resolved it",
}


def resolved_lines(done: Resolved) -> Iterator[str]:
    """The new edits of one patch, and what became of the lock."""
    if done.how == "placed":
        yield f"{done.patch}: it is placed at {build_name(done.build)} as it is; nothing was written"
        return
    yield (
        f"{done.patch}: {_TOLD[done.how]}: {counted(len(done.edits), 'new edit')} "
        f"from {build_name(done.build)} on, "
        f"{counted(len(done.ended), 'edit')} until {build_name(done.build - 1)} (proven on both)"
    )
    for edit in done.edits:
        where = f"in {edit.function}" if edit.function else "in the file"
        yield f"  {edit.id}: {where}, {(done.places or {}).get(edit.id, edit.file)}"
    yield from (f"  {warning}" for warning in done.warnings)
    if done.renewed:
        yield (
            f"  the lock has the new digests of its files for {', '.join(done.renewed)}: "
            "what it says of those builds is what it said, so trees and commits stay"
        )
    if done.stale:
        yield f"  not as recorded already before: {', '.join(done.stale)}; patchkit lock --all records them"


def next_line(done: Resolved, request: ResolveRequest) -> str:
    """The command after a patch was resolved."""
    return f"next:  {request.bump.command(to=build_name(done.build))}"


def regenerated_lines(done: Regenerated) -> Iterator[str]:
    """All that was regenerated before a bump, and what is left."""
    for each in done.done:
        yield from resolved_lines(each)
    for name, why in done.left.items():
        yield f"{name}: not regenerated: {why}"

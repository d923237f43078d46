"""The text output of ``resolve``, and of ``bump --resolve``."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.carry.resolving.case import Resolved
from patchkit.carry.resolving.run import Regenerated, ResolveRequest

_HOW = {
    "regenerated": "git merged it without conflict",
    "resolved": "merged by you",
}


def resolved_lines(done: Resolved) -> Iterator[str]:
    """Describe the new edits of one patch, and the changes to the lock."""
    if done.how == "placed":
        yield f"{done.patch}: applies to {build_name(done.build)} unchanged; nothing was written"
        return
    kept = f", {len(done.kept)} unchanged" if done.kept else ""
    yield (
        f"{done.patch}: {_HOW[done.how]}: {counted(len(done.edits), 'new edit')} "
        f"from {build_name(done.build)} on; "
        f"{counted(len(done.ended), 'old edit')} up to {build_name(done.build - 1)}{kept} "
        "(checked on both builds)"
    )
    for edit in done.edits:
        where = f"in {edit.function}" if edit.function else "in the file"
        yield f"  {edit.id}: {where}, {(done.places or {}).get(edit.id, edit.file)}"
    yield from (f"  {warning}" for warning in done.warnings)
    if done.renewed:
        yield (
            f"  updated the digests of its files in the lock for {', '.join(done.renewed)}; "
            "the trees and commits of those builds stay the same"
        )
    if done.stale:
        yield f"  already differed from the lock before: {', '.join(done.stale)}; run patchkit lock --all"


def next_line(done: Resolved, request: ResolveRequest) -> str:
    """Return the command to run after a patch was resolved."""
    return f"next:  {request.bump.command(to=build_name(done.build))}"


def regenerated_lines(done: Regenerated) -> Iterator[str]:
    """Describe the patches that were re-created before a bump, and those that were not."""
    for each in done.done:
        yield from resolved_lines(each)
    for name, why in done.left.items():
        yield f"{name}: not re-created: {why}"

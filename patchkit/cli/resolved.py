"""The text output of ``resolve``, and of ``bump --resolve``."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.base.errors import members_of
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.carry.resolving.case import Resolved
from patchkit.carry.resolving.run import Conflicted, ResolveRequest
from patchkit.carry.resolving.session import Continued, Regenerated, Session, session_command

_HOW = {
    "regenerated": "git merged it without conflict",
    "ordered": "merged in the order that you chose",
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
        results = ", ".join(done.stale)
        yield f"  its files had changed since the lock recorded {results}; to check: patchkit lock --all"


def next_line(done: Resolved, request: ResolveRequest) -> str:
    """Return the command to run after a patch was resolved."""
    return f"next:  {request.bump.command(to=build_name(done.build))}"


def regenerated_lines(done: Regenerated) -> Iterator[str]:
    """Describe the patches that were re-created before a bump, and those that were not."""
    for each in done.done:
        yield from resolved_lines(each)
    for name, why in done.left.items():
        yield f"{name}: not re-created: {why}"


def conflict_lines(found: Conflicted) -> Iterator[str]:
    """Describe the files of one conflict."""
    for each in found.files:
        inside = f" ({', '.join(dict.fromkeys(each.inside))})" if each.inside else ""
        yield f"  {found.folder / each.name}: {each.why or 'please review'}{inside}"
    for problem in found.problems:
        yield f"  {problem.code}: {problem.message}"


def session_lines(done: Session, bump: str) -> Iterator[str]:
    """Describe all conflicts of a build, and the next step; ``bump``: the command if nothing is left."""
    for each in done.done:
        yield from resolved_lines(each)
    for conflict in done.conflicts:
        yield f"{conflict.patch}: conflict, to be merged by hand"
        yield from conflict_lines(conflict)
    for name in done.unfinished:
        yield f"{name}: conflict, not finished: {done.folder / name}"
    for name, why in done.waiting.items():
        yield f"{name}: not resolved yet: {why}"
    if done.conflicts or done.unfinished:
        command = session_command(done.folder, "--continue")
        yield f"next:  edit the text between the ==== lines, then: {command}"
    elif done.waiting:
        yield f"next:  resolve these patches one by one, or go on without them: {bump} --drop-conflicts"
    else:
        yield f"next:  {bump}"


def continued_lines(done: Continued) -> Iterator[str]:
    """Describe the patches of a session that were resolved, and those that are not finished."""
    for each in done.done:
        yield from resolved_lines(each)
    for name, error in done.errors.items():
        yield f"{name}: not finished"
        for problem in members_of(error):
            yield f"  {problem.code}: {problem.message}"
            yield from (f"    {place.with_label}" for place in problem.where)
            if problem.hint:
                yield f"    hint: {problem.hint}"
    for name, files in done.kept.items():
        kept = ", ".join(files)
        yield f"kept {done.folder / name}, because it has files that patchkit did not write: {kept}"
    if done.errors:
        yield f"next:  {session_command(done.folder, '--continue')}  # after you finished the others"
    elif done.done:
        again = session_command(done.folder, "--to", build_name(done.build))
        yield f"next:  {again}  # for patches that had to wait; then bump"

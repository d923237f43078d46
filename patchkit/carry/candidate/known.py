"""Check whether the cache already has the candidate for a request, so that nothing has to be parsed.

Three things must agree: the lock records this commit for exactly these inputs, the branch exists, and its
record says that this version of patchkit made it from the same request. Then every object of the branch is
read and hashed. If anything is missing or differs, the patches are placed again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

from patchkit.base.errors import GitError
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.commit import commit_subject
from patchkit.carry.candidate.decision import Decision
from patchkit.carry.candidate.inputs import digest_of, hash_inputs
from patchkit.carry.candidate.record import (
    Candidate,
    CandidateCommit,
    CandidateRecord,
    candidate_ref,
    read_record,
    record_ref,
    shown_path,
)
from patchkit.carry.series.lock import Pin, Result
from patchkit.carry.upstream.refs import list_refs
from patchkit.carry.upstream.repository import Repository, verify_objects


def find_known(
    decision: Decision,
    recorded: Result | None,
    base: str,
    repository: Repository,
    workspace: Workspace,
    *,
    unlocked: bool,
) -> tuple[Candidate, Result] | None:
    """The candidate and its result, if placing the decision on ``base`` provably gives the same; else None.

    ``recorded`` is the lock's result. Raises LOCK_INPUT_UNUSABLE, and git's errors when listing refs.
    """
    selected = [each for each in decision.selected if each.targets]
    if not selected or recorded is None:
        return None
    ref = candidate_ref(decision.archs, decision.pin.name, unproven=decision.pin.unproven)
    refs = list_refs(repository, ref, record_ref(ref))
    if refs.get(ref) != recorded.commit:
        return None
    inputs = hash_inputs(decision.profiles, [each.patch.folder for each in selected], workspace.series)
    if inputs != recorded.inputs:
        return None
    record = make_record(decision, decision.pin, recorded, workspace, unlocked=unlocked)
    if read_record(repository, ref, refs) != record:
        return None
    commits = _verified_commits(repository, base, recorded.commit, recorded.tree)
    if len(commits) != len(selected):
        return None
    candidate = Candidate(
        ref=ref,
        archs=decision.archs,
        pin=decision.pin.name,
        build=decision.pin.build,
        base=base,
        tip=recorded.commit,
        commits=tuple(
            CandidateCommit(id=each.patch.id, commit=commit, subject=commit_subject(each))
            for each, commit in zip(selected, commits, strict=True)
        ),
        record=record,
    )
    return candidate, recorded


def _verified_commits(repository: Repository, base: str, tip: str, tree: str) -> tuple[str, ...]:
    """The commits of ``base..tip`` in order, with every object hashed; none if anything is wrong."""
    try:
        listed = repository.git.run("log", "-z", "--reverse", "--format=%H %T %P", f"{base}..{tip}", "--")
        rows = [row.split(" ") for row in listed.decode("ascii").split("\0") if row]
        commits = tuple(row[0] for row in rows)
        is_chain = [row[2:] for row in rows] == [[parent] for parent in (base, *commits[:-1])]
        if not is_chain or commits[-1] != tip or rows[-1][1] != tree:
            return ()
        objects = repository.git.run("rev-list", "--objects", "--no-object-names", f"{base}..{tip}")
        verify_objects(repository, objects.decode("ascii").split())
    except GitError:
        return ()
    return commits


def make_record(
    decision: Decision,
    pin: Pin,
    result: Result,
    workspace: Workspace,
    *,
    unlocked: bool = False,
    dropped: Sequence[str] = (),
    branch: str | None = None,
) -> CandidateRecord:
    """The record of a candidate just made on ``pin``; ``dropped`` are patches in conflict there.

    ``branch`` is that of the user's clone, for a candidate on one of its commits.
    """
    return CandidateRecord(
        tip=result.commit,
        build=pin.build,
        archs=decision.archs,
        patches=result.patches,
        inputs=digest_of(result.inputs),
        series=shown_path(workspace.series.root),
        with_=decision.with_,
        without=tuple(dict.fromkeys((*decision.without, *dropped))),
        only=decision.wish.only,
        unlocked=unlocked,
        commit=pin.commit if pin.clone is not None else None,
        clone=shown_path(pin.clone) if pin.clone is not None else None,
        branch=branch,
        followed=pin.followed,
        faults=pin.faults,
        program=program_digest(),
    )


_CODE = Path(__file__).parents[2]
# Everything that affects a candidate's bytes or its rejection: these packages, and the libraries they use.
_PACKAGES = ("base", "carry/series", "carry/cpp", "carry/upstream", "carry/placing", "carry/candidate")
_LIBRARIES = ("jinja2", "libclang", "pydantic")


def program_digest() -> str:
    """sha256 over the code that determines a candidate, and the versions of its libraries."""
    state = hashlib.sha256(sys.version.encode())
    for name in _LIBRARIES:
        state.update(f"\0{name} {importlib.metadata.version(name)}".encode())
    for package in _PACKAGES:
        for path in sorted((_CODE / package).rglob("*")):
            if path.suffix in (".py", ".h"):
                state.update(f"\0{path.relative_to(_CODE)} ".encode())
                state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()

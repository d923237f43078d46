"""Recognizes a candidate in the cache that placing would give again, so that nothing has to be parsed.

Three things have to agree: the lock records this commit for these very inputs, the branch is there, and the
record beside it says that this same program made it from the same request. Then every object of the branch is
read and hashed. Whatever is missing or differs, the patches are placed as the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from patchkit.base.errors import GitError
from patchkit.candidate.locking import hash_inputs
from patchkit.candidate.plan import Choice
from patchkit.candidate.records import make_record, recall, record_ref
from patchkit.candidate.workspace import Workspace
from patchkit.upstream.handover import verify_objects
from patchkit.upstream.refs import list_refs
from patchkit.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The commits from the base to the tip, one per patch, and the tree of the tip."""

    commits: tuple[str, ...]
    tree: str
    inputs: Mapping[str, str]


def find_known(
    choice: Choice, base: str, ref: str, repository: Repository, workspace: Workspace
) -> Known | None:
    """The candidate at ``ref`` if it is proven to be what placing ``choice`` on ``base`` gives; else None.

    Raises LOCK_INPUT_UNUSABLE, and what git raises when it cannot list refs.
    """
    patches = [selected.patch for selected in choice.selected if selected.targets]
    ids = tuple(patch.id for patch in patches)
    recorded = choice.lock.result(choice.pin.build, choice.archs, ids)
    if not ids or recorded is None or choice.pin.clone is not None:
        return None
    refs = list_refs(repository, ref, record_ref(ref))
    if refs.get(ref) != recorded.commit:
        return None
    inputs = hash_inputs(choice.profiles, [patch.folder for patch in patches], workspace.series)
    if inputs != recorded.inputs:
        return None
    made = make_record(choice.request, choice.pin, workspace, tip=recorded.commit, patches=ids, inputs=inputs)
    if recall(repository, ref, refs) != made:
        return None
    commits = _verified_commits(repository, base, recorded.commit, recorded.tree)
    if len(commits) != len(ids):
        return None
    return Known(commits=commits, tree=recorded.tree, inputs=inputs)


def _verified_commits(repository: Repository, base: str, tip: str, tree: str) -> tuple[str, ...]:
    """The commits of ``base..tip`` in order, every object of them hashed; none when anything is amiss."""
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

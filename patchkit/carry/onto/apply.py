"""``apply --onto``: add the patches to the user's clone as one branch on their commit.

The commit becomes a pin in the cache, so that every command for candidates also works on this one. The branch
in the clone is created or moved at the very end. Nothing else in the clone changes: no file, index or
setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from patchkit.base.errors import InterruptNote
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.apply import cmake_command, move_candidate, refuse_faults
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.known import make_record
from patchkit.carry.candidate.lock import write_result
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.onto.own import refuse_replacing
from patchkit.carry.onto.pin import Onto
from patchkit.carry.onto.plan import OntoPlan, plan_onto
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.clone import check_branch_name, look_at_branch, put_branch
from patchkit.carry.upstream.refs import read_ref


@dataclass(frozen=True, slots=True, kw_only=True)
class OntoReport:
    """The branch in the user's clone; ``branch`` is None if none was made.

    None is made if no patch is for this commit, or if it already has all of them up to date (``is_current``).
    ``before``: the previous tip of the branch. ``candidate``: the same commits in the cache, for other
    commands.
    """

    json_keys: ClassVar = (
        "branch=ref base=onto.plan.base archs=onto.plan.archs commits=candidate.commits tree unchanged "
        "current=is_current before candidate=candidate.ref cmake skipped=onto.plan.skipped "
        "trust=onto.plan.decision.trust more_trust=onto.plan.decision.more_trust "
        "faults=onto.plan.faults onto classes=onto.verdicts"
    )

    onto: OntoPlan
    branch: str | None
    candidate: Candidate
    before: str | None
    tree: str
    cmake: list[str]

    @property
    def is_current(self) -> bool:
        """Whether the user's commit already has patchkit's commits, and making them again changes nothing."""
        return bool(self.onto.replaced) and self.tree == self.onto.commit.tree

    @property
    def unchanged(self) -> bool:
        """Whether the branch already was at this tip."""
        return self.branch is not None and self.before == self.candidate.tip

    @property
    def ref(self) -> str | None:
        """The branch's full name."""
        return f"refs/heads/{self.branch}" if self.branch is not None else None


def run_onto(
    request: Request,
    onto: Onto,
    workspace: Workspace,
    *,
    branch: str,
    replace_branch: bool,
    drop_conflicts: bool,
) -> OntoReport:
    """Make the branch. After any exception the clone has either the old branch or the complete new one.

    Raises:
        CLONE_UNUSABLE, ONTO_NO_COMMIT, ONTO_NOT_LLAMA_CPP,
            ONTO_PATCHED: the clone or the commit cannot be used.
        ONTO_BUILD_UNKNOWN: without the upstream build it is unknown which patches are for this commit.
        ErrorGroup: everything that cannot be placed, ONTO_CONFLICT last.
        FAULT_UNMENDED, FAULT_BAD: the upstream build below the commit computes wrong results.
        ONTO_BRANCH_TAKEN, REF_MOVED, REF_IN_THE_WAY: the branch has the user's own commits, or was moved.
        The errors of series, profiles, git and the disk.
    """
    cache = open_cache(workspace.cache_root)
    check_branch_name(branch, workspace.reporter)
    note = f"{branch} of {onto.directory} is either unchanged or complete; nothing else there was changed"
    with InterruptNote(note), cache.hold(workspace.reporter) as repository:
        onto_plan = plan_onto(request, onto, workspace, cache, drop_conflicts=drop_conflicts)
        plan, clone = onto_plan.plan, onto_plan.clone
        refuse_faults(plan.decision, plan.faults, request)
        candidate, result = write_result(plan, repository, workspace.series)
        tree = result.tree
        head = onto_plan.commit
        unsure = [each for each in onto_plan.replaced if not each.is_sure]
        if unsure and tree != head.tree:
            why = (
                "these were rebased, and patchkit's original commits are in neither the clone nor the cache; "
                "they may contain your own changes, which would be lost"
            )
            raise refuse_replacing(unsure, onto_plan.replaced, head, clone, why)
        has_commits = candidate.tip != head.sha and tree != head.tree
        place = None
        if has_commits:
            place = look_at_branch(clone, branch, base=head.sha, tip=candidate.tip, replace=replace_branch)
        record = make_record(
            plan.decision,
            plan.pin,
            result,
            workspace,
            dropped=onto_plan.dropped,
            branch=branch if has_commits else None,
        )
        move_candidate(repository, candidate, read_ref(repository, candidate.ref), record)
        if place is not None and place.tip != candidate.tip:
            workspace.reporter.step(f"adding the branch {branch} to {clone.top}")
            put_branch(clone, place, repository, base=head.sha, tip=candidate.tip)
        cmake = cmake_command(plan.decision, candidate, clone.top, repository)
    return OntoReport(
        onto=onto_plan,
        branch=branch if place is not None else None,
        candidate=candidate,
        before=place.tip if place is not None else None,
        tree=tree,
        cmake=cmake,
    )

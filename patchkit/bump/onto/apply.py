"""Handing the patches over to the user's clone as one branch on his commit.

The commit becomes a pin of its own in the cache, so that all that works on a candidate works on this one. In
the clone the branch is made or moved at the very end. Nothing else there changes: no file, index or setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from patchkit.base.errors import ErrorGroup
from patchkit.bump.onto.pin import Onto
from patchkit.bump.onto.plan import OntoPlan, plan_onto
from patchkit.candidate.apply import (
    AppliedCommit,
    candidate_ref,
    cmake_command,
    declared_options,
    move_candidate,
    write_plan,
)
from patchkit.candidate.locking import read_inputs
from patchkit.candidate.plan import Request
from patchkit.candidate.records import make_record
from patchkit.candidate.workspace import Workspace
from patchkit.upstream.cache import open_cache
from patchkit.upstream.clone import check_branch_name, look_at_branch, put_branch
from patchkit.upstream.refs import read_ref


@dataclass(frozen=True, slots=True, kw_only=True)
class OntoApplied:
    """The branch in the user's clone; ``branch`` is None when no patch is for this commit, so none was made.

    ``before`` is where the branch was. ``candidate`` is the same commits in the cache, for the other verbs.
    """

    onto: OntoPlan
    branch: str | None
    candidate: str
    before: str | None
    commits: tuple[AppliedCommit, ...]
    tree: str
    cmake: list[str]

    @property
    def unchanged(self) -> bool:
        """Whether the branch already was what it is now."""
        return self.branch is not None and self.before == self.tip

    @property
    def tip(self) -> str:
        """The last commit."""
        return self.commits[-1].commit if self.commits else self.onto.commit.sha

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        plan = self.onto.plan
        return {
            "branch": f"refs/heads/{self.branch}" if self.branch is not None else None,
            "base": plan.base,
            "archs": list(plan.archs),
            "commits": [
                {"id": made.id, "commit": made.commit, "subject": made.subject} for made in self.commits
            ],
            "tree": self.tree,
            "unchanged": self.unchanged,
            "before": self.before,
            "candidate": self.candidate,
            "cmake": self.cmake,
            "skipped": [
                {"id": patch.id, "reason": patch.reason} for patch in plan.patches if patch.state != "apply"
            ],
            "onto": self.onto.as_json()["onto"],
            "classes": [verdict.as_json() for verdict in self.onto.verdicts],
        }


def run_onto(
    request: Request,
    onto: Onto,
    workspace: Workspace,
    *,
    branch: str,
    replace_branch: bool,
    drop_conflicts: bool,
) -> OntoApplied:
    """Make the branch. Whatever is raised, the clone has the branch it had, or the new one complete.

    Raises:
        CLONE_UNREADABLE, CLONE_UNSUPPORTED, CLONE_INCOMPLETE, ONTO_NO_COMMIT, ONTO_NOT_LLAMA_CPP,
            ONTO_PATCHED: the clone.
        ONTO_BUILD_UNKNOWN: which patches are for this commit cannot be told.
        ErrorGroup: of everything that cannot be placed, ONTO_CONFLICT last.
        ONTO_BRANCH_TAKEN, REF_MOVED, REF_IN_THE_WAY: the branch is somebody's.
        The errors of series, profiles, git and the disk.
    """
    cache = open_cache(workspace.cache_root)
    check_branch_name(branch, workspace.reporter)
    with _noted(onto, branch), cache.hold(workspace.reporter) as repository:
        made = plan_onto(request, onto, workspace, cache, drop_conflicts=drop_conflicts)
        plan, clone = made.plan, made.clone
        if plan.errors:
            raise ErrorGroup("the series cannot be applied", plan.errors)
        commits, tree = write_plan(plan, repository, unlocked=False)
        tip = commits[-1].commit if commits else plan.base
        place = (
            look_at_branch(clone, branch, base=plan.base, tip=tip, replace=replace_branch)
            if commits
            else None
        )
        ref = candidate_ref(plan.archs, plan.pin.name)
        record = make_record(
            plan.request,
            plan.pin,
            workspace,
            tip=tip,
            patches=[each.id for each in commits],
            inputs=read_inputs(plan, workspace.series),
            branch=branch if commits else None,
        )
        move_candidate(repository, ref, read_ref(repository, ref), record)
        if place is not None and place.tip != tip:
            workspace.reporter.step(f"adding the branch {branch} to {clone.top}")
            put_branch(clone, place, repository, base=plan.base, tip=tip)
        declared = declared_options(repository, plan.base)
    return OntoApplied(
        onto=made,
        branch=branch if place is not None else None,
        candidate=ref,
        before=place.tip if place is not None else None,
        commits=commits,
        tree=tree,
        cmake=cmake_command(
            plan.profiles, [selected.patch for selected, _ in plan.steps], clone.top, declared
        ),
    )


@contextmanager
def _noted(onto: Onto, branch: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{branch} of {onto.directory} is where it was, or complete; nothing else there was changed"
        )
        raise

"""Making the candidate of a target: as ``apply`` does, without a branch and before the lock has its say."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.config.lock import Result
from patchkit.fetch.cache import open_cache
from patchkit.fetch.pin import pin_ref
from patchkit.flow.apply import candidate_ref, write_plan
from patchkit.flow.candidates import Candidate, read_candidate
from patchkit.flow.locking import make_result, read_inputs
from patchkit.flow.plan import Plan, Request, plan_with
from patchkit.flow.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """``candidate`` and ``result`` are None when the plan has errors. ``files`` are the changed ones."""

    plan: Plan
    candidate: Candidate | None
    result: Result | None
    files: dict[str, bytes]


def make_candidate(request: Request, workspace: Workspace) -> Made:
    """Plan, and write the commits; no ref moves but that of a pin that was not here yet.

    Raises what planning raises beside the errors of places and templates, which are in the plan.
    """
    cache = open_cache(workspace.cache_root)
    with cache.hold(workspace.reporter) as repository:
        plan = plan_with(request, workspace, cache)
        if plan.errors:
            return Made(plan=plan, candidate=None, result=None, files={})
        commits, tree = write_plan(plan, repository, unlocked=False)
        tip = commits[-1].commit if commits else plan.base
        ref = candidate_ref(plan.archs, plan.pin.name)
        candidate = read_candidate(repository, ref, {ref: tip, pin_ref(plan.pin): plan.base})
        result = make_result(plan, read_inputs(plan, workspace.series), tree=tree, commit=tip)
    files: dict[str, bytes] = {}
    for _, placed in plan.steps:
        files |= placed.changes
    return Made(plan=plan, candidate=candidate, result=result, files=files)

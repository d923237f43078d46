"""Recording a result in the lock, after a patch, a template or a profile was changed on purpose."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.config.lock_text import record_result
from patchkit.errors import ErrorGroup
from patchkit.fetch.cache import open_cache
from patchkit.flow.apply import write_plan
from patchkit.flow.locking import make_result, read_inputs
from patchkit.flow.plan import Request, plan_with
from patchkit.flow.workspace import Workspace

__all__ = ["Recorded", "relock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the lock now says for this request; ``changed``: it said something else before."""

    archs: tuple[str, ...]
    patches: tuple[str, ...]
    tree: str
    commit: str
    changed: bool

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "archs": list(self.archs),
            "patches": list(self.patches),
            "tree": self.tree,
            "commit": self.commit,
            "changed": self.changed,
        }


def relock(request: Request, workspace: Workspace) -> Recorded:
    """Make the commits of a request and record them; no branch moves.

    Raises what planning raises; the lock is replaced as a whole or not at all.
    """
    cache = open_cache(workspace.cache_root)
    with cache.hold(workspace.reporter) as repository:
        plan = plan_with(request, workspace, cache)
        if plan.errors:
            raise ErrorGroup("the series cannot be applied", plan.errors)
        inputs = read_inputs(plan, workspace.series)
        commits, tree = write_plan(plan, repository, unlocked=False)
    tip = commits[-1].commit if commits else plan.base
    result = make_result(plan, inputs, tree=tree, commit=tip)
    changed = record_result(workspace.series.lock, plan.pin, result)
    return Recorded(archs=result.archs, patches=result.patches, tree=tree, commit=tip, changed=changed)

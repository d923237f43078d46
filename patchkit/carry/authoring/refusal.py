"""Why a change of a queue is not placed, as far as upstream's trees tell, and what to do then."""

from __future__ import annotations

from patchkit.base.errors import PatchkitError
from patchkit.carry.authoring.ground import Ground, Grounds
from patchkit.carry.authoring.queue_sources import QueuedChange


def explain(
    error: PatchkitError, change: QueuedChange, tree: str, grounds: Grounds, ground: Ground
) -> PatchkitError:
    """The error of placing a change on a tree, with what else is known: of its paths, and of other builds."""
    if error.code != "IMPORT_NOT_APPLYING" or error.hint is not None:
        return error
    if grounds.trees.apply(tree, change, backwards=True)[0] is not None:
        error.why = "taken back it applies: the tree has this change already"
        error.hint = "leave it out"
        return error
    near = grounds.nearest(change, ground)
    if near is not None:
        error.hint = f"by itself it applies to {near}: --upstream {near}"
    else:
        error.hint = (
            f"tried on {ground.name} and every cached build; --upstream names the one it was made for"
        )
    return error

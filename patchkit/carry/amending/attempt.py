"""Make the new content of a patch, and try it on a copy of the series."""

from __future__ import annotations

from dataclasses import replace

from patchkit.base.errors import PatchkitError
from patchkit.carry.amending.ground import Ground
from patchkit.carry.amending.revise import (
    OldPatch,
    Remainder,
    Revision,
    load_old,
    revise,
    split_change,
)
from patchkit.carry.candidate.renames import followed_series
from patchkit.carry.lifting.change import Changeset
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.lifting.trial import require_same
from patchkit.carry.lifting.whole import expected_files, require_files
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.patch import Patch


def make_revision(
    patch: Patch, ground: Ground, change: Changeset, pipeline: Pipeline
) -> tuple[Revision, dict[str, str], tuple[str, ...]]:
    """The new content of a patch, with as many of its edits as possible, tried on a copy of the series.

    Also the places of its new edits, and warnings.
    """
    paths = [path for each in change.files for path in (each.path, each.source) if path is not None]
    files = ground.files(paths)
    with pipeline.open_stage() as stage:
        try:
            was = stage.place(ground.selected, files)
        except PatchkitError:  # a patch before it was replaced: none of its edits is kept
            was = None
    now = patch.for_build(ground.pin.build)
    old = load_old(patch, now, was, pipeline.workspace.series)
    left = Remainder(files=change.files)
    if was is not None:
        left = split_change(ground.selected.patch, was, change.files, keep=True)
        try:
            return _try(old, ground, change, left, files, pipeline)
        except PatchkitError:
            if not left.kept:
                raise
        left = split_change(ground.selected.patch, was, change.files, keep=False)
    return _try(old, ground, change, left, files, pipeline)


def _try(
    old: OldPatch,
    ground: Ground,
    change: Changeset,
    left: Remainder,
    files: UpstreamFiles,
    pipeline: Pipeline,
) -> tuple[Revision, dict[str, str], tuple[str, ...]]:
    lifted = pipeline.lift(replace(change, files=left.files), is_guarded=False)
    revision = revise(old, change.files, lifted, left)
    with pipeline.open_stage() as stage:
        stage.put(revision)
        series = followed_series(load_series(stage.series.patches), ground.pin)
        patch = series.require(old.patch.id).for_build(ground.pin.build)
        placed = stage.place(replace(ground.selected, patch=patch), files)
    require_same(placed.changes, expected_files(change.files), f"the new version of '{old.patch.id}'")
    require_files(placed, change.files)
    known = {edit.id: edit for edit in placed.edits}
    new = (name for name in (*revision.changed, *revision.added) if name in known)
    places = {name: str(known[name].locations[0]) for name in new}
    return revision, places, placed.warnings

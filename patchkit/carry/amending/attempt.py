"""Make the new content of a patch, and try it on a copy of the series."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from patchkit.base.errors import PatchkitError
from patchkit.base.upstreams import build_name
from patchkit.carry.amending.revise import (
    OldPatch,
    Revision,
    load_old,
    match_tables,
    name_edits,
    revise,
)
from patchkit.carry.amending.site import BaseTree
from patchkit.carry.candidate.renames import followed_series
from patchkit.carry.importing.update import offering_profiles
from patchkit.carry.lifting.change import Changeset
from patchkit.carry.lifting.kept import Remainder, split_change
from patchkit.carry.lifting.lift import Lifted
from patchkit.carry.lifting.numbers import lift_again
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.lifting.trial import Drafted, Stage, require_same
from patchkit.carry.lifting.whole import expected_files, require_files
from patchkit.carry.lifting.write import NewPatch
from patchkit.carry.placing.place import PlacedPatch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.body import named_templates
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.patch import Patch


def make_revision(
    patch: Patch, base_tree: BaseTree, change: Changeset, pipeline: Pipeline
) -> tuple[Revision, dict[str, str], tuple[str, ...]]:
    """The new content of a patch, with as many of its edits as possible, tried on a copy of the series.

    Also the places of its new edits, and warnings.
    """
    paths = [path for each in change.files for path in (each.path, each.source) if path is not None]
    files = base_tree.files(paths)
    with pipeline.open_stage() as stage:
        try:
            was = stage.place(base_tree.selected, files)
        except PatchkitError:  # a patch before it was replaced: none of its edits is kept
            was = None
    old = load_old(patch, was, base_tree.pin.build, base_tree.selected.patch, pipeline.workspace.series)
    if not patch.is_plain:
        return _try_guarded(old, base_tree, change, files, pipeline)
    left = Remainder(files=change.files)
    if was is not None:
        edits, texts = base_tree.selected.patch.edits, {edit.id: edit.text for edit in was.edits}
        left = split_change(edits, texts, change.files, keep=True)
        try:
            return _try_places(old, base_tree, change, left, files, pipeline)
        except PatchkitError:
            if not left.kept:
                raise
        left = split_change(edits, texts, change.files, keep=False)
    return _try_places(old, base_tree, change, left, files, pipeline)


def _try_places(
    old: OldPatch,
    base_tree: BaseTree,
    change: Changeset,
    left: Remainder,
    files: UpstreamFiles,
    pipeline: Pipeline,
) -> tuple[Revision, dict[str, str], tuple[str, ...]]:
    """Try new edits at the places that patch.toml has, if those that they replace moved; else at new ones."""
    if old.moved:
        with suppress(PatchkitError):
            return _try(old, base_tree, change, left, files, pipeline, old_places=True)
    return _try(old, base_tree, change, left, files, pipeline)


def _try(
    old: OldPatch,
    base_tree: BaseTree,
    change: Changeset,
    left: Remainder,
    files: UpstreamFiles,
    pipeline: Pipeline,
    *,
    old_places: bool = False,
) -> tuple[Revision, dict[str, str], tuple[str, ...]]:
    lifted = pipeline.lift(replace(change, files=left.files), is_guarded=False)
    revision = revise(old, change.files, lifted, left, old_places=old_places)
    with pipeline.open_stage() as stage:
        placed = stage.place(replace(base_tree.selected, patch=_put(revision, old, base_tree, stage)), files)
    require_same(placed.changes, expected_files(change.files), f"the new version of '{old.patch.id}'")
    require_files(placed, change.files)
    return revision, _places(revision, placed), (*_of_earlier_builds(revision, old), *placed.warnings)


def _try_guarded(
    old: OldPatch, base_tree: BaseTree, change: Changeset, files: UpstreamFiles, pipeline: Pipeline
) -> tuple[Revision, dict[str, str], tuple[str, ...]]:
    """The same for a patch with a guard, whose new edits are compared with its old ones as tables."""
    profiles = offering_profiles(old.patch, pipeline.workspace)
    lifted = pipeline.lift(change, is_guarded=True)
    templates = named_templates(old.raw, pipeline.workspace.series.patches / old.patch.folder)
    texts = [*(each.text or "" for each in old.now.edits), *templates.values()]
    body, notes = lift_again(lifted.body, texts, profiles)
    lifted = replace(lifted, body=body)
    kept = match_tables(old, lifted)
    new = [number for number in range(len(lifted.texts)) if number not in kept.values()]
    rest = Lifted(
        texts=tuple(lifted.texts[number] for number in new),
        body=replace(body, edits=tuple(body.edits[number] for number in new)),
    )
    left = Remainder(files=change.files, kept=frozenset(kept))
    revision = revise(old, change.files, rest, left)
    named = zip(name_edits(old, rest, left), rest.texts, strict=True)
    by_id = {name: lifted.texts[number] for name, number in kept.items()}
    by_id |= {edit.id: text for edit, text in named}
    archs = tuple(each.arch for each in profiles)
    with pipeline.open_stage() as stage:
        patch = _put(revision, old, base_tree, stage)
        drafted = Drafted(
            patch=NewPatch(
                id=patch.id,
                title=patch.title,
                first_build=patch.builds.first,
                builds_why=patch.builds.why,
                archs=archs,
                body=body,
            ),
            texts=tuple(by_id[edit.id] for edit in patch.edits),
            change=change,
        )
        placed = stage.try_on(files, patch, drafted).placed
    return revision, _places(revision, placed), (*notes, *placed.warnings)


def _put(revision: Revision, old: OldPatch, base_tree: BaseTree, stage: Stage) -> Patch:
    """The new patch, written into a copy of the series, as it is at the build of the change."""
    stage.put(revision)
    series = followed_series(load_series(stage.series.patches), base_tree.pin)
    return series.require(old.patch.id).for_build(base_tree.pin.build)


def _of_earlier_builds(revision: Revision, old: OldPatch) -> tuple[str, ...]:
    """A warning if edits keep their old version for earlier builds."""
    if not revision.ended:
        return ()
    edits = ", ".join(revision.ended)
    text = (
        f"before {build_name(old.build)}, {old.patch.id} keeps the old version of {edits}, because it has "
        "another place there; give it the new version with import --replace --upstream and one of those"
    )
    return (text,)


def _places(revision: Revision, placed: PlacedPatch) -> dict[str, str]:
    known = {edit.id: edit for edit in placed.edits}
    new = (name for name in (*revision.changed, *revision.added) if name in known)
    return {name: str(known[name].locations[0]) for name in new}

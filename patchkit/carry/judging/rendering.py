"""Place the patches of a series on one upstream, and keep the errors of those that cannot be placed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import PatchkitError, members_of
from patchkit.base.series_folder import SeriesDir
from patchkit.carry.placing.place import IsKnown, PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.lock import Followed, FollowedEdit, digest_of_place
from patchkit.carry.series.patch import Edit, Patch
from patchkit.carry.series.selection import Selected


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A patch placed on one upstream; if ``placed`` is None, ``errors`` say why it could not be placed.

    ``before``: the files named by the patch, as far as they exist. A renamed file is in it under both names,
    with the content that it has under the old one. ``upstream``: the tree without patches.
    """

    selected: Selected
    upstream: UpstreamFiles
    before: Mapping[str, bytes]
    placed: PlacedPatch | None
    errors: tuple[PatchkitError, ...] = ()

    @property
    def patch(self) -> Patch:
        """The patch as it was placed."""
        return self.selected.patch

    @property
    def skipped(self) -> tuple[Edit, ...]:
        """The optional edits that could not be placed."""
        placed = {edit.id for edit in self.placed.edits} if self.placed is not None else set()
        return tuple(edit for edit in self.patch.edits if edit.optional and edit.id not in placed)

    @property
    def changes(self) -> Mapping[str, bytes]:
        """The new content of the files that it changes or adds; none if it could not be placed."""
        return self.placed.changes if self.placed is not None else {}

    def write(self, files: UpstreamFiles) -> None:
        """Write the result of the patch to ``files``, if it could be placed."""
        if self.placed is not None:
            files.write(self.placed.changes, self.placed.gone, self.placed.modes)


def files_before(patch: Patch, files: UpstreamFiles) -> dict[str, bytes]:
    """The files that a patch names, as far as they exist; as in :class:`Rendering`."""
    named = dict.fromkeys([*(edit.file for edit in patch.edits), *sorted(patch.found_files)])
    found = {path: files.read(path) for path in named}
    found |= {file.to: files.read(file.source) for file in patch.renames}
    return {path: data for path, data in found.items() if data is not None}


def only_in(patch: Patch, other: Patch) -> tuple[Edit, ...]:
    """The edits of a patch on one build that it does not have on another build."""
    known = {(edit.id, edit.first_build) for edit in other.edits}
    return tuple(edit for edit in patch.edits if (edit.id, edit.first_build) not in known)


def decided_files(old: Patch, new: Patch) -> frozenset[str]:
    """Files of which a patch has other edits on a new build than on an old one, as its author decided."""
    return frozenset(edit.file for edit in (*only_in(old, new), *only_in(new, old)))


def render_patch(
    selected: Selected, files: UpstreamFiles, series: SeriesDir, is_known: IsKnown | None = None
) -> Rendering:
    """Place one patch on the current state of ``files``, without changing them.

    ``is_known`` as for :func:`patchkit.carry.placing.place.place_patch`.
    """
    before = files_before(selected.patch, files)
    upstream = files.fresh()
    try:
        placed = place_patch(selected, files, series.patches, series.templates, is_known=is_known)
    except PatchkitError as exc:
        errors = tuple(members_of(exc))
        return Rendering(selected=selected, upstream=upstream, before=before, placed=None, errors=errors)
    return Rendering(selected=selected, upstream=upstream, before=before, placed=placed)


def last_renderings(
    chosen: Sequence[Selected], files: UpstreamFiles, series: SeriesDir
) -> dict[str, Rendering]:
    """Place each patch that has targets, in order, and write it to ``files``; the placed ones by id."""
    done: dict[str, Rendering] = {}
    for selected in chosen:
        rendering = render_patch(selected, files, series) if selected.targets else None
        if rendering is not None and rendering.placed is not None:
            rendering.write(files)
            done[rendering.patch.id] = rendering
    return done


def followed_by(series: Series, renderings: Iterable[Rendering]) -> tuple[Followed | FollowedEdit, ...]:
    """The followed functions and edits that a pin must record to reproduce these renderings.

    ``series``: as written in patch.toml.
    """
    named = {(patch.id, edit.id, edit.first_build): edit for patch in series.patches for edit in patch.edits}
    found: dict[tuple[str, str, int], Followed | FollowedEdit] = {}
    for rendering in renderings:
        for now in rendering.patch.edits:
            was = named[rendering.patch.id, now.id, now.first_build]
            for each in _followed(rendering, was, now):
                found[each.key] = each
    return tuple(found[key] for key in sorted(found))


def _followed(rendering: Rendering, was: Edit, now: Edit) -> Iterator[Followed | FollowedEdit]:
    if (was.at, was.parameters) != (now.at, now.parameters) and now.at is not None:
        yield FollowedEdit(
            patch=rendering.patch.id,
            edit=was.id,
            first_build=was.first_build or 0,
            at=now.at,
            digest=digest_of_place(was),
            parameters=now.parameters if now.parameters != was.parameters else None,
        )
    # Code outside functions follows a renamed file only: where the file remains, it may remain there.
    is_whole = was.function is None and was.file in rendering.upstream.names
    if not is_whole and (was.file, was.function) != (now.file, now.function):
        yield Followed(file=was.file, function=was.function, now_file=now.file, now_function=now.function)

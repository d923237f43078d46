"""The patches of a series placed on one upstream, each one that cannot be placed with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import ErrorGroup, PatchkitError
from patchkit.base.series_folder import SeriesDir
from patchkit.carry.placing.place import PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.lock import Followed
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.selection import Selected


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """``before`` has the files that exist of those the patch names; ``placed`` None: ``errors`` say why.

    A file that is renamed is in ``before`` by both names, with what it has under the old one.
    ``upstream`` is what it was rendered on, without any patch.
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


def render_patch(selected: Selected, files: UpstreamFiles, series: SeriesDir) -> Rendering:
    """Place one patch on the current state of ``files`` and leave that as it is."""
    patch = selected.patch
    named = dict.fromkeys([*(edit.file for edit in patch.edits), *sorted(patch.found_files)])
    found = {path: files.read(path) for path in named}
    found |= {file.to: files.read(file.source) for file in patch.renames}
    before = {path: data for path, data in found.items() if data is not None}
    upstream = files.fresh()
    try:
        placed = place_patch(selected, files, series.patches, series.templates)
    except PatchkitError as exc:
        errors = exc.errors if isinstance(exc, ErrorGroup) else (exc,)
        return Rendering(selected=selected, upstream=upstream, before=before, placed=None, errors=errors)
    return Rendering(selected=selected, upstream=upstream, before=before, placed=placed)


def last_renderings(
    chosen: Sequence[Selected], files: UpstreamFiles, series: SeriesDir
) -> dict[str, Rendering]:
    """Each patch that has targets and can be placed, in order, by id; ``files`` has them all afterwards."""
    done: dict[str, Rendering] = {}
    for selected in chosen:
        rendering = render_patch(selected, files, series) if selected.targets else None
        if rendering is not None and rendering.placed is not None:
            files.write(rendering.placed.changes, rendering.placed.gone, rendering.placed.modes)
            done[rendering.patch.id] = rendering
    return done


def followed_by(series: Series, renderings: Iterable[Rendering]) -> tuple[Followed, ...]:
    """What a pin has to say for these renderings to come again; ``series`` is as patch.toml has it."""
    named = {(patch.id, edit.id, edit.first_build): edit for patch in series.patches for edit in patch.edits}
    found: set[Followed] = set()
    for rendering in renderings:
        for now in rendering.patch.edits:
            was = named[rendering.patch.id, now.id, now.first_build]
            if was.function is None or now.function is None:
                continue
            if (was.file, was.function) != (now.file, now.function):
                found.add(
                    Followed(
                        file=was.file, function=was.function, now_file=now.file, now_function=now.function
                    )
                )
    return tuple(sorted(found))

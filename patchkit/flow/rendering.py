"""A series on one upstream, patch by patch, with what each found and left: input of the classes.

Vocabulary: a *rendering* is one patch on one upstream: the files it edits as it found them, and what
became of them, or the errors that kept it from being placed. A patch that fails leaves the files to
the next one as they were, so that every patch is looked at in one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from patchkit.config.manifest import Patch
from patchkit.errors import ErrorGroup, PatchkitError
from patchkit.flow.place import PlacedPatch, place_patch
from patchkit.flow.selection import Selected
from patchkit.flow.upstream import UpstreamFiles
from patchkit.series_dir import SeriesDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """``before`` has the edited files that exist; ``placed`` is None when ``errors`` say why.

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
    found = {edit.file: files.read(edit.file) for edit in selected.patch.edits}
    before = {path: data for path, data in found.items() if data is not None}
    upstream = files.fresh()
    try:
        placed = place_patch(selected, files, series.patches, series.templates)
    except PatchkitError as exc:
        errors = exc.errors if isinstance(exc, ErrorGroup) else (exc,)
        return Rendering(selected=selected, upstream=upstream, before=before, placed=None, errors=errors)
    return Rendering(selected=selected, upstream=upstream, before=before, placed=placed)


def render_series(
    chosen: Sequence[Selected], files: UpstreamFiles, series: SeriesDir
) -> tuple[Rendering, ...]:
    """Place every patch that has targets, in order; ``files`` has all of them afterwards."""
    done: list[Rendering] = []
    for selected in chosen:
        if not selected.targets:
            continue
        rendering = render_patch(selected, files, series)
        if rendering.placed is not None:
            files.write(rendering.placed.changes)
        done.append(rendering)
    return tuple(done)


def with_patch(rendering: Rendering, patch: Patch) -> Selected:
    """The same selection of another version of the patch."""
    return replace(rendering.selected, patch=patch)

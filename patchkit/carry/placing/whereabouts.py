"""Where upstream has the lines of an edit without a place: those it looks for, and those it adds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.text import counted
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import Edit, Patch
from patchkit.carry.series.selector import Selector

_CODES = frozenset({"ANCHOR_NOT_FOUND", "ENTITY_NOT_FOUND", "UPSTREAM_FILE_MISSING"})
_SAYING = 3  # words from which a line tells something
_LONGEST = 400  # characters of a line that is looked for
_MOST = 5  # places that are named; a line that is in more of them tells nothing
_MOST_ADDED = 6  # lines of one edit that are looked for
_NEAR = 40  # lines of a file in which those that belong together are

Places = Sequence[tuple[str, int]]


def add_whereabouts(
    errors: Sequence[PatchkitError],
    patch: Patch,
    files: UpstreamFiles,
    texts: Mapping[str, str] | None = None,
    before: Mapping[str, bytes] | None = None,
) -> tuple[Location, ...]:
    """Add to the errors of edits without a place where upstream has their lines now.

    Args:
        errors: of placing the patch; those of no such edit stay as they are.
        patch: as it was to be placed.
        files: the upstream that it was to be placed on.
        texts: what its edits wrote on an older upstream, by id; None: not known.
        before: the files of that upstream, without the patch.

    Returns:
        Where upstream has lines that the edits add and that it did not have before.
    """
    edits = {edit.where: edit for edit in patch.edits}
    lost = [
        (error, edits[error.where[0]])
        for error in errors
        if error.code in _CODES and error.where and error.where[0] in edits
    ]
    wanted = {edit.id: _telling(_rows_of(edit.at))[:1] for _, edit in lost if edit.at is not None}
    added: dict[str, list[str]] = {}
    for _, edit in lost:
        old = (before or {}).get(edit.file, b"").decode("utf-8", "replace")
        known = {row.strip() for row in old.split("\n")}
        rows = (texts or {}).get(edit.id, "").split("\n")
        added[edit.id] = [row for row in _telling(rows) if row not in known][:_MOST_ADDED]
    every = dict.fromkeys(row for some in (*wanted.values(), *added.values()) for row in some)
    found = files.search(tuple(every))
    taken: list[Location] = []
    for error, edit in lost:
        for row in wanted.get(edit.id, ()):
            _tell_moved(error, edit, row, found[row])
        taken += _tell_taken(error, added[edit.id], found)
    return tuple(dict.fromkeys(taken))


def _tell_moved(error: PatchkitError, edit: Edit, row: str, places: Places) -> None:
    """Name the places of the line that an edit looks for."""
    if not places:
        error.hint = f"no file of upstream has '{row}' any more; {error.hint}"
    if not 0 < len(places) <= _MOST:
        return
    known = {(place.path, place.line) for place in error.where}
    more = [Location(path=path, line=line, label=f"has '{row}'") for path, line in places]
    error.where = (*error.where, *(place for place in more if (place.path, place.line) not in known))
    others = dict.fromkeys(path for path, _ in places)
    if edit.file not in others:
        error.hint = (
            f"its line is in {' and '.join(others)} now: end this edit with last_build, and write one for "
            "that file with first_build (docs/reference/patches.md)"
        )


def _tell_taken(error: PatchkitError, rows: Sequence[str], found: Mapping[str, Places]) -> Iterator[Location]:
    """Name the place that has lines that an edit adds: half of them, near to one another."""
    hits = sorted({(*place, row) for row in rows if len(found[row]) <= _MOST for place in found[row]})
    best: list[tuple[str, int, str]] = []
    for path, line, _ in hits:
        near = [hit for hit in hits if hit[0] == path and line <= hit[1] < line + _NEAR]
        if len({row for *_, row in near}) > len({row for *_, row in best}):
            best = near
    count = len({row for *_, row in best})
    if not count or 2 * count < len(rows):
        return
    path, line, row = best[0]
    place = Location(path=path, line=line, label=f"has '{row}', which the edit adds")
    error.where = (*error.where, place)
    lines = counted(len(rows), "line")
    told = f"upstream has {count} of {lines} that the edit adds: it may have the change already"
    error.why = f"{error.why}\n{told}" if error.why else told
    yield place


def _rows_of(selector: Selector) -> Iterator[str]:
    """The lines, or pieces of code, that a selector looks for; those around it come last."""
    for inner in (selector.before, selector.after, *(selector.between or ()), *(selector.first_of or ())):
        if inner is not None:
            yield from _rows_of(inner)
    words = (selector.tokens, selector.statement, selector.call, selector.call_arg, selector.condition)
    for text in (*words, selector.table_row, selector.group, selector.lines):
        yield from (piece for row in (text or "").split("\n") for piece in row.split("..."))
    for text in (selector.above, selector.below):
        yield from (text or "").split("\n")


def _telling(rows: Iterable[str]) -> list[str]:
    """The rows that say something, each once; not those that no person wrote."""
    bare = dict.fromkeys(row.strip() for row in rows)
    return [row for row in bare if len(re.findall(r"\w+", row)) >= _SAYING and len(row) <= _LONGEST]

"""For edits that could not be placed: where upstream has the lines that they look for or add."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.text import counted
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import Edit, Patch
from patchkit.carry.series.selector import Selector

_CODES = frozenset({"ANCHOR_NOT_FOUND", "ENTITY_NOT_FOUND", "UPSTREAM_FILE_MISSING"})
_MIN_WORDS = 3  # a line with fewer words is too common to search for
_LONGEST = 400  # characters; longer lines are not searched for
_MOST = 5  # places; a line found in more of them is ignored
_MOST_ADDED = 6  # added lines of one edit that are searched for: the longest, which are the least common
_TRIVIAL = re.compile(r"//|/\*|\*|[\w\s:*&<>,]*;")  # comments, and declarations without a value
_NEAR = 40  # lines of a file within which matches are counted together

Places = Sequence[tuple[str, int]]


def add_moved_lines(
    errors: Sequence[PatchkitError],
    patch: Patch,
    files: UpstreamFiles,
    texts: Mapping[str, str] | None = None,
    before: Mapping[str, bytes] | None = None,
) -> tuple[Location, ...]:
    """Add to the errors of edits that could not be placed where upstream has their lines now.

    Args:
        errors: from placing the patch; errors of other kinds are left unchanged.
        patch: the patch that was to be placed.
        files: the upstream that it was to be placed on.
        texts: what its edits wrote on an older upstream, by edit id; None: not known.
        before: the files of that older upstream, without the patch.

    Returns:
        Where this upstream has lines that the edits add and that the older one did not have.
    """
    edits = {edit.where: edit for edit in patch.edits}
    lost = [
        (error, edits[error.where[0]])
        for error in errors
        if error.code in _CODES and error.where and error.where[0] in edits
    ]
    wanted = {edit.id: _distinctive(_rows_of(edit.at))[:1] for _, edit in lost if edit.at is not None}
    added: dict[str, list[str]] = {}
    for _, edit in lost:
        old = (before or {}).get(edit.file, b"").decode("utf-8", "replace")
        known = {row.strip() for row in old.split("\n")}
        rows = (texts or {}).get(edit.id, "").split("\n")
        new = (row for row in _distinctive(rows) if row not in known and not _TRIVIAL.match(row))
        added[edit.id] = sorted(new, key=len, reverse=True)[:_MOST_ADDED]
    every = dict.fromkeys(row for some in (*wanted.values(), *added.values()) for row in some)
    found = files.search(tuple(every))
    taken: list[Location] = []
    for error, edit in lost:
        for row in wanted.get(edit.id, ()):
            _add_moved(error, edit, row, found[row])
        taken += _add_taken(error, added[edit.id], found)
    return tuple(dict.fromkeys(taken))


def _add_moved(error: PatchkitError, edit: Edit, row: str, places: Places) -> None:
    """Add the places of the line that an edit looks for."""
    if not places:
        text = f"upstream no longer has '{row}'"
        error.why = text if error.code == "ANCHOR_NOT_FOUND" or not error.why else f"{error.why}\n{text}"
    if not 0 < len(places) <= _MOST:
        return
    known = {(place.path, place.line) for place in error.where}
    is_around = edit.at is not None and row not in _distinctive(_rows_of(edit.at, around=False))
    label = f"contains '{row}'{', which is next to the place' if is_around else ''}"
    more = [Location(path=path, line=line, label=label) for path, line in places]
    error.where = (*error.where, *(place for place in more if (place.path, place.line) not in known))
    others = dict.fromkeys(path for path, _ in places)
    if edit.file not in others:
        error.hint = (
            f"its line is now in {' and '.join(others)}: end this edit with last_build, and add one for that "
            "file with first_build (docs/reference/patches.md)"
        )


def _add_taken(error: PatchkitError, rows: Sequence[str], found: Mapping[str, Places]) -> Iterator[Location]:
    """Add the place where upstream has at least half of the lines that an edit adds, near each other."""
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
    place = Location(path=path, line=line, label=f"contains '{row}', which the edit adds")
    error.where = (*error.where, place)
    lines = counted(len(rows), "line") if len(rows) < _MOST_ADDED else f"the {len(rows)} longest lines"
    text = f"upstream has {count} of {lines} that the edit adds, so it may already have the change"
    error.why = f"{error.why}\n{text}" if error.why else text
    yield place


def _rows_of(selector: Selector, *, around: bool = True) -> Iterator[str]:
    """The lines or pieces of code that a selector looks for; its ``above`` and ``below`` come last."""
    for inner in (selector.before, selector.after, *(selector.between or ()), *(selector.first_of or ())):
        if inner is not None:
            yield from _rows_of(inner, around=around)
    words = (selector.tokens, selector.statement, selector.call, selector.call_arg, selector.condition)
    for text in (*words, selector.table_row, selector.group, selector.lines):
        yield from (piece for row in (text or "").split("\n") for piece in row.split("..."))
    for text in (selector.above, selector.below) if around else ():
        yield from (text or "").split("\n")


def _distinctive(rows: Iterable[str]) -> list[str]:
    """The rows worth searching for, each once; overlong ones, probably generated, are excluded."""
    bare = dict.fromkeys(row.strip() for row in rows)
    return [row for row in bare if len(re.findall(r"\w+", row)) >= _MIN_WORDS and len(row) <= _LONGEST]

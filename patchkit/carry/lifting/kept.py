"""Find the edits of a plain patch that still do their part of a new version, and what is left to lift.

The edits are placed, and their result is compared with the new version by lines. An edit whose lines are
untouched is kept, and its part of the new version is taken back. What is left is lifted into new edits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchkit.base.errors import PatchkitError
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.judging.line_diff import compare_lines
from patchkit.carry.lifting.change import FileChange
from patchkit.carry.lifting.whole import edited_texts
from patchkit.carry.placing.expand import Placement, apply_placements
from patchkit.carry.placing.plain import expand_plain
from patchkit.carry.placing.resolve import resolve_anchor
from patchkit.carry.series.patch import Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """What the kept edits do not do. ``files``: the change without their part. ``kept``: their ids.

    ``spans``: by id of an edit that is not kept, its places in the file before the patch, if it has any.
    """

    files: tuple[FileChange, ...]
    kept: frozenset[str] = frozenset()
    spans: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)


def split_change(
    edits: Sequence[Edit], texts: Mapping[str, str], files: Sequence[FileChange], *, keep: bool
) -> Remainder:
    """Find the edits of a plain patch that a new version keeps; none if ``keep`` is not set.

    ``edits``: those of one build. ``texts``: their rendered texts, by id. An edit that cannot be placed on
    the files before the change is not kept. Raises EDIT_CONFLICT if two edits overlap there.
    """
    edited = {each.path: each for each in edited_texts(files)}
    kept: set[str] = set()
    spans: dict[str, tuple[Span, ...]] = {}
    left: list[FileChange] = []
    for file in files:
        one = edited.get(file.source or file.path)
        if one is None:
            left.append(file)
            continue
        mine = [edit for edit in edits if edit.file == one.path]
        source = SourceText(one.path, one.before)
        wanted, same, places = _split_file(source, mine, texts, one.after, keep=keep)
        kept |= same
        spans |= places
        left.append(replace(file, after=wanted))
    return Remainder(files=tuple(left), kept=frozenset(kept), spans=spans)


def _split_file(
    source: SourceText, edits: Sequence[Edit], texts: Mapping[str, str], wanted: bytes, *, keep: bool
) -> tuple[bytes, set[str], dict[str, tuple[Span, ...]]]:
    """``wanted`` without the part of the kept edits, their ids, and the places of the others."""
    placements: list[Placement] = []
    touched = set() if keep else {edit.id for edit in edits}
    for edit in edits:
        try:
            anchor = resolve_anchor(parse_scopes(source), edit)
            placements += expand_plain(source, anchor, None if edit.verb == "remove" else texts[edit.id])
        except PatchkitError:
            touched.add(edit.id)
    applied = apply_placements(source, placements)
    new = SourceText(source.path, wanted)
    blocks = compare_lines(applied.after.rows, new.rows)
    for placement, span in zip(applied.placements, applied.spans, strict=True):
        first, last = _lines(applied.after, span)
        if any(block.old <= last + 1 and block.old_end >= first for block in blocks):
            touched.add(placement.edit)
    pieces, at = [], 0
    for placement, span in zip(applied.placements, applied.spans, strict=True):
        if placement.edit in touched:
            continue
        row = applied.after.line_of(span.start) - 1
        moved = sum(
            (block.new_end - block.new) - (block.old_end - block.old)
            for block in blocks
            if block.old_end <= row
        )
        column = span.start - applied.after.line_span(row + 1).start
        start = new.line_span(row + moved + 1).start + column
        pieces += [wanted[at:start], source.text(placement.span)]
        at = start + len(span)
    rest = b"".join([*pieces, wanted[at:]])
    kept = {edit.id for edit in edits} - touched
    places: dict[str, tuple[Span, ...]] = {}
    for placement in placements:
        if placement.edit in touched:
            places[placement.edit] = (*places.get(placement.edit, ()), placement.span)
    return rest, kept, places


def _lines(source: SourceText, span: Span) -> tuple[int, int]:
    """The first and last row that a span covers, from 0; for an empty span the last is before the first."""
    first = source.line_of(span.start) - 1
    if not len(span):
        return first, first - 1 if span.start == source.line_span(first + 1).start else first
    return first, source.line_of(span.end - 1) - 1

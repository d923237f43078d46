"""Find runs of whole lines in a file, with their difference in indentation."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from patchkit.base.source import SourceText, Span
from patchkit.carry.series.selector import Selector

Rows = tuple[bytes, ...]

_MOST_COMPARED, _MOST_SIMILAR = 50_000, 3_000  # pairs, and single lines, that are compared for a message
_SIMILAR = 0.6  # ratio from which on a line is shown as similar

ENOUGH_WORDS, ENOUGH_WORDS_IN_FUNCTION = 5, 3
"""Minimum words of lines that identify a place: in the whole file, and in a named function.

With these, none of the changes cut from upstream's history (tests/upstream/test_round_trip.py) went to a
wrong place.
"""


@dataclass(frozen=True, slots=True)
class Shift:
    """The indentation that the code has in addition to an edit's lines (``more``), or lacks (``less``)."""

    more: bytes = b""
    less: bytes = b""

    def apply(self, text: bytes) -> bytes:
        """The text with the indentation of the code around it; preprocessor lines are not indented."""
        return b"\n".join(map(self._row, text.split(b"\n"))) if self.more or self.less else text

    def _row(self, row: bytes) -> bytes:
        if not row.strip() or row.startswith(b"#"):
            return row
        return self.more + row.removeprefix(self.less)


def rows_of(text: str | None) -> Rows:
    """The lines of a selector's text; a final line break does not start another line."""
    return tuple(text.removesuffix("\n").encode().split(b"\n")) if text else ()


def selector_text(rows: Sequence[bytes]) -> str:
    """Lines as written in a selector; a single one has no line break. Raises UnicodeDecodeError."""
    text = b"\n".join(row.removesuffix(b"\r") for row in rows).decode("utf-8")
    return text if len(rows) == 1 and text.strip() else text + "\n"


def lines_selector(
    lines: Sequence[bytes],
    around: tuple[Sequence[bytes], Sequence[bytes]],
    inside: Selector | None,
    exact: bool | None,  # noqa: FBT001 - as in the selector
) -> Selector:
    """The selector of some lines between those above and below them. Raises UnicodeDecodeError."""
    above, below = (selector_text(rows) if rows else None for rows in around)
    return Selector(lines=selector_text(lines), above=above, below=below, inside=inside, exact=exact)


def sides(most: tuple[int, int], least: tuple[int, int] = (0, 0)) -> list[tuple[int, int]]:
    """Numbers of lines above and below, smallest sum first, the most balanced first."""
    pairs = [
        (above, below)
        for above in range(min(least[0], most[0]), most[0] + 1)
        for below in range(min(least[1], most[1]), most[1] + 1)
    ]
    return sorted(pairs, key=lambda pair: (sum(pair), abs(pair[0] - pair[1])))


def is_blank_edged(above: Sequence[bytes], below: Sequence[bytes]) -> bool:
    """Whether an empty line is at the far end of the lines around a place: it identifies nothing."""
    far = [rows[at] for rows, at in ((above, 0), (below, -1)) if len(rows) > 1]
    return not all(row.strip() for row in far)


def count_words(rows: Sequence[bytes]) -> int:
    """The number of names, keywords and numbers in some lines."""
    return sum(len(re.findall(rb"\w+", row)) for row in rows)


@dataclass(frozen=True, slots=True)
class WantedLines:
    """Lines to find: ``lines``, directly below ``above`` and directly above ``below``."""

    lines: Rows
    above: Rows = ()
    below: Rows = ()

    def find(self, source: SourceText, around: Span, *, any_indent: bool) -> list[Span]:
        """Every such run of lines that begins in ``around``, without its last line break.

        The match is byte for byte. With ``any_indent`` and no exact match, the run may be indented
        differently as a whole.
        """
        exact = list(self._find(source, around, any_indent=False))
        return exact if exact or not any_indent else list(self._find(source, around, any_indent=True))

    def nearest(self, source: SourceText, around: Span) -> tuple[int, bytes] | None:
        """The line, from 1, where the most similar run begins to differ, and the line that is wanted there.

        None if no line of a run is there and none is similar, or if the code is too long to compare.
        """
        wanted = [row.strip() for row in (*self.above, *self.lines, *self.below)]
        first, last = source.line_of(around.start) - 1, source.line_of(max(around.start, around.end - 1))
        rows = [row.strip() for row in source.rows[max(first - len(self.above), 0) : last + len(self.below)]]
        if not rows or len(rows) * len(wanted) > _MOST_COMPARED:
            return None
        offset = max(first - len(self.above), 0)
        best, at = 0, 0
        for begin in range(1 - len(wanted), len(rows)):
            pairs = zip(wanted[max(-begin, 0) :], rows[max(begin, 0) :], strict=False)
            score = sum(count_words([want]) for want, row in pairs if want == row)
            if score > best:
                best, at = score, begin
        if not best:
            key = max(self.lines, key=len).strip()
            compared = difflib.SequenceMatcher(b=_text(key), autojunk=False)
            found = 0.0
            for number, row in enumerate(rows[:_MOST_SIMILAR]):
                compared.set_seq1(_text(row))
                if compared.quick_ratio() > max(found, _SIMILAR) and (ratio := compared.ratio()) > found:
                    found, at = ratio, number
            return (offset + at + 1, key) if found > _SIMILAR else None
        for number, want in enumerate(wanted, at):
            if not 0 <= number < len(rows) or rows[number] != want:
                return max(min(offset + number + 1, len(source.rows)), 1), want
        return offset + at + len(self.above) + 1, wanted[len(self.above)]  # it differs in its indentation

    def _find(self, source: SourceText, around: Span, *, any_indent: bool) -> Iterator[Span]:
        rows = source.rows
        wanted = [_bare(row, any_indent=any_indent) for row in (*self.above, *self.lines, *self.below)]
        key = max(range(len(self.lines)), key=lambda at: len(self.lines[at].strip()))
        ahead = len(self.above)
        first, last = source.line_of(around.start) - 1, source.line_of(max(around.start, around.end - 1))
        for line in _lines_with(source, wanted[ahead + key].strip(), first, last):
            at = line - key
            if not first <= at <= last - len(self.lines):
                continue
            if _bare(rows[line], any_indent=any_indent) != wanted[ahead + key]:
                continue
            begin = at - ahead
            if begin < 0 or begin + len(wanted) > len(rows):
                continue
            if any(
                _bare(row, any_indent=any_indent) != want
                for row, want in zip(rows[begin : begin + len(wanted)], wanted, strict=True)
            ):
                continue
            found = rows[at : at + len(self.lines)]
            if any_indent and shift_between(self.lines, found) is None:
                continue
            start = source.line_span(at + 1).start
            yield Span(start, source.line_end(source.line_span(at + len(self.lines)).start))


def _lines_with(source: SourceText, text: bytes, first: int, last: int) -> Iterator[int]:
    """Numbers of the lines from ``first`` to ``last``, counted from 0, that contain a text (all if empty).

    An upstream table has 3 MB and an edit of it a thousand changes: testing every line for each took a
    minute.
    """
    if not text:
        yield from range(first, last)
        return
    position, end = source.line_span(first + 1).start, source.line_span(last).end if last else 0
    while (position := source.data.find(text, position, end)) >= 0:
        line = source.line_of(position)
        yield line - 1
        position = source.line_span(line).end


def shift_between(wanted: Sequence[bytes], found: Sequence[bytes]) -> Shift | None:
    """The common difference in indentation of all lines; None if it differs between them."""
    shifts = set()
    for want, row in zip(wanted, found, strict=True):
        if not want.strip():
            continue
        before, after = _indent(want), _indent(row)
        if after.endswith(before):
            shifts.add(Shift(more=after[: len(after) - len(before)]))
        elif before.endswith(after):
            shifts.add(Shift(less=before[: len(before) - len(after)]))
        else:
            return None
    if len(shifts) > 1:
        return None
    return next(iter(shifts), Shift())


def _text(row: bytes) -> str:
    return row.decode("utf-8", "replace")


def _bare(row: bytes, *, any_indent: bool) -> bytes:
    return row.strip() if any_indent else row.removesuffix(b"\r")


def _indent(row: bytes) -> bytes:
    return row[: len(row) - len(row.lstrip(b" \t"))]

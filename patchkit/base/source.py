"""Source text as bytes, with conversion of offsets to lines and columns."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass, field

from patchkit.base.errors import Location


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The byte range ``[start, end)`` of a source text."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a span: [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start

    def contains(self, other: Span) -> bool:
        """Whether ``other`` lies entirely inside this span."""
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class SourceText:
    """The bytes of one file, with an index of its lines.

    ``path`` is relative to the root of the source tree, with forward slashes.
    """

    path: str
    data: bytes
    # Filled when first needed: most texts are made only to look up what is known about equal ones.
    _offsets: list[int] = field(init=False, repr=False, compare=False, default_factory=list)
    _rows: list[bytes] = field(init=False, repr=False, compare=False, default_factory=list)

    @property
    def _starts(self) -> list[int]:
        """The offset of each line."""
        if not self._offsets:
            self._offsets.extend(itertools.accumulate((len(row) + 1 for row in self.rows[:-1]), initial=0))
        return self._offsets

    @property
    def newline(self) -> bytes:
        r"""The line ending of the first line: ``\r\n`` or ``\n``."""
        first = self.data.find(b"\n")
        return b"\r\n" if first > 0 and self.data[first - 1 : first] == b"\r" else b"\n"

    @property
    def rows(self) -> list[bytes]:
        r"""The lines without their ``\n``; the last one is empty if the text ends with a newline."""
        if not self._rows:
            self._rows.extend(self.data.split(b"\n"))
        return self._rows

    def line_of(self, offset: int) -> int:
        """The line number, from 1, of a byte offset."""
        return bisect.bisect_right(self._starts, offset)

    def lines_of(self, span: Span) -> range:
        """The lines that a span covers, as positions in ``rows``; at least one."""
        return range(self.line_of(span.start) - 1, self.line_of(max(span.start, span.end - 1)))

    def line_span(self, line: int) -> Span:
        """The span of a line, its newline included."""
        start = self._starts[line - 1]
        end = self._starts[line] if line < len(self._starts) else len(self.data)
        return Span(start, end)

    def line_end(self, offset: int) -> int:
        r"""Offset of the end of the line at ``offset``, before its ``\n`` or ``\r\n``."""
        span = self.line_span(self.line_of(offset))
        text = self.text(span)
        return max(offset, span.start + len(text.removesuffix(b"\n").removesuffix(b"\r")))

    def locate(self, offset: int, label: str | None = None) -> Location:
        """``path:line:column`` of a byte offset."""
        line = self.line_of(offset)
        column = offset - self._starts[line - 1] + 1
        return Location(path=self.path, line=line, column=column, label=label)

    def text(self, span: Span) -> bytes:
        """The bytes of a span."""
        return self.data[span.start : span.end]

"""Layout of results on stdout: prose folded to the terminal's width, aligned columns, colours.

In a pipe nothing is folded or coloured, so that a line can be searched and copied as a whole.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from patchkit.base.text import visible
from patchkit.cli.error_text import Paint, uncolored

# A text, or a text with its role: how `Paint` colours it.
Cell: TypeAlias = str | tuple[str, str]

_INDENT = 2
_NO_BREAK = "\N{NO-BREAK SPACE}"  # keeps a number and its percent sign on one line
_GAP = 2  # blanks between two columns
_LEAST = 24  # columns that the last cell of a row needs next to the others; else it goes below them


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The lines of one result. ``columns``: width of the terminal, 0 in a pipe."""

    columns: int = 0
    paint: Paint = uncolored
    lines: list[str] = field(default_factory=list)

    def blank(self) -> None:
        """Add an empty line, unless there is one already or nothing precedes it."""
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def heading(self, text: str) -> None:
        """Add a heading, after an empty line."""
        self.blank()
        self.lines.extend(self._painted(each, "heading") for each in self._folded(text, 0, 0))

    def prose(self, text: str, *, indent: int = 0, hang: int = 0, role: str | None = None) -> None:
        """Add a paragraph, folded at blanks; ``hang``: further indent of all lines but the first."""
        text = " ".join(text.split())
        self.lines.extend(self._painted(each, role) for each in self._folded(text, indent, indent + hang))

    def paragraphs(self, text: str, *, indent: int = 0) -> None:
        """Add a text whose paragraphs are separated by empty lines."""
        for at, paragraph in enumerate(each for each in text.split("\n\n") if each.strip()):
            if at:
                self.blank()
            self.prose(paragraph, indent=indent)

    def code(self, *lines: str) -> None:
        """Add commands or other lines to copy: indented, never folded."""
        self.lines.extend(" " * _INDENT + visible(line) for line in lines)

    def table(self, rows: Iterable[Sequence[Cell]], *, indent: int = _INDENT) -> None:
        """Add rows in aligned columns; the last cell of a row is folded below itself."""
        cells = [[_parts(cell) for cell in row] for row in rows]
        widths = [
            max(len(row[at][0]) for row in cells if len(row) > at + 1)
            for at in range(max(map(len, cells), default=1) - 1)
        ]
        for row in cells:
            self.lines.extend(self._row(row, widths, indent))

    def _row(
        self, row: Sequence[tuple[str, str | None]], widths: Sequence[int], indent: int
    ) -> Iterator[str]:
        head = " " * indent
        for (text, role), width in zip(row[:-1], widths, strict=False):
            head += self._painted(text, role) + " " * (width - len(text) + _GAP)
        start = indent + sum(width + _GAP for width in widths[: len(row) - 1])
        text, role = row[-1]
        if self.columns and len(row) > 1 and start - _GAP > self.columns:
            yield from self._folded(" ".join(cell for cell, _ in row), indent, indent + 4)
            return
        room = self.columns - start
        longest = max(map(len, text.split()), default=0)
        if self.columns and len(row) > 1 and (room < min(_LEAST, len(text)) or room < longest):
            yield head.rstrip()
            yield from (self._painted(each, role) for each in self._folded(text, indent + 4, indent + 4))
            return
        first, *more = self._folded(text, start, start)
        yield (head + self._painted(first[start:], role)).rstrip()
        yield from (self._painted(each, role) for each in more)

    def _folded(self, text: str, indent: int, hang: int) -> list[str]:
        text = visible(text)
        first = " " * indent + text
        if not self.columns or len(first) <= self.columns:
            return [first.rstrip()]
        lines = textwrap.wrap(
            text.replace(" %", f"{_NO_BREAK}%"),
            self.columns,
            initial_indent=" " * indent,
            subsequent_indent=" " * hang,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return [line.replace(_NO_BREAK, " ") for line in lines]

    def _painted(self, line: str, role: str | None) -> str:
        text = line.lstrip(" ")
        return line[: len(line) - len(text)] + self.paint(text, role) if role and text else line


def _parts(cell: Cell) -> tuple[str, str | None]:
    text, role = (cell, None) if isinstance(cell, str) else cell
    return visible(text), role

"""Which definition a line of a file is in, and whether the ``@@`` line of a hunk names another one.

After the second ``@@`` git writes a *heading*: the last line before the hunk that looks like the beginning of
a function, at most 80 bytes of it (GNU diff: 40). By default that is a line that begins with a letter, ``_``
or ``$``; git's language drivers have other rules, and a user may configure one. So a heading is compared with
the result of these rules at the place, and with the names and lines of the definitions around it, before it
counts as the name of something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import is_code, parse_scopes

HeadingFit = Literal["agrees", "between", "absent", "elsewhere"]
"""How a heading fits the place of a change.

``agrees``: it belongs to the place. ``between``: it does not, but the change is in no definition, or the
language is not supported. ``absent``: the change is in a definition, and the heading names something that the
file does not have. ``elsewhere``: it names something else that the file has.
"""

_MOST = 200  # bytes of a heading that are used; git writes 80
_CUT = 39  # bytes from which a heading may end in the middle of a word; GNU diff cuts at 40
_PLAIN = re.compile(rb"[A-Za-z_$]")  # git's default, GNU diff's, Subversion's and Mercurial's
_LABEL = re.compile(rb"[A-Za-z_]\w*\s*:(?!:)\s*(?:$|/[/*])")  # git's C++ driver skips these
_PYTHON = re.compile(rb"([ \t]*)(?:class|def|async[ \t]+def)[ \t]+(\w+)")
_RECORD = re.compile(
    rb"\b(?:struct|class|union|enum(?:\s+(?:class|struct))?|namespace|interface|impl|trait)\s+"
    rb"(?:\w+\s*\([^()]*\)\s*|\[\[.*?\]\]\s*)*([A-Za-z_]\w*(?:::\w+)*)"
)
_CALLED = re.compile(rb"([A-Za-z_~][\w~]*(?:::[\w~]+)*)\s*\(")
_MACRO = re.compile(rb"#\s*define\s+(\w+)")
_PROSE = (".md", ".rst")  # every line begins with a letter
_BRACES = (
    ".comp", ".css", ".glsl", ".go", ".java", ".js", ".kt", ".rs", ".svelte", ".swift", ".ts", ".wgsl",
)  # fmt: skip
"""Languages besides the C++ family in which a definition ends with a brace at the beginning of a line."""


@dataclass(frozen=True, slots=True)
class Block:
    """A definition: lines ``[first, stop)``, from 0; the lines before ``body`` are its head."""

    name: str
    first: int
    body: int
    stop: int
    is_macro: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """What a hunk changes: lines ``[first, stop)`` of the old file, and the removed and added ``texts``."""

    first: int
    stop: int
    texts: tuple[bytes, ...]


class Outline:
    """The definitions of one file, to check ``@@`` lines against."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.source = SourceText(path, data)
        self.rows = self.source.rows

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The definitions, in order of their first lines; none in a language that is not supported."""
        if self.path.endswith(".py"):
            return tuple(_python_blocks(self.rows))
        return tuple(sorted(_code_blocks(self.source), key=lambda each: (each.first, -each.stop)))

    def name_at(self, changed: Changed) -> str:
        """The innermost definition around a change, or else the first line of the table or block."""
        around = self._enclosing(changed)
        if around:
            return max(around, key=lambda each: each.first).name
        at = min(self._open_lines(changed.first, changed), default=None)
        return self.rows[at].strip().decode("utf-8", "replace") if at is not None else ""

    def judge(self, heading: bytes, start: int, changed: Changed) -> tuple[HeadingFit, int | None]:
        """Whether a hunk that begins at line ``start`` (from 0) fits its heading.

        With ``elsewhere`` also returns the line of what the heading names.
        """
        head = heading.strip()[:_MOST]
        near = set(self._headings(start))
        if not head or self.path.endswith(_PROSE) or any(_is_whole(head, self.rows[at]) for at in near):
            return "agrees", None
        name = named_by(head)
        enclosing = [each for each in self._enclosing(changed) if not each.is_macro or head.startswith(b"#")]
        own = {at for each in enclosing for at in range(each.first, max(start, changed.first))}
        for other in self.blocks:
            if other not in enclosing and not other.is_macro:
                own.difference_update(range(other.first, other.stop))
        is_inside = any(each.first < start for each in enclosing)
        if not enclosing:
            own = self._open_lines(start, changed)
            is_inside = bool(own)
        lines = [at for at, row in enumerate(self.rows) if _is_same(head, row)]
        lines = [at for at in lines if _is_whole(head, self.rows[at])] or lines
        # Several definitions may have the same name; if the file has the heading's exact line, that decides.
        by_name = name is not None and (not lines or name.encode() == head)
        if (own | near).intersection(lines) or (
            by_name and any(_answers(each.name, name) for each in enclosing)
        ):
            return "agrees", None
        named = [*lines, *(each.first for each in self.blocks if _answers(each.name, name))]
        is_inside &= is_code(self.path) or self.path.endswith((".py", *_BRACES))
        if named and (is_inside or min(named) >= start):
            return "elsewhere", named[0]
        return "absent" if is_inside and name is not None and not named else "between", None

    def _enclosing(self, changed: Changed) -> list[Block]:
        """The definitions that contain the whole change; text added before a definition is not in it."""
        adds = changed.first == changed.stop
        return [
            each
            for each in self.blocks
            if each.first + adds <= changed.first and changed.stop <= each.stop - adds
        ]

    def _headings(self, start: int) -> Iterator[int]:
        """The lines that git's drivers would use as the heading of a hunk that begins at ``start``."""
        for pattern in (_PLAIN, _PYTHON) if self.path.endswith(".py") else (_PLAIN,):
            at = self._last(start, pattern)
            if at is not None:
                yield at
        at = self._last(start, _PLAIN)
        while at is not None and _LABEL.match(self.rows[at]):
            at = self._last(at, _PLAIN)
        if at is not None:
            yield at

    def _last(self, before: int, pattern: re.Pattern[bytes]) -> int | None:
        return next((at for at in range(before - 1, -1, -1) if pattern.match(self.rows[at])), None)

    def _open_lines(self, start: int, changed: Changed) -> set[int]:
        """The lines of the table or block around, up to the hunk; none if the change is not indented."""
        at = self._last(start, _PLAIN)
        moved = any(text[:1] in (b" ", b"\t") for text in changed.texts if text.strip())
        if at is None or not moved or not self._is_open(at, changed.first):
            return set()
        return set(range(at, start))

    def _is_open(self, head: int, line: int) -> bool:
        """Whether the block that begins at the unindented line ``head`` has not ended before ``line``."""
        if self.rows[head].rstrip().endswith(b";"):
            return False
        rows = self.rows[head + 1 : line]
        if self.path.endswith(".py"):
            return not any(_ends(row, 0) for row in rows)
        return not any(row[:1] in (b"}", b"]", b")") and not row.rstrip().endswith(b"{") for row in rows)


def named_by(heading: bytes) -> str | None:
    """The name of the function, struct or macro that a heading defines; None if it has none.

    ``__launch_bounds__(...)`` and macros in capitals do not count as names of functions.
    """
    macro = _MACRO.match(heading)
    if macro is not None:
        return macro[1].decode()
    called = [
        found[1].decode("utf-8", "replace")
        for found in _CALLED.finditer(heading)
        if heading.count(b"(", 0, found.start()) == heading.count(b")", 0, found.start())
    ]
    plain = [name for name in called if not (name.startswith("__") or name.isupper())]
    record = _RECORD.search(heading)
    if record is not None and not plain:  # a function that returns a struct is not a struct
        return record[1].decode("utf-8", "replace")
    if plain:
        return plain[0]
    return heading.decode() if re.fullmatch(rb"[A-Za-z_]\w*(?:::\w+)*", heading) else None


def _answers(name: str, wanted: str | None) -> bool:
    return wanted is not None and (name == wanted or name.endswith(("::" + wanted, "." + wanted)))


def _is_whole(heading: bytes, row: bytes) -> bool:
    """Whether a heading is a whole line, or a line cut off at a tool's limit."""
    text = row.strip()
    return text == heading or (len(heading) >= _CUT and text.startswith(heading))


def _is_same(heading: bytes, row: bytes) -> bool:
    """Whether a heading is a line or its first words, as someone may have shortened it."""
    text = row.strip()
    cut = heading[-1:] + text[len(heading) : len(heading) + 1]
    return text.startswith(heading) and (len(heading) >= _CUT or re.fullmatch(rb"\w\w", cut) is None)


def _code_blocks(source: SourceText) -> Iterator[Block]:
    if not is_code(source.path):
        return
    for each in parse_scopes(source).definitions:
        lines = source.lines_of(each.span)
        body = source.line_of(each.body.start) - 1
        yield Block(each.name, lines.start, max(body, lines.start + 1), lines.stop, each.kind == "macro")


def _python_blocks(rows: Sequence[bytes]) -> Iterator[Block]:
    """Classes and functions of Python by indentation, with qualified names."""
    around: list[tuple[int, str]] = []
    for first, row in enumerate(rows):
        found = _PYTHON.match(row)
        if found is None:
            continue
        indent = len(found[1].expandtabs())
        around = [each for each in around if each[0] < indent]
        around.append((indent, found[2].decode("utf-8", "replace")))
        stop = next((at for at in range(first + 1, len(rows)) if _ends(rows[at], indent)), len(rows))
        while stop > first + 1 and not rows[stop - 1].strip():
            stop -= 1
        yield Block(".".join(name for _, name in around), first, first + 1, stop)


def _ends(row: bytes, indent: int) -> bool:
    """Whether a line of Python ends a block that was opened at this indentation."""
    text = row.lstrip(b" \t")
    if not text.strip() or text.startswith((b")", b"#", b"]", b"}")):
        return False
    return len(row[: len(row) - len(text)].expandtabs()) <= indent

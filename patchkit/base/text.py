"""Message texts: escaping of untrusted text, shortening, counts, and suggestions for misspelled words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, count

# C0 and C1 except tab and newline, and characters that are invisible or change the text direction.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
# Surrogate escapes: bytes of a file name that Python could not decode (PEP 383).
_BYTES = re.compile("[\udc80-\udcff]+")
# The line breaks of str.splitlines(), and the tab.
_BREAKS = re.compile("[\t\n\x0b\x0c\r\x1c-\x1e\x85\u2028\u2029]+")

# Long words are paths, long lines are commands: that of a compiler has thousands of characters.
_LONG_WORD = re.compile(r"\S{1001,}")
_LONG_LINE = re.compile(r".{8001,}")
_WORD_ENDS, _LINE_ENDS = (600, 200), (6000, 1000)
_LONGEST_GUESSED = 80  # comparing takes time, and a longer word is not a typo
_CONTEXT = 8  # words that are shown before and after a difference
_MOST_LINES, _FIRST_LINES, _LAST_LINES = 200, 150, 40


def visible(text: str) -> str:
    r"""Escape control characters (``\x1b``, ``\u202e``) and undecodable bytes (``\xff``).

    Newlines and tabs are kept.
    """
    text = _BYTES.sub(lambda found: _bytes(found).decode("utf-8", "backslashreplace"), text)
    return escape(_CONTROLS, text)


def whole_characters(text: str) -> str:
    """Decode file names as UTF-8 where Python could not, because the locale is ASCII (``LC_ALL=C``)."""
    return _BYTES.sub(lambda found: _bytes(found).decode("utf-8", "surrogateescape"), text)


def _bytes(found: re.Match[str]) -> bytes:
    return found[0].encode("utf-8", "surrogateescape")


def one_line(text: str) -> str:
    """As :func:`visible`, with line breaks and tabs replaced, so that a text cannot add lines of its own."""
    return visible(_BREAKS.sub(" ", text))


def shortened(text: str) -> str:
    """Replace the middle of very long words, lines and texts by a count of what was cut."""
    text = _LONG_WORD.sub(lambda word: _ends(word[0], *_WORD_ENDS), text)
    text = _LONG_LINE.sub(lambda line: _ends(line[0], *_LINE_ENDS), text)
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        cut = f"[... {len(lines) - _FIRST_LINES - _LAST_LINES} lines ...]"
        lines = [*lines[:_FIRST_LINES], cut, *lines[-_LAST_LINES:]]
    return "\n".join(lines)


def _ends(text: str, head: int, tail: int) -> str:
    return f"{text[:head]}[... {len(text) - head - tail} characters ...]{text[-tail:]}"


def differing(old: str, new: str) -> tuple[str, str]:
    """Both texts, with long runs of words that they share replaced by a count."""
    left, right = old.split(" "), new.split(" ")
    kept: tuple[list[str], list[str]] = ([], [])
    for tag, first, last, start, end in difflib.SequenceMatcher(
        None, left, right, autojunk=False
    ).get_opcodes():
        hidden = last - first - 2 * _CONTEXT
        if tag == "equal" and hidden > _CONTEXT:
            cut = f"[... {hidden} words ...]"
            same = [*left[first : first + _CONTEXT], cut, *left[last - _CONTEXT : last]]
            kept[0].extend(same)
            kept[1].extend(same)
        else:
            kept[0].extend(left[first:last])
            kept[1].extend(right[start:end])
    return " ".join(kept[0]), " ".join(kept[1])


def control_characters(text: str) -> Iterator[str]:
    """All control characters in the text, in order, including tabs and newlines."""
    return (char for char in text if char in "\t\n" or _CONTROLS.match(char))


def escape(unwanted: re.Pattern[str], text: str) -> str:
    r"""Escape each character that ``unwanted`` matches as ``\x1b`` or ``\u202e``."""
    return unwanted.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"  # noqa: PLR2004 - two hex digits


def align_columns(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Rows of cells as lines of equal columns; ``right``: whether a column is aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def free_name(name: str, used: Container[str]) -> str:
    """The name, or else the name with the lowest number from 2 that is unused: ``fast-copy-2``."""
    more = (f"{name}-{number}" for number in count(2))
    return next(each for each in chain((name,), more) if each not in used)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 patch``, ``2 patches``; without ``plural`` an s is added to the noun."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def near_miss(word: str, known: Iterable[str], *, most: int = 1) -> str | None:
    """``did you mean 'a' or 'b'?`` with the known words closest to ``word``; None if none is close.

    Leading dashes are ignored, because they would make all options look similar.
    """
    if len(word) > _LONGEST_GUESSED:
        return None
    bare = {name.lstrip("-"): name for name in known}
    near = difflib.get_close_matches(word.lstrip("-"), bare, n=most, cutoff=0.6)
    words = [f"'{bare[name]}'" for name in near]
    return f"did you mean {' or '.join(words)}?" if words else None

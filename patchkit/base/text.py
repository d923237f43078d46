"""Texts of messages: those of strangers made harmless to show, counts, and the word that was meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

# C0 and C1 but tab and newline, and what changes the direction of writing or hides.
_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
# What Python makes of bytes of a file name that the locale has no character for (PEP 383).
_BYTES = re.compile("[\udc80-\udcff]+")
# Where str.splitlines() would end a line, and the tab.
_BREAKS = re.compile("[\t\n\x0b\x0c\r\x1c-\x1e\x85\u2028\u2029]+")

# The longest word is a path, the longest line a command to run again: a compiler's has some thousands.
_LONG_WORD = re.compile(r"\S{1001,}")
_LONG_LINE = re.compile(r".{8001,}")
_WORD_ENDS, _LINE_ENDS = (600, 200), (6000, 1000)
_LONGEST_GUESSED = 80  # comparing takes time, and a longer word is no slip of the finger
_MOST_LINES, _FIRST_LINES, _LAST_LINES = 200, 150, 40


def visible(text: str) -> str:
    r"""The text with every order as ``\x1b`` or ``\u202e``, and bytes that are no text as ``\xff``.

    Lines stay lines.
    """
    return escape(_ORDERS, _BYTES.sub(lambda found: _bytes(found).decode("utf-8", "backslashreplace"), text))


def whole_characters(text: str) -> str:
    """The text with names of files as UTF-8 has them, though the locale has only ASCII (``LC_ALL=C``)."""
    return _BYTES.sub(lambda found: _bytes(found).decode("utf-8", "surrogateescape"), text)


def _bytes(found: re.Match[str]) -> bytes:
    return found[0].encode("utf-8", "surrogateescape")


def one_line(text: str) -> str:
    """As :func:`visible`, and ends of lines are blanks: no text can go on with a line of its own."""
    return visible(_BREAKS.sub(" ", text))


def shortened(text: str) -> str:
    """The text with the middle of what is very long, a word, a line, or all the lines, as a count."""
    text = _LONG_WORD.sub(lambda word: _ends(word[0], *_WORD_ENDS), text)
    text = _LONG_LINE.sub(lambda line: _ends(line[0], *_LINE_ENDS), text)
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        left_out = f"[... {len(lines) - _FIRST_LINES - _LAST_LINES} lines ...]"
        lines = [*lines[:_FIRST_LINES], left_out, *lines[-_LAST_LINES:]]
    return "\n".join(lines)


def _ends(text: str, head: int, tail: int) -> str:
    return f"{text[:head]}[... {len(text) - head - tail} characters ...]{text[-tail:]}"


def orders_in(text: str) -> Iterator[str]:
    """Every order in the text, and every tab and newline, in the order they come."""
    return (char for char in text if char in "\t\n" or _ORDERS.match(char))


def escape(unwanted: re.Pattern[str], text: str) -> str:
    r"""The text with every character that ``unwanted`` matches as ``\x1b`` or ``\u202e``."""
    return unwanted.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"  # noqa: PLR2004 - two hex digits


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 patch``, ``2 patches``; without a ``plural`` the noun gets an s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def near_miss(word: str, known: Iterable[str], *, most: int = 1) -> str | None:
    """``did you mean 'a' or 'b'?`` with the known words closest to ``word``; None when none is close.

    Dashes in front, which would make all options look alike, do not count.
    """
    if len(word) > _LONGEST_GUESSED:
        return None
    bare = {name.lstrip("-"): name for name in known}
    near = difflib.get_close_matches(word.lstrip("-"), bare, n=most, cutoff=0.6)
    words = [f"'{bare[name]}'" for name in near]
    return f"did you mean {' or '.join(words)}?" if words else None

"""Where each key of a TOML text stands, in bytes.

Vocabulary: a *key path* is the way from the root of the parsed document to a value, names for tables
and numbers for array elements; a *place* is the byte offset where the last part of a key path is
written: the key itself, the header of a table, or the first byte of an array element.

The parser of the standard library keeps no positions, so the text is read a second time here. This
second reading only has to find keys and to step over values; it runs on text that
:mod:`tomllib` has accepted, and leaves the judging to it.
"""

from __future__ import annotations

import re
import tomllib

KeyPath = tuple[str | int, ...]

_BLANK_END = re.compile(rb"[^ \t\r\n]|\Z")
_LINE_END = re.compile(rb"\n|\Z")
_KEY_PART = re.compile(rb"""[ \t]*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*""")
# The closing quotes of a multi-line string may be preceded by up to two quotes of its content.
_STRING = re.compile(
    rb'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    rb"|'''(?:[^']|'(?!''))*'{3,5}"
    rb'|"(?:[^"\\\n]|\\.)*"'
    rb"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR_END = re.compile(rb"[,\]}#\n]|\Z")


def find_places(data: bytes) -> dict[KeyPath, int]:
    """Byte offset of every key path of a valid TOML document; the root ``()`` is at 0.

    A table named by several headers or dotted keys is placed at the first of them.
    """
    return _Scanner(data).scan()


class _Scanner:
    """One pass over the text; ``_at`` is the next unread byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._places: dict[KeyPath, int] = {(): 0}
        self._lengths: dict[KeyPath, int] = {}  # arrays of tables: elements seen so far

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self._skip_blank()
        while self._at < len(self._data):
            if self._looking_at(b"["):
                table = self._header()
            else:
                self._pair(table)
            self._skip_blank()
        return self._places

    def _header(self) -> KeyPath:
        start = self._at
        is_array = self._data.startswith(b"[[", start)
        self._at += 2 if is_array else 1
        parts = self._key()
        self._at += 2 if is_array else 1
        path: KeyPath = ()
        for number, (name, offset) in enumerate(parts, start=1):
            path = (*path, name)
            last = number == len(parts)
            self._places.setdefault(path, start if last else offset)
            if last and is_array:
                self._lengths[path] = self._lengths.get(path, 0) + 1
            if path in self._lengths:
                # A header below an array of tables speaks of the array's newest element.
                path = (*path, self._lengths[path] - 1)
                self._places.setdefault(path, start)
        return path

    def _pair(self, table: KeyPath) -> None:
        path = table
        for name, offset in self._key():
            path = (*path, name)
            self._places.setdefault(path, offset)
        self._at += 1  # the equals sign
        self._skip_blank()
        self._value(path)

    def _key(self) -> list[tuple[str, int]]:
        parts: list[tuple[str, int]] = []
        while True:
            found = _KEY_PART.match(self._data, self._at)
            if found is None:
                raise ValueError(f"no TOML key at byte {self._at}")
            parts.append((_key_name(found[1]), found.start(1)))
            self._at = found.end()
            if not self._looking_at(b"."):
                return parts
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        if self._looking_at(b"["):
            self._array(path)
        elif self._looking_at(b"{"):
            self._inline_table(path)
        else:
            text = _STRING.match(self._data, self._at)
            self._at = text.end() if text else self._end_of(_SCALAR_END)

    def _array(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        self._skip_blank()
        while self._at < len(self._data) and not self._looking_at(b"]"):
            self._places[(*path, index)] = self._at
            self._value((*path, index))
            index += 1
            self._skip_blank()
            self._at += 1 if self._looking_at(b",") else 0
            self._skip_blank()
        self._at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        self._skip_blank()
        while self._at < len(self._data) and not self._looking_at(b"}"):
            self._pair(path)
            self._skip_blank()
            self._at += 1 if self._looking_at(b",") else 0
            self._skip_blank()
        self._at += 1

    def _looking_at(self, text: bytes) -> bool:
        return self._data.startswith(text, self._at)

    def _skip_blank(self) -> None:
        self._at = self._end_of(_BLANK_END)
        while self._looking_at(b"#"):
            self._at = self._end_of(_LINE_END)
            self._at = self._end_of(_BLANK_END)

    def _end_of(self, stop: re.Pattern[bytes]) -> int:
        found = stop.search(self._data, self._at)
        return found.start() if found else len(self._data)


def _key_name(part: bytes) -> str:
    if part[:1] == b'"':
        # Escapes are tomllib's business.
        return str(tomllib.loads("k = " + part.decode())["k"])
    return part.strip(b"'").decode() if part[:1] == b"'" else part.decode()

"""Reading numbers and texts from a file of known size, without believing anything it says of itself.

Vocabulary: the *cursor* stands between two bytes; whatever is asked of it is compared with what is left
before it is read, so that a count cannot make it allocate or wait.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from patchkit.errors import Location
from patchkit.gguf_file.errors import GgufMalformed, GgufTooLarge, GgufTruncated

MAX_KEY = 65535  # bytes: the format's own limit
MAX_TEXT = 16 * 2**20  # bytes of one text; chat templates, the longest, have some ten thousand
# Texts in arrays, all together: they are walked one by one. A vocabulary and its merges are below a million.
MAX_STRINGS = 4 * 2**20

_INTEGERS = {1: "<B", 4: "<I", 8: "<Q"}


class Cursor:
    """A place in ``stream``, which has ``size`` bytes; ``path`` is for messages."""

    def __init__(self, stream: BinaryIO, size: int, path: str) -> None:
        self.size = size
        self.at = 0
        self.path = path
        self._stream = stream
        self._strings = 0

    @property
    def left(self) -> int:
        """Bytes behind the cursor."""
        return self.size - self.at

    def take(self, count: int, what: str) -> bytes:
        """The next ``count`` bytes. Raises GgufTruncated."""
        self.need(count, what)
        data = self._stream.read(count)
        if len(data) != count:
            raise self._short(count, what, len(data))
        self.at += count
        return data

    def skip(self, count: int, what: str) -> None:
        """Go on without reading. Raises GgufTruncated."""
        self.need(count, what)
        self._stream.seek(count, 1)
        self.at += count

    def need(self, count: int, what: str) -> None:
        """Raises GgufTruncated unless ``count`` bytes are left."""
        if count > self.left:
            raise self._short(count, what, self.left)

    def integer(self, width: int, what: str) -> int:
        """An unsigned number of 1, 4 or 8 bytes. Raises GgufTruncated."""
        (value,) = struct.unpack(_INTEGERS[width], self.take(width, what))
        return int(value)

    def count(self, what: str, *, least: int, limit: int) -> int:
        """A count of things that take at least ``least`` bytes each.

        Raises:
            GgufTooLarge: more than ``limit``.
            GgufTruncated: more than the rest of the file can hold.
        """
        value = self.integer(8, what)
        if value > limit:
            raise GgufTooLarge(
                f"{self.path} announces {value} {what}",
                where=Location(path=self.path),
                why=f"at byte {self.at - 8}; the limit is {limit}, far above any model",
                hint="the file is damaged or not a model: get it again",
            )
        self.need(value * least, what)
        return value

    def text(self, what: str, limit: int) -> str:
        """A text with its length before it; bytes that are no UTF-8 become replacement characters.

        Raises:
            GgufTooLarge, GgufTruncated: as :meth:`count`.
        """
        length = self.count(f"bytes of {what}", least=1, limit=limit)
        return self.take(length, what).decode("utf-8", "replace")

    def skip_texts(self, count: int, what: str) -> None:
        """Go over ``count`` texts.

        Raises:
            GgufTooLarge: with those before, more than ``MAX_STRINGS``.
            GgufTruncated: they do not fit.
        """
        self._strings += count
        if self._strings > MAX_STRINGS:
            raise GgufTooLarge(
                f"{self.path} announces {self._strings} texts in arrays",
                where=Location(path=self.path),
                why=f"at byte {self.at}; the limit is {MAX_STRINGS}",
                hint="the file is damaged or not a model: get it again",
            )
        read, size_of = self._stream.read, struct.Struct("<Q").unpack  # a vocabulary has 10^5 of them
        for _ in range(count):
            head = read(8)
            if len(head) != 8 or (length := size_of(head)[0]) > self.left - 8:  # noqa: PLR2004  as above
                raise self._short(8, what, self.left)
            self._stream.seek(length, 1)
            self.at += 8 + length

    def malformed(self, message: str) -> GgufMalformed:
        """The error for what contradicts the format here."""
        return GgufMalformed(
            f"{self.path} is damaged: {message}",
            where=Location(path=self.path),
            why=f"near byte {self.at} of {self.size}",
            hint="get the file again and compare its checksum",
        )

    def _short(self, count: int, what: str, left: int) -> GgufTruncated:
        return GgufTruncated(
            f"{self.path} ends too early",
            where=Location(path=self.path),
            why=f"at byte {self.at}: {what} need {count} bytes, {left} are left",
            hint="the download is not complete, or the file is damaged: get it again",
        )

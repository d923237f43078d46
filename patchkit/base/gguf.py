"""The header of a GGUF file: metadata and the list of tensors, versions 2 and 3, lowest byte first."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from patchkit.base.errors import Location, UsageError


class GgufError(UsageError):
    """A file named as a model cannot be used as one."""

    code = "GGUF"


class GgufUnreadable(GgufError):
    """There is no such file, or the system does not let it be read."""

    code = "GGUF_UNREADABLE"


class GgufNotOne(GgufError):
    """The file does not begin as a GGUF file does."""

    code = "GGUF_NOT_ONE"


class GgufVersionUnknown(GgufError):
    """A version, or an order of bytes, that is not read here."""

    code = "GGUF_VERSION_UNKNOWN"


class GgufTruncated(GgufError):
    """The file ends before what its header announces."""

    code = "GGUF_TRUNCATED"


class GgufTooLarge(GgufError):
    """The header announces more than any model has."""

    code = "GGUF_TOO_LARGE"


class GgufMalformed(GgufError):
    """The header contradicts itself, or the format."""

    code = "GGUF_MALFORMED"


class GgufPartMissing(GgufError):
    """The model is split over several files and not all of them belong together or are there."""

    code = "GGUF_PART_MISSING"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One type: ``block`` values are stored in ``bytes`` bytes."""

    name: str
    block: int
    bytes: int

    def size(self, values: int) -> int:
        """Bytes that whole blocks for ``values`` values take."""
        return -(-values // self.block) * self.bytes


# Number in the file -> type. The gguf package has the same table (a contract test compares them).
_TABLE = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 40),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
)

KINDS: Mapping[int, Kind] = MappingProxyType(
    {number: Kind(name=name, block=block, bytes=size) for number, name, block, size in _TABLE}
)
KINDS_BY_NAME: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in KINDS.values()})


_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
# Far above any model: the largest published ones have some 5000 tensors and 100 pairs.
_MAX_PAIRS = 2**16
_MAX_TENSORS = 2**18
_MAX_DIMS = 4  # GGML_MAX_DIMS
_MAX_VALUES = 2**48  # of one tensor
_MAX_NUMBERS = 2**32  # of one array: they are not read, only gone over
_KEPT = 8192  # an array of so many numbers is kept by value: one per layer, and more
_MAX_PARTS = 1000

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongArray:
    """An array that was gone over."""

    length: int


Value = int | float | bool | str | tuple[int | float | bool, ...] | LongArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """``shape`` as the file has it: the row length first."""

    name: str
    shape: tuple[int, ...]
    kind: Kind

    @property
    def values(self) -> int:
        """How many."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def bytes(self) -> int:
        """As stored."""
        return self.kind.size(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a file, or all files of a split model, say."""

    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]


def load_gguf_parts(path: Path) -> GgufHeader:
    """The header of a model, with the tensors of every part when it is split.

    Raises:
        GgufPartMissing: a part is not there, or ``path`` is not the first one.
        GgufError: as :func:`load_gguf`.
    """
    first = load_gguf(path)
    count = first.metadata.get("split.count", 0)
    if not isinstance(count, int) or count <= 1:
        return first
    name = _PART.fullmatch(path.name)
    if name is None or int(name["number"]) != 1 or int(name["count"]) != count or count > _MAX_PARTS:
        raise GgufPartMissing(
            f"{path} is one part of {count} of a model",
            where=Location(path=str(path)),
            hint=f"name the first part, which ends in -00001-of-{count:05d}.gguf, and keep its name",
        )
    tensors = list(first.tensors)
    for number in range(2, count + 1):
        part = path.with_name(f"{name['stem']}-{number:05d}-of-{count:05d}.gguf")
        if not part.is_file():
            raise GgufPartMissing(
                f"part {number} of {count} is not there",
                where=Location(path=str(part)),
                hint=f"put all parts beside {path}",
            )
        tensors += load_gguf(part).tensors
    return GgufHeader(metadata=first.metadata, tensors=tuple(tensors))


def load_gguf(path: Path) -> GgufHeader:
    """Read the header of one file.

    Raises:
        GgufUnreadable: no file to read.
        GgufNotOne, GgufVersionUnknown: another format, or another version of it.
        GgufTruncated: it ends before its header or its last tensor does.
        GgufTooLarge: a count is beyond reason.
        GgufMalformed: the header contradicts itself.
    """
    where = Location(path=str(path))
    try:
        # Without waiting: opening a named pipe would last until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise GgufUnreadable(f"{path} is no file", where=where, hint=f"ls -l {path}")
            return _header(Cursor(stream, status.st_size, str(path)))
    except OSError as error:
        raise GgufUnreadable(
            f"cannot read {path}", where=where, why=error.strerror, hint="--model names a GGUF file"
        ) from error


def _header(cursor: Cursor) -> GgufHeader:
    _check_magic(cursor)
    tensors = cursor.count("tensors", least=24, limit=_MAX_TENSORS)
    pairs = cursor.count("metadata pairs", least=13, limit=_MAX_PAIRS)
    metadata: dict[str, Value] = {}
    for _ in range(pairs):
        key = cursor.text("a metadata key", MAX_KEY)
        if key in metadata:
            raise cursor.malformed(f"{key[:80]!r} is stated twice")
        metadata[key] = _value(cursor, key)
    listed = [_tensor(cursor) for _ in range(tensors)]
    _check_places(cursor, metadata, listed)
    return GgufHeader(metadata=metadata, tensors=tuple(tensor for tensor, _ in listed))


def _check_magic(cursor: Cursor) -> None:
    where = Location(path=cursor.path)
    magic = cursor.take(min(4, cursor.size), "the first bytes")
    if magic != _MAGIC:
        begins = f"it begins with {magic.hex(' ')}" if magic else "it is empty"
        raise GgufNotOne(
            f"{cursor.path} is no GGUF file", where=where, why=begins, hint="--model names a GGUF file"
        )
    version = cursor.integer(4, "the version")
    if version in _VERSIONS:
        return
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    why = "highest byte first" if swapped in _VERSIONS else f"version {version}"
    raise GgufVersionUnknown(
        f"{cursor.path} is a GGUF file that is not read here",
        where=where,
        why=f"{why}; versions 2 and 3, lowest byte first, are",
        hint="convert it with a llama.cpp of this year",
    )


def _value(cursor: Cursor, key: str) -> Value:
    kind = cursor.integer(4, "a type")
    if kind == _STRING:
        return cursor.text(f"the value of {key[:80]!r}", MAX_TEXT)
    if kind == _ARRAY:
        return _array(cursor, key)
    return _scalar(cursor, kind, key)


def _scalar(cursor: Cursor, kind: int, key: str) -> int | float | bool:
    form = _SCALARS.get(kind)
    if form is None:
        raise cursor.malformed(f"{key[:80]!r} has a value of type {kind}")
    (value,) = struct.unpack(form, cursor.take(struct.calcsize(form), f"the value of {key[:80]!r}"))
    known: int | float | bool = value
    return known


def _array(cursor: Cursor, key: str) -> Value:
    what = f"elements of {key[:80]!r}"
    kind = cursor.integer(4, "a type")
    if kind == _STRING:
        length = cursor.count(what, least=8, limit=_MAX_NUMBERS)
        cursor.skip_texts(length, what)
        return LongArray(length=length)
    form = _SCALARS.get(kind)
    if form is None:
        raise cursor.malformed(f"{key[:80]!r} is an array of type {kind}")
    width = struct.calcsize(form)
    length = cursor.count(what, least=width, limit=_MAX_NUMBERS)
    if length > _KEPT:
        cursor.skip(length * width, what)
        return LongArray(length=length)
    return struct.unpack(f"<{length}{form[1]}", cursor.take(length * width, what))


def _tensor(cursor: Cursor) -> tuple[Tensor, int]:
    """A tensor and where its data begins, from the beginning of all data."""
    name = cursor.text("a tensor's name", MAX_KEY)
    dims = cursor.integer(4, "dimensions")
    if dims > _MAX_DIMS:
        raise cursor.malformed(f"tensor {name[:80]!r} has {dims} dimensions")
    shape = tuple(cursor.integer(8, "an extent") for _ in range(dims))
    number = cursor.integer(4, "a type")
    kind = KINDS.get(number)
    if kind is None:
        raise cursor.malformed(f"tensor {name[:80]!r} has a type that is not known, {number}")
    tensor = Tensor(name=name, shape=shape, kind=kind)
    if tensor.values > _MAX_VALUES or 0 in shape:
        raise cursor.malformed(f"tensor {name[:80]!r} has {tensor.values} values")
    if shape and shape[0] % kind.block:
        raise cursor.malformed(f"tensor {name[:80]!r} has rows of {shape[0]} values, {kind.name} has blocks")
    return tensor, cursor.integer(8, "an offset")


def _check_places(cursor: Cursor, metadata: Mapping[str, Value], listed: list[tuple[Tensor, int]]) -> None:
    """Each tensor lies in the file, where the format allows it, and under a name of its own."""
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or not 0 < alignment <= 2**20:
        raise cursor.malformed(f"general.alignment is {alignment!r}"[:120])
    begin = -(-cursor.at // alignment) * alignment
    names: set[str] = set()
    for tensor, offset in listed:
        if tensor.name in names:
            raise cursor.malformed(f"there are two tensors {tensor.name[:80]!r}")
        names.add(tensor.name)
        if offset % alignment:
            raise cursor.malformed(f"tensor {tensor.name[:80]!r} begins at {offset}, which is not aligned")
        if begin + offset + tensor.bytes > cursor.size:
            raise GgufTruncated(
                f"{cursor.path} ends before its tensors do",
                where=Location(path=cursor.path),
                why=f"{tensor.name[:80]!r} ends at byte {begin + offset + tensor.bytes} of {cursor.size}",
                hint="the download is not complete, or the file is damaged: get it again",
            )

"""The header of a GGUF file: metadata and the list of tensors, versions 2 and 3, lowest byte first.

Vocabulary: *metadata* are the key-value pairs; a *long array* is one that nobody here needs by value (a
vocabulary): only its length is kept. A model may be *split* over several files that name each other.
Layout: docs/gguf.md of the ggml project.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import Location
from patchkit.gguf_file.cursor import MAX_KEY, MAX_TEXT, Cursor
from patchkit.gguf_file.errors import (
    GgufNotOne,
    GgufPartMissing,
    GgufTruncated,
    GgufUnreadable,
    GgufVersionUnknown,
)
from patchkit.gguf_file.kinds import KINDS, Kind

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

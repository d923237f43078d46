"""The header of a GGUF file that a stranger may have made: every size is checked before it is used.

The types of tensors are those of the ``gguf`` package, but not its reader: for a vocabulary of 128256 tokens
with 280147 merges ``gguf.GGUFReader`` 0.19 took 10.5 s and 681 MiB, and this module takes 0.2 s. Of the 31
damaged files in tests/unit/gpu/gguf_corpus it read six without a word, and eleven more ended in errors of
numpy. Each of its reads would need one of our checks before it, and those are this parser.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from gguf.constants import GGML_QUANT_SIZES

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import NotRegular, open_regular


class GgufError(UsageError):
    """A file named as a model cannot be used as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A type of tensor: ``block`` values are stored in ``bytes`` bytes."""

    name: str
    block: int
    bytes: int

    def size(self, values: int) -> int:
        """Bytes that whole blocks for ``values`` values take."""
        return -(-values // self.block) * self.bytes


@cache
def tensor_kinds() -> Mapping[int, Kind]:
    """Every type by its number in the file."""
    return MappingProxyType(
        {
            int(kind): Kind(name=kind.name, block=block, bytes=size)
            for kind, (block, size) in GGML_QUANT_SIZES.items()
        }
    )


@cache
def tensor_kinds_by_name() -> Mapping[str, Kind]:
    """Every type by its name, such as ``Q4_K``."""
    return MappingProxyType({kind.name: kind for kind in tensor_kinds().values()})


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
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """As stored."""
        return self.kind.size(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a file, or all files of a split model, say."""

    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]


_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
# Far above any model: the largest published ones have some 5000 tensors and 100 pairs.
_MAX_PAIRS = 2**16
_MAX_TENSORS = 2**18
_MAX_DIMS = 4  # GGML_MAX_DIMS
_MAX_VALUES = 2**48  # of one tensor
_MAX_NUMBERS = 2**32  # of one array: they are not read, only gone over
_MAX_KEY = 65535  # bytes: the format's own limit
_MAX_TEXT = 16 * 2**20  # bytes of one text; chat templates, the longest, have some ten thousand
# Texts in arrays, all together: they are walked one by one. A vocabulary and its merges are below a million.
_MAX_STRINGS = 4 * 2**20
_KEPT = 8192  # an array of so many numbers is kept by value: one per layer, and more
_MAX_PARTS = 1000
_MAX_ALIGNMENT = 2**20
_SHOWN = 80  # characters of a name in a message

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_NUMBERS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: _U32,
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: _U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING, _ARRAY = 8, 9
_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_DAMAGED = "the file is damaged or not a model: get it again"
_INCOMPLETE = "the download is not complete, or the file is damaged: get it again"


def load_gguf_parts(path: Path) -> GgufHeader:
    """The header of a model, with the tensors of every part when it is split.

    Raises:
        GgufError: as :func:`load_gguf`; code GGUF_PART_MISSING when a part is not there, or ``path`` is
            not the first one.
    """
    first = load_gguf(path)
    count = first.metadata.get("split.count", 0)
    if not isinstance(count, int) or count <= 1:
        return first
    name = _PART.fullmatch(path.name)
    if name is None or int(name["number"]) != 1 or int(name["count"]) != count or count > _MAX_PARTS:
        raise GgufError(
            f"{path} is one part of {count} of a model",
            code="GGUF_PART_MISSING",
            where=Location(path=str(path)),
            hint=f"name the first part, which ends in -00001-of-{count:05d}.gguf, and keep its name",
        )
    tensors = list(first.tensors)
    for number in range(2, count + 1):
        part = path.with_name(f"{name['stem']}-{number:05d}-of-{count:05d}.gguf")
        if not part.is_file():
            raise GgufError(
                f"part {number} of {count} is not there",
                code="GGUF_PART_MISSING",
                where=Location(path=str(part)),
                hint=f"put all parts beside {path}",
            )
        tensors += load_gguf(part).tensors
    return GgufHeader(metadata=first.metadata, tensors=tuple(tensors))


def load_gguf(path: Path) -> GgufHeader:
    """Read the header of one file.

    Raises:
        GgufError: there is no file to read (code GGUF_UNREADABLE); it is of another format or version
            (GGUF_NOT_ONE, GGUF_VERSION_UNKNOWN); it ends before its header or last tensor (GGUF_TRUNCATED); a
            count is beyond reason (GGUF_TOO_LARGE); the header contradicts itself (GGUF_MALFORMED).
    """
    where = Location(path=str(path))
    try:
        with open_regular(path) as stream:
            return _Header(stream, os.fstat(stream.fileno()).st_size, str(path)).read()
    except NotRegular as error:
        raise GgufError(
            f"{path} is no file", code="GGUF_UNREADABLE", where=where, hint=f"ls -l {path}"
        ) from error
    except OSError as error:
        raise GgufError(
            f"cannot read {path}",
            code="GGUF_UNREADABLE",
            where=where,
            why=error.strerror,
            hint="--model names a GGUF file",
        ) from error


class _Header:
    """A header being read from ``stream``, which has ``size`` bytes; ``path`` is for messages."""

    def __init__(self, stream: BinaryIO, size: int, path: str) -> None:
        self._stream = stream
        self._size = size
        self._path = path
        self._at = 0  # bytes read or gone over
        self._strings = 0  # texts gone over

    def read(self) -> GgufHeader:
        """All of it. Raises GgufError."""
        self._check_magic()
        count = self._count("tensors", least=24, limit=_MAX_TENSORS)
        metadata: dict[str, Value] = {}
        for _ in range(self._count("metadata pairs", least=13, limit=_MAX_PAIRS)):
            key = self._text("a metadata key", _MAX_KEY)
            if key in metadata:
                raise self._malformed(f"{key[:_SHOWN]!r} is stated twice")
            metadata[key] = self._value(key)
        offsets: dict[Tensor, int] = {}
        names: set[str] = set()
        for _ in range(count):
            tensor = self._tensor()
            if tensor.name in names:
                raise self._malformed(f"there are two tensors {tensor.name[:_SHOWN]!r}")
            names.add(tensor.name)
            offsets[tensor] = self._number(_U64, "an offset")
        self._check_places(metadata.get("general.alignment", 32), offsets)
        return GgufHeader(metadata=metadata, tensors=tuple(offsets))

    def _check_magic(self) -> None:
        magic = self._take(min(4, self._size), "the first bytes")
        if magic != _MAGIC:
            raise self._refused(
                "is no GGUF file",
                code="GGUF_NOT_ONE",
                why=f"it begins with {magic.hex(' ')}" if magic else "it is empty",
                hint="--model names a GGUF file",
            )
        version = self._number(_U32, "the version")
        if version not in _VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            seen = "highest byte first" if swapped in _VERSIONS else f"version {version}"
            raise self._refused(
                "is a GGUF file that is not read here",
                code="GGUF_VERSION_UNKNOWN",
                why=f"{seen}; versions 2 and 3, lowest byte first, are",
                hint="convert it with a llama.cpp of this year",
            )

    def _value(self, key: str) -> Value:
        kind = self._number(_U32, "a type")
        if kind == _STRING:
            return self._text(f"the value of {key[:_SHOWN]!r}", _MAX_TEXT)
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _NUMBERS:
            raise self._malformed(f"{key[:_SHOWN]!r} has a value of type {kind}")
        form = _NUMBERS[kind]
        known: int | float | bool = form.unpack(self._take(form.size, f"the value of {key[:_SHOWN]!r}"))[0]
        return known

    def _array(self, key: str) -> Value:
        what = f"elements of {key[:_SHOWN]!r}"
        kind = self._number(_U32, "a type")
        if kind == _STRING:
            length = self._count(what, least=8, limit=_MAX_NUMBERS)
            self._skip_texts(length, what)
            return LongArray(length=length)
        if kind not in _NUMBERS:
            raise self._malformed(f"{key[:_SHOWN]!r} is an array of type {kind}")
        form = _NUMBERS[kind]
        length = self._count(what, least=form.size, limit=_MAX_NUMBERS)
        if length > _KEPT:
            self._stream.seek(length * form.size, os.SEEK_CUR)
            self._at += length * form.size
            return LongArray(length=length)
        return tuple(value for (value,) in form.iter_unpack(self._take(length * form.size, what)))

    def _tensor(self) -> Tensor:
        name = self._text("a tensor's name", _MAX_KEY)
        told = f"tensor {name[:_SHOWN]!r}"
        dims = self._number(_U32, "dimensions")
        if dims > _MAX_DIMS:
            raise self._malformed(f"{told} has {dims} dimensions")
        shape = tuple(self._number(_U64, "an extent") for _ in range(dims))
        number = self._number(_U32, "a type")
        kind = tensor_kinds().get(number)
        if kind is None:
            raise self._malformed(f"{told} has a type that is not known, {number}")
        tensor = Tensor(name=name, shape=shape, kind=kind)
        if tensor.values > _MAX_VALUES or 0 in shape:
            raise self._malformed(f"{told} has {tensor.values} values")
        if shape and shape[0] % kind.block:
            raise self._malformed(f"{told} has rows of {shape[0]} values, {kind.name} has blocks")
        return tensor

    def _check_places(self, alignment: Value, offsets: Mapping[Tensor, int]) -> None:
        """Each tensor lies in the file, where the format allows it; offsets count from the header's end."""
        if (
            not isinstance(alignment, int)
            or isinstance(alignment, bool)
            or not 0 < alignment <= _MAX_ALIGNMENT
        ):
            raise self._malformed(f"general.alignment is {alignment!r}"[:120])
        begin = -(-self._at // alignment) * alignment
        for tensor, offset in offsets.items():
            if offset % alignment:
                raise self._malformed(
                    f"tensor {tensor.name[:_SHOWN]!r} begins at {offset}, which is not aligned"
                )
            end = begin + offset + tensor.bytes
            if end > self._size:
                raise self._refused(
                    "ends before its tensors do",
                    code="GGUF_TRUNCATED",
                    why=f"{tensor.name[:_SHOWN]!r} ends at byte {end} of {self._size}",
                    hint=_INCOMPLETE,
                )

    def _take(self, count: int, what: str) -> bytes:
        self._need(count, what)
        data = self._stream.read(count)
        if len(data) != count:
            raise self._short(count, what, len(data))
        self._at += count
        return data

    def _number(self, form: struct.Struct, what: str) -> int:
        return int(form.unpack(self._take(form.size, what))[0])

    def _count(self, what: str, *, least: int, limit: int) -> int:
        """A count of things of at least ``least`` bytes each, no more than the rest of the file holds."""
        value = self._number(_U64, what)
        if value > limit:
            raise self._refused(
                f"announces {value} {what}",
                code="GGUF_TOO_LARGE",
                why=f"at byte {self._at - 8}; the limit is {limit}, far above any model",
                hint=_DAMAGED,
            )
        self._need(value * least, what)
        return value

    def _text(self, what: str, limit: int) -> str:
        """A text with its length before it; bytes that are no UTF-8 become replacement characters."""
        length = self._count(f"bytes of {what}", least=1, limit=limit)
        return self._take(length, what).decode("utf-8", "replace")

    def _skip_texts(self, count: int, what: str) -> None:
        self._strings += count
        if self._strings > _MAX_STRINGS:
            raise self._refused(
                f"announces {self._strings} texts in arrays",
                code="GGUF_TOO_LARGE",
                why=f"at byte {self._at}; the limit is {_MAX_STRINGS}",
                hint=_DAMAGED,
            )
        read, size_of = self._stream.read, _U64.unpack  # a vocabulary has 10^5 of them
        for _ in range(count):
            head = read(8)
            left = self._size - self._at
            if len(head) != 8 or (length := size_of(head)[0]) > left - 8:  # noqa: PLR2004  # bytes of the length
                raise self._short(8, what, left)
            self._stream.seek(length, os.SEEK_CUR)
            self._at += 8 + length

    def _need(self, count: int, what: str) -> None:
        if count > self._size - self._at:
            raise self._short(count, what, self._size - self._at)

    def _short(self, count: int, what: str, left: int) -> GgufError:
        return self._refused(
            "ends too early",
            code="GGUF_TRUNCATED",
            why=f"at byte {self._at}: {what} need {count} bytes, {left} are left",
            hint=_INCOMPLETE,
        )

    def _malformed(self, message: str) -> GgufError:
        return self._refused(
            f"is damaged: {message}",
            code="GGUF_MALFORMED",
            why=f"near byte {self._at} of {self._size}",
            hint="get the file again and compare its checksum",
        )

    def _refused(self, said: str, *, code: str, why: str, hint: str) -> GgufError:
        return GgufError(
            f"{self._path} {said}", code=code, where=Location(path=self._path), why=why, hint=hint
        )

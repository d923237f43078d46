"""Reads the header of a GGUF file from an untrusted source: every size is checked before it is used.

Tensor types come from the ``gguf`` package, but its reader is not used: for a vocabulary of 128256 tokens
with 280147 merges, ``gguf.GGUFReader`` 0.19 took 10.5 s and 681 MiB, this module takes 0.2 s. Of the 31
damaged files in tests/unit/gpu/gguf_corpus, it accepted six, and eleven caused numpy errors. Checking each of
its reads beforehand would need this parser anyway.
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
    """A file given as a model cannot be used as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A tensor type: each ``block`` values are stored in ``bytes`` bytes."""

    name: str
    block: int
    bytes: int

    def size(self, values: int) -> int:
        """Bytes of the whole blocks that hold ``values`` values."""
        return -(-values // self.block) * self.bytes


@cache
def tensor_kinds() -> Mapping[int, Kind]:
    """Every type by its number in GGUF files."""
    return MappingProxyType(
        {
            int(kind): Kind(name=kind.name, block=block, bytes=size)
            for kind, (block, size) in GGML_QUANT_SIZES.items()
        }
    )


@cache
def tensor_kinds_by_name() -> Mapping[str, Kind]:
    """Every type by name, such as ``Q4_K``."""
    return MappingProxyType({kind.name: kind for kind in tensor_kinds().values()})


@dataclass(frozen=True, slots=True, kw_only=True)
class LongArray:
    """A long array, of which only the length is kept."""

    length: int


Value = int | float | bool | str | tuple[int | float | bool, ...] | LongArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor. ``shape`` has the row length first, as in the file."""

    name: str
    shape: tuple[int, ...]
    kind: Kind

    @property
    def values(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in the file."""
        return self.kind.size(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """The header of a file, or of all files of a split model."""

    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]


MAGIC = b"GGUF"
_VERSIONS = (2, 3)
# Limits far above any model: the largest published ones have about 5000 tensors and 100 metadata pairs.
_MAX_PAIRS = 2**16
_MAX_TENSORS = 2**18
_MAX_DIMS = 4  # GGML_MAX_DIMS
_MAX_VALUES = 2**48  # of one tensor
_MAX_NUMBERS = 2**32  # per array; long arrays are skipped, not read
_MAX_KEY = 65535  # bytes, the limit of the format
_MAX_TEXT = 16 * 2**20  # bytes per string; the longest are chat templates of about ten thousand
# Strings in all arrays together, because they are skipped one by one. Vocabulary and merges are below a
# million.
_MAX_STRINGS = 4 * 2**20
_KEPT = 8192  # arrays up to this length are kept by value, which includes arrays with a value per layer
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
_DAMAGED = "the file is damaged or not a model: download it again"
_INCOMPLETE = "the download is incomplete, or the file is damaged: download it again"


def load_gguf_parts(path: Path) -> GgufHeader:
    """The header of a model, with the tensors of all parts if it is split.

    Raises:
        GgufError: as :func:`load_gguf`; GGUF_BAD if a part is missing, or ``path`` is not the first.
    """
    first = load_gguf(path)
    count = first.metadata.get("split.count", 0)
    if not isinstance(count, int) or count <= 1:
        return first
    name = _PART.fullmatch(path.name)
    if name is None or int(name["number"]) != 1 or int(name["count"]) != count or count > _MAX_PARTS:
        raise GgufError(
            f"{path} is one of {count} parts of a model",
            code="GGUF_BAD",
            where=Location(path=str(path)),
            hint=f"use the first part (its name ends in -00001-of-{count:05d}.gguf), and do not rename parts",
        )
    tensors = list(first.tensors)
    for number in range(2, count + 1):
        part = path.with_name(f"{name['stem']}-{number:05d}-of-{count:05d}.gguf")
        if not part.is_file():
            raise GgufError(
                f"part {number} of {count} is missing",
                code="GGUF_BAD",
                where=Location(path=str(part)),
                hint=f"put all parts next to {path}",
            )
        tensors += load_gguf(part).tensors
    return GgufHeader(metadata=first.metadata, tensors=tuple(tensors))


def load_gguf(path: Path) -> GgufHeader:
    """Read the header of one file.

    Raises:
        GGUF_BAD: the file cannot be read, has another format or version, ends before the end of its header or
            tensors, has an implausible count, or contradicts itself.
    """
    where = Location(path=str(path))
    try:
        with open_regular(path) as stream:
            return _Header(stream, os.fstat(stream.fileno()).st_size, str(path)).read()
    except NotRegular as error:
        raise GgufError(
            f"{path} is not a file", code="GGUF_BAD", where=where, hint=f"ls -l {path}"
        ) from error
    except OSError as error:
        raise GgufError(
            f"cannot read {path}",
            code="GGUF_BAD",
            where=where,
            why=error.strerror,
            hint="--model takes the path of a GGUF file",
        ) from error


class _Header:
    """Parses a header from ``stream``, which has ``size`` bytes; ``path`` is used in messages."""

    def __init__(self, stream: BinaryIO, size: int, path: str) -> None:
        self._stream = stream
        self._size = size
        self._path = path
        self._at = 0  # bytes read or skipped
        self._strings = 0  # strings skipped

    def read(self) -> GgufHeader:
        """Parse the whole header. Raises GgufError."""
        self._check_magic()
        count = self._count("tensors", least=24, limit=_MAX_TENSORS)
        metadata: dict[str, Value] = {}
        for _ in range(self._count("metadata pairs", least=13, limit=_MAX_PAIRS)):
            key = self._text("a metadata key", _MAX_KEY)
            if key in metadata:
                raise self._malformed(f"metadata key {key[:_SHOWN]!r} occurs twice")
            metadata[key] = self._value(key)
        offsets: dict[Tensor, int] = {}
        names: set[str] = set()
        for _ in range(count):
            tensor = self._tensor()
            if tensor.name in names:
                raise self._malformed(f"tensor {tensor.name[:_SHOWN]!r} occurs twice")
            names.add(tensor.name)
            offsets[tensor] = self._number(_U64, "an offset")
        self._check_places(metadata.get("general.alignment", 32), offsets)
        return GgufHeader(metadata=metadata, tensors=tuple(offsets))

    def _check_magic(self) -> None:
        magic = self._take(min(4, self._size), "the first bytes")
        if magic != MAGIC:
            raise self._refused(
                "is not a GGUF file",
                code="GGUF_BAD",
                why=f"it begins with {magic.hex(' ')}" if magic else "it is empty",
                hint="--model takes the path of a GGUF file",
            )
        version = self._number(_U32, "the version")
        if version not in _VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            seen = "it is big-endian" if swapped in _VERSIONS else f"it has version {version}"
            raise self._refused(
                "has an unsupported GGUF version",
                code="GGUF_BAD",
                why=f"{seen}; supported are versions 2 and 3, little-endian",
                hint="convert the model with a recent llama.cpp",
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
        label = f"tensor {name[:_SHOWN]!r}"
        dims = self._number(_U32, "dimensions")
        if dims > _MAX_DIMS:
            raise self._malformed(f"{label} has {dims} dimensions")
        shape = tuple(self._number(_U64, "an extent") for _ in range(dims))
        number = self._number(_U32, "a type")
        kind = tensor_kinds().get(number)
        if kind is None:
            raise self._malformed(f"{label} has the unknown type {number}")
        tensor = Tensor(name=name, shape=shape, kind=kind)
        if tensor.values > _MAX_VALUES or 0 in shape:
            raise self._malformed(f"{label} has {tensor.values} values")
        if shape and shape[0] % kind.block:
            raise self._malformed(
                f"{label} has rows of {shape[0]} values, which is not a multiple of {kind.name}'s block"
            )
        return tensor

    def _check_places(self, alignment: Value, offsets: Mapping[Tensor, int]) -> None:
        """Check that each tensor is inside the file and aligned; offsets are relative to the header's end."""
        if (
            not isinstance(alignment, int)
            or isinstance(alignment, bool)
            or not 0 < alignment <= _MAX_ALIGNMENT
        ):
            raise self._malformed(f"general.alignment is {alignment!r}"[:120])
        begin = -(-self._at // alignment) * alignment
        for tensor, offset in offsets.items():
            if offset % alignment:
                raise self._malformed(f"tensor {tensor.name[:_SHOWN]!r} is at the unaligned offset {offset}")
            end = begin + offset + tensor.bytes
            if end > self._size:
                raise self._refused(
                    "ends before the end of its tensors",
                    code="GGUF_BAD",
                    why=f"{tensor.name[:_SHOWN]!r} ends at byte {end}, the file has {self._size}",
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
        """Read a count of items of at least ``least`` bytes; check that the rest of the file can hold it."""
        value = self._number(_U64, what)
        if value > limit:
            raise self._refused(
                f"claims to have {value} {what}",
                code="GGUF_BAD",
                why=f"at byte {self._at - 8}; the limit is {limit}, far above any model",
                hint=_DAMAGED,
            )
        self._need(value * least, what)
        return value

    def _text(self, what: str, limit: int) -> str:
        """Read a length-prefixed string; bytes that are not UTF-8 become replacement characters."""
        length = self._count(f"bytes of {what}", least=1, limit=limit)
        return self._take(length, what).decode("utf-8", "replace")

    def _skip_texts(self, count: int, what: str) -> None:
        self._strings += count
        if self._strings > _MAX_STRINGS:
            raise self._refused(
                f"claims to have {self._strings} strings in arrays",
                code="GGUF_BAD",
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
            code="GGUF_BAD",
            why=f"at byte {self._at}: {what} need {count} bytes, but only {left} remain",
            hint=_INCOMPLETE,
        )

    def _malformed(self, message: str) -> GgufError:
        return self._refused(
            f"is damaged: {message}",
            code="GGUF_BAD",
            why=f"near byte {self._at} of {self._size}",
            hint="download the file again and compare its checksum",
        )

    def _refused(self, problem: str, *, code: str, why: str, hint: str) -> GgufError:
        return GgufError(
            f"{self._path} {problem}", code=code, where=Location(path=self._path), why=why, hint=hint
        )

"""Writes GGUF files of any size without disk space: tensors are sparse holes, except norms (all ones)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from patchkit.base.files import disk_errors
from patchkit.gpu.gguf import Kind, Value

_ALIGNMENT = 32  # GGUF_DEFAULT_ALIGNMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A tensor to store; for tensors of a layer, ``name`` excludes the layer. ``shape``: row length first."""

    name: str
    shape: tuple[int, ...]
    kind: Kind

    @property
    def bytes(self) -> int:
        """Size in the file."""
        return self.kind.size(math.prod(self.shape))


def write_sparse_model(
    path: Path, architecture: str, name: str, metadata: Mapping[str, Value], tensors: Sequence[Stored]
) -> None:
    """Write the file; ``metadata`` has full keys. Raises CacheError if it cannot be written."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_tokenizer_model("no_vocab")
    for key, value in metadata.items():
        _add_value(writer, key, value)
    floats: dict[str, np.dtype[Any]] = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16)}
    for one in tensors:
        plain = floats.get(one.kind.name)
        rows = tuple(reversed(one.shape[1:]))
        if plain is not None:
            writer.add_tensor_info(one.name, (*rows, one.shape[0]), plain, one.bytes)
            continue
        stored = one.shape[0] // one.kind.block * one.kind.bytes
        kind = gguf.GGMLQuantizationType[one.kind.name]
        writer.add_tensor_info(one.name, (*rows, stored), np.dtype(np.uint8), one.bytes, raw_dtype=kind)
    with disk_errors(path, "writing a model"):
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        with path.open("r+b") as file:
            place = _padded(file.seek(0, 2))
            for one in tensors:
                if "norm" in one.name and one.kind.name == "F32":
                    file.seek(place)
                    file.write(np.ones(math.prod(one.shape), dtype=np.float32).tobytes())
                place += _padded(one.bytes)
            file.truncate(place)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _add_value(writer: gguf.GGUFWriter, name: str, value: Value) -> None:
    match value:
        case bool():
            writer.add_bool(name, value)
        case int():
            writer.add_uint32(name, value)
        case float():
            writer.add_float32(name, value)
        case str():
            writer.add_string(name, value)
        case tuple():
            writer.add_array(name, list(value))
        case _:
            raise AssertionError("long arrays are not supported")

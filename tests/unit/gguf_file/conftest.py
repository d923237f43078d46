"""GGUF files written by hand, so that they can be wrong in one place."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

import pytest

Metadata = Mapping[str, object]


def _text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def _value(value: object) -> bytes:  # noqa: PLR0911  one per type
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case bytes():
            return value  # as it is: the type, then what follows
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
        case [*numbers]:
            return struct.pack(f"<IIQ{len(numbers)}I", 9, 4, len(numbers), *numbers)
        case _:
            raise AssertionError(value)


def _gguf(
    metadata: Metadata,
    tensors: Sequence[tuple[str, Sequence[int], int, int]] = (),
    *,
    data: int = 0,
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    made, pairs = counts or (len(tensors), len(metadata))
    parts = [b"GGUF", struct.pack("<IQQ", version, made, pairs)]
    parts += [_text(key) + _value(value) for key, value in metadata.items()]
    for name, shape, kind, offset in tensors:
        parts.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
    head = b"".join(parts)
    return head + bytes(-len(head) % 32 + data)


@pytest.fixture(scope="session")
def gguf_bytes() -> Callable[..., bytes]:
    """``gguf_bytes(metadata, tensors, data=..., version=..., counts=...)``;
    a tensor is its name, shape, type and offset.
    """
    return _gguf

"""A GGUF header is read, or refused with a code of its own, whatever the bytes."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusing import refused

from patchkit.base.errors import ExitCode
from patchkit.gpu.emulated.models import head_size_of
from patchkit.gpu.gguf import GgufError, LongArray, load_gguf, load_gguf_parts

# Files that went wrong once or were made to: CODE-what.gguf. What hypothesis finds is added here.
CORPUS = sorted((Path(__file__).parent / "gguf_corpus").glob("*.gguf"))
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


def gguf_bytes(
    metadata: Metadata,
    tensors: Sequence[tuple[str, Sequence[int], int, int]] = (),
    *,
    data: int = 0,
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    """Written by hand, to be wrong in one place; a tensor is its name, shape, type and offset."""
    made, pairs = counts or (len(tensors), len(metadata))
    parts = [b"GGUF", struct.pack("<IQQ", version, made, pairs)]
    parts += [_text(key) + _value(value) for key, value in metadata.items()]
    for name, shape, kind, offset in tensors:
        parts.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
    head = b"".join(parts)
    return head + bytes(-len(head) % 32 + data)


_METADATA = {"general.architecture": "llama", "llama.embedding_length": 64, "llama.attention.head_count": 4}
_TENSORS = (("token_embd.weight", (64, 32), 1, 0), ("output.weight", (256, 8), 12, 4096))


@pytest.fixture(scope="session")
def good() -> bytes:
    metadata = {**_METADATA, "tokens": ["a", "", "ccc"], "per_layer": [1, 0, 3], "on": True, "eps": 0.5}
    return gguf_bytes(metadata, _TENSORS, data=4096 + 8 * 144)


def test_what_a_file_says_is_read(tmp_path, good):
    path = tmp_path / "m.gguf"
    path.write_bytes(good)
    header = load_gguf(path)
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["tokens"] == LongArray(length=3)
    assert header.metadata["per_layer"] == (1, 0, 3)
    assert header.metadata["on"] is True
    assert header.metadata["eps"] == 0.5
    assert [(tensor.values, tensor.bytes) for tensor in header.tensors] == [(2048, 4096), (2048, 1152)]
    assert head_size_of(path) == 16


def test_long_arrays_of_numbers_are_gone_over(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({"many": list(range(9000)), "after": 7}))
    assert load_gguf(path).metadata == {"many": LongArray(length=9000), "after": 7}


def test_every_shortened_file_is_an_error_of_its_own(tmp_path, good):
    path = tmp_path / "m.gguf"
    for length in [*range(560), *range(560, len(good), 97)]:
        path.write_bytes(good[:length])
        with pytest.raises(GgufError) as caught:
            load_gguf(path)
        assert caught.value.code == "GGUF_BAD"
        assert caught.value.hint


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_kept_file_ends_with_its_code_and_little_memory(path):
    tracemalloc.start()
    try:
        with pytest.raises(GgufError) as caught:
            load_gguf(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.code == path.name.split("-")[0]
    assert caught.value.exit_code == ExitCode.USAGE
    assert peak < 2**22


def _survives(path: Path, data: bytes) -> None:
    """Read, or refused with an error of ours; anything else fails the test."""
    path.write_bytes(data)
    try:
        header = load_gguf(path)
    except GgufError as error:
        told = error.where, error.hint
        assert all(told)
    else:
        assert sum(tensor.bytes for tensor in header.tensors) <= len(data) * max(1, len(header.tensors))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "m.gguf"


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(scratch, data):
    _survives(scratch, data)
    _survives(scratch, b"GGUF\x03\0\0\0" + data)


@given(st.data())
def test_a_file_with_changed_bytes_is_read_or_refused(scratch, good, data):
    made = bytearray(good)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, 520))
        made[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    _survives(scratch, bytes(made))


_EDGES = st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(
    0, 2**64 - 1
)


@given(at=st.integers(0, 520), value=_EDGES)
def test_a_file_with_a_changed_number_is_read_or_refused(scratch, good, at, value):
    made = bytearray(good)
    made[at : at + 8] = struct.pack("<Q", value)
    _survives(scratch, bytes(made))


def test_a_sparse_file_of_a_terabyte_costs_nothing(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({"a": struct.pack("<IIQ", 9, 8, 2**32 - 1)}))
    os.truncate(path, 2**40)
    with pytest.raises(GgufError) as caught:
        load_gguf(path)
    assert caught.value.code == "GGUF_BAD"


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing", "."):
        with refused("GGUF_BAD"):
            load_gguf(tmp_path / name)


def test_a_split_model_is_read_from_its_first_part(tmp_path):
    names = [f"m-{number:05d}-of-00002.gguf" for number in (1, 2)]
    split = {"split.count": 2}
    (tmp_path / names[0]).write_bytes(gguf_bytes({**_METADATA, **split}, _TENSORS[:1], data=4096))
    with refused("GGUF_BAD", match="part 2 of 2"):
        load_gguf_parts(tmp_path / names[0])
    (tmp_path / names[1]).write_bytes(gguf_bytes(split, [("b", (32,), 0, 0)], data=128))
    header = load_gguf_parts(tmp_path / names[0])
    assert [tensor.name for tensor in header.tensors] == ["token_embd.weight", "b"]
    assert "general.architecture" in header.metadata
    with refused("GGUF_BAD", match="one of 2 parts"):
        load_gguf_parts(tmp_path / names[1])
    (tmp_path / names[1]).write_bytes(b"GGUF")
    with refused("GGUF_BAD"):
        load_gguf_parts(tmp_path / names[0])


def test_the_head_size_of_a_damaged_model_is_an_error_of_the_gate(tmp_path, good):
    path = tmp_path / "m.gguf"
    path.write_bytes(good[:100])
    with refused("GGUF_BAD") as caught:
        head_size_of(path)
    assert "ends too early" in (caught.value.why or "")

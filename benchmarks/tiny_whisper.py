"""Write a whisper model with one layer and random weights, and two seconds of noise, to run whisper-cli with.

    python benchmarks/tiny_whisper.py ~/whisper.cpp FOLDER

The vocabulary and the mel filters are those of models/for-tests-ggml-tiny.en.bin in the clone of whisper.cpp.
"""

from __future__ import annotations

import argparse
import struct
import wave
from pathlib import Path
from typing import BinaryIO

import numpy as np

_MAGIC = 0x67676D6C
_VOCABULARY = "models/for-tests-ggml-tiny.en.bin"
_STATE, _LAYERS, _HEADS = 64, 1, 1  # a head size of 64, as in the published models
_AUDIO, _TEXT = 1500, 64  # positions
_FTYPE = 1  # matrices in f16


class _Writer:
    """Writes tensors with random values, in the order of the calls."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._random = np.random.default_rng(1)

    def tensor(self, name: str, shape: tuple[int, ...], *, scale: float, is_f16: bool = False) -> None:
        """A tensor; ``shape`` is in ggml's order, the fastest dimension first."""
        values = self._random.standard_normal(int(np.prod(shape))) * scale
        self._write(name, shape, values, is_f16=is_f16)

    def _write(self, name: str, shape: tuple[int, ...], values: np.ndarray, *, is_f16: bool) -> None:
        label = name.encode()
        self._file.write(struct.pack("<3i", len(shape), len(label), int(is_f16)))
        self._file.write(struct.pack(f"<{len(shape)}i", *shape) + label)
        self._file.write(values.astype("<f2" if is_f16 else "<f4").tobytes())

    def norm(self, name: str) -> None:
        self._write(f"{name}.weight", (_STATE,), 1 + 0.1 * self._random.standard_normal(_STATE), is_f16=False)
        self.tensor(f"{name}.bias", (_STATE,), scale=0.1)

    def linear(self, name: str, width: int, height: int, *, has_bias: bool = True) -> None:
        self.tensor(f"{name}.weight", (width, height), scale=1.2 / width**0.5, is_f16=True)
        if has_bias:
            self.tensor(f"{name}.bias", (height,), scale=0.1)

    def attention(self, name: str) -> None:
        for part in ("query", "key", "value", "out"):
            self.linear(f"{name}.{part}", _STATE, _STATE, has_bias=part != "key")

    def mlp(self, block: str) -> None:
        self.norm(f"{block}.mlp_ln")
        self.linear(f"{block}.mlp.0", _STATE, 4 * _STATE)
        self.linear(f"{block}.mlp.2", 4 * _STATE, _STATE)


def write_model(source: bytes, file: BinaryIO) -> None:
    """The model; ``source``: a model file of whisper.cpp with the filters and the vocabulary."""
    magic, n_vocab, *rest = struct.unpack("<I11i", source[:48])
    if magic != _MAGIC:
        raise ValueError("not a model file of whisper.cpp")
    n_mels = rest[8]
    rows, columns = struct.unpack("<2i", source[48:56])
    end = 56 + 4 * rows * columns
    (words,) = struct.unpack("<i", source[end : end + 4])
    end += 4
    for _ in range(words):
        end += 4 + struct.unpack("<I", source[end : end + 4])[0]
    audio = (_AUDIO, _STATE, _HEADS, _LAYERS)
    file.write(struct.pack("<I11i", _MAGIC, n_vocab, *audio, _TEXT, *audio[1:], n_mels, _FTYPE))
    file.write(source[48:end])
    out = _Writer(file)
    out.tensor("encoder.positional_embedding", (_STATE, _AUDIO), scale=0.3)
    for name, width in (("conv1", n_mels), ("conv2", _STATE)):
        out.tensor(f"encoder.{name}.weight", (3, width, _STATE), scale=0.2, is_f16=True)
        out.tensor(f"encoder.{name}.bias", (1, _STATE), scale=0.1)
    out.norm("encoder.ln_post")
    for layer in range(_LAYERS):
        block = f"encoder.blocks.{layer}"
        out.norm(f"{block}.attn_ln")
        out.attention(f"{block}.attn")
        out.mlp(block)
    out.tensor("decoder.positional_embedding", (_STATE, _TEXT), scale=0.3)
    out.tensor("decoder.token_embedding.weight", (_STATE, n_vocab), scale=0.5, is_f16=True)
    out.norm("decoder.ln")
    for layer in range(_LAYERS):
        block = f"decoder.blocks.{layer}"
        for name in ("attn", "cross_attn"):
            out.norm(f"{block}.{name}_ln")
            out.attention(f"{block}.{name}")
        out.mlp(block)


def write_noise(path: Path) -> None:
    """Two seconds of noise, 16 kHz, one channel."""
    samples = (np.random.default_rng(2).standard_normal(32000) * 3000).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clone", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with (given.folder / "tiny.bin").open("wb") as file:
        write_model((given.clone / _VOCABULARY).read_bytes(), file)
    write_noise(given.folder / "noise.wav")


if __name__ == "__main__":
    main()

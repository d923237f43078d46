"""Random tensors for GGUF files, in any type that llama.cpp's matmuls support."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import gguf
import numpy as np
import numpy.typing as npt

# For each block type (block_* in ggml-common.h), in bytes: the offset of its f16 scale, the offset of its
# minimum (f16), and the minimum in units of the scale that results in a mean of zero. All other bits may be
# random: codebook indices, signs, scales of sub-blocks. So these blocks also contain values that no quantizer
# writes, and need no importance matrix.
_SCALES: dict[str, tuple[int, int | None, float]] = {
    "Q4_0": (0, None, 0.0),
    "Q4_1": (0, 2, -7.5),
    "Q5_0": (0, None, 0.0),
    "Q5_1": (0, 2, -15.5),
    "Q8_0": (0, None, 0.0),
    "Q2_K": (80, 82, 1.5),
    "Q3_K": (108, None, 0.0),
    "Q4_K": (0, 2, 7.5),
    "Q5_K": (0, 2, 15.5),
    "Q6_K": (208, None, 0.0),
    "IQ2_XXS": (0, None, 0.0),
    "IQ2_XS": (0, None, 0.0),
    "IQ2_S": (0, None, 0.0),
    "IQ3_XXS": (0, None, 0.0),
    "IQ3_S": (0, None, 0.0),
    "IQ1_S": (0, None, 0.0),
    "IQ4_NL": (0, None, 0.0),
    "IQ4_XS": (0, None, 0.0),
}
_BLOCKS_WEIGHED = 256  # blocks from which the scale for the wanted spread is derived


class RandomTensors:
    """Writes tensors whose values have the standard deviation ``spread``.

    Args:
        writer: the GGUF file.
        seed: of the random numbers.
        spread: standard deviation of matrices.
        types: gguf type names, used by the matrices in turn; if empty, F16.
        are_zeros: quantized blocks contain only zeros.
    """

    def __init__(
        self,
        writer: gguf.GGUFWriter,
        *,
        seed: int,
        spread: float,
        types: Sequence[str] = (),
        are_zeros: bool = False,
    ) -> None:

        self._random = np.random.default_rng(seed)
        self._writer = writer
        self._spread = spread
        self._types = cycle(types or ("F16",))
        self._are_zeros = are_zeros

    def matrix(self, name: str, *shape: int, zeros: int = 0) -> None:
        """Add a matrix (or several, if there are more than two dimensions) in the next type.

        The first ``zeros`` rows of each are 0.
        """
        self._put(name, shape, next(self._types), zeros)

    def embeddings(self, name: str, *shape: int, classes: int = 0) -> None:
        """Add f16 token embeddings; the first ``classes`` values of a row are the token's one-hot class."""
        values = (self._random.standard_normal(shape, dtype=np.float32) * np.float32(self._spread)).astype(
            np.float16
        )
        if classes:
            values[:, :classes] = np.eye(classes, dtype=np.float16)[np.arange(shape[0]) % classes]
        self._writer.add_tensor(name, values)

    def routes(self, name: str, *shape: int, classes: int, gap: float) -> None:
        """Add router weights: the logits of experts differ by ``gap`` and depend only on the token's class.

        So rounding cannot change which experts a token is routed to.
        """
        experts = shape[0]
        values = np.zeros(shape, dtype=np.float32)
        for one in range(classes):
            values[:, one] = self._random.permutation(experts) * np.float32(gap)
        self._writer.add_tensor(name, values)

    def numbers(
        self, name: str, *shape: int, mean: float = 0.0, spread: float | None = None, zeros: int = 0
    ) -> None:
        """Add an f32 tensor, such as biases and small matrices. The first ``zeros`` of each row are 0."""
        values = self._random.standard_normal(shape, dtype=np.float32)
        values = values * (self._spread if spread is None else spread) + np.float32(mean)
        values[..., :zeros] = 0
        self._writer.add_tensor(name, values)

    def ones(self, name: str, *shape: int) -> None:
        """Add the weights of a norm: all ones."""
        self._writer.add_tensor(name, np.ones(shape, dtype=np.float32))

    def _put(self, name: str, shape: Sequence[int], kind: str, zeros: int) -> None:

        if kind in {"F32", "F16", "BF16"}:
            values = self._random.standard_normal(shape, dtype=np.float32) * np.float32(self._spread)
            values[..., :zeros, :] = 0
            if kind == "BF16":
                raw = gguf.quantize(values, gguf.GGMLQuantizationType.BF16)
                self._writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
            else:
                self._writer.add_tensor(name, values.astype(np.float16 if kind == "F16" else np.float32))
            return
        blocks = self._blocks(shape, kind)
        blocks[..., :zeros, :] = 0  # a scale of zero
        self._writer.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType[kind])

    def _blocks(self, shape: Sequence[int], kind: str) -> npt.NDArray[np.uint8]:
        """Blocks of random bits, with scales that give the wanted spread."""
        quantization = gguf.GGMLQuantizationType[kind]
        block, size = gguf.GGML_QUANT_SIZES[quantization]
        count = int(np.prod(shape)) // block
        whole = (*shape[:-1], shape[-1] // block * size)
        if self._are_zeros:
            return np.zeros(whole, dtype=np.uint8)
        blocks = self._random.integers(0, 256, (count, size), dtype=np.uint8)
        _set_scales(blocks, kind, np.ones(count, dtype=np.float32))
        measured = gguf.dequantize(blocks[:_BLOCKS_WEIGHED], quantization).std()
        varied = self._random.uniform(0.5, 1.5, count).astype(np.float32)
        _set_scales(blocks, kind, varied * np.float32(self._spread / measured))
        return blocks.reshape(whole)


def _set_scales(blocks: npt.NDArray[np.uint8], kind: str, scales: npt.NDArray[np.float32]) -> None:

    if kind == "MXFP4":  # the scale is a power of two, with its exponent in the first byte
        blocks[:, 0] = np.rint(np.log2(scales)).astype(np.int64) + 128
        return
    bits = scales.astype("<f2").view(np.uint16)
    if kind == "IQ1_M":  # four bits of the scale in each of the last four 16-bit words
        words = blocks[:, 48:56].view("<u2")
        for place in range(4):
            words[:, place] = (words[:, place] & 0x0FFF) | ((bits >> (4 * place) & 0xF) << 12)
        return
    offset, subtracted, factor = _SCALES[kind]
    blocks[:, offset : offset + 2] = bits.view(np.uint8).reshape(-1, 2)
    if subtracted is not None:
        other = (scales * np.float32(factor)).astype("<f2")
        blocks[:, subtracted : subtracted + 2] = other.view(np.uint8).reshape(-1, 2)

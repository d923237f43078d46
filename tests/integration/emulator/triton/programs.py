"""An ordinary Triton program with NumPy arrays: launches each kernel of kernels.py and compares with NumPy.

``programs.py NAME``: prints the largest error; ends with 1 if it is more than the type explains.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import kernels
import numpy as np
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

_DRAW = np.random.default_rng(7)


def vector_add() -> tuple[np.ndarray, np.ndarray, float]:
    left, right = _DRAW.standard_normal((2, 1000), dtype=np.float32)
    total = np.zeros_like(left)
    kernels.vector_add[(triton.cdiv(1000, 256),)](left, right, total, 1000, block=256)
    return total, left + right, 0.0


def softmax() -> tuple[np.ndarray, np.ndarray, float]:
    values = _DRAW.standard_normal((7, 1000), dtype=np.float32)
    shares = np.empty_like(values)
    kernels.softmax[(7,)](values, shares, 1000, block=1024)
    power = np.exp(values - values.max(axis=1, keepdims=True))
    return shares, power / power.sum(axis=1, keepdims=True), 1e-8


def matmul() -> tuple[np.ndarray, np.ndarray, float]:
    rows, columns, depth = 130, 100, 96
    left = _DRAW.standard_normal((rows, depth)).astype(np.float16)
    right = _DRAW.standard_normal((depth, columns)).astype(np.float16)
    product = np.zeros((rows, columns), np.float16)
    grid = (triton.cdiv(columns, 64), triton.cdiv(rows, 64))
    kernels.matmul[grid](left, right, product, rows, columns, depth, tile=64, step=32)
    return product, left.astype(np.float32) @ right.astype(np.float32), 2e-2


def attention() -> tuple[np.ndarray, np.ndarray, float]:
    heads, tokens, size = 3, 100, 64
    queries, keys, values = _DRAW.standard_normal((3, heads, tokens, size)).astype(np.float16)
    result = np.zeros((heads, tokens, size), np.float16)
    grid = (triton.cdiv(tokens, 32), 1, heads)
    kernels.attention[grid](queries, keys, values, result, tokens, size**-0.5, size=64, tile=32)
    scores = queries.astype(np.float32) @ keys.astype(np.float32).swapaxes(1, 2) * size**-0.5
    scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    power = np.exp(scores - scores.max(axis=2, keepdims=True))
    return result, power / power.sum(axis=2, keepdims=True) @ values.astype(np.float32), 2e-3


def histogram() -> tuple[np.ndarray, np.ndarray, float]:
    values = _DRAW.integers(0, 16, 5000, dtype=np.int32)
    counts = np.zeros(16, np.int32)
    kernels.histogram[lambda meta: (triton.cdiv(5000, meta["block"]),)](values, counts, 5000, block=256)
    return counts, np.bincount(values, minlength=16), 0.0


@triton.jit
def _sum_of_halves(values, total, count, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(total, tl.sum(tl.load(values + at, mask=at < count, other=0.0).to(tl.float32), axis=0))


def sum_of_halves() -> tuple[np.ndarray, np.ndarray, float]:
    """With v_fma_mix and an inline constant as f16."""
    values = _DRAW.standard_normal(1000).astype(np.float16)
    total = np.zeros(1, np.float32)
    _sum_of_halves[(1,)](values, total, 1000, block=1024)
    return total, values.sum(dtype=np.float64), 1e-3


@triton.autotune([triton.Config({"block": 64}, num_warps=1), triton.Config({"block": 1024})], key=["count"])
@triton.jit
def _scale(values, factors, count, block: tl.constexpr):
    at = tl.program_id(axis=0) * block + tl.arange(0, block)
    inside = at < count
    product = tl.load(values + at, mask=inside) * tl.load(factors)
    tl.store(values + at, product, mask=inside)


def autotuned() -> tuple[np.ndarray, np.ndarray, float]:
    """Changes its argument: a benchmark that kept its results would change it twice. The views overlap."""
    both = _DRAW.standard_normal(5001, dtype=np.float32)
    wanted = np.append(both[:5000] * both[5000], both[5000])
    _scale[lambda meta: (triton.cdiv(5000, meta["block"]),)](both[:5000], both[5000:], 5000)
    timings = getattr(_scale, "configs_timings", {}).values()
    sys.stdout.write(f"times known: {[bool(times[0] > 0) for times in timings]}\n")
    return both, wanted, 1e-6


@triton.jit
def _doubled(values, result, rows: tl.constexpr, columns: tl.constexpr):
    place = [tl.program_id(axis=0) * rows, tl.program_id(axis=1) * columns]
    result.store(place, values.load(place) * 2)


def descriptors() -> tuple[np.ndarray, np.ndarray, float]:
    """Tensor descriptors of NumPy arrays; tiles reach over the edges."""
    values = _DRAW.standard_normal((50, 40), dtype=np.float32)
    result = np.zeros_like(values)
    tile = [16, 32]
    _doubled[(4, 2)](
        TensorDescriptor.from_tensor(values, tile),
        TensorDescriptor(result, list(result.shape), [40, 1], tile),
        *tile,
    )
    return result, values * 2, 0.0


class _OnlyDlpack:
    """An array of another library: what NumPy's has of DLPack, and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **how: object) -> object:
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def by_dlpack() -> tuple[np.ndarray, np.ndarray, float]:
    left, right = _DRAW.standard_normal((2, 1000), dtype=np.float32)
    total = np.zeros_like(left)
    kernels.vector_add[(4,)](*map(_OnlyDlpack, (left, right, total)), 1000, block=256)
    return total, left + right, 0.0


@triton.jit
def _double_each(tables, count):
    table = tl.load(tables + tl.program_id(axis=0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, 128)
    tl.store(table + at, 2 * tl.load(table + at, mask=at < count), mask=at < count)
    tl.store(tables + 2, tl.load(tables + 2) + 1, mask=tl.program_id(axis=0) == 0)


def addresses() -> tuple[np.ndarray, np.ndarray, float]:
    """In an array that the kernel changes elsewhere. One tensor is a view, the other later an argument."""
    import torch

    values = torch.arange(200.0)
    other = torch.ones(100)
    tables = torch.tensor([values[100:].data_ptr(), other.data_ptr(), 6])
    before = tables.tolist()
    _double_each[(2,)](tables, 100)
    kernels.vector_add[(1,)](other, values, other, 100, block=128)
    found = torch.cat([values, other, (tables - torch.tensor(before)).double()]).numpy()
    wanted = np.arange(200.0) * np.repeat([1, 2], 100)
    return found, np.concatenate([wanted, 2 + wanted[:100], [0, 0, 1]]), 0.0


def benchmarked() -> tuple[np.ndarray, np.ndarray, float]:
    left = np.ones(4096, np.float32)
    total = np.zeros_like(left)
    grid = (4,)
    ms = triton.testing.do_bench(lambda: kernels.vector_add[grid](left, left, total, 4096, block=1024))
    sys.stdout.write(f"us between 1 and 100: {1 < 1000 * ms < 100}\n")
    return total, np.zeros_like(total), 0.0  # a benchmark's results are discarded


PROGRAMS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray, float]]] = {
    one.__name__: one
    for one in (
        vector_add,
        softmax,
        matmul,
        attention,
        histogram,
        sum_of_halves,
        autotuned,
        benchmarked,
        descriptors,
        by_dlpack,
        addresses,
    )
}

if __name__ == "__main__":
    found, wanted, most = PROGRAMS[sys.argv[1]]()
    error = np.abs(found.astype(np.float64) - wanted).max()
    sys.stdout.write(f"error {error}\n")
    sys.exit(not error <= most)  # also where it is no number

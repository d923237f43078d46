"""A Triton program with planted faults: ``faults.py NAME``."""

from __future__ import annotations

import sys

import numpy as np
import triton
import triton.language as tl


@triton.jit
def no_mask(values, result, count, block: tl.constexpr):
    at = tl.program_id(axis=0) * block + tl.arange(0, block)
    own = tl.load(values + at)  # fault: no_mask
    tl.store(result + at, own + 1, mask=at < count)


@triton.jit
def wrong_stride(values, result, columns, stride, block: tl.constexpr):
    at = tl.arange(0, block)
    own = tl.load(values + tl.program_id(axis=0) * stride + at, mask=at < columns)  # fault: wrong_stride
    tl.store(result + tl.program_id(axis=0) * columns + at, own, mask=at < columns)


@triton.jit
def far_atomic(values, counts, count, block: tl.constexpr):
    at = tl.program_id(axis=0) * block + tl.arange(0, block)
    own = tl.load(values + at, mask=at < count, other=0)
    tl.atomic_add(counts + own, 1, mask=at < count)  # fault: far_atomic


@triton.jit
def no_barrier(values, result, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(result + at, tl.load(values + at))
    tl.store(values + at, tl.load(result + block - 1 - at))  # fault: no_barrier


@triton.jit
def asserts(values, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.device_assert(tl.load(values + at) < 5, "too large")  # fault: asserts


@triton.jit
def prints(values, block: tl.constexpr):
    tl.device_print("value", tl.load(values + tl.arange(0, block)))


FLOATS = np.arange(1000, dtype=np.float32)
CALLS = {
    "no_mask": lambda: no_mask[(4,)](FLOATS, np.zeros_like(FLOATS), 1000, block=256),
    "wrong_stride": lambda: wrong_stride[(10,)](FLOATS, np.zeros_like(FLOATS), 100, 128, block=128),
    "far_atomic": lambda: far_atomic[(4,)](
        np.arange(1000, dtype=np.int32) % 17, np.zeros(16, np.int32), 1000, block=256
    ),
    "no_barrier": lambda: no_barrier[(1,)](FLOATS[:512].copy(), np.zeros(512, np.float32), block=512),
    "asserts": lambda: asserts[(1,)](np.arange(32, dtype=np.int32), block=32, debug=True),
    "prints": lambda: prints[(1,)](np.full(32, 7, np.int32), block=32, num_warps=1),
}

if __name__ == "__main__":
    CALLS[sys.argv[1]]()

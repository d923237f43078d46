"""Runs a Triton kernel on the GPU that the runtime has, and compares with numpy: ``run.py GFX NAME``.

Ends with 0 when all that it computed is right, else says what is not.
"""

from __future__ import annotations

import ctypes
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_TO_GPU, _FROM_GPU = 1, 2  # hipMemcpyKind


class Gpu:
    """Launches kernels of the archive."""

    def __init__(self, arch: str) -> None:
        self._hip = ctypes.CDLL("libamdhip64.so.6")
        self._arch = arch
        self._archive = zipfile.ZipFile(Path(__file__).with_name("kernels.zip"))
        self._launches = json.loads(self._archive.read("launches.json"))

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._hip, name)(*arguments):
            sys.exit(f"{name} answers {status}")

    def put(self, values: np.ndarray) -> ctypes.c_void_p:
        place = ctypes.c_void_p()
        size = ctypes.c_size_t(values.nbytes)
        self._call("hipMalloc", ctypes.byref(place), size)
        self._call("hipMemcpy", place, values.ctypes.data_as(ctypes.c_void_p), size, _TO_GPU)
        return place

    def get(self, place: ctypes.c_void_p, like: np.ndarray) -> np.ndarray:
        found = np.empty_like(like)
        size = ctypes.c_size_t(found.nbytes)
        self._call("hipMemcpy", found.ctypes.data_as(ctypes.c_void_p), place, size, _FROM_GPU)
        return found

    def launch(self, name: str, grid: tuple[int, int, int], *arguments: Any) -> None:
        how = self._launches[f"{name}-{self._arch}"]
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        code = self._archive.read(f"{name}-{self._arch}.hsaco")
        self._call("hipModuleLoadData", ctypes.byref(module), code)
        self._call("hipModuleGetFunction", ctypes.byref(function), module, how["kernel"].encode())
        # Behind its own, every kernel of Triton takes memory for the whole grid, and a profiler's.
        given = [*arguments, ctypes.c_void_p(), ctypes.c_void_p()]
        pointers = (ctypes.c_void_p * len(given))(*(ctypes.addressof(one) for one in given))
        block = (how["threads"], 1, 1)
        self._call("hipModuleLaunchKernel", function, *grid, *block, how["lds"], None, pointers, None)
        self._call("hipDeviceSynchronize")


def tiles(count: int, of: int) -> int:
    return (count + of - 1) // of


def vector_add(gpu: Gpu, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    left, right = draw.standard_normal((2, 1000), dtype=np.float32)
    total = gpu.put(np.zeros_like(left))
    gpu.launch("vector_add", (4, 1, 1), gpu.put(left), gpu.put(right), total, ctypes.c_int32(1000))
    return gpu.get(total, left), left + right, 0.0


def softmax(gpu: Gpu, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    values = draw.standard_normal((7, 1000), dtype=np.float32)
    shares = gpu.put(np.zeros_like(values))
    gpu.launch("softmax", (7, 1, 1), gpu.put(values), shares, ctypes.c_int32(1000))
    power = np.exp(values - values.max(axis=1, keepdims=True))
    return gpu.get(shares, values), power / power.sum(axis=1, keepdims=True), 1e-8


def matmul(gpu: Gpu, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    rows, columns, depth = 130, 100, 96
    left = draw.standard_normal((rows, depth)).astype(np.float16)
    right = draw.standard_normal((depth, columns)).astype(np.float16)
    product = np.zeros((rows, columns), np.float16)
    place = gpu.put(product)
    sizes = map(ctypes.c_int32, (rows, columns, depth))
    gpu.launch(
        "matmul", (tiles(columns, 64), tiles(rows, 64), 1), gpu.put(left), gpu.put(right), place, *sizes
    )
    return gpu.get(place, product), left.astype(np.float32) @ right.astype(np.float32), 2e-2


def attention(gpu: Gpu, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    heads, tokens, size = 3, 100, 64
    drawn = draw.standard_normal((3, heads, tokens, size)).astype(np.float16)
    result = np.zeros((heads, tokens, size), np.float16)
    place = gpu.put(result)
    more = ctypes.c_int32(tokens), ctypes.c_float(size**-0.5)
    gpu.launch("attention", (tiles(tokens, 32), 1, heads), *map(gpu.put, drawn), place, *more)
    queries, keys, values = drawn.astype(np.float32)
    scores = queries @ keys.swapaxes(1, 2) * size**-0.5
    scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    power = np.exp(scores - scores.max(axis=2, keepdims=True))
    return gpu.get(place, result), power / power.sum(axis=2, keepdims=True) @ values, 2e-3


def histogram(gpu: Gpu, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    values = draw.integers(0, 16, 5000, dtype=np.int32)
    counts = np.zeros(16, np.int32)
    place = gpu.put(counts)
    gpu.launch("histogram", (tiles(5000, 256), 1, 1), gpu.put(values), place, ctypes.c_int32(5000))
    return gpu.get(place, counts), np.bincount(values, minlength=16), 0.0


CASES: dict[str, Callable[[Gpu, np.random.Generator], tuple[np.ndarray, np.ndarray, float]]] = {
    one.__name__: one for one in (vector_add, softmax, matmul, attention, histogram)
}

if __name__ == "__main__":
    found, wanted, most = CASES[sys.argv[2]](Gpu(sys.argv[1]), np.random.default_rng(7))
    error = np.abs(found.astype(np.float64) - wanted).max()
    if not error <= most:  # also where it is no number
        sys.exit(f"{sys.argv[2]}: off by up to {error}, and {most} would be right")

"""Triton kernels as people write them. kernels.zip has what build.py compiled of them."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def vector_add(left, right, total, count, block: tl.constexpr):
    at = tl.program_id(axis=0) * block + tl.arange(0, block)
    inside = at < count
    tl.store(total + at, tl.load(left + at, mask=inside) + tl.load(right + at, mask=inside), mask=inside)


@triton.jit
def softmax(values, shares, columns, block: tl.constexpr):
    row = tl.program_id(axis=0)
    column = tl.arange(0, block)
    inside = column < columns
    own = tl.load(values + row * columns + column, mask=inside, other=float("-inf"))
    power = tl.exp(own - tl.max(own, axis=0))
    tl.store(shares + row * columns + column, power / tl.sum(power, axis=0), mask=inside)


@triton.jit
def matmul(left, right, product, rows, columns, depth, tile: tl.constexpr, step: tl.constexpr):
    row = tl.program_id(axis=1) * tile + tl.arange(0, tile)[:, None]
    column = tl.program_id(axis=0) * tile + tl.arange(0, tile)[None, :]
    total = tl.zeros((tile, tile), dtype=tl.float32)
    for begin in range(0, depth, step):
        across = begin + tl.arange(0, step)[None, :]
        down = begin + tl.arange(0, step)[:, None]
        a = tl.load(left + row * depth + across, mask=(row < rows) & (across < depth), other=0.0)
        b = tl.load(right + down * columns + column, mask=(down < depth) & (column < columns), other=0.0)
        total = tl.dot(a, b, total)
    tl.store(product + row * columns + column, total.to(tl.float16), mask=(row < rows) & (column < columns))


@triton.jit
def attention(queries, keys, values, result, tokens, scale, size: tl.constexpr, tile: tl.constexpr):
    """Causal; a program has a tile of queries of one head, and goes through the keys up to its last token."""
    first = tl.program_id(axis=0) * tile
    head = tl.program_id(axis=2) * tokens * size
    own = first + tl.arange(0, tile)[:, None]
    entry = tl.arange(0, size)[None, :]
    query = tl.load(queries + head + own * size + entry, mask=own < tokens, other=0.0)
    largest = tl.full((tile, 1), float("-inf"), dtype=tl.float32)
    weights = tl.zeros((tile, 1), dtype=tl.float32)
    total = tl.zeros((tile, size), dtype=tl.float32)
    for begin in range(0, first + tile, tile):
        other = begin + tl.arange(0, tile)
        rows, across = other[:, None], other[None, :]
        key = tl.load(keys + head + rows * size + entry, mask=rows < tokens, other=0.0)
        value = tl.load(values + head + rows * size + entry, mask=rows < tokens, other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where((across <= own) & (across < tokens), score, float("-inf"))
        now = tl.maximum(largest, tl.max(score, axis=1)[:, None])
        faded = tl.exp(largest - now)
        weight = tl.exp(score - now)
        weights = weights * faded + tl.sum(weight, axis=1)[:, None]
        total = tl.dot(weight.to(tl.float16), value, total * faded)
        largest = now
    tl.store(result + head + own * size + entry, (total / weights).to(tl.float16), mask=own < tokens)


@triton.jit
def histogram(values, counts, count, block: tl.constexpr):
    at = tl.program_id(axis=0) * block + tl.arange(0, block)
    inside = at < count
    tl.atomic_add(counts + tl.load(values + at, mask=inside, other=0), 1, mask=inside)

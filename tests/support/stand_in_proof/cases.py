"""The device functions a header is proven with: every way to load, multiply and store that it offers.

A *case* is one function of the translation unit that :func:`source` writes: it loads A, B and
C in given memory layouts, multiplies once or twice, and stores D. A *stride* counts elements.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from stand_in_proof.isa import SIZE, Kind

Layout = Literal["row", "col"]

_ELEMENT: dict[Kind, str] = {"half": "__half", "float": "float"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """How a matrix of 16 by 16 lies in memory; the buffer ends with its last element."""

    layout: Layout
    stride: int

    def index(self, row: int, column: int) -> int:
        """Element number of (row, column), row and column counted from 0."""
        return row * self.stride + column if self.layout == "row" else column * self.stride + row

    @property
    def elements(self) -> int:
        """Elements of the buffer, padding between lines included."""
        return self.stride * (SIZE - 1) + SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Memory layouts of the four matrices, the accumulators' type, and how often is multiplied.

    With ``steps`` of 2 the second pair of operands follows the first in memory, and the accumulator of
    the first multiplication goes into the second without leaving its registers, as in the kernel.
    """

    kind: Kind
    a: Layout
    b: Layout
    c: Layout
    d: Layout
    steps: int = 1

    @property
    def name(self) -> str:
        """The function's name, such as ``half_row_col_col_col_1``."""
        return "_".join((self.kind, self.a, self.b, self.c, self.d, str(self.steps)))


def all_cases() -> tuple[Case, ...]:
    """All layouts once multiplied, and twice for the layouts that the attention kernel uses."""
    kinds: tuple[Kind, ...] = ("half", "float")
    layouts: tuple[Layout, ...] = ("row", "col")
    once = tuple(
        Case(kind=kind, a=a, b=b, c=c, d=d)
        for kind, a, b, c, d in itertools.product(kinds, layouts, layouts, layouts, layouts)
    )
    twice = tuple(Case(kind=kind, a=a, b="col", c="col", d="col", steps=2) for kind in kinds for a in layouts)
    return once + twice


def fill_name(kind: Kind) -> str:
    """The function that fills an accumulator with a value and stores it."""
    return f"fill_{kind}"


def function_names() -> frozenset[str]:
    """All kernels of :func:`source`."""
    return frozenset(case.name for case in all_cases()) | {fill_name(kind) for kind in _ELEMENT}


def source() -> str:
    """A HIP translation unit over ``rocwmma/rocwmma.hpp`` with one kernel for each case."""
    return _PRELUDE + "".join(map(_kernel, all_cases())) + "".join(map(_fill, _ELEMENT))


_PRELUDE = """\
#include <rocwmma/rocwmma.hpp>
#include <stdint.h>

using namespace rocwmma;

template <class Element, class LayoutA, class LayoutB, int steps>
static __device__ inline __attribute__((always_inline)) void multiply(
        const __half * a, const __half * b, const Element * c, Element * d,
        uint32_t stride_a, uint32_t stride_b, uint32_t stride_c, uint32_t stride_d,
        uint32_t next_a, uint32_t next_b, layout_t layout_c, layout_t layout_d) {
    fragment<accumulator, 16, 16, 16, Element> sum;
    load_matrix_sync(sum, c, stride_c, layout_c);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        fragment<matrix_a, 16, 16, 16, __half, LayoutA> left;
        fragment<matrix_b, 16, 16, 16, __half, LayoutB> right;
        load_matrix_sync(left, a + step*next_a, stride_a);
        load_matrix_sync(right, b + step*next_b, stride_b);
        mma_sync(sum, left, right, sum);
    }
    store_matrix_sync(d, sum, stride_d, layout_d);
}
"""


def _kernel(case: Case) -> str:
    element = _ELEMENT[case.kind]
    return f"""
extern "C" __global__ void {case.name}(
        const __half * a, const __half * b, const {element} * c, {element} * d,
        uint32_t stride_a, uint32_t stride_b, uint32_t stride_c, uint32_t stride_d,
        uint32_t next_a, uint32_t next_b) {{
    multiply<{element}, {case.a}_major, {case.b}_major, {case.steps}>(
        a, b, c, d, stride_a, stride_b, stride_c, stride_d, next_a, next_b,
        mem_{case.c}_major, mem_{case.d}_major);
}}
"""


def _fill(kind: Kind) -> str:
    element = _ELEMENT[kind]
    return f"""
extern "C" __global__ void {fill_name(kind)}(const {element} * value, {element} * d, uint32_t stride) {{
    fragment<accumulator, 16, 16, 16, {element}> filled;
    fill_fragment(filled, *value);
    store_matrix_sync(d, filled, stride, mem_row_major);
}}
"""

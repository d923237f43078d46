"""Which parameters of the WMMA kernel are measured, and how they are spread over programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from patchkit.gates.base import Record
from patchkit.kernels.occupancy import HardwareLimits
from patchkit.kernels.wmma import UPSTREAM, VARIANTS, WmmaParams, WmmaVariant, lds_bytes, legal_params

# Bytes of static __shared__ memory per block on every CUDA GPU (CUDA C++ Programming Guide,
# 'Compute Capabilities').
STATIC_LIMIT = 48 * 1024

_LANES = 32


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One variant with one setting: KV rows per step and warps per block."""

    variant: WmmaVariant
    kq_stride: int
    nwarps: int

    @property
    def params(self) -> WmmaParams:
        """The setting as the kernel's model knows it."""
        return WmmaParams(self.kq_stride, self.nwarps)

    @property
    def static_bytes(self) -> int:
        """Static shared memory of one block, in bytes."""
        return lds_bytes(self.variant, self.params)

    @property
    def is_legal_here(self) -> bool:
        """Whether CUDA gives a block that much."""
        return self.static_bytes <= STATIC_LIMIT

    def __str__(self) -> str:
        return f"{self.variant}: stride {self.kq_stride}, {self.nwarps} warps"


def _point_of_row(row: object) -> object:
    if not isinstance(row, list):
        return row
    size, columns, acc, stride, warps = row
    variant = {"head_size": size, "ncols": columns, "acc": acc}
    return {"variant": variant, "kq_stride": stride, "nwarps": warps}


def _row_of_point(point: Point) -> list[int | str]:
    variant = point.variant
    return [variant.head_size, variant.ncols, variant.acc, point.kq_stride, point.nwarps]


# In JSON: head size, columns, accumulator, stride, warps.
_Stored = Annotated[Point, BeforeValidator(_point_of_row), PlainSerializer(_row_of_point)]


class Table(Record):
    """The points somebody needs: ``name`` is a GPU, or says what they are."""

    name: str
    points: tuple[_Stored, ...]


class Program(Record):
    """One program: ``points`` are what it measures; ``planted``: they break the kernel's rules."""

    name: str
    points: tuple[_Stored, ...]
    planted: bool = False

    @property
    def variants(self) -> frozenset[WmmaVariant]:
        """The variants it measures."""
        return frozenset(point.variant for point in self.points)


# Settings that the tile table could take but does not (docs/wmma-tiles.md): numbers first, then a choice.
ALTERNATIVES = Table(
    name="alternatives",
    points=(
        Point(WmmaVariant(64, 32, "f32"), 256, 8),
        Point(WmmaVariant(112, 32, "f16"), 64, 4),
        Point(WmmaVariant(112, 32, "f32"), 64, 4),
        Point(WmmaVariant(128, 16, "f16"), 64, 4),
        Point(WmmaVariant(256, 16, "f16"), 64, 4),
        Point(WmmaVariant(256, 32, "f16"), 128, 8),
    ),
)

# Each breaks C1 (a stride that is no multiple of 16 rows per warp) or C3 (it does not fill the softmax).
PLANTED = (
    Point(WmmaVariant(64, 16, "f16"), 96, 2),
    Point(WmmaVariant(64, 32, "f32"), 64, 8),
    Point(WmmaVariant(80, 16, "f16"), 192, 8),
    Point(WmmaVariant(112, 32, "f32"), 96, 4),
    Point(WmmaVariant(128, 16, "f16"), 64, 8),
    Point(WmmaVariant(128, 32, "f32"), 64, 8),
)


def legal_table(limits: HardwareLimits) -> Table:
    """Every point that breaks no rule of the kernel on a GPU: whatever a table may ever choose."""
    return Table(
        name="all legal",
        points=tuple(
            Point(variant, params.kq_stride, params.nwarps)
            for variant in VARIANTS
            for params in legal_params(variant, limits)
        ),
    )


def planted_program() -> Program:
    """The program that must fail."""
    return Program(name="planted", points=PLANTED, planted=True)


def make_programs(tables: Iterable[Table]) -> tuple[Program, ...]:
    """One program per setting, sorted, with every point of the tables that is legal here."""
    by_setting: dict[tuple[int, int], set[Point]] = {}
    for table in tables:
        for point in table.points:
            if point.is_legal_here:
                by_setting.setdefault((point.kq_stride, point.nwarps), set()).add(point)
    return tuple(
        Program(name=f"stride{stride}-warps{warps}", points=tuple(sorted(points)))
        for (stride, warps), points in sorted(by_setting.items())
    )


def rows_text(program: Program) -> str:
    """What the forced tree includes in place of its table's rows.

    The macro and the packing of its value are those of patches/0001-wmma-tile-params; a planted row goes
    around the macro, whose assertions it would not pass.
    """
    points: Mapping[WmmaVariant, Point] = {point.variant: point for point in program.points}
    lines = [f"// Program '{program.name}'"]
    for variant in VARIANTS:
        point = points.get(variant)
        size = variant.acc_bytes
        if point is not None and program.planted:
            test = f"D == {variant.head_size} && ncols == {variant.ncols} && acc_bytes == {size}"
            lines.append(
                f"    if ({test}) {{ return ({point.kq_stride} << 0) | ({point.nwarps} << 9) | (1 << 14); }}"
            )
            continue
        params = UPSTREAM if point is None else point.params
        lines.append(
            f"    GGML_CUDA_FATTN_WMMA_CONFIG_CASE({variant.head_size:3}, {variant.ncols}, {size}, "
            f"{params.kq_stride:3}, {params.nwarps:2}, 1, {_LANES}, {STATIC_LIMIT})"
        )
    return "\n".join(lines) + "\n"

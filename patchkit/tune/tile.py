"""flash_attn_tile, the attention kernel without matrix instructions: RDNA's rows of its table.

A *variant* is a head size and a number of columns, as ``256-32``; the row is shared by every way to share
the columns among query heads, with and without soft cap. The unit instantiates the way with the most
heads, up to eight, as models with grouped queries get it; the others are checks.

The rules are facts about the kernel of build 11549 (fattn-tile.cuh), each an assertion or an assumption
of its loops: a wave has 32 lanes; ``nbatch_fa`` is a multiple of the rows that the waves of a column take
at once; ``nbatch_k`` is a multiple of the eight halves of one copy; the fields have 10, 4, 9 and 9 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import Location, ToolchainError, UsageError
from patchkit.base.source import SourceText, Span
from patchkit.cpp.scopes import parse_scopes
from patchkit.kernels.occupancy import HardwareLimits
from patchkit.series.profile import ArchProfile
from patchkit.tune.family import (
    UNIT_FOLDER,
    Candidate,
    Row,
    Setting,
    Site,
    Traits,
    Tunable,
    binding_bounds,
    numbers_of,
    ways_of,
)
from patchkit.tune.wmma import cut_behind

TILE_FILE = "ggml/src/ggml-cuda/fattn-tile.cuh"
_KERNEL = "flash_attn_tile"
_TABLE = "ggml_cuda_fattn_tile_get_config_amd_rdna"
_ROW = re.compile(
    rb"(\bGGML_CUDA_FATTN_TILE_CONFIG_CASE\s*\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,)"
    rb"\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)"
)
_PARAMETERS = ("nthreads", "occupancy", "nbatch_fa", "nbatch_k")
_HEAD_SIZES = (128, 256)
_FEWEST_COLUMNS = 8  # below, a block decodes: bound by memory, not by what a table says
_HEADS = (8, 4, 2, 1)  # query heads that share a block, as models with and without grouped queries have them
_LANES = 32
_COPY_HALVES = 8  # 16 bytes, ggml_cuda_get_max_cpy_bytes
_SPACE: tuple[tuple[int, ...], ...] = (
    (64, 128, 256, 512),
    (32, 64, 128, 256),
    (32, 64, 128, 256),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileFamily:
    """``kernel_file``: upstream's file; ``rows``: upstream's setting of each variant, in order."""

    limits: HardwareLimits
    kernel_file: bytes
    rows: Mapping[str, Setting]
    places: Mapping[str, Span]
    name: str = "tile"
    kernel: str = _KERNEL
    rocwmma: bool = False
    prelude: str | None = f"{UNIT_FOLDER}/tile-prelude.cuh"
    parameters: tuple[str, ...] = _PARAMETERS

    @property
    def variants(self) -> tuple[str, ...]:
        """Head sizes 128 and 256, blocks of eight columns and more."""
        return tuple(self.rows)

    def legal(self, variant: str) -> tuple[Setting, ...]:
        """Every combination of usual values that keeps the rules, and of bounds that can change anything."""
        head_size, columns = numbers_of(variant)
        found = {
            (nthreads, occupancy, rows, halves)
            for nthreads in _SPACE[0]
            for occupancy in binding_bounds(self.limits, self.rows[variant][1])
            for rows in _SPACE[1]
            for halves in _SPACE[2]
            if _holds(head_size, columns, nthreads, rows, halves)
        }
        return tuple(sorted(found | {self.rows[variant]}))

    def baseline(self, variant: str) -> Setting:
        """Upstream's row."""
        return self.rows[variant]

    def traits(self, candidate: Candidate) -> Traits:
        """A turn of the loop covers nbatch_fa rows."""
        return Traits(
            threads=candidate.setting[0], rows=candidate.setting[2], columns=numbers_of(candidate.variant)[1]
        )

    def unit(self, candidate: Candidate) -> str:
        """With the most query heads per block, without soft cap."""
        return next(_ways(candidate))[0]

    def checks(self, candidate: Candidate) -> tuple[str, ...]:
        """Fewer heads per block, and soft cap with each: all of them read the same row.

        They differ much: of <128, 128> with 64 columns a row that helps eight heads spills with two and four.
        """
        return tuple(path for path, _, _ in _ways(candidate))[1:]

    def current(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """The rows of the profile for heads of one size."""
        rows = {
            f"{row.head_size_k}-{row.ncols}": (row.nthreads, row.occupancy, row.nbatch_fa, row.nbatch_k)
            for row in profile.tuned_tile
            if row.head_size_k == row.head_size_v
        }
        return {variant: rows[variant] for variant in self.variants if variant in rows}

    def measured(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """None: the profile's rows are looked at like any other."""
        del profile
        return {}

    def sources(self, settings: Mapping[str, Sequence[Setting]]) -> Mapping[str, bytes]:
        """One copy of the kernel per variant, its row made of macros that each unit defines."""
        kernel = cut_behind(SourceText(TILE_FILE, self.kernel_file), _KERNEL)
        headers = ("common.cuh", "fattn-common.cuh")
        prelude = ["#pragma once", *(f'#include "../{name}"' for name in headers), ""]
        files = {f"{UNIT_FOLDER}/tile-prelude.cuh": "\n".join(prelude).encode()}
        macros = ", ".join(f"PATCHKIT_{name.upper()}" for name in _PARAMETERS)
        for variant, chosen in settings.items():
            span = self.places[variant]
            edited = kernel[: span.start] + f" {macros})".encode() + kernel[span.end :]
            files[f"{UNIT_FOLDER}/tile-{variant}/kernel.cuh"] = edited
            for setting in [self.rows[variant], *chosen]:
                files.update(self._units(Candidate(variant, setting), headers))
        return files

    def _units(self, candidate: Candidate, headers: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
        head_size, columns = numbers_of(candidate.variant)
        for path, shared, capped in _ways(candidate):
            kernel = f"{_KERNEL}<{head_size}, {head_size}, {columns // shared}, {shared}, {capped}>"
            lines = [f'#include "../../{name}"' for name in headers]
            lines += [
                f"#define PATCHKIT_{name.upper()} {value}"
                for name, value in zip(_PARAMETERS, candidate.setting, strict=True)
            ]
            lines += [
                '#include "kernel.cuh"',
                "fattn_kernel_t patchkit_tuned_kernel();",
                f"fattn_kernel_t patchkit_tuned_kernel() {{ return {kernel}; }}",
                "",
            ]
            yield path, "\n".join(lines).encode()


def make_tile_family(limits: HardwareLimits, kernel_file: bytes) -> TileFamily:
    """The family of a build, from its file.

    Raises:
        TUNE_KERNEL_NOT_FOUND: the kernel or RDNA's table is not there, or the table has none of the rows.
    """
    source = SourceText(TILE_FILE, kernel_file)
    tables = [each for each in parse_scopes(source).entities if each.answers_to(_TABLE)]
    rows: dict[str, Setting] = {}
    places: dict[str, Span] = {}
    for table in tables if len(tables) == 1 else []:
        for found in _ROW.finditer(kernel_file, table.span.start, table.span.end):
            head_size, value_size, columns = (int(found[group]) for group in (2, 3, 4))
            if head_size == value_size and head_size in _HEAD_SIZES and columns >= _FEWEST_COLUMNS:
                variant = f"{head_size}-{columns}"
                rows[variant] = tuple(int(found[group]) for group in (5, 6, 7, 8))
                places[variant] = Span(found.end(1), found.end())
    if not rows:
        raise ToolchainError(
            f"{TILE_FILE} has no table {_TABLE} with rows for head sizes 128 and 256",
            code="TUNE_KERNEL_NOT_FOUND",
            where=Location(path=TILE_FILE),
            why=f"there are {len(tables)} functions of that name",
            hint="builds from 2025-10-11 on (llama.cpp PR 16492) have it",
        )
    return TileFamily(limits=limits, kernel_file=kernel_file, rows=rows, places=places)


def _ways(candidate: Candidate) -> Iterator[tuple[str, int, str]]:
    """The unit, the heads per block and the soft cap of each instantiation that reads the row."""
    stem = f"{UNIT_FOLDER}/tile-{candidate.variant}/{'-'.join(map(str, candidate.setting))}"
    return ways_of(stem, _HEADS, ("false", "true"))


def _holds(head_size: int, columns: int, nthreads: int, rows: int, halves: int) -> bool:
    waves = nthreads // _LANES
    shared = max(1, waves // columns)  # waves that work on one column
    return (
        rows % (shared * _LANES) == 0
        and (columns % waves == 0 or waves % columns == 0)
        and halves % _COPY_HALVES == 0
        and halves <= head_size
    )


def _make(site: Site) -> TileFamily:
    if site.limits.wave_size != _LANES:
        raise UsageError(
            f"{site.profile.arch} does not read RDNA's table",
            code="TUNE_KERNEL_UNTUNABLE",
            hint="patchkit list names the GPUs",
        )
    return make_tile_family(site.limits, site.read(TILE_FILE)[TILE_FILE])


def _rows_with(profile: ArchProfile, variant: str, setting: Setting, measured_on: str) -> list[Row]:
    head_size, ncols = numbers_of(variant)
    rows: list[Row] = [
        {
            "head_size_k": row.head_size_k,
            "head_size_v": row.head_size_v,
            "ncols": row.ncols,
            "nthreads": row.nthreads,
            "occupancy": row.occupancy,
            "nbatch_fa": row.nbatch_fa,
            "nbatch_k": row.nbatch_k,
            "source": row.source,
            "measured_on": row.measured_on,
        }
        for row in profile.tuned_tile
        if (row.head_size_k, row.ncols) != (head_size, ncols)
    ]
    rows.append(
        {
            "head_size_k": head_size,
            "head_size_v": head_size,
            "ncols": ncols,
            **dict(zip(_PARAMETERS, setting, strict=True)),
            "source": "patchkit tune --device: the fastest of the settings that were raced",
            "measured_on": measured_on,
        }
    )
    return sorted(rows, key=lambda row: (row["head_size_k"], row["head_size_v"], row["ncols"]))


TUNABLE = Tunable(make=_make, table="tile", rows_with=_rows_with)

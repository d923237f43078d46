"""flash_attn_tile, attention without matrix instructions: the table for RDNA.

A *variant* is a head size and a number of columns, such as ``256-32``. All instances with that many columns
use the same row, however these are split among query heads, with and without soft cap. The unit instantiates
the kernel with the most heads, up to eight, as for models with GQA; the others are checks.

The rules are facts about the kernel of build 11549 (fattn-tile.cuh), each an assertion or an assumption of
its loops: a wave has 32 lanes; ``nbatch_fa`` is a multiple of the rows that the waves of a column process at
once; ``nbatch_k`` is a multiple of the eight halves of one copy; the fields have 10, 4, 9 and 9 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import Location, ToolchainError, UsageError
from patchkit.base.occupancy import HardwareLimits
from patchkit.base.source import SourceText
from patchkit.base.upstreams import llama_cpp
from patchkit.carry.series.profile import ArchProfile
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.names import KernelName
from patchkit.gpu.modelled.shape import ModelShape, load_models
from patchkit.tune.family import (
    UNIT_FOLDER,
    Candidate,
    Setting,
    Site,
    TimedFamily,
    Traits,
    binding_bounds,
    includes,
    instantiations,
    numbers_of,
    prelude_text,
    unit_text,
)
from patchkit.tune.table import cut_after, definitions, numbers, table_rows, tables, with_own_row, with_rows
from patchkit.tune.timed import attention_cases, is_attention_of

TILE_FILE = llama_cpp().gpu_file("fattn-tile.cuh")
_TABLE = "ggml_cuda_fattn_tile_get_config_amd_rdna"
_MACRO = "GGML_CUDA_FATTN_TILE_CONFIG_CASE"
_HEADERS = ("common.cuh", "fattn-common.cuh")
_PARAMETERS = ("nthreads", "occupancy", "nbatch_fa", "nbatch_k")
_HEAD_SIZES = (128, 256)
_FEWEST_COLUMNS = 8  # fewer columns are for decode, which is bound by memory and not by the table
_HEADS = (8, 4, 2, 1)  # query heads that share a block, for models with and without GQA
_LANES = 32
_COPY_HALVES = 8  # 16 bytes, ggml_cuda_get_max_cpy_bytes
_SPACE: tuple[tuple[int, ...], ...] = (
    (64, 128, 256, 512),
    (32, 64, 128, 256),
    (32, 64, 128, 256),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileFamily(TimedFamily):
    """The kernel of one build: ``kernel_file`` is upstream's file, ``models`` provide cases for timing."""

    name = "tile"
    kernel = "flash_attn_tile"
    timed_as = "tile"
    prelude = f"{UNIT_FOLDER}/tile-prelude.cuh"
    kernel_file: bytes
    models: Sequence[ModelShape] = ()
    parameters: tuple[str, ...] = _PARAMETERS

    def legal(self, variant: str) -> tuple[Setting, ...]:
        """All combinations of usual values that meet the rules, with the bounds that can have an effect."""
        head_size, columns = numbers_of(variant)
        found = {
            (nthreads, occupancy, rows, halves)
            for nthreads in _SPACE[0]
            for occupancy in binding_bounds(self.limits, self.rows[variant][1])
            for rows in _SPACE[1]
            for halves in _SPACE[2]
            if _is_legal(head_size, columns, nthreads, rows, halves)
        }
        return tuple(sorted(found | {self.rows[variant]}))

    def traits(self, candidate: Candidate) -> Traits:
        """An iteration of the loop covers nbatch_fa rows."""
        return Traits(
            threads=candidate.setting[0], rows=candidate.setting[2], columns=numbers_of(candidate.variant)[1]
        )

    def units(self, candidate: Candidate) -> tuple[str, ...]:
        """First the unit with the most query heads per block and no soft cap, then all others.

        They differ a lot: for <128, 128> with 64 columns, a row that helps with eight heads spills with two
        and four.
        """
        return tuple(path for path, _, _ in _instantiations(candidate))

    def current(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """The rows of the profile with equal head sizes of K and V."""
        rows = {
            f"{row.head_size_k}-{row.ncols}": tuple(getattr(row, name) for name in _PARAMETERS)
            for row in profile.tuning.tile
            if row.head_size_k == row.head_size_v
        }
        return {variant: rows[variant] for variant in self.variants if variant in rows}

    def cases(self, variant: str) -> tuple[Case, ...]:
        """Attention operations of the models."""
        return attention_cases(self.models, numbers_of(variant), map(numbers_of, self.rows))

    def with_settings(self, settings: Mapping[str, Setting]) -> Mapping[str, bytes]:
        """The file with the changed table."""

        def changed(words: tuple[str, ...]) -> tuple[str | int, ...] | None:
            head_size, value_size, columns = numbers(words[:3])
            setting = settings.get(f"{head_size}-{columns}")
            return None if head_size != value_size or setting is None else (*words[:3], *setting)

        return {TILE_FILE: with_rows(TILE_FILE, self.kernel_file, _TABLE, _MACRO, changed)}

    def is_kernel(self, name: KernelName, variant: str) -> bool:
        """flash_attn_tile<head size, head size, tokens, query heads, soft cap>."""
        return is_attention_of(name, self.kernel, variant)

    def shared_sources(self) -> Mapping[str, bytes]:
        """A copy of the kernel with a row in front of its table that units define by macros."""
        words = ["PATCHKIT_HEAD_SIZE", "PATCHKIT_HEAD_SIZE", "PATCHKIT_COLUMNS"]
        words += [f"PATCHKIT_{name.upper()}" for name in _PARAMETERS]
        edited = with_own_row(TILE_FILE, self.kernel_file, _TABLE, _MACRO, words)
        return {
            self.prelude: prelude_text(_HEADERS, "../"),
            f"{UNIT_FOLDER}/tile/kernel.cuh": cut_after(SourceText(TILE_FILE, edited), self.kernel),
        }

    def instances(self, candidate: Candidate) -> Iterator[tuple[str, bytes]]:
        """Each unit defines the macros of its row."""
        head_size, columns = numbers_of(candidate.variant)
        values: dict[str, str | int] = {"head_size": head_size, "columns": columns}
        values |= dict(zip(_PARAMETERS, candidate.setting, strict=True))
        lines = [*includes(_HEADERS, "../../"), *definitions(values), '#include "../tile/kernel.cuh"']
        for path, shared, capped in _instantiations(candidate):
            kernel = f"{self.kernel}<{head_size}, {head_size}, {columns // shared}, {shared}, {capped}>"
            yield path, unit_text(lines, kernel)


def make_tile_family(
    limits: HardwareLimits, kernel_file: bytes, models: Sequence[ModelShape] = ()
) -> TileFamily:
    """The family for a build, from its kernel file.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the kernel or the table for RDNA is missing, or the table has no such rows.
    """
    found = tables(TILE_FILE, kernel_file, _TABLE)
    rows: dict[str, Setting] = {}
    for words in table_rows(TILE_FILE, kernel_file, _TABLE, _MACRO) if len(found) == 1 else ():
        head_size, value_size, columns, *setting = numbers(words)
        if head_size == value_size and head_size in _HEAD_SIZES and columns >= _FEWEST_COLUMNS:
            rows[f"{head_size}-{columns}"] = tuple(setting)
    if not rows:
        raise ToolchainError(
            f"{TILE_FILE} has no table {_TABLE} with rows for head sizes 128 and 256",
            code="TUNE_KERNEL_UNTUNABLE",
            where=Location(path=TILE_FILE),
            why=f"{len(found)} functions of that name were found",
            hint="use a build from 2025-10-11 or later (llama.cpp PR 16492)",
        )
    return TileFamily(limits=limits, kernel_file=kernel_file, rows=rows, models=models)


def _instantiations(candidate: Candidate) -> Iterator[tuple[str, int, str]]:
    """The unit, the heads per block and the soft cap of each instantiation that uses the row."""
    stem = f"{UNIT_FOLDER}/tile-{candidate.variant}/{'-'.join(map(str, candidate.setting))}"
    return instantiations(stem, _HEADS, ("false", "true"))


def _is_legal(head_size: int, columns: int, nthreads: int, rows: int, halves: int) -> bool:
    waves = nthreads // _LANES
    shared = max(1, waves // columns)  # waves that work on one column
    return (
        rows % (shared * _LANES) == 0
        and (columns % waves == 0 or waves % columns == 0)
        and halves % _COPY_HALVES == 0
        and halves <= head_size
    )


def make_family(site: Site) -> TileFamily:
    """The family for a site.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the GPU does not use this table, or the build lacks it.
    """
    if site.limits.wave_size != _LANES:
        raise UsageError(
            f"upstream does not use the table for RDNA on {site.profile.arch}",
            code="TUNE_KERNEL_UNTUNABLE",
            hint="list the GPUs with: patchkit list",
        )
    models = load_models(site.workspace.series.profiles)
    return make_tile_family(site.limits, site.read(TILE_FILE)[TILE_FILE], models)

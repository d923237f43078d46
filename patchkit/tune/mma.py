"""flash_attn_ext_f16 of fattn-mma-f16.cuh, attention with matrix instructions: the table for RDNA.

A *variant* is a head size and a number of columns, such as ``256-32``. The unit instantiates the kernel with
eight query heads per block, as for models with GQA. Instances with four and two heads and with soft cap use
the same row, and are checks.

The rules are facts about the kernel of build 11549 on GPUs with 16x16 matrix fragments and wave32 (RDNA3,
RDNA4); each is an assertion or an assumption of its loops:

====  =====================================================================================
A1    a block has at most 512 threads, in whole waves
A2    the number of its waves is the number of 16-column groups times np, a power of two: the
      number of waves that share a group
A3    KV rows per step are a multiple of 16 np and divide the 256 rows that KV is padded to
A4    K and V values per step (pairs of halves) divide the head size, in whole fragments: 8 pairs
      for K, 16 for V and for the combined values, 8 if the head size is 80 or 112
A5    LDS of a block, as computed by the host, is at most 64 KiB
====  =====================================================================================

The number of stages is not a parameter: without asynchronous copies the kernel ignores it. Blocks of 8
columns, one query head per block, and head sizes above 256 only trap on these GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from patchkit.base.errors import UsageError
from patchkit.base.occupancy import HardwareLimits
from patchkit.base.source import SourceText
from patchkit.base.upstreams import llama_cpp
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.names import KernelName
from patchkit.gpu.modelled.shape import ModelShape, load_models
from patchkit.tune.family import (
    FRAGMENTS_16X16,
    UNIT_FOLDER,
    Candidate,
    Setting,
    Site,
    TimedFamily,
    Traits,
    Tunable,
    binding_bounds,
    includes,
    instantiations,
    numbers_of,
    prelude_text,
    unit_text,
)
from patchkit.tune.table import (
    definitions,
    local_includes,
    numbers,
    table_rows,
    tables,
    with_own_row,
    with_rows,
)
from patchkit.tune.timed import attention_cases, is_attention_of
from patchkit.tune.wmma import cut_after

MMA_FILE = llama_cpp().gpu_file("fattn-mma-f16.cuh")
_TABLE = "ggml_cuda_fattn_mma_get_config_rdna"
_MACRO = "GGML_CUDA_FATTN_MMA_CONFIG_CASE"
_PARAMETERS = ("nthreads", "occupancy", "nbatch_fa", "nbatch_k2", "nbatch_v2", "nbatch_combine", "q_in_reg")
_FOLDER = f"{UNIT_FOLDER}/mma"
_HEADERS = ("common.cuh", "mma.cuh", "fattn-common.cuh")  # cp-async.cuh can be included only once
_HEAD_SIZES = (64, 80, 96, 112, 128, 256)
_NARROW = (80, 112)  # with fragments of 16 rows for V instead of 32 (mma_tile_sizes)
_SOFTCAP = (128, 256)
_FEWEST_COLUMNS = 16
_HEADS = (8, 4, 2)  # query heads per block; a single one is not compiled for these GPUs
_LANES, _FRAGMENT, _FRAGMENT_PAIRS = 32, 16, 8
_PAD = 4  # pairs of halves added to each row in LDS to avoid bank conflicts
_PAIR_BYTES = 4
_THREADS = (64, 128, 256, 512)
_MOST_COMBINED = 128
_STAGES_AT = 9  # index in a row: 3 keys, threads, occupancy, rows, K, V, combined, stages, Q in registers


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaFamily(TimedFamily):
    """The kernel of one build: ``kernel_file`` is upstream's file, ``models`` provide cases for timing."""

    name = "mma"
    kernel = "flash_attn_ext_f16"
    timed_as = "mma"
    prelude = f"{_FOLDER}/prelude.cuh"
    kernel_file: bytes
    models: Sequence[ModelShape] = ()
    parameters: tuple[str, ...] = _PARAMETERS

    def legal(self, variant: str) -> tuple[Setting, ...]:
        """All settings that meet the rules, with the minimum-waves bounds that can have an effect."""
        head_size, columns = numbers_of(variant)
        base = self.rows[variant]
        pairs = head_size // 2
        wide = _FRAGMENT_PAIRS if head_size in _NARROW else 2 * _FRAGMENT_PAIRS
        of_k = [each for each in range(_FRAGMENT_PAIRS, pairs + 1, _FRAGMENT_PAIRS) if pairs % each == 0]
        of_v = [each for each in range(wide, pairs + 1, wide) if pairs % each == 0]
        space = product(
            [threads for threads in _THREADS if _shared(threads, columns)],
            binding_bounds(self.limits, base[1]),
            (32, 64, 128, 256),
            of_k,
            of_v,
            [each for each in of_v if each <= _MOST_COMBINED],
            (0, 1),
        )
        found = {
            setting
            for setting in space
            if setting[2] % (_FRAGMENT * _shared(setting[0], columns)) == 0
            and lds_bytes(head_size, columns, setting) <= self.limits.lds_per_workgroup_bytes
        }
        return tuple(sorted(found | {base}))

    def traits(self, candidate: Candidate) -> Traits:
        """An iteration of the loop covers nbatch_fa rows; LDS is allocated at launch."""
        head_size, columns = numbers_of(candidate.variant)
        return Traits(
            threads=candidate.setting[0],
            rows=candidate.setting[2],
            columns=columns,
            launch_lds_bytes=lds_bytes(head_size, columns, candidate.setting),
        )

    def units(self, candidate: Candidate) -> tuple[str, ...]:
        """First the unit with the most query heads per block and no soft cap, then all others."""
        return tuple(path for path, _, _ in _instantiations(candidate))

    def cases(self, variant: str) -> tuple[Case, ...]:
        """Attention operations of the models."""
        return attention_cases(self.models, numbers_of(variant), map(numbers_of, self.rows))

    def with_settings(self, settings: Mapping[str, Setting]) -> Mapping[str, bytes]:
        """The file with the changed table."""

        def changed(words: tuple[str, ...]) -> tuple[str | int, ...] | None:
            head_size, value_size, columns = numbers(words[:3])
            setting = settings.get(f"{head_size}-{columns}")
            if head_size != value_size or setting is None:
                return None
            *values, in_registers = setting
            return (*words[:3], *values, words[_STAGES_AT], "true" if in_registers else "false")

        return {MMA_FILE: with_rows(MMA_FILE, self.kernel_file, _TABLE, _MACRO, changed)}

    def is_kernel(self, name: KernelName, variant: str) -> bool:
        """flash_attn_ext_f16<head size, head size, tokens, query heads, ...>."""
        return is_attention_of(name, self.kernel, variant)

    def shared_sources(self) -> Mapping[str, bytes]:
        """A copy of the kernel with a row in front of its table that units define by macros."""
        words = ["PATCHKIT_HEAD_SIZE", "PATCHKIT_HEAD_SIZE", "PATCHKIT_COLUMNS"]
        words += [f"PATCHKIT_{name.upper()}" for name in _PARAMETERS]
        words.insert(_STAGES_AT, "1")
        edited = with_own_row(MMA_FILE, self.kernel_file, _TABLE, _MACRO, words)
        kernel = cut_after(SourceText(MMA_FILE, edited), self.kernel)
        return {
            self.prelude: prelude_text(_HEADERS, "../../"),
            f"{_FOLDER}/kernel.cuh": local_includes(kernel, ()),
        }

    def instances(self, candidate: Candidate) -> Iterator[tuple[str, bytes]]:
        """Each unit defines the macros of its row."""
        head_size, columns = numbers_of(candidate.variant)
        values: dict[str, str | int] = {"head_size": head_size, "columns": columns}
        values |= dict(zip(_PARAMETERS, candidate.setting, strict=True))
        lines = [*includes(_HEADERS, "../../../"), *definitions(values), '#include "../kernel.cuh"']
        for path, heads, capped in _instantiations(candidate):
            arguments = f"{head_size}, {head_size}, {columns // heads}, {heads}, {capped}, false, false"
            yield path, unit_text(lines, f"{self.kernel}<{arguments}>")


def make_mma_family(
    limits: HardwareLimits, kernel_file: bytes, models: Sequence[ModelShape] = ()
) -> MmaFamily:
    """The family for a build, from its kernel file.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the build has no table for RDNA, or the kernel has other template parameters.
    """
    if not tables(MMA_FILE, kernel_file, _TABLE) or b"bool use_sparse>" not in kernel_file:
        raise UsageError(
            "cannot tune the MMA attention kernel of this build",
            code="TUNE_KERNEL_UNTUNABLE",
            why=f"{MMA_FILE} has no {_TABLE}, or the kernel differs from that of build 11549",
            hint="use another build: patchkit tune --kernel mma --upstream b11549",
        )
    rows: dict[str, Setting] = {}
    for words in table_rows(MMA_FILE, kernel_file, _TABLE, _MACRO):
        head_size, value_size, columns = numbers(words[:3])
        if head_size == value_size and head_size in _HEAD_SIZES and columns >= _FEWEST_COLUMNS:
            kept = [word for place, word in enumerate(words) if place != _STAGES_AT]
            rows[f"{head_size}-{columns}"] = numbers(kept[3:])
    return MmaFamily(limits=limits, kernel_file=kernel_file, rows=rows, models=models)


def lds_bytes(head_size: int, columns: int, setting: Setting) -> int:
    """LDS of a block as in ggml_cuda_flash_attn_ext_mma_f16_case, with two query heads, which need most."""
    threads, _, rows, of_k, of_v, combined, q_in_reg = setting
    tile = rows * (max(of_k, of_v) + _PAD)
    query = columns * (head_size // 2 + _PAD)
    mask = columns // _HEADS[-1] * (rows // 2 + _PAD)
    joined = threads // _LANES * _FRAGMENT * (combined + _PAD)
    loop = max(query, tile + mask) if q_in_reg else query + tile + mask
    return max(joined, loop) * _PAIR_BYTES


def _shared(threads: int, columns: int) -> int:
    """np: the number of waves that share 16 columns; 0 if the block has too few waves."""
    return threads // _LANES * _FRAGMENT // columns


def _instantiations(candidate: Candidate) -> Iterator[tuple[str, int, str]]:
    """The unit, the heads per block and the soft cap of each instantiation that uses the row."""
    stem = f"{_FOLDER}/{candidate.variant}/{'-'.join(map(str, candidate.setting))}"
    has_softcap = numbers_of(candidate.variant)[0] in _SOFTCAP
    return instantiations(stem, _HEADS, ("false", "true") if has_softcap else ("false",))


def _make(site: Site) -> MmaFamily:
    site.require_matrix("wmma", "wmma_gfx12", known=FRAGMENTS_16X16)
    models = load_models(site.workspace.series.profiles)
    return make_mma_family(site.limits, site.read(MMA_FILE)[MMA_FILE], models)


TUNABLE = Tunable(make=_make)

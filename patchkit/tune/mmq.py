"""mul_mat_q, the quantized matrix product on matrix instructions: the table of one GPU family.

A *variant* is a quantization and J, the columns of a block, as ``Q4_K-64``; with ``-fallback`` behind it
where a row for matrices whose rows are no multiple of 128 exists too. A setting is threads and least
waves; the rows of a block, I, follow from the threads.

The rules are facts about the kernel of builds 10229 to 11549 on GPUs with 16x16 matrix fragments in waves
of 32 lanes (RDNA3, RDNA4):

====  =====================================================================================
Q1    I is 16 rows per wave: each wave writes back one fragment row, and any other value writes
      rows twice or never, without an error
Q2    I divides 128, the rows that the other rows of the table rely on
Q3    LDS of a block, as the host computes it, is at most 64 KiB
====  =====================================================================================

The layout in LDS, the 256 elements per step and stream-k belong to the quantization and to the launch;
they are left as upstream has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import ToolchainError
from patchkit.base.occupancy import HardwareLimits
from patchkit.base.source import SourceText
from patchkit.base.upstreams import llama_cpp
from patchkit.carry.series.profile import ArchProfile
from patchkit.gpu.emulated.names import KernelName
from patchkit.gpu.modelled.recording import Timed
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
    prelude_text,
    unit_text,
)
from patchkit.tune.table import definitions, local_includes, numbers, table_rows, with_own_row, with_rows
from patchkit.tune.timed import PROMPTS, expert_cases, matrices_of, product_cases
from patchkit.tune.wmma import cut_behind

MMQ_FILE = llama_cpp().gpu_file("mmq.cuh")
MMQ_PARTS = (llama_cpp().gpu_file("mmq-load-tiles.cuh"), llama_cpp().gpu_file("mmq-vec-dot.cuh"))
_MACRO = "CASE"
_FOLDER = f"{UNIT_FOLDER}/mmq"
_HEADERS = ("common.cuh", "vecdotq.cuh", "mma.cuh")
_LANES, _FRAGMENT = 32, 16
_TABLE_ROWS = 128  # ggml_cuda_mmq_needs_fallback
_THREADS = (64, 128, 256)
_PREFIX = "GGML_TYPE_"
_FALLBACK = "-fallback"
_INT_BYTES, _BLOCK_BYTES = 4, 144  # sizeof(block_q8_1_mmq): 128 values and 16 bytes of scales
# Words of 4 bytes per row of the weights in LDS (ggml_cuda_mmq_get_sram_stride).
_STRIDES = {"Q8_0": 76, "Q8_1": 76, "Q2_K": 100, "Q3_K": 84, "Q6_K": 76, "FP4": 76, "NVFP4": 84}
_LAYOUT = "GGML_CUDA_MMQ_SRAM_LAYOUT_"
_STEP_ELEMENTS = 256  # MMQ_ITER_K
# What the tail is counted for: a prompt of 512 tokens by a matrix of 4096 rows.
_TOKENS, _WEIGHT_ROWS = 512, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class MmqRow:
    """Upstream's row: the setting, and the words behind it (layout to fallback)."""

    setting: Setting
    type: str
    columns: int
    layout: str
    step: str
    stream_k: str
    fallback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MmqFamily(TimedFamily):
    """``files``: upstream's, by path; ``table_file`` is the one with the GPU family's ``table``.

    ``upstream`` has the whole row of each variant, ``models`` are those whose matrices it is timed with.
    """

    name = "mmq"
    kernel = "mul_mat_q"
    timed_as = "mmq"
    prelude = f"{_FOLDER}/prelude.cuh"
    files: Mapping[str, bytes]
    table_file: str
    table: str
    upstream: Mapping[str, MmqRow]
    models: Sequence[ModelShape] = ()
    parameters: tuple[str, ...] = ("nthreads", "occupancy")

    def legal(self, variant: str) -> tuple[Setting, ...]:
        """Every setting that keeps the rules, with the bounds of waves that can change anything."""
        row = self.upstream[variant]
        found = {
            (threads, bound)
            for threads in _THREADS
            for bound in binding_bounds(self.limits, row.setting[1])
            if _TABLE_ROWS % rows_of_block(threads) == 0
            and lds_bytes(row, threads) <= self.limits.lds_per_workgroup_bytes
        }
        return tuple(sorted(found | {row.setting}))

    def traits(self, candidate: Candidate) -> Traits:
        """A turn of the loop covers 256 elements for I times J results; KV is not split here."""
        row, threads = self.upstream[candidate.variant], candidate.setting[0]
        tiles = -(-_TOKENS // row.columns) * -(-_WEIGHT_ROWS // rows_of_block(threads))
        return Traits(
            threads=threads,
            rows=_STEP_ELEMENTS,
            columns=row.columns * rows_of_block(threads),
            launch_lds_bytes=lds_bytes(row, threads),
            tiles=tiles,
        )

    def units(self, candidate: Candidate) -> tuple[str, ...]:
        """One; nothing else reads the row."""
        return (f"{_FOLDER}/{candidate.variant}-n{'-'.join(map(str, candidate.setting))}.cu",)

    def current(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """Of each row, the profile's first block that fits, as the patch takes it."""
        return {
            variant: (block.nthreads, block.occupancy)
            for variant, row in self.upstream.items()
            for block in reversed(profile.tuning.mmq)
            if row.type == block.type and row.columns >= block.min_j
        }

    def cases(self, variant: str) -> tuple[Timed, ...]:
        """Matrices of the models with as many tokens as a block has columns; the widest with prompts'.

        With these products of experts, too: upstream chooses their columns by what an expert gets, and
        those that another variant runs do not count. None for rows of fallback: hardly a matrix takes one.
        """
        row = self.upstream[variant]
        if row.fallback == "true":
            return ()
        widest = max(each.columns for each in self.upstream.values() if each.type == row.type)
        shapes = matrices_of(self.models, row.type, whole=_TABLE_ROWS)
        found: list[Timed] = []
        for tokens in PROMPTS if row.columns == widest else (row.columns,):
            found += product_cases(row.type, shapes, tokens)
        for tokens in PROMPTS:
            found += expert_cases(self.models, row.type, tokens, whole=_TABLE_ROWS)
        return tuple(found)

    def with_settings(self, settings: Mapping[str, Setting]) -> Mapping[str, bytes]:
        """The table."""

        def changed(words: tuple[str, ...]) -> tuple[str | int, ...] | None:
            kind, _, _, _, columns, *rest = words
            setting = settings.get(_variant(kind.removeprefix(_PREFIX), int(columns), rest[-1]))
            if setting is None:
                return None
            return (kind, setting[0], setting[1], rows_of_block(setting[0]), columns, *rest)

        table = with_rows(self.table_file, self.files[self.table_file], self.table, _MACRO, changed)
        return {self.table_file: table}

    def is_kernel(self, name: KernelName, variant: str) -> bool:
        """mul_mat_q<type, columns, fallback, ...>."""
        row = self.upstream[variant]
        return name.base == self.kernel and (name.arguments or ())[1:3] == (str(row.columns), row.fallback)

    def shared_sources(self) -> Mapping[str, bytes]:
        """Copies of the kernel's files, where the table begins with the row that a unit defines."""
        names = ("type", "nthreads", "occupancy", "i", "j", "layout", "step", "stream_k", "fallback")
        words = [f"PATCHKIT_{name.upper()}" for name in names]
        edited = dict(self.files)
        edited[self.table_file] = with_own_row(
            self.table_file, edited[self.table_file], self.table, _MACRO, words
        )
        edited[MMQ_FILE] = cut_behind(SourceText(MMQ_FILE, edited[MMQ_FILE]), self.kernel)
        copied = [path.rpartition("/")[2] for path in edited]
        copies = {
            f"{_FOLDER}/{path.rpartition('/')[2]}": local_includes(data, copied)
            for path, data in edited.items()
        }
        return {self.prelude: prelude_text(_HEADERS, "../../"), **copies}

    def instances(self, candidate: Candidate) -> Iterator[tuple[str, bytes]]:
        """The unit defines the macros of its row."""
        row = self.upstream[candidate.variant]
        threads, bound = candidate.setting
        values: dict[str, str | int] = {
            "type": f"{_PREFIX}{row.type}",
            "nthreads": threads,
            "occupancy": bound,
            "i": rows_of_block(threads),
            "j": row.columns,
            "layout": f"{_LAYOUT}{row.layout}",
            "step": row.step,
            "stream_k": row.stream_k,
            "fallback": row.fallback,
        }
        arguments = [values["type"], row.columns, row.fallback]
        if b"ggml_prec prec_src1" in self.files[MMQ_FILE]:
            arguments.append("GGML_PREC_Q8")  # as DECL_MMQ_CASE instantiates it
        kernel = f"(const void *) {self.kernel}<{', '.join(str(each) for each in arguments)}>"
        lines = [*includes(_HEADERS, "../../"), *definitions(values), '#include "mmq.cuh"']
        yield self.unit(candidate), unit_text(lines, kernel, "const void *")


def config_file(gpu_family: str) -> str:
    """The file with the table of a GPU family, as ``rdna3_5``."""
    return llama_cpp().gpu_file(f"mmq-config-{gpu_family.replace('_', '-')}.cuh")


def make_mmq_family(
    limits: HardwareLimits,
    files: Mapping[str, bytes],
    gpu_family: str,
    models: Sequence[ModelShape] = (),
) -> MmqFamily:
    """The family of a build; ``files`` are :data:`MMQ_FILE`, :data:`MMQ_PARTS` and the table's.

    Raises:
        TUNE_KERNEL_NOT_FOUND: a file is not what it is at builds 10229 to 11549.
    """
    path, table = config_file(gpu_family), f"ggml_cuda_mmq_get_config_{gpu_family}"
    rows = dict(_read(table_rows(path, files[path], table, _MACRO)))
    if not rows:
        raise ToolchainError(
            f"{path} has no rows",
            code="TUNE_KERNEL_NOT_FOUND",
            hint="name another build: patchkit status shows the pins",
        )
    return MmqFamily(
        limits=limits,
        rows={variant: row.setting for variant, row in rows.items()},
        files=files,
        table_file=path,
        table=table,
        upstream=rows,
        models=models,
    )


def lds_bytes(row: MmqRow, threads: int) -> int:
    """LDS of one block, as mmq_get_nbytes_shared computes it."""
    padding = threads * _INT_BYTES
    weights = rows_of_block(threads) * _STRIDES[row.layout] * _INT_BYTES
    return row.columns * _INT_BYTES + weights + -(-row.columns * _BLOCK_BYTES // padding) * padding


def _read(table: Iterator[tuple[str, ...]]) -> Iterator[tuple[str, MmqRow]]:
    for kind, threads, bound, _, columns, layout, step, stream_k, fallback in table:
        row = MmqRow(
            setting=numbers((threads, bound)),
            type=kind.removeprefix(_PREFIX),
            columns=int(columns),
            layout=layout.removeprefix(_LAYOUT),
            step=step,
            stream_k=stream_k,
            fallback=fallback,
        )
        yield _variant(row.type, row.columns, fallback), row


def _variant(kind: str, columns: int, fallback: str) -> str:
    return f"{kind}-{columns}{_FALLBACK if fallback == 'true' else ''}"


def rows_of_block(threads: int) -> int:
    """I: the rows of the weights that a block of so many threads takes."""
    return threads // _LANES * _FRAGMENT


def _make(site: Site) -> MmqFamily:
    site.require_matrix("wmma", "wmma_gfx12", known=FRAGMENTS_16X16)
    family = site.profile.families[0]
    files = site.read(MMQ_FILE, *MMQ_PARTS, config_file(family))
    return make_mmq_family(site.limits, files, family, load_models(site.workspace.series.profiles))


TUNABLE = Tunable(make=_make)

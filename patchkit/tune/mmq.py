"""mul_mat_q, the quantized matmul with matrix instructions: the table of one GPU family.

A *variant* is a quantization and J, the columns per block, such as ``Q4_K-64``. The suffix ``-fallback`` is
for rows of the table for matrices whose number of rows is not a multiple of 128. A setting is threads and
minimum waves; the rows per block, I, follow from the threads.

The rules are facts about the kernel of builds 10229 to 11549 on GPUs with 16x16 matrix fragments and wave32
(RDNA3, RDNA4):

====  =====================================================================================
Q1    I is 16 rows per wave: each wave writes back one fragment row, and any other value would
      write rows twice or not at all, without an error
Q2    I divides 128, which the other rows of the table depend on
Q3    LDS of a block, as computed by the host, is at most 64 KiB
====  =====================================================================================

The layout in LDS, the 256 elements per step, and stream-k depend on the quantization and the launch; they
are kept as in upstream.
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
    binding_bounds,
    includes,
    prelude_text,
    unit_text,
)
from patchkit.tune.table import (
    cut_after,
    definitions,
    local_includes,
    numbers,
    table_rows,
    with_own_row,
    with_rows,
)
from patchkit.tune.timed import PROMPTS, expert_cases, matrices_of, product_cases

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
# 4-byte words per row of the weights in LDS (ggml_cuda_mmq_get_sram_stride).
_STRIDES = {"Q8_0": 76, "Q8_1": 76, "Q2_K": 100, "Q3_K": 84, "Q6_K": 76, "FP4": 76, "NVFP4": 84}
_LAYOUT = "GGML_CUDA_MMQ_SRAM_LAYOUT_"
_STEP_ELEMENTS = 256  # MMQ_ITER_K
# The problem size for the tail estimate: a prompt of 512 tokens, a matrix of 4096 rows.
_TOKENS, _WEIGHT_ROWS = 512, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class MmqRow:
    """A row of upstream's table: the setting, and the values from layout to fallback."""

    setting: Setting
    type: str
    columns: int
    layout: str
    step: str
    stream_k: str
    fallback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MmqFamily(TimedFamily):
    """The kernel of one build: ``files`` are upstream's, and ``table_file`` has the GPU family's ``table``.

    ``upstream`` has the full row of each variant; ``models`` provide matrices for timing.
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
        """All settings that meet the rules, with the minimum-waves bounds that can have an effect."""
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
        """An iteration of the loop covers 256 elements for I times J results; there is no KV to split."""
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
        """A single unit; no other instantiation uses the row."""
        return (f"{_FOLDER}/{candidate.variant}-n{'-'.join(map(str, candidate.setting))}.cu",)

    def current(self, profile: ArchProfile) -> Mapping[str, Setting]:
        """For each row, the first matching block of the profile, as the patch selects it."""
        return {
            variant: (block.nthreads, block.occupancy)
            for variant, row in self.upstream.items()
            for block in reversed(profile.tuning.mmq)
            if row.type == block.type and row.columns >= block.min_j
        }

    def cases(self, variant: str) -> tuple[Timed, ...]:
        """Matmuls with the models' matrices and as many tokens as a block has columns (widest: prompts).

        Also MoE matmuls with prompts: upstream chooses the columns by the tokens per expert, and cases that
        run another variant do not count. Empty for fallback rows, which hardly any matrix uses.
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
        """The file with the changed table."""

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
        """Copies of the kernel's files, with a row in front of the table that units define by macros."""
        names = ("type", "nthreads", "occupancy", "i", "j", "layout", "step", "stream_k", "fallback")
        words = [f"PATCHKIT_{name.upper()}" for name in names]
        edited = dict(self.files)
        edited[self.table_file] = with_own_row(
            self.table_file, edited[self.table_file], self.table, _MACRO, words
        )
        edited[MMQ_FILE] = cut_after(SourceText(MMQ_FILE, edited[MMQ_FILE]), self.kernel)
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
    """The file with the table of a GPU family, such as ``rdna3_5``."""
    return llama_cpp().gpu_file(f"mmq-config-{gpu_family.replace('_', '-')}.cuh")


def make_mmq_family(
    limits: HardwareLimits,
    files: Mapping[str, bytes],
    gpu_family: str,
    models: Sequence[ModelShape] = (),
) -> MmqFamily:
    """The family for a build; ``files`` are :data:`MMQ_FILE`, :data:`MMQ_PARTS` and the table's file.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the files differ from those of builds 10229 to 11549.
    """
    path, table = config_file(gpu_family), f"ggml_cuda_mmq_get_config_{gpu_family}"
    rows = dict(_read(table_rows(path, files[path], table, _MACRO)))
    if not rows:
        raise ToolchainError(
            f"no rows found in the table of {path}",
            code="TUNE_KERNEL_UNTUNABLE",
            hint="use another build; list the pins with: patchkit status",
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
    """LDS of a block as in mmq_get_nbytes_shared."""
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
    """I: the rows of the weights per block with so many threads."""
    return threads // _LANES * _FRAGMENT


def make_family(site: Site) -> MmqFamily:
    """The family for a site.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the GPU has other matrix units, or the build lacks the table.
    """
    site.require_matrix("wmma", "wmma_gfx12", known=FRAGMENTS_16X16)
    family = site.profile.families[0]
    files = site.read(MMQ_FILE, *MMQ_PARTS, config_file(family))
    return make_mmq_family(site.limits, files, family, load_models(site.workspace.series.profiles))

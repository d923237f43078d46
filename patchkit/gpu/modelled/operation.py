"""The modelled time of one operation: its kernels, and what limits each."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

from patchkit.base.errors import UsageError
from patchkit.base.text import near_miss
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.emulated.operations import OperationCase
from patchkit.gpu.gguf import Kind as TensorKind
from patchkit.gpu.gguf import tensor_kinds, tensor_kinds_by_name
from patchkit.gpu.modelled.machine import KernelTime, Kind, Machine, ModelError, Played, play
from patchkit.gpu.modelled.recording import Recorded, Recorder, Timed, TraceHead
from patchkit.toolchain.compiler import Compiler

_KINDS: tuple[tuple[str, Kind], ...] = (
    ("mul_mat_vec_q", "mmvq"),
    ("mul_mat_vec", "mmvf"),
    ("mul_mat_promptsI", "gemm"),
    ("mul_mat_q", "mmq"),
    ("flash_attn_tile", "tile"),
    ("flash_attn_ext_vec", "vec"),
    ("flash_attn_ext_f16", "mma"),
    ("flash_attn_mma", "mma"),
    ("flash_attn", "attention"),
)
# Both matrix-instruction kernels have one name; only the rocWMMA one has an accumulator type as argument.
_MMA = re.compile(r"flash_attn_ext_f16I(?:Li\d+E){4,}Lb|flash_attn_mma")
# Kernels that read a model's weights or its K and V. Others read what the previous kernel has just written.
READS_MODEL: frozenset[Kind] = frozenset({"mmvq", "mmvf", "mmq", "gemm", "tile", "mma", "wmma", "vec"})
# Data larger than the last cache by an eighth or more is fully evicted until it is used again. Fitted: with a
# cache of 32 MiB, about a quarter of a 35 MiB matrix seems to remain, nothing of 38 MiB (ROCm/ROCm issue
# 4748).
_STEEPNESS = 8.0
# Fraction of the time from which on the busiest unit counts as the limit of a kernel.
_LIMITED = 0.6
_LIMITS = {
    "valu": "VALU",
    "wmma": "WMMA",
    "scalar": "scalar unit",
    "lds_banks": "LDS",
    "l0": "L0",
    "l1": "L1",
    "l2": "L2",
    "mall": "memory-side cache",
    "dram": "DRAM",
    "code": "instruction fetch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedKernel:
    """One launch: its simulated time, its launch overhead (``launch_us``), and its kind."""

    json_keys: ClassVar = "kernel=played.kernel kind us limit shares played"

    played: KernelTime
    kind: Kind
    launch_us: float

    @property
    def us(self) -> float:
        """Microseconds, including launch overhead."""
        return self.played.us + self.launch_us

    @property
    def shares(self) -> dict[str, float]:
        """Fraction of the time that each unit was busy, largest first; they overlap.

        ``latency`` is the time in which even the busiest unit waits.
        """
        busy = {_LIMITS[name]: value for name, value in self.played.busy}
        most = max(*busy.values(), self.played.busy.valu + self.played.busy.wmma)
        shares = {**busy, "latency": max(0.0, 1 - most)}
        in_kernel = 1 - self.launch_us / self.us
        shares = {name: value * in_kernel for name, value in shares.items()}
        shares["launch"] = 1 - in_kernel
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    @property
    def limit(self) -> str:
        """What limits the kernel."""
        if self.launch_us > self.us - self.launch_us:
            return "launch"
        name, value = max(self.played.busy, key=lambda item: item[1])
        issue = self.played.busy.valu + self.played.busy.wmma
        if max(value, issue) < _LIMITED:
            return "latency"
        if value < issue < 1.5 * value and name in {"valu", "wmma"}:
            return "VALU and WMMA"
        return _LIMITS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTime:
    """An operation on one machine. ``products``: BLAS library calls, whose time is not modelled."""

    json_keys: ClassVar = "operation us=known_us modelled kind error not_modelled=products kernels"

    case: Timed
    machine: Machine
    kernels: tuple[TimedKernel, ...]
    products: tuple[str, ...]

    @property
    def library_us(self) -> float:
        """Microseconds of BLAS calls, estimated from the library's best rate and bandwidth."""
        return sum(library_us(call, self.machine) for call in self.products)

    @property
    def us(self) -> float:
        """Microseconds of its kernels and BLAS calls in sequence."""
        return sum(kernel.us for kernel in self.kernels) + self.library_us

    @property
    def kind(self) -> Kind:
        """Kind of the slowest kernel."""
        if not self.kernels:
            return "other"
        return max(self.kernels, key=lambda kernel: kernel.us).kind

    @property
    def error(self) -> ModelError | None:
        """Known error of such times against published ones; None if none were published."""
        return self.machine.error_of(self.kind, head_size_of(self.case))

    modelled: ClassVar = True

    @property
    def operation(self) -> str:
        """The operation, with sizes and types."""
        return str(self.case)

    @property
    def known_us(self) -> float | None:
        """Its time; None if it includes BLAS calls."""
        return None if self.products else self.us


def _bytes_of(case: Timed) -> float:
    """Bytes that an operation reads and writes, each counted once."""
    if isinstance(case, Case):
        return case.bytes
    experts = min(case.experts, case.used * case.tokens)
    weights = type_of(case.type).size(case.rows * case.columns * experts)
    return float(weights + 4 * case.tokens * (case.columns + case.rows))


def cold_share(machine: Machine, case: Timed, *, repeated: bool) -> float:
    """Fraction (0 to 1) of the main kernel's input that is in no cache when it starts.

    ``repeated``: the operation runs repeatedly on the same tensors, as in test-backend-ops perf. Otherwise,
    as in a model, all other weights are read between two runs.
    """
    if not repeated:
        return 1.0
    return share_beyond_cache(machine, _bytes_of(case))


def share_beyond_cache(machine: Machine, size: float) -> float:
    """Fraction (0 to 1) of ``size`` recently used bytes that the last cache no longer holds."""
    beyond = size / machine.cache_bytes - 1
    return min(1.0, max(0.0, _STEEPNESS * beyond))


_SIZES = re.compile(r"(\d+)x(\d+)x(\d+)$")
_BYTES_OF_HALF = 2
_DEEP = 8192  # K from which blas_tflops_deep was measured (halo-box/strix-llama.cpp PR 38)


def library_us(call: str, machine: Machine) -> float:
    """Estimate of a BLAS call such as ``hipblasGemmEx 4096x512x4096`` in microseconds, by published rates."""
    found = _SIZES.search(call)
    if found is None:
        raise AssertionError(f"a BLAS call without sizes: {call}")
    m, n, k = (int(size) for size in found.groups())
    figures = machine.file.figures
    rate = figures.blas_tflops_deep if k >= _DEEP else figures.blas_tflops
    computing = 2 * m * n * k / (rate.value * 1e6 * machine.sustained)
    moving = _BYTES_OF_HALF * (m * n + n * k + m * k) / (figures.dram_gb_s.value * 1e3)
    return max(computing, moving) + machine.launch_us


def kind_of(kernel: str) -> Kind:
    """The kind of a kernel. The name must be mangled to recognise rocWMMA."""
    kind: Kind = next((kind for part, kind in _KINDS if part in kernel), "other")
    return "wmma" if kind == "mma" and not _MMA.search(kernel) else kind


def head_size_of(case: Timed) -> int | None:
    """Head size of K; None for a matmul."""
    return case.head_size if isinstance(case, Case) else None


def is_moe(case: Timed) -> bool:
    """Whether it is a matmul of an MoE model's experts."""
    return isinstance(case, OperationCase) and case.experts > 1


def time_operation(
    machine: Machine, case: Timed, recorder: Recorder, *, repeated: bool
) -> OperationTime | None:
    """The modelled time of an operation; None if the backend has no kernel for it.

    Raises:
        TIMING_RUN_FAILED, TRACE_UNREADABLE, NOT_BUILT: recording or simulating it failed.
        The errors of :meth:`Recorder.record`.
    """
    found = recorder.record(case)
    if found is None:
        return None
    return time_recorded(machine, case, found, recorder.compiler, repeated=repeated)


def time_recorded(
    machine: Machine, case: Timed, found: Recorded, compiler: Compiler, *, repeated: bool
) -> OperationTime:
    """The modelled time of a recorded operation.

    Raises:
        TRACE_UNREADABLE, NOT_BUILT: it cannot be simulated.
    """
    cold = cold_share(machine, case, repeated=repeated)
    heads = found.heads
    kinds = [kind_of(head.kernel) for head in heads]
    launches = [
        Played(trace=trace, cold=cold if kind in READS_MODEL else 0.0, working=working_of(case, head))
        for trace, kind, head in zip(found.traces, kinds, heads, strict=True)
    ]
    kernels = tuple(
        TimedKernel(played=one, kind=kind, launch_us=machine.launch_us)
        for one, kind in zip(play(machine, launches, compiler), kinds, strict=True)
    )
    return OperationTime(case=case, machine=machine, kernels=kernels, products=found.products)


def working_of(case: Timed, head: TraceHead, *, is_drawn: bool = False) -> float:
    """Fraction of a launch's blocks that have work.

    For MoE, mul_mat_q and mul_mat_prompts launch blocks for the maximum number of tokens for every expert;
    blocks past an expert's tokens exit at once. Tokens are assigned to experts in turn
    (native/drivers/op_cases.cpp) or, if ``is_drawn``, at random and uniformly for each token; then many
    experts need one more tile.
    """
    kind, columns = kind_of(head.kernel), read_name(head.kernel).integer(1)
    if not isinstance(case, OperationCase) or case.experts == 1 or kind not in {"mmq", "gemm"} or not columns:
        return 1.0
    tiles, experts = head.grid[0 if kind == "gemm" else 1], head.grid[2]
    if experts != case.experts:
        return 1.0  # a kernel that distributes its work in another way
    if is_drawn:
        return min(tiles, drawn_tiles(case.tokens, case.used / experts, columns)) / tiles
    taken, more = divmod(case.tokens * case.used, experts)
    tokens = [taken + (expert < more) for expert in range(experts)]
    return sum(min(tiles, -(-count // columns)) for count in tokens) / (tiles * experts)


def drawn_tiles(tokens: int, chance: float, columns: int) -> float:
    """Expected number of tiles of ``columns`` for an expert that each token selects with ``chance``."""
    if chance >= 1:
        return -(-tokens // columns)
    each = math.log(chance), math.log1p(-chance)
    tiles = 0.0
    for taken in range(1, tokens + 1):
        ways = math.lgamma(tokens + 1) - math.lgamma(taken + 1) - math.lgamma(tokens - taken + 1)
        tiles += math.exp(ways + taken * each[0] + (tokens - taken) * each[1]) * -(-taken // columns)
    return tiles


def type_name(kind: TensorKind) -> str:
    """The name as in ggml_type_name: q4_K, mxfp4, f16."""
    name = kind.name.lower()
    return f"{name[:-1]}K" if name.endswith("_k") else name


def name_of_type(number: int) -> str | None:
    """The name of ggml type ``number``; None if gguf does not know it."""
    found = tensor_kinds().get(number)
    return None if found is None else type_name(found)


def type_of(name: str) -> TensorKind:
    """Look up a tensor type by name, ignoring case. Raises TENSOR_TYPE_UNKNOWN."""
    kinds = tensor_kinds_by_name()
    found = kinds.get(name.upper())
    if found is None:
        raise UsageError(
            f"ggml has no type '{name[:40]}'",
            code="TENSOR_TYPE_UNKNOWN",
            hint=near_miss(name.upper(), kinds) or f"known: {', '.join(kinds)}",
        )
    return found


def matrix_case(
    kind: str, rows: int, columns: int, tokens: int, *, experts: int = 1, used: int = 1
) -> OperationCase:
    """A matmul: a matrix of type ``kind`` (``rows`` outputs, ``columns`` inputs) times ``tokens`` tokens.

    With several ``experts`` there is one matrix per expert, and ``used`` of them per token.

    Raises:
        TENSOR_TYPE_UNKNOWN: the type does not exist.
        COLUMNS_NOT_WHOLE: a row is not a multiple of the type's block size.
    """
    found = type_of(kind)
    if columns % found.block:
        raise UsageError(
            f"{columns} columns are not a multiple of the block size of {type_name(found)}",
            code="COLUMNS_NOT_WHOLE",
            why=f"it stores values in blocks of {found.block}",
            hint=f"for example, use {-(-columns // found.block) * found.block}",
        )
    return OperationCase(
        id="timed",
        op="MUL_MAT_ID" if experts > 1 else "MUL_MAT",
        type=type_name(found),
        rows=rows,
        columns=columns,
        tokens=tokens,
        experts=experts,
        used=used,
    )


def attention_case(
    head_size: int, heads: int, kv_heads: int, *, kv: int, tokens: int, kind: str = "f16"
) -> Case:
    """Attention of ``heads`` query heads on ``kv_heads`` KV heads with ``kv`` rows of type ``kind``.

    K and V are laid out as in a model's cache: all heads of a row next to each other, then the next row.

    Raises:
        USAGE_SYNTAX: the number of heads is not a multiple of the number of KV heads.
        TENSOR_TYPE_UNKNOWN: the type does not exist.
    """
    stored = type_name(type_of(kind))
    if heads % kv_heads:
        raise UsageError(
            f"{heads} heads cannot share {kv_heads} KV heads evenly",
            code="USAGE_SYNTAX",
            hint="--heads must be a multiple of --kv-heads",
        )
    return Case(
        id="timed",
        head_size=head_size,
        head_size_v=head_size,
        kv_heads=kv_heads,
        gqa=heads // kv_heads,
        kv=kv,
        tokens=tokens,
        type_k=stored,
        type_v=stored,
        view=False,
    )

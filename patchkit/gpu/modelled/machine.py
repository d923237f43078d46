"""Timing figures of a GPU, and the program that simulates recorded launches with them."""

from __future__ import annotations

import hashlib
import json
import lzma
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from patchkit.base.arch import Confidence
from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import ConfigError, Location, ToolchainError
from patchkit.base.files import disk_errors, working_folder, write_whole
from patchkit.base.process import ToolCrashed, ToolFailed, run_tool
from patchkit.base.store import Store
from patchkit.base.toml import NOWHERE, NotInFile, Several, TomlTable, load_toml, validate
from patchkit.gpu.emulated.device import EmulatedDevice
from patchkit.gpu.emulated.runtime import build_native
from patchkit.gpu.modelled.recording import recording_variables, unpack_trace
from patchkit.toolchain.compiler import Compiler, nice

_NATIVE = Path(__file__).parent / "native"
_PROGRAM = "timing"
_TIME = "time.json"  # in a store entry of a simulated launch
_RUN_S = 1200.0  # sixty times what an evaluation may take (20 s)
# Instructions of waves to simulate per launch; 3 to 10 million of them take a second (2026-11-23).
MOST_INSTRUCTIONS = 12_000_000

_CENTRED = 0.1  # a bias of at most this is not reported
# Figures for work that is not simulated instruction by instruction.
_NOT_PLAYED = frozenset({"blas_tflops", "blas_tflops_deep"})

Kind = Literal["mmvq", "mmvf", "mmq", "gemm", "tile", "mma", "wmma", "vec", "attention", "other"]
"""Kind of an operation's main kernel.

Matmul: mat-vec of quantized (mmvq) or float (mmvf) weights, matrix kernel of quantized weights (mmq), that of
patch mul-mat-wmma-prefill (gemm). Attention: without matrix instructions (tile), with them (mma), with them
through rocWMMA (wmma), the vector kernel (vec), and kernels that combine partial results (attention).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingFigure(TomlTable):
    """One figure. ``fitted``: chosen to make modelled times agree with published ones."""

    value: Annotated[float, Field(ge=0)]
    source: Annotated[str, Field(min_length=3)]
    confidence: Confidence
    fitted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingFigures(TomlTable):
    """All figures of a GPU, named as in native/machine.hpp. Cycles are those of the shader clock."""

    lds_bytes: Annotated[TimingFigure, Field(description="LDS of a WGP")]
    l0_bytes: Annotated[TimingFigure, Field(description="Vector cache (L0) of a CU")]
    l1_bytes: Annotated[TimingFigure, Field(description="L1 of a shader array")]
    arrays: Annotated[TimingFigure, Field(description="Number of shader arrays, each with an L1")]
    l2_bytes: TimingFigure
    mall_bytes: Annotated[TimingFigure, Field(description="Memory-side cache (MALL); 0: none")]
    clock_mhz: Annotated[TimingFigure, Field(description="Highest shader clock")]
    clock_less_valu: Annotated[
        TimingFigure,
        Field(description="Clock reduction in MHz while all SIMDs execute only VALU instructions"),
    ]
    clock_less_wmma: Annotated[TimingFigure, Field(description="Clock reduction in MHz for WMMA")]
    clock_less_lds: Annotated[TimingFigure, Field(description="Clock reduction in MHz for LDS")]
    clock_less_dram: Annotated[
        TimingFigure,
        Field(description="Clock reduction in MHz while all waves wait for DRAM"),
    ]
    valu: Annotated[
        TimingFigure,
        Field(description="Cycles that an instruction occupies the VALU of its SIMD"),
    ]
    dual: Annotated[TimingFigure, Field(description="VALU cycles of a dual-issue (VOPD) instruction")]
    dot: Annotated[TimingFigure, Field(description="VALU cycles of v_dot4 and v_dot8")]
    quarter: Annotated[
        TimingFigure,
        Field(description="VALU cycles of quarter-rate instructions: 32-bit integer multiplication"),
    ]
    double_float: Annotated[TimingFigure, Field(description="VALU cycles of f64 instructions")]
    transcendental: Annotated[TimingFigure, Field(description="Cycles of the transcendental unit")]
    wmma: Annotated[TimingFigure, Field(description="VALU cycles of a WMMA instruction")]
    wmma_int4: TimingFigure
    scalar: Annotated[TimingFigure, Field(description="Cycles of the scalar unit")]
    branch: Annotated[TimingFigure, Field(description="Cycles until a wave continues after a taken branch")]
    valu_latency: Annotated[TimingFigure, Field(description="Cycles until a dependent instruction can issue")]
    transcendental_latency: TimingFigure
    wmma_latency: TimingFigure
    scalar_latency: TimingFigure
    lds_least: Annotated[
        TimingFigure,
        Field(description="Minimum cycles of a WGP per LDS instruction; more with bank conflicts"),
    ]
    lds_latency: Annotated[TimingFigure, Field(description="Cycles")]
    load_register: Annotated[
        TimingFigure,
        Field(description="VALU cycles lost per register that a load writes"),
    ]
    l0_line: Annotated[TimingFigure, Field(description="Cycles of a CU per line of 128 bytes")]
    l0_latency: Annotated[TimingFigure, Field(description="Cycles")]
    l1_latency_ns: TimingFigure
    l2_latency_ns: TimingFigure
    mall_latency_ns: TimingFigure
    dram_latency_ns: TimingFigure
    scalar_cache_latency: Annotated[TimingFigure, Field(description="Cycles")]
    l1_bytes_per_cycle: Annotated[
        TimingFigure,
        Field(description="From all L1 to the vector caches of all CUs"),
    ]
    l2_bytes_per_cycle: Annotated[TimingFigure, Field(description="From L2 to all L1")]
    mall_gb_s: TimingFigure
    dram_gb_s: TimingFigure
    dram_pieces_gb_s: Annotated[
        TimingFigure,
        Field(description="DRAM bandwidth if at most half of each page is read at a time"),
    ]
    dram_page_bytes: Annotated[TimingFigure, Field(description="DRAM page of each channel")]
    channels: Annotated[TimingFigure, Field(description="Memory channels, each with a slice of L2")]
    channel_bytes: Annotated[
        TimingFigure,
        Field(description="Consecutive bytes of one channel before the next channel's (interleaving)"),
    ]
    barrier: Annotated[
        TimingFigure,
        Field(description="Cycles from the arrival of the last wave until the first continues"),
    ]
    block_start: Annotated[
        TimingFigure,
        Field(description="Cycles from the end of a block to the first instruction of the next"),
    ]
    leftover: Annotated[
        TimingFigure,
        Field(description="Surplus blocks of the busiest WGP in the last round, times the blocks it holds"),
    ]
    code_bytes: Annotated[TimingFigure, Field(description="Instruction cache of a WGP")]
    code_bytes_per_cycle: Annotated[TimingFigure, Field(description="Into the instruction cache")]
    code_latency: Annotated[TimingFigure, Field(description="Cycles")]
    code_ahead: Annotated[TimingFigure, Field(description="Lines of 64 bytes that are prefetched")]
    launch_us: Annotated[TimingFigure, Field(description="Overhead of each kernel before its first block")]
    blas_tflops: Annotated[
        TimingFigure,
        Field(description="Reached by a BLAS library with f16; used only for whole models"),
    ]
    blas_tflops_deep: Annotated[
        TimingFigure,
        Field(description="Reached by a BLAS library with f16 if K is 8192 or more"),
    ]
    where: NotInFile[Location] = NOWHERE

    def values(self) -> dict[str, float]:
        """The figures by name."""
        return {each.name: getattr(self, each.name).value for each in fields(self) if each.name != "where"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelError(TomlTable):
    """Error of modelled times against ``points`` published measurements of one kind of kernel.

    ``median`` and ``p90`` (90th percentile) are absolute errors relative to the measurement. ``ratio_median``
    and ``ratio_p90`` are those of ``ratios``: speedups measured for a change of the kernel at one shape. For
    attention, ``head_sizes`` limits it to these head sizes.
    """

    kind: Kind
    head_sizes: Annotated[
        Several[Annotated[int, Field(gt=0)]],
        Field(description="Attention head sizes it applies to; none: all"),
    ] = ()
    points: Annotated[int, Field(gt=0)]
    median: Annotated[float, Field(ge=0)]
    p90: Annotated[float, Field(ge=0)]
    ratios: Annotated[int, Field(ge=0)] = 0
    ratio_median: Annotated[float | None, Field(ge=0)] = None
    ratio_p90: Annotated[float | None, Field(ge=0)] = None
    source: Annotated[str, Field(min_length=3, description="Which measurements")]

    def __post_init__(self) -> None:
        if len({self.ratios > 0, self.ratio_median is not None, self.ratio_p90 is not None}) > 1:
            raise ValueError("ratios, ratio_median and ratio_p90 must be given together")

    def overlaps(self, other: ModelError) -> bool:
        """Whether both apply to some kernel."""
        sizes, others = set(self.head_sizes), set(other.head_sizes)
        return self.kind == other.kind and (not sizes or not others or not sizes.isdisjoint(others))

    def __str__(self) -> str:
        return in_words(self.kind, *self.head_sizes)


def in_words(kind: str, *head_sizes: int | None) -> str:
    """A description such as ``wmma, head size 64``."""
    sizes = " and ".join(str(size) for size in head_sizes if size is not None)
    return f"{kind}, head size {sizes}" if sizes else kind


TestKind = Literal[
    "text", "text of several sequences", "prompt", "prompt with BLAS", "prompt of an MoE model"
]
"""Kind of a test of llama-bench: text is token generation; with BLAS if matmuls go to such a library."""


def kind_of_test(tokens: int, *, sequences: int = 1, has_experts: bool, uses_blas: bool) -> TestKind:
    """The kind of a test with ``tokens`` tokens per sequence in a batch."""
    if tokens == 1:
        return "text" if sequences == 1 else "text of several sequences"
    if has_experts:
        return "prompt of an MoE model"
    return "prompt with BLAS" if uses_blas else "prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateError(TomlTable):
    """Error of modelled tokens per second of whole models against ``points`` published speeds.

    ``median`` and ``p90`` (90th percentile) are absolute errors relative to the published speed. ``bias`` is
    the median of modelled over published: above 1, the model is too fast. ``timeline``: only for times of
    timelines, which count more than matmuls and attention.
    """

    kind: TestKind
    points: Annotated[int, Field(gt=0)]
    median: Annotated[float, Field(ge=0)]
    p90: Annotated[float, Field(ge=0)]
    bias: Annotated[float, Field(gt=0)]
    source: Annotated[str, Field(min_length=3, description="Which speeds")]
    timeline: bool = False

    def __str__(self) -> str:
        too = (
            ""
            if round(abs(self.bias - 1), 3) <= _CENTRED
            else f", mostly too {'fast' if self.bias > 1 else 'slow'}"
        )
        return (
            f"error of such tests ({self.kind}) against {self.points} published speeds: median "
            f"{self.median:.0%}, 90th percentile {self.p90:.0%}{too}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained(TomlTable):
    """The part of a cool GPU's clock that matmuls sustain at a power of ``watts`` (0 to 1)."""

    watts: Annotated[int, Field(gt=0)]
    share: Annotated[float, Field(gt=0, le=1)]
    source: Annotated[str, Field(min_length=3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(TomlTable):
    """A fork with different mul_mat_q blocks in place of upstream's 128-row blocks.

    It applies to measurements whose source starts with ``source``. Its blocks have ``nthreads`` threads and
    process ``i`` rows.
    """

    source: Annotated[str, Field(min_length=3)]
    nthreads: Annotated[int, Field(gt=0, le=512, multiple_of=32)]
    i: Annotated[int, Field(gt=0, multiple_of=16)]
    why: Annotated[str, Field(min_length=10)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingFile(TomlTable):
    """arch_profiles/timing/gfxNNNN.toml."""

    arch: str
    note: Annotated[str, Field(min_length=10)]
    figures: TimingFigures
    error: Several[ModelError] = ()
    rate_error: Annotated[
        Several[RateError], Field(description="Errors of whole models, one per kind of test")
    ] = ()
    sustained: Annotated[
        Several[Sustained], Field(description="Clocks under a power limit, sorted by watts")
    ] = ()
    branch: Several[Branch] = ()
    where: NotInFile[Location] = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A GPU whose time is modelled: resources from its profile, their speed from its timing file.

    ``watts``: the power that the GPU sustains; None for a cool one without a limit, as the figures are for.
    """

    device: EmulatedDevice
    file: TimingFile
    watts: int | None = None

    def at_power(self, watts: int) -> Machine:
        """The same GPU at a power limit, for example of a warm machine.

        Raises TIMING_UNKNOWN: no clock of this GPU is published for so few watts.
        """
        known = self.file.sustained
        if not known or watts < known[0].watts:
            least = f"below {known[0].watts} W" if known else "under a power limit"
            raise ConfigError(
                f"no clock of {self.device.arch} is known at {watts} W",
                code="TIMING_UNKNOWN",
                where=self.file.where,
                why=f"the timing file has no published clock {least}",
                hint=f"--power {known[0].watts} or more" if known else "leave out --power",
            )
        return replace(self, watts=watts)

    @property
    def sustained(self) -> float:
        """Part of the cool clock that remains while the units compute: interpolated between known powers."""
        if self.watts is None:
            return 1.0
        known = self.file.sustained
        for low, high in pairwise(known):
            if self.watts <= high.watts:
                part = (self.watts - low.watts) / (high.watts - low.watts)
                return low.share + part * (high.share - low.share)
        return known[-1].share

    @property
    def box(self) -> str:
        """The machine that times are modelled for, in words."""
        if self.watts is not None:
            return f"clock of a machine at {self.watts} W: matmuls have {self.sustained:.0%} of a cool one's"
        return "clock of a cool machine without a power limit" + (
            "; --power models a warm one" if self.file.sustained else ""
        )

    def rate_error(self, kind: TestKind, *, is_timeline: bool = False) -> RateError | None:
        """The known error of tests of a kind; None if unknown."""
        known = [
            one for one in self.file.rate_error if one.kind == kind and (is_timeline or not one.timeline)
        ]
        return max(known, key=lambda one: one.timeline, default=None)

    def rate_error_text(self, kind: TestKind, *, is_timeline: bool = False) -> str:
        """The error of tests of a kind in words."""
        known = self.rate_error(kind, is_timeline=is_timeline)
        return str(known) if known is not None else f"the error of such tests ({kind}) is unknown"

    @property
    def cache_bytes(self) -> float:
        """Size of the last cache before DRAM."""
        return self.file.figures.mall_bytes.value or self.file.figures.l2_bytes.value

    @property
    def launch_us(self) -> float:
        """Overhead of each launch, in microseconds."""
        return self.file.figures.launch_us.value

    def text(self) -> str:
        """The input file of the timing program (native/machine.hpp)."""
        device = self.device
        of_device = {
            "wgps": device.multiprocessors,
            "waves_per_simd": device.max_waves_per_simd,
            "vgprs_per_simd": device.vgprs_per_simd,
            "vgpr_granule": device.vgpr_granule,
        }
        stated = {
            name: value for name, value in self.file.figures.values().items() if name not in _NOT_PLAYED
        }
        stated["sustained"] = self.sustained
        return "".join(f"{name} {value:g}\n" for name, value in {**of_device, **stated}.items())

    def config_of(self, source: str) -> Branch | None:
        """The mul_mat_q blocks of a measurement's source, if they are known to differ from upstream's."""
        return next((one for one in self.file.branch if source.startswith(one.source)), None)

    def error_of(self, kind: Kind, head_size: int | None = None) -> ModelError | None:
        """The known error for kernels of a kind, for attention with a head size; None if unknown."""
        for one in self.file.error:
            if one.kind == kind and (not one.head_sizes or head_size in one.head_sizes):
                return one
        return None

    def has_error(self, kind: Kind) -> bool:
        """Whether an error is known for kernels of a kind, even if only for some head sizes."""
        return any(one.kind == kind for one in self.file.error)

    def ratio_error(self, before: Kind, after: Kind, head_size: int | None = None) -> float | None:
        """90th percentile of the relative error of the ratio of two modelled times; None if unknown.

        If no ratio was measured for the kind of kernel, the errors of both times are assumed independent.
        """
        one, other = self.error_of(before, head_size), self.error_of(after, head_size)
        if one is None or other is None:
            return None
        if before == after and one.ratio_p90 is not None:
            return one.ratio_p90
        return math.hypot(one.p90, other.p90)


def load_machine(profiles: Path, device: EmulatedDevice) -> Machine:
    """Load the timing file of a device.

    Raises:
        TIMING_UNKNOWN: there is no timing file for this GPU.
        ConfigError, ErrorGroup: the file is invalid.
    """
    path = profiles / "timing" / f"{device.arch}.toml"
    if not path.is_file():
        known = sorted(each.stem for each in path.parent.glob("gfx*.toml"))
        raise ConfigError(
            f"no timing data for {device.arch}",
            code="TIMING_UNKNOWN",
            where=Location(path=str(path)),
            why="the model needs figures for the GPU's units, caches and memory, each with a source",
            hint=f"available: {', '.join(known)}; docs/reference/modelling.md describes the file",
        )
    document = load_toml(path)
    file = validate(document, TimingFile, what="timing file")
    if file.arch != device.arch:
        raise ConfigError(
            f"the timing file for {device.arch} has arch = '{file.arch}'",
            code="PROFILE_BAD",
            where=document.locate(("arch",)),
            hint=f"write: arch = '{device.arch}'",
        )
    for place, (low, high) in enumerate(pairwise(file.sustained), start=1):
        if low.watts >= high.watts or low.share > high.share:
            raise ConfigError(
                f"timing file: [[sustained]] of {high.watts} W is not sorted by watts, or has a lower share",
                code="CONFIG_VALUE",
                where=document.locate(("sustained", place)),
                why="with more power the clock is not lower",
                hint="sort the tables by watts, and give each power once",
            )
    for place, rate in enumerate(file.rate_error):
        if any((rate.kind, rate.timeline) == (one.kind, one.timeline) for one in file.rate_error[:place]):
            raise ConfigError(
                f"timing file: two [[rate_error]] of '{rate.kind}'",
                code="CONFIG_VALUE",
                where=document.locate(("rate_error", place)),
                hint="remove one",
            )
    for place, one in enumerate(file.error):
        for other in file.error[:place]:
            if one.overlaps(other):
                raise ConfigError(
                    f"timing file: the errors of {other} and of {one} overlap",
                    code="CONFIG_VALUE",
                    where=document.locate(("error", place)),
                    why="some kernels match both",
                    hint="remove one, or give each its own head_sizes",
                )
    return Machine(device=device, file=file)


class Busy(BaseModel):
    """Fraction of the time (0 to 1) that units of the busiest WGP were busy, or memory transferred data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    valu: float
    wmma: float
    scalar: float
    lds_banks: float
    l0: float
    l1: float
    l2: float
    mall: float
    dram: float
    code: float


class KernelTime(BaseModel):
    """The modelled time of one launch; ``us`` excludes launch overhead.

    ``resident``: blocks that a WGP holds at a time, which results in ``waves_per_simd``. ``simulated``:
    blocks that were simulated. ``channels``: effective number of memory channels, considering how unevenly
    blocks that run at the same time access them. ``dram_bytes``: read from DRAM; ``l1_bytes``: requested by
    the vector caches from L1; both for the whole launch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel: str
    us: float
    cycles: float
    clock_mhz: float
    blocks: int
    threads: int
    vgprs: int
    lds: int
    resident: float
    waves_per_simd: float
    simulated: int
    instructions: float
    busy: Busy
    dram_bytes: float
    l1_bytes: float
    channels: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A recorded launch (a trace file of the emulated GPU) to simulate.

    ``cold``: fraction (0 to 1) of the data from beyond L2 that no cache holds. ``working``: fraction of the
    blocks that have work.
    """

    trace: Path
    cold: float
    working: float = 1.0


def build_timing(compiler: Compiler) -> Path:
    """Build the timing program, once per toolchain.

    Raises:
        NOT_BUILT: the sources do not compile with this toolchain.
        CacheError: the cache cannot be written.
    """
    sources = sorted(_NATIVE.glob("*.cpp"))
    flags = ("-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror")
    digests = {path.name: sha256(path.read_bytes()) for path in sorted(_NATIVE.iterdir())}
    key = key_of({"what": "timing", "compiler": compiler.identity, "flags": flags, "sources": digests})

    def fill(folder: Path) -> None:
        build_native(compiler, sources, flags, folder / _PROGRAM, (), "the timing model")

    return compiler.store.obtain(key, fill) / _PROGRAM


def play(
    machine: Machine,
    traces: Sequence[Played],
    compiler: Compiler,
    *,
    most: int = MOST_INSTRUCTIONS,
) -> tuple[KernelTime, ...]:
    """The time of each trace. Results are cached by trace and figures.

    Args:
        machine: the GPU.
        traces: the recorded launches.
        compiler: builds the program.
        most: instructions to simulate per trace.

    Raises:
        TRACE_UNREADABLE: a file is not a valid trace.
        CacheError: the cache cannot be written.
        The errors of :func:`build_timing`.
    """
    if not traces:
        return ()
    program = build_timing(compiler)
    store = compiler.store.sibling("timing", "played")
    keys = [_key_of_play(program, machine, one, most) for one in traces]
    times = {key: kept for key in keys if (kept := _kept_time(store, key)) is not None}
    missing = {key: one for key, one in zip(keys, traces, strict=True) if key not in times}
    if missing:
        simulated = _play(program, machine, list(missing.values()), compiler, most)
        for key, time in zip(missing, simulated, strict=True):
            _keep_time(store, key, time)
            times[key] = time
    return tuple(times[key] for key in keys)


def timing_variables(machine: Machine, folder: Path, compiler: Compiler) -> dict[str, str]:
    """Environment of a program that models the time of launches while it runs, as Triton's autotuner does.

    Writes the figures of the GPU to ``folder``. Raises as :func:`play`.
    """
    figures = folder / "figures"
    with disk_errors(figures, "writing the figures of the GPU"):
        figures.write_text(machine.text(), "utf-8")
    model = {
        "program": str(build_timing(compiler)),
        "figures": str(figures),
        "most": MOST_INSTRUCTIONS,
        "launch_us": machine.launch_us,
    }
    # Which blocks of a launch are recorded; the program chooses the folder.
    recording = recording_variables(folder)
    recording.pop("PATCHKIT_EMULATOR_RECORD")
    return {**recording, "PATCHKIT_TIMING": json.dumps(model)}


def _key_of_play(program: Path, machine: Machine, one: Played, most: int) -> str:
    with disk_errors(one.trace, "reading a recorded launch"), one.trace.open("rb") as file:
        trace = hashlib.file_digest(file, "sha256").hexdigest()
    return key_of(
        {
            "program": program.parent.name,
            "machine": machine.text(),
            "most": most,
            "cold": f"{one.cold:.4f}",
            "working": f"{one.working:.6f}",
            "trace": trace,
        }
    )


def _kept_time(store: Store, key: str) -> KernelTime | None:
    """The cached time; None if there is none, or it cannot be read."""
    folder = store.find(key)
    if folder is None:
        return None
    try:
        return KernelTime.model_validate_json((folder / _TIME).read_bytes())
    except (OSError, ValidationError):
        return None


def _keep_time(store: Store, key: str, time: KernelTime) -> None:
    """Cache a time, or replace one that cannot be read."""

    def write(folder: Path) -> None:
        write_whole(folder / _TIME, time.model_dump_json(), "saving a modelled time")

    if _kept_time(store, key) is None:
        write(store.obtain(key, write))


def _play(
    program: Path, machine: Machine, traces: Sequence[Played], compiler: Compiler, most: int
) -> tuple[KernelTime, ...]:
    doing = "unpacking a recorded launch"
    with working_folder(compiler.cache_root / "timing", "playing-", doing) as folder:
        figures, unpacked = folder / "machine", folder / "trace"
        with disk_errors(figures, "writing the figures of the GPU"):
            figures.write_text(machine.text(), "utf-8")
        times = []
        for one in traces:  # one at a time, so that only one unpacked trace is on disk
            words = (f"{one.cold:.4f}", f"{one.working:.6f}", str(unpacked))
            argv = [*nice(), str(program), str(figures), str(most), *words]
            try:
                with disk_errors(unpacked, doing):
                    unpack_trace(one.trace, unpacked)
                done = run_tool(
                    argv, timeout_s=_RUN_S, reporter=compiler.reporter, stop=compiler.stop, work="run"
                )
                times.append(KernelTime.model_validate_json(done.stdout))
            except (ToolFailed, ToolCrashed, lzma.LZMAError, EOFError, ValidationError) as error:
                why = error.why if isinstance(error, ToolFailed | ToolCrashed) else str(error)
                raise ToolchainError(
                    "a recorded launch could not be simulated",
                    code="TRACE_UNREADABLE",
                    where=Location(path=str(one.trace.parent)),
                    why=why,
                    hint="delete that folder and run the command again",
                ) from error
    return tuple(times)

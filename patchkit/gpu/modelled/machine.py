"""The figures of one GPU that the model of its time goes by, and the program that does."""

from __future__ import annotations

import hashlib
import lzma
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from patchkit.base.arch import Confidence
from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import ConfigError, Location, ToolchainError
from patchkit.base.files import disk_error_from_tool, disk_errors, working_folder, write_whole
from patchkit.base.process import ToolCrashed, ToolFailed, run_tool
from patchkit.base.store import Store
from patchkit.base.toml import NOWHERE, NotInFile, Several, TomlTable, load_toml, validate
from patchkit.gpu.emulated.device import PlayedDevice
from patchkit.gpu.emulated.runtime import cxx_of
from patchkit.gpu.modelled.recording import unpack_trace
from patchkit.toolchain.compiler import Compiler, nice

_NATIVE = Path(__file__).parent / "native"
_PROGRAM = "timing"
_TIME = "time.json"  # of an entry of what was played
_BUILD_S = 300.0
_RUN_S = 1200.0  # sixty times what an evaluation may take (20 s)
# Instructions of waves that are simulated of one launch; 3 to 10 millions of them are a second (2026-11-23).
MOST_INSTRUCTIONS = 12_000_000

# Figures of what is not played instruction by instruction.
_NOT_PLAYED = frozenset({"blas_tflops", "blas_tflops_deep"})

Kind = Literal["mmvq", "mmvf", "mmq", "gemm", "tile", "mma", "wmma", "vec", "attention", "other"]
"""Which kernel takes most of the time: a vector kernel, the matrix kernel of quantized weights, that of patch
mul-mat-wmma-prefill (gemm), attention.

Of attention: without matrix instructions, with them, with them by rocWMMA, the vector kernel, and what joins
parts of a result.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingFigure(TomlTable):
    """One figure. ``fitted``: chosen so that modelled times agree with published ones."""

    value: Annotated[float, Field(ge=0)]
    source: Annotated[str, Field(min_length=3)]
    confidence: Confidence
    fitted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingFigures(TomlTable):
    """All figures of a GPU, by the names of native/machine.hpp; cycles are of the shader clock."""

    lds_bytes: Annotated[TimingFigure, Field(description="Of a WGP")]
    l0_bytes: Annotated[TimingFigure, Field(description="Vector cache of a CU")]
    l1_bytes: Annotated[TimingFigure, Field(description="Of a shader array")]
    arrays: Annotated[TimingFigure, Field(description="Shader arrays, each with an L1")]
    l2_bytes: TimingFigure
    mall_bytes: Annotated[TimingFigure, Field(description="Memory-side cache; 0: none")]
    clock_mhz: Annotated[TimingFigure, Field(description="The highest")]
    clock_less_valu: Annotated[
        TimingFigure,
        Field(description="MHz less while all SIMDs do nothing but VALU instructions"),
    ]
    clock_less_wmma: Annotated[TimingFigure, Field(description="The same of WMMA")]
    clock_less_lds: Annotated[TimingFigure, Field(description="The same of LDS")]
    clock_less_dram: Annotated[
        TimingFigure,
        Field(description="MHz less while DRAM is all that is waited for"),
    ]
    valu: Annotated[
        TimingFigure,
        Field(description="Cycles that an instruction keeps the VALU of its SIMD busy"),
    ]
    dual: Annotated[TimingFigure, Field(description="The same of a dual instruction")]
    dot: Annotated[TimingFigure, Field(description="Of v_dot4 and v_dot8")]
    quarter: Annotated[
        TimingFigure,
        Field(description="Of instructions at a quarter of the rate: products of whole 32-bit numbers"),
    ]
    double_float: Annotated[TimingFigure, Field(description="Of f64")]
    transcendental: Annotated[TimingFigure, Field(description="Cycles of the transcendental unit")]
    wmma: Annotated[TimingFigure, Field(description="Cycles of the VALU")]
    wmma_int4: TimingFigure
    scalar: Annotated[TimingFigure, Field(description="Cycles of the scalar unit")]
    branch: Annotated[TimingFigure, Field(description="Cycles until a wave goes on behind a taken branch")]
    valu_latency: Annotated[TimingFigure, Field(description="Cycles until what depends on it may begin")]
    transcendental_latency: TimingFigure
    wmma_latency: TimingFigure
    scalar_latency: TimingFigure
    lds_least: Annotated[
        TimingFigure,
        Field(description="Cycles of a WGP that an LDS instruction takes at least; else those of its banks"),
    ]
    lds_latency: Annotated[TimingFigure, Field(description="Cycles")]
    load_register: Annotated[
        TimingFigure,
        Field(description="Cycles that the VALU loses for each register that a load fills"),
    ]
    l0_line: Annotated[TimingFigure, Field(description="Cycles of a CU for a line of 128 bytes")]
    l0_latency: Annotated[TimingFigure, Field(description="Cycles")]
    l1_latency_ns: TimingFigure
    l2_latency_ns: TimingFigure
    mall_latency_ns: TimingFigure
    dram_latency_ns: TimingFigure
    scalar_cache_latency: Annotated[TimingFigure, Field(description="Cycles")]
    l1_bytes_per_cycle: Annotated[
        TimingFigure,
        Field(description="That come to the vector caches of all CUs from all L1"),
    ]
    l2_bytes_per_cycle: Annotated[TimingFigure, Field(description="That come from L2 to all L1")]
    mall_gb_s: TimingFigure
    dram_gb_s: TimingFigure
    dram_pieces_gb_s: Annotated[
        TimingFigure,
        Field(description="Of DRAM, where at most half of each page is wanted at a time"),
    ]
    dram_page_bytes: Annotated[TimingFigure, Field(description="Of each channel")]
    channels: Annotated[TimingFigure, Field(description="Of the memory, each with its part of L2")]
    channel_bytes: Annotated[
        TimingFigure,
        Field(description="Of neighbouring addresses that one channel has before the next one's"),
    ]
    barrier: Annotated[
        TimingFigure,
        Field(description="Cycles from the last wave that comes to the first that goes on"),
    ]
    block_start: Annotated[
        TimingFigure,
        Field(description="Cycles from the end of a block to the first instruction of the next"),
    ]
    leftover: Annotated[
        TimingFigure,
        Field(description="Blocks of the last round that the busiest WGP has too many, times those it holds"),
    ]
    code_bytes: Annotated[TimingFigure, Field(description="Instruction cache of a WGP")]
    code_bytes_per_cycle: Annotated[TimingFigure, Field(description="That come into it")]
    code_latency: Annotated[TimingFigure, Field(description="Cycles")]
    code_ahead: Annotated[TimingFigure, Field(description="Lines of 64 bytes that come behind one")]
    launch_us: Annotated[TimingFigure, Field(description="Of each kernel, before its first block")]
    blas_tflops: Annotated[
        TimingFigure,
        Field(description="That a BLAS library reaches with f16; only for whole models"),
    ]
    blas_tflops_deep: Annotated[
        TimingFigure,
        Field(description="The same where 8192 products and more are summed up for a value (K)"),
    ]
    where: NotInFile[Location] = NOWHERE

    def values(self) -> dict[str, float]:
        """Each by its name."""
        return {each.name: getattr(self, each.name).value for each in fields(self) if each.name != "where"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelError(TomlTable):
    """How far modelled times were from published ones: of ``points`` measurements of one kind of kernel.

    ``median`` and ``p90`` (90th percentile) of the absolute error, as a part of what was measured.
    ``ratio_median`` and ``ratio_p90`` are the same of the ``ratios`` of two times of one shape, where
    somebody measured a change of the kernel. Of attention with ``head_sizes`` it holds for these alone.
    """

    kind: Kind
    head_sizes: Annotated[
        Several[Annotated[int, Field(gt=0)]], Field(description="Of attention: what it holds for; none: any")
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
            raise ValueError("ratios, ratio_median and ratio_p90 go together")

    def overlaps(self, other: ModelError) -> bool:
        """Whether some kernels would have both errors."""
        sizes, others = set(self.head_sizes), set(other.head_sizes)
        return self.kind == other.kind and (not sizes or not others or not sizes.isdisjoint(others))

    def __str__(self) -> str:
        return in_words(self.kind, *self.head_sizes)


def in_words(kind: str, *head_sizes: int | None) -> str:
    """Such kernels, as ``wmma, head size 64``."""
    sizes = " and ".join(str(size) for size in head_sizes if size is not None)
    return f"{kind}, head size {sizes}" if sizes else kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(TomlTable):
    """Whose tree is none of upstream's: blocks of mul_mat_q in place of those of 128 rows.

    ``source`` is what the source of a measurement begins with; a block has ``nthreads`` and takes ``i`` rows.
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
    branch: Several[Branch] = ()
    where: NotInFile[Location] = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A GPU whose time is modelled: what it has, by the profile, and how fast that is, by its timing file."""

    device: PlayedDevice
    file: TimingFile

    @property
    def cache_bytes(self) -> float:
        """Of the last cache before DRAM."""
        return self.file.figures.mall_bytes.value or self.file.figures.l2_bytes.value

    @property
    def launch_us(self) -> float:
        """What each launch costs besides its blocks."""
        return self.file.figures.launch_us.value

    def text(self) -> str:
        """The file that the program reads, native/machine.hpp."""
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
        return "".join(f"{name} {value:g}\n" for name, value in {**of_device, **stated}.items())

    def config_of(self, source: str) -> Branch | None:
        """The blocks of whoever measured there, if they are known to be none of upstream's."""
        return next((one for one in self.file.branch if source.startswith(one.source)), None)

    def error_of(self, kind: Kind, head_size: int | None = None) -> ModelError | None:
        """What is known of the error for such kernels, of attention with that head size; None: nothing."""
        for one in self.file.error:
            if one.kind == kind and (not one.head_sizes or head_size in one.head_sizes):
                return one
        return None

    def has_error(self, kind: Kind) -> bool:
        """Whether something is known of the error for such kernels, be it with some head sizes only."""
        return any(one.kind == kind for one in self.file.error)

    def ratio_error(self, before: Kind, after: Kind, head_size: int | None = None) -> float | None:
        """Within what part of the true one nine of ten ratios of two modelled times are; None: not known.

        Where nobody measured a change of such a kernel, both times are taken to err by themselves.
        """
        one, other = self.error_of(before, head_size), self.error_of(after, head_size)
        if one is None or other is None:
            return None
        if before == after and one.ratio_p90 is not None:
            return one.ratio_p90
        return math.hypot(one.p90, other.p90)


def load_machine(profiles: Path, device: PlayedDevice) -> Machine:
    """The machine of a device.

    Raises:
        TIMING_UNKNOWN: there is no timing file of this GPU.
        ConfigError, ErrorGroup: it is wrong.
    """
    path = profiles / "timing" / f"{device.arch}.toml"
    if not path.is_file():
        known = sorted(each.stem for each in path.parent.glob("gfx*.toml"))
        raise ConfigError(
            f"nothing is known of how fast {device.arch} is",
            code="TIMING_UNKNOWN",
            where=Location(path=str(path)),
            why="the model needs figures of its units, caches and memory, each with a source",
            hint=f"known: {', '.join(known)}; docs/reference/modelling.md says what a file needs",
        )
    document = load_toml(path)
    file = validate(document, TimingFile, what="timing file")
    if file.arch != device.arch:
        raise ConfigError(
            f"the timing file of {device.arch} says it is of {file.arch}",
            code="PROFILE_MISMATCH",
            where=document.locate(("arch",)),
            hint=f"write: arch = '{device.arch}'",
        )
    for place, one in enumerate(file.error):
        for other in file.error[:place]:
            if one.overlaps(other):
                raise ConfigError(
                    f"timing file: two errors, of {other} and of {one}",
                    code="CONFIG_BAD_VALUE",
                    where=document.locate(("error", place)),
                    why="some kernels would have both",
                    hint="remove one, or give each head_sizes of its own",
                )
    return Machine(device=device, file=file)


class Busy(BaseModel):
    """The part of the time (0 to 1) that units of the busiest WGP worked, or memory moved bytes."""

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
    """One launch as it was modelled; ``us`` without what launching costs.

    ``resident`` blocks of a WGP at a time give ``waves_per_simd``; ``simulated`` of the blocks were played.
    ``channels`` of the memory have as much to do as all that are asked by blocks that run at the same time.
    ``dram_bytes`` come from DRAM, ``l1_bytes`` are what the vector caches ask of L1, both of the launch.
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
    """A launch that is to be timed: a file of the emulated GPU.

    ``cold``: the part (0 to 1) of what comes from behind L2 that is in no cache; ``working``: the part of the
    blocks that has work.
    """

    trace: Path
    cold: float
    working: float = 1.0


def build_timing(compiler: Compiler) -> Path:
    """The program that plays traces; built once per toolchain.

    Raises:
        TIMING_NOT_BUILT: our sources do not compile with this toolchain.
        CacheError: the disk refused.
    """
    sources = sorted(_NATIVE.glob("*.cpp"))
    flags = ("-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror")
    digests = {path.name: sha256(path.read_bytes()) for path in sorted(_NATIVE.iterdir())}
    key = key_of({"what": "timing", "compiler": compiler.identity, "flags": flags, "sources": digests})

    def fill(folder: Path) -> None:
        argv = [
            *nice(),
            *cxx_of(compiler.toolchain),
            *flags,
            *map(str, sources),
            "-o",
            str(folder / _PROGRAM),
        ]
        try:
            run_tool(argv, timeout_s=_BUILD_S, reporter=compiler.reporter, stop=compiler.stop, work="compile")
        except (ToolFailed, ToolCrashed) as error:
            refused = disk_error_from_tool(error, folder.parent, "building the timing model")
            raise refused or ToolchainError(
                "the timing model does not compile with this toolchain",
                code="TIMING_NOT_BUILT",
                where=Location(path=str(_NATIVE)),
                why=f"{error.message}: {error.why}",
                hint="patchkit doctor shows the compiler that was used",
            ) from error

    return compiler.store.obtain(key, fill) / _PROGRAM


def play(
    machine: Machine,
    traces: Sequence[Played],
    compiler: Compiler,
    *,
    most: int = MOST_INSTRUCTIONS,
) -> tuple[KernelTime, ...]:
    """The time of each trace; what was played before with the same figures is kept.

    Args:
        machine: the GPU.
        traces: what the emulated GPU recorded.
        compiler: builds the program.
        most: instructions that are simulated of each.

    Raises:
        TRACE_UNREADABLE: a file is none.
        CacheError: the disk refused.
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
        made = _play(program, machine, list(missing.values()), compiler, most)
        for key, time in zip(missing, made, strict=True):
            _keep_time(store, key, time)
            times[key] = time
    return tuple(times[key] for key in keys)


def _key_of_play(program: Path, machine: Machine, one: Played, most: int) -> str:
    with disk_errors(one.trace, "reading what the emulated GPU recorded"), one.trace.open("rb") as file:
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
    """What was played before; None where there is nothing, or nothing that can be read."""
    folder = store.find_or_fetch(key)
    if folder is None:
        return None
    try:
        return KernelTime.model_validate_json((folder / _TIME).read_bytes())
    except (OSError, ValidationError):
        return None


def _keep_time(store: Store, key: str, time: KernelTime) -> None:
    """Also in place of one that cannot be read."""

    def write(folder: Path) -> None:
        write_whole(folder / _TIME, time.model_dump_json(), "keeping a modelled time")

    if _kept_time(store, key) is None:
        write(store.obtain(key, write))


def _play(
    program: Path, machine: Machine, traces: Sequence[Played], compiler: Compiler, most: int
) -> tuple[KernelTime, ...]:
    doing = "unpacking what the emulated GPU recorded"
    with working_folder(compiler.cache_root / "timing", "playing-", doing) as folder:
        figures, unpacked = folder / "machine", folder / "trace"
        with disk_errors(figures, "writing the figures of the GPU"):
            figures.write_text(machine.text(), "utf-8")
        times = []
        for one in traces:  # one after the other, so that only one is there unpacked
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
                    "what the emulated GPU recorded cannot be played",
                    code="TRACE_UNREADABLE",
                    where=Location(path=str(one.trace.parent)),
                    why=why,
                    hint="remove that folder: it is recorded anew",
                ) from error
    return tuple(times)

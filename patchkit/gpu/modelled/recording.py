"""Records what the kernels of an operation execute on the emulated GPU, and caches the recordings."""

from __future__ import annotations

import contextlib
import lzma
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from patchkit.base.digests import key_of
from patchkit.base.errors import ToolchainError
from patchkit.base.files import disk_errors, full_disk
from patchkit.base.process import ToolTimeout, run_tool
from patchkit.gpu.emulated.cases import Case, case_line
from patchkit.gpu.emulated.emulated_sides import EmulatedSide, emulated_side
from patchkit.gpu.emulated.emulator import EmulatedGpu, EmulationOptions
from patchkit.gpu.emulated.kept_runs import obtain_by_units
from patchkit.gpu.emulated.log import parse_recording
from patchkit.gpu.emulated.operations import OperationCase, operation_line
from patchkit.gpu.emulated.runtime import ATTENTION_DRIVER, OPERATIONS_DRIVER, build_driver
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.machine import Source, build_side
from patchkit.toolchain.parts import GATE_PROGRAMS
from patchkit.toolchain.sides import BuiltSide, Workshop
from patchkit.toolchain.tree import overlay_tree
from patchkit.toolchain.units import SourceTree

Timed = OperationCase | Case
"""An operation to time."""

# Maximum number of blocks per launch that are recorded completely: those that a WGP holds at once.
_SAMPLED = 16
# Maximum number of blocks whose memory accesses are recorded: those that the GPU holds at once. gfx1151 holds
# 40 to 80 blocks of a matrix kernel and 320 of the vector attention kernel.
_SEEN = 512
# Later blocks, evenly spaced, that run as well: they show which data later rounds read again.
_LATER = 8
_FORMAT = 3  # of an entry; raise it to invalidate all recordings
_NO_LARGE_UNROLLING = (
    "-mllvm",
    "-amdgpu-unroll-threshold-private=1000",
    "-mllvm",
    "-amdgpu-unroll-threshold-local=300",
)
_TIMEOUT_S = 600.0
_RECORDING = "recording an operation"
_PACKED = b"\xfd7zXZ\0"  # magic bytes of an xz file
_PIECE = 1 << 20
# Files of an entry in addition to the traces.
_PRODUCTS, _UNSUPPORTED = "products", "unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHead:
    """Header of a trace: mangled kernel name, grid in blocks, block in threads, LDS bytes."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int] = (1, 1, 1)
    lds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The ``traces`` of one operation's launches in order; ``products``: its BLAS library calls."""

    traces: tuple[Path, ...]
    products: tuple[str, ...]

    @property
    def heads(self) -> tuple[TraceHead, ...]:
        """The header of each trace."""
        return tuple(map(_head_of, self.traces))


def recording_variables(folder: Path) -> dict[str, str]:
    """Environment that makes a program on the emulated GPU record some blocks of each launch to a folder."""
    return {
        "PATCHKIT_EMULATOR_RECORD": str(folder),
        "PATCHKIT_EMULATOR_SAMPLED": str(_SAMPLED),
        "PATCHKIT_EMULATOR_SEEN": str(_SEEN),
        "PATCHKIT_EMULATOR_LATER": str(_LATER),
    }


def traces_in(folder: Path) -> list[tuple[TraceHead, Path]]:
    """The recorded launches in a folder, in launch order: header and file of each."""
    return [(_head_of(trace), trace) for trace in _traces(folder)]


def _traces(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob("*.trace"), key=lambda path: int(path.stem)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """Records operations on one side.

    Recordings are cached by ``identity`` if it is known what they depend on, else by the code of the
    compilation units whose kernels the operation launches. ``environment``: variables of the recorded
    program, for example those that turn patches off.
    """

    side: EmulatedSide
    tree: SourceTree
    identity: str | None
    gpu: EmulatedGpu
    compiler: Compiler
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def depends(self) -> dict[str, object]:
        """What every recording depends on, for its key."""
        return {
            "format": _FORMAT,
            "tree": self.identity or self.side.built.identity,
            "emulator": self.gpu.identity,
            "compiler": self.compiler.identity,
            "options": self.compiler.toolchain.device_options,
            **({"environment": dict(sorted(self.environment.items()))} if self.environment else {}),
        }

    def record(self, case: Timed) -> Recorded | None:
        """Run some blocks of an operation, or reuse a recording; None if the backend has no kernel for it.

        Raises:
            TIMING_RUN_FAILED: the program failed on the emulated GPU.
            CompileFailed, NOT_BUILT: a unit or the driver does not compile.
            CacheError: the cache cannot be written.
        """
        is_attention = isinstance(case, Case)
        line = case_line(case) if isinstance(case, Case) else operation_line(case)
        driver = build_driver(
            self.compiler,
            self.tree.root,
            self.side.built,
            self.gpu.runtime,
            source=ATTENTION_DRIVER if is_attention else OPERATIONS_DRIVER,
        )
        store = self.compiler.store.sibling("timing", "traces")
        key = key_of(
            {
                **self.depends,
                "driver": driver.parent.name,
                "line": line.partition(" ")[2],
                "blocks": [_SAMPLED, _SEEN, _LATER],
            }
        )

        def run(folder: Path, more: Mapping[str, str]) -> None:
            self._run(driver, line, case, folder, more)

        if self.identity is not None:
            folder = store.obtain(key, lambda entry: run(entry, {}))
        else:
            folder = obtain_by_units(store, key, self.side.units, run)
        if (folder / _UNSUPPORTED).exists():
            return None
        products = (folder / _PRODUCTS).read_text("utf-8").splitlines()
        return Recorded(traces=_traces(folder), products=tuple(products))

    def _run(self, driver: Path, line: str, case: Timed, folder: Path, more: Mapping[str, str]) -> None:
        cases, log = folder / "case", folder / "log"
        with disk_errors(cases, _RECORDING):
            cases.write_text(line, "utf-8")
        module = {"GGML_BACKEND_PATH": str(self.side.built.module)}
        self.run_program([str(driver), str(cases)], folder, {**module, **more}, str(case), _TIMEOUT_S)
        with disk_errors(folder, _RECORDING):
            with log.open(encoding="utf-8", errors="replace") as lines:
                sections = parse_recording(lines, str(log)).sections
            if any(section.mark == _UNSUPPORTED for section in sections):
                (folder / _UNSUPPORTED).touch()
            calls = [call for section in sections for call in section.products]
            (folder / _PRODUCTS).write_text("".join(f"{call}\n" for call in calls), "utf-8")
            log.unlink()
            for trace in sorted(folder.glob("*.trace")):
                pack_trace(trace)

    def run_program(
        self,
        argv: Sequence[str],
        folder: Path,
        more: Mapping[str, str],
        what: str,
        timeout_s: float,
        *,
        lines: int = 1,
    ) -> None:
        """Run a program on the emulated GPU, with its recordings and the recorder's ``log`` in ``folder``.

        ``lines``: how many of its last lines an error shows. Raises as :meth:`record`.
        """
        variables = {
            **self.side.built.environment,
            **self.environment,
            **recording_variables(folder),
            **more,
            "PATCHKIT_RECORDER_LOG": str(folder / "log"),
        }
        variables["LD_LIBRARY_PATH"] += f":{self.side.built.folder}"
        try:
            done = run_tool(
                argv,
                env=variables,
                timeout_s=timeout_s,
                check=False,
                reporter=self.compiler.reporter,
                stop=self.compiler.stop,
                work="run",
            )
        except ToolTimeout as error:
            raise _failed(what, error.why, error.hint) from error
        if self.side.units.failed is not None:
            raise self.side.units.failed
        if done.returncode != 0:
            doing = f"recording {what}"
            if (refused := full_disk(folder, doing)) is not None:  # the incomplete files are still there
                raise refused
            output = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise _failed(what, " / ".join(output[-lines:]) or f"exit status {done.returncode}", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """A tree to record.

    ``changes``: files to replace, by path; ``what`` names them. Recordings are cached by the changed files,
    or by ``known_as``, a name for those changes that the recordings depend on. ``rocwmma``: with the rocWMMA
    attention kernel, if the tree has it.
    """

    source: Source
    changes: Mapping[str, bytes] = field(default_factory=dict)
    what: str = ""
    known_as: str | None = None
    rocwmma: bool = True


def as_measured(compiler: Compiler) -> Compiler:
    """A compiler that generates kernels like those of the published measurements.

    Since LLVM PR 147700 (July 2025), many more loops over LDS and arrays are unrolled, up to thresholds of
    1000 and 2700. AMD reverted that in February 2026, because it made llama.cpp's prefill two to three times
    slower (ROCm/rocm-systems issue 2865, ROCm/llvm-project PR 1349, LLVM PR 183641); LLVM 22 still does it.
    With the thresholds set here, mul_mat_q keeps the same loops as with AMD's clang 18, and attention is as
    without them (docs/records/timing-model.md).
    """
    return replace(compiler, toolchain=replace(compiler.toolchain, device_options=_NO_LARGE_UNROLLING))


@contextlib.contextmanager
def open_recorder(sources: Sources, gpu: EmulatedGpu, compiler: Compiler) -> Iterator[Recorder]:
    """Build a tree for the emulated GPU, for the duration of the context.

    Raises:
        The errors of :func:`patchkit.toolchain.machine.build_side` and of
        :func:`patchkit.gpu.emulated.emulated_sides.emulated_side`.
        CacheError: the cache cannot be written.
    """
    built = build_side(
        sources.source,
        "cpu",
        archs=(gpu.device.arch,),
        toolchain=compiler.toolchain,
        programs=GATE_PROGRAMS,
        workshop=Workshop(cache_root=compiler.cache_root, reporter=compiler.reporter),
        with_rocwmma=False,
        is_timed=False,
    )
    root = sources.source.root
    if sources.changes:
        root = overlay_tree(root, sources.changes, sources.what, below=".")
    tree = SourceTree(root)
    identity = None if sources.known_as is None else f"{sources.source.root.name} {sources.known_as}"
    if identity is not None and not sources.rocwmma:
        identity += " without rocWMMA"
    with recorder_of(built, tree, gpu, compiler, rocwmma=sources.rocwmma, identity=identity) as recorder:
        yield recorder


@contextlib.contextmanager
def recorder_of(
    built: BuiltSide,
    tree: SourceTree,
    gpu: EmulatedGpu,
    compiler: Compiler,
    *,
    rocwmma: bool = True,
    identity: str | None = None,
) -> Iterator[Recorder]:
    """The recorder of a side that was built for the CPU, for the duration of the context.

    Raises the errors of :func:`patchkit.gpu.emulated.emulated_sides.emulated_side`.
    """
    with emulated_side(built, tree, gpu, compiler, EmulationOptions(), rocwmma=rocwmma, whole=()) as side:
        yield Recorder(side=side, tree=tree, identity=identity, gpu=gpu, compiler=compiler)


def unpack_trace(trace: Path, into: Path) -> None:
    """Write a trace in the uncompressed form that the emulated GPU writes and the simulation reads.

    Raises:
        OSError: the file cannot be written.
        lzma.LZMAError, EOFError: the recording is damaged.
    """
    with _open_trace(trace) as packed, into.open("wb") as plain:
        shutil.copyfileobj(packed, plain, _PIECE)


def pack_trace(trace: Path) -> None:
    """Compress a recording in place.

    A layer of attention at a depth of 65536 is up to 740 MB, compressed to a hundredth in 3 s. Before, the 45
    MMA settings that tune times took 60 GB and filled the disk (2026-11-25).
    """
    packed = trace.with_suffix(".packed")
    with trace.open("rb") as plain, lzma.open(packed, "wb", preset=0) as file:
        shutil.copyfileobj(plain, file, _PIECE)
    packed.replace(trace)


@contextlib.contextmanager
def _open_trace(path: Path) -> Iterator[IO[bytes]]:
    """Open a trace, compressed or as the emulated GPU writes it."""
    with path.open("rb") as file:
        is_packed = file.read(len(_PACKED)) == _PACKED
        file.seek(0)
        if not is_packed:
            yield file
            return
        with lzma.open(file) as unpacked:
            yield unpacked


def _head_of(trace: Path) -> TraceHead:
    try:
        with _open_trace(trace) as file:
            lines = file.read(16384).decode("utf-8", "replace").splitlines()
    except (lzma.LZMAError, EOFError):
        lines = []
    words = {name: rest for name, _, rest in (line.partition(" ") for line in lines)}
    lds = words.get("lds", "")
    return TraceHead(
        kernel=words.get("kernel", ""),
        grid=_three(words.get("grid", "")),
        block=_three(words.get("block", "")),
        lds=int(lds) if lds.isdigit() else 0,
    )


def _three(text: str) -> tuple[int, int, int]:
    numbers = [int(word) for word in text.split() if word.isdigit()]
    x, y, z = numbers if len(numbers) == 3 else (1, 1, 1)  # noqa: PLR2004 - simulating a bad file reports the error
    return (x, y, z)


def _failed(what: str, why: str | None, hint: str | None) -> ToolchainError:
    return ToolchainError(
        f"recording {what} on the emulated GPU failed", code="TIMING_RUN_FAILED", why=why, hint=hint
    )

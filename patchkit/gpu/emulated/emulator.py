"""Build the emulated GPU for this machine, configure it, and serve device code to programs that run on it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import socketserver
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import Location, PatchkitError, ToolchainError
from patchkit.base.files import disk_errors, temporary_folder
from patchkit.gpu.emulated.checks import CheckName, native_checks
from patchkit.gpu.emulated.device import EmulatedDevice, device_text
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.emulated.runtime import build_native, build_stub
from patchkit.toolchain.compile import Job, compile_kernel, compile_unit, unit_key
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.hip import Toolchain, hip_flags
from patchkit.toolchain.units import SourceTree

Level = Literal["x86-64-v4", "x86-64-v3", "x86-64", "armv8-a"]
"""CPU feature level that the emulator is compiled for, as compilers name it."""

Schedule = Literal["in-order", "late", "shuffle"]
"""When asynchronous work runs: immediately, as late as HIP allows, or in a random order that HIP allows."""

_NATIVE = Path(__file__).parent / "native" / "emulator"
# For Python programs: contains a driver that Triton finds by its entry point.
_PYTHON_PATH = Path(__file__).parent / "python_path"
_TRITON_BUFFERS = "AMDGCN_USE_BUFFER_OPS"
_LIBRARY = "libpatchkit-emulator.so"
_PROGRAMS = ("alone", "look", "coverage")  # one source file each, linked against the library
_FLAGS = (
    *("-std=c++20", "-O2", "-fPIC", "-pthread", native_checks()),
    # -Wno-psabi: vectors of 32 lanes are passed only between our own functions, never across an ABI boundary.
    *("-Wall", "-Wextra", "-Werror", "-Wno-psabi"),
    # Multiplications and additions of a kernel are rounded separately, as the GPU's instructions define.
    "-ffp-contract=off",
)
_LEVEL_FLAGS: Mapping[Level, tuple[str, ...]] = {
    "x86-64-v4": ("-march=x86-64-v4", "-mprefer-vector-width=512", "-mno-vzeroupper"),
    "x86-64-v3": ("-march=x86-64-v3", "-mno-vzeroupper"),
    "x86-64": ("-march=x86-64",),
    "armv8-a": ("-march=armv8-a",),
}
# Feature levels of the x86-64 psABI, with the names of /proc/cpuinfo.
_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def level_of(machine: str, cpuinfo: str) -> Level:
    """The highest feature level of a CPU: ``machine`` as in uname, ``cpuinfo`` the text of /proc/cpuinfo.

    Raises:
        EMULATOR_CPU_UNKNOWN: the emulator does not support this type of CPU.
    """
    if machine in {"aarch64", "arm64"}:
        return "armv8-a"
    if machine not in {"x86_64", "amd64"}:
        raise ToolchainError(
            f"the emulated GPU does not run on a CPU of type {machine}",
            code="EMULATOR_CPU_UNKNOWN",
            why="only little-endian CPUs with IEEE floats are supported; tested are x86-64 and arm64",
        )
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    flags = frozenset(line.partition(":")[2].split())
    return "x86-64-v4" if flags >= _V4 else "x86-64-v3" if flags >= _V3 else "x86-64"


def this_level() -> Level:
    """The level of this machine. Raises EMULATOR_CPU_UNKNOWN."""
    with contextlib.suppress(OSError):
        return level_of(platform.machine(), Path("/proc/cpuinfo").read_text("utf-8", "replace"))
    return level_of(platform.machine(), "")


def find_disassembler(toolchain: Toolchain) -> Path:
    """The libLLVM of the toolchain's compiler, which decodes machine code.

    Raises:
        DISASSEMBLER_MISSING: no libLLVM next to the compiler, because LLVM is linked into it statically.
    """
    home = toolchain.clang.resolve().parent.parent
    for root in (home, home / "compiler" / "usr"):
        for pattern in ("lib/libLLVM*.so*", "lib/*/libLLVM*.so*"):
            found = sorted(path for path in root.glob(pattern) if path.is_file())
            if found:
                return found[-1].resolve()
    raise ToolchainError(
        "the compiler has no shared libLLVM, which the emulated GPU needs to decode machine code",
        code="DISASSEMBLER_MISSING",
        where=Location(path=str(home)),
        hint="run 'patchkit sdk install': patchkit's own SDK includes libLLVM",
    )


def build_emulator(compiler: Compiler, level: Level) -> Path:
    """Build the emulator as a library, once per toolchain and feature level.

    Raises:
        NOT_BUILT: the emulator's sources do not compile with this toolchain.
        CacheError: the cache cannot be written.
    """
    sources = [path for path in sorted(_NATIVE.glob("*.cpp")) if path.stem not in _PROGRAMS]
    return _built(compiler, level, "library", sources, _LIBRARY, ("-shared",)) / _LIBRARY


def build_alone(compiler: Compiler, level: Level) -> Path:
    """Build the program that runs single pieces of code. Raises as :func:`build_emulator`."""
    return _built_program(compiler, level, "alone")


def build_look(compiler: Compiler, level: Level) -> Path:
    """Build the program that analyses code without running it. Raises as :func:`build_emulator`."""
    return _built_program(compiler, level, "look")


def build_coverage(compiler: Compiler, level: Level) -> Path:
    """Build the program that lists the emulated instructions. Raises as :func:`build_emulator`."""
    return _built_program(compiler, level, "coverage")


def _built_program(compiler: Compiler, level: Level, name: str) -> Path:
    library = build_emulator(compiler, level)
    links = (str(library), f"-Wl,-rpath,{library.parent}")
    sources = [_NATIVE / f"{name}.cpp"]
    return _built(compiler, level, f"{name} {library.parent.name}", sources, name, links) / name


def _built(
    compiler: Compiler, level: Level, what: str, sources: list[Path], name: str, links: tuple[str, ...]
) -> Path:
    digests = {path.name: sha256(path.read_bytes()) for path in sorted(_NATIVE.iterdir()) if path.is_file()}
    flags = [*_FLAGS, *_LEVEL_FLAGS[level]]
    key = key_of(
        {"what": f"emulator {what}", "compiler": compiler.identity, "flags": flags, "sources": digests}
    )

    def fill(folder: Path) -> None:
        build_native(compiler, sources, flags, folder / name, links, "the emulated GPU")

    return compiler.store.obtain(key, fill)


# Instructions per wave: half a minute, and a thousand times what waves of llama.cpp's kernels execute.
_MOST_OF_SAMPLE = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationOptions:
    """How a program runs on the emulated GPU.

    Args:
        schedule: when asynchronous work runs, and the seed for "shuffle".
        report: the file that receives the report when the process ends.
        counts: also count how often each instruction ran.
        threads: CPU threads; None for one per core.
        limit: stop a kernel once one of its waves has executed this many instructions.
        checks: the checks to run.
        objects: the folder that receives the code objects, for source lines.
        blocks: run at most this many blocks of each launch, including the first and the last. The results of
            the others are missing. Cooperative launches always run whole.
        repeats: skip launches that repeat an earlier one (same code, arguments, and memory contents that they
            touch) and reuse their results. Has no effect with counts, checks, another schedule or ``blocks``.
    """

    schedule: tuple[Schedule, int] = ("in-order", 0)
    report: Path | None = None
    counts: bool = False
    threads: int | None = None
    limit: int | None = None
    checks: tuple[CheckName, ...] = ()
    objects: Path | None = None
    blocks: int | None = None
    repeats: bool = False

    def variables(self) -> dict[str, str]:
        """The environment variables that the runtime reads."""
        name, seed = self.schedule
        given = {
            "SCHEDULE": f"{name} {seed}" if name == "shuffle" else name,
            "REPORT": self.report,
            "COUNT": 1 if self.counts else None,
            "THREADS": self.threads,
            "LIMIT": self._limit,
            "BLOCKS": self.blocks,
            "REPEATS": 1 if self.repeats else None,
            "CHECK": ",".join(self.checks) or None,
            "OBJECTS": self.objects,
        }
        return {f"PATCHKIT_EMULATOR_{key}": str(value) for key, value in given.items() if value is not None}

    @property
    def _limit(self) -> int | None:
        """``limit``; has a default with ``blocks``, as a block may wait forever for one that does not run."""
        return self.limit or (None if self.blocks is None else _MOST_OF_SAMPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedGpu:
    """An emulated GPU, ready to run programs. ``level`` is the CPU feature level it was compiled for.

    ``device_compiler`` is the command that compiles device code at run time (hiprtc), ``rocm`` the folder of
    ROCm or of the SDK.
    """

    device: EmulatedDevice
    runtime: Path
    library: Path
    disassembler: Path
    level: Level
    device_compiler: tuple[str, ...] = ()
    rocm: Path | None = None

    @property
    def identity(self) -> str:
        """Digest of what results depend on besides the program: emulator, runtime and device."""
        parts = (self.library.parent.name, self.runtime.name, device_text(self.device))
        return key_of({"emulated": parts})[:12]

    def environment(self, folder: Path, options: EmulationOptions) -> dict[str, str]:
        """The environment of a program that runs on it; writes the device file to ``folder``.

        Raises:
            CacheError: the file cannot be written.
        """
        file = folder / "device"
        with disk_errors(file, "describing the emulated GPU"):
            file.write_text(device_text(self.device), "utf-8")
            rocm = None if self.rocm is None else _rocm_with(self.runtime, self.rocm, folder)
        return {
            **({} if rocm is None else dict.fromkeys(("ROCM_PATH", "ROCM_HOME"), str(rocm))),
            "LD_LIBRARY_PATH": f"{self.runtime}:{self.disassembler.parent}",
            "PATCHKIT_RECORDER_DEVICE": str(file),
            "PATCHKIT_EMULATOR": str(self.library),
            "PATCHKIT_EMULATOR_DISASSEMBLER": str(self.disassembler),
            "PATCHKIT_EMULATOR_COMPILER": "\n".join(self.device_compiler),
            **self._path_with_hipcc(),
            "PYTHONPATH": str(_PYTHON_PATH),
            "TRITON_DEFAULT_BACKEND": "patchkit",
            # Checks and the timing model do not see the addresses of buffer instructions.
            _TRITON_BUFFERS: os.environ.get(_TRITON_BUFFERS, "0"),
            **options.variables(),
        }

    def _path_with_hipcc(self) -> dict[str, str]:
        """Add the toolchain's programs after the user's, unless there is a hipcc, which CuPy calls."""
        if shutil.which("hipcc") is not None or not self.device_compiler:
            return {}
        own = Path(self.device_compiler[0]).parent
        return {"PATH": f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{own}"}


def _rocm_with(runtime: Path, rocm: Path, folder: Path) -> Path:
    """Make a folder like ``rocm`` that has our runtime in ``lib``: some Python programs load it by that path.

    tinygrad, for example, loads ``$ROCM_PATH/lib/libamdhip64.so`` and does not search LD_LIBRARY_PATH. CuPy
    does not start without ``ROCM_HOME``.
    """
    view = folder / "rocm"
    if view.is_dir():
        return view
    (view / "lib").mkdir(parents=True)
    for entry in rocm.iterdir():
        if entry.name != "lib":
            (view / entry.name).symlink_to(entry)
    for entry in (*runtime.iterdir(), *(rocm / "lib").glob("*")):
        if not (view / "lib" / entry.name).is_symlink():
            (view / "lib" / entry.name).symlink_to(entry)
    return view


def emulated_gpu(device: EmulatedDevice, compiler: Compiler) -> EmulatedGpu:
    """Build the emulator and the runtime, unless they are in the cache.

    Raises:
        NOT_BUILT, DISASSEMBLER_MISSING, EMULATOR_CPU_UNKNOWN: as documented.
        CacheError: the cache cannot be written.
    """
    level = this_level()
    return EmulatedGpu(
        device=device,
        runtime=build_stub(compiler),
        library=build_emulator(compiler, level),
        disassembler=find_disassembler(compiler.toolchain),
        level=level,
        device_compiler=(
            str(compiler.toolchain.clang),
            *hip_flags(compiler.toolchain, device.arch, which="device"),
        ),
        rocm=compiler.toolchain.root,
    )


class _Entry(BaseModel):
    """Base of the report's models. A program may have damaged the report, so it is validated strictly."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class KernelCount(_Entry):
    """One kernel, or a function that kernels called (without launches of its own).

    ``instructions``: executed by waves. ``seconds``: wall-clock time of the emulation. ``left_out``: blocks
    that did not run because only a sample was requested. ``repeats``: launches that did not run because they
    repeat an earlier one. ``by_instruction``: if counts were requested, for each instruction its text, how
    often it ran, and whether its result has a tolerance (is not defined to the bit).
    """

    name: str
    launches: int
    waves: int
    instructions: int
    seconds: float
    left_out: int = 0
    repeats: int = 0
    by_instruction: list[tuple[str, int, bool]]


class CpuProduct(_Entry):
    """Calls of hipBLAS or rocBLAS with the same shape and types. They are computed on the CPU."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    call: str


class CodePlace(_Entry):
    """An instruction: ``offset`` bytes from the start of a function in a code object (named by its file)."""

    object: str
    function: str
    offset: int
    text: str


class Frame(_Entry):
    """A stack frame of the host program: ``offset`` in bytes from the load address of ``file``."""

    file: str
    offset: int
    name: str


class Found(_Entry):
    """A finding of a check: the place, the block and wave where it happened first, and how many times.

    ``other`` is the instruction it conflicts with. ``called_from`` is the host call stack of the launch,
    innermost frame first; ``other_called_from`` is the stack of the other launch or copy or, if ``other`` is
    None, of the program's own memory access. For an operation without device code, the place has only a text
    and ``kernel`` is empty. ``note``: worth knowing, but not a fault.
    """

    kind: CheckName
    what: str
    kernel: str
    at: CodePlace
    other: CodePlace | None
    block: tuple[int, int, int]
    wave: int
    times: int
    called_from: list[Frame]
    other_called_from: list[Frame] = []
    note: bool = False


class Refused(_Entry):
    """Rejected launches of one kernel, with the reason."""

    kernel: str
    why: str
    times: int

    def __str__(self) -> str:
        return f"{read_name(self.kernel)}: {self.why}"


class StoppedWave(_Entry):
    """A wave of a stopped kernel: its state in words, and its instruction."""

    wave: int
    does: str
    at: CodePlace | None


class Stopped(_Entry):
    """A stopped kernel, with the waves of the block that caused it."""

    kernel: str
    waves: list[StoppedWave]


class EmulationReport(_Entry):
    """What a process did on the emulated GPU.

    ``fault`` is the GPU fault that ended the process, if any, and ``stopped`` the kernel that caused it.
    ``processes`` is more than 1 if a command started several; ``kernels`` then lists those of each process.
    """

    arch: str
    schedule: str
    kernels: list[KernelCount]
    on_cpu: list[CpuProduct]
    fault: str | None
    stopped: Stopped | None = None
    refused: list[Refused] = []
    findings: list[Found] = []
    processes: int = 1

    @property
    def instructions(self) -> int:
        """Instructions executed by waves, in total."""
        return sum(kernel.instructions for kernel in self.kernels)

    @property
    def left_out(self) -> int:
        """Blocks that did not run, in total. If there are any, the program's results are meaningless."""
        return sum(kernel.left_out for kernel in self.kernels)

    @property
    def repeats(self) -> int:
        """Launches that were skipped because they repeat an earlier one, in total."""
        return sum(kernel.repeats for kernel in self.kernels)

    @property
    def with_tolerance(self) -> int:
        """Executed instructions whose result is not defined to the bit; requires counts."""
        return sum(n for kernel in self.kernels for _, n, is_open in kernel.by_instruction if is_open)


def load_report(path: Path) -> EmulationReport:
    """Read a report.

    Raises:
        EMULATION_UNREPORTED: the process ended before it wrote a report, or overwrote it.
    """
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise _unreported(path, str(error)) from error
    return parse_report(text, path)


def parse_report(text: str, path: Path) -> EmulationReport:
    """Parse a report that was read from ``path``. Raises EMULATION_UNREPORTED."""
    try:
        return EmulationReport.model_validate(json.loads(text), strict=False)
    except (ValueError, RecursionError, ValidationError) as error:
        why = "the file is not a valid report: it was truncated, or the program overwrote it"
        raise _unreported(path, why) from error


def _unreported(path: Path, why: str) -> ToolchainError:
    return ToolchainError(
        "the program left no report of its run on the emulated GPU",
        code="EMULATION_UNREPORTED",
        where=Location(path=str(path)),
        why=why,
        hint="it may have been killed, or have ended with _exit, which skips exit handlers",
    )


@contextlib.contextmanager
def _socket_place() -> Iterator[Path]:
    """A path short enough for a Unix socket (107 bytes on Linux); paths in the cache may be longer."""
    with temporary_folder("units") as folder:
        yield folder / "units"


class _Request(socketserver.StreamRequestHandler):
    server: _Listener

    def handle(self) -> None:
        request = self.rfile.readline(_LONGEST).decode("utf-8", "replace").strip().split("\t")
        unit, folder, kernel = (*request, "", "")[:3]
        answer = self.server.units.answer(unit, Path(folder), kernel or None) + "\n"
        with contextlib.suppress(ConnectionError):  # the client ended, perhaps as another unit failed
            self.wfile.write(answer.encode("utf-8", "replace"))


_LOOK_S = 0.02  # interval at which the server checks whether to shut down
_LONGEST = 65536  # bytes of a request; mangled kernel names take a few hundred
_BY_KERNELS = " by kernels"
_MOST_ALONE = 8  # kernels of one unit to compile alone: eight of them cost about as much as the whole unit

UNITS = "PATCHKIT_EMULATOR_UNITS"
"""Environment variable with the folder where the runtime looks for the code of units."""
OF_A_RUN = "run-"
"""Prefix of the names of folders that belong to one run."""


class _Listener(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path, units: DeviceUnits) -> None:
        self.units = units
        super().__init__(str(path), _Request)


class DeviceUnits:
    """Device code of one tree's units, compiled when a program first launches one of their kernels.

    The runtime looks for a unit's code in ``folder`` (or in a folder of one run inside it) and requests
    missing code from this process. The first kernels of a large unit are compiled alone, except for the units
    in ``whole`` (None: all units are compiled whole).
    """

    def __init__(
        self,
        tree: SourceTree,
        arch: str,
        compiler: Compiler,
        folder: Path,
        flags: tuple[str, ...] = (),
        *,
        rocwmma: bool = True,
        whole: Collection[str] | None = None,
    ) -> None:
        self.tree = tree.root
        self._tree = tree
        self._arch = arch
        self._compiler = compiler
        self._flags = flags
        self._rocwmma = rocwmma
        self._whole = whole
        self.folder = folder
        self._keys: dict[str, str] = {}
        self._outputs: dict[str, Path] = {}
        self._alone: dict[str, dict[str, Path]] = {}
        self._requested: dict[Path, set[str]] = {}
        self.failed: PatchkitError | None = None
        self._lock = threading.Lock()

    def answer(self, unit: str, folder: Path, kernel: str | None = None) -> str:
        """Provide the code of a unit or, if ``kernel`` (a mangled name) is given, of one of its kernels.

        Returns ``ok`` and the file's name in the folder, or the error as one line.
        """
        if not self._tree.has(unit):
            return f"there is no unit {unit!r}"
        is_of_a_run = folder.parent == self.folder and folder.name.startswith(OF_A_RUN)
        if folder != self.folder and not is_of_a_run:
            return f"{folder} is not a folder for device code"
        try:
            return f"ok {self.provide(unit, folder, kernel).name}"
        except PatchkitError as error:
            self.failed = error
            return " ".join(error.message.split())

    def requested(self, folder: Path) -> dict[str, str]:
        """The units that were requested for a folder, with the keys of their code."""
        with self._lock:
            return {unit: self._keys[unit] for unit in self._requested.get(folder, ())}

    def key(self, unit: str) -> str:
        """The key of a unit's code; it differs if kernels are compiled alone. Raises as :meth:`provide`."""
        with self._lock:
            if unit in self._keys:
                return self._keys[unit]
        key = unit_key(self._job(unit), self._compiler)
        if not self._is_whole(unit):
            key += _BY_KERNELS
        with self._lock:
            return self._keys.setdefault(unit, key)

    def _is_whole(self, unit: str) -> bool:
        return self._whole is None or unit in self._whole

    def provide(self, unit: str, folder: Path | None = None, kernel: str | None = None) -> Path:
        """Compile a unit or one of its kernels, or reuse it from the store; link the code into the folder.

        A unit's file is named after the unit, so that the runtime finds it without a request.

        Raises:
            The errors of :func:`patchkit.toolchain.compile.compile_unit`.
        """
        self.key(unit)
        output = None if kernel is None or self._is_whole(unit) else self._kernel(unit, kernel)
        name = unit.replace("/", "_")
        if output is None:
            output = self._unit(unit)
        else:
            name += f".{output.parent.name[:16]}"  # its key in the store
        folder = folder or self.folder
        place = folder / name
        with self._lock, disk_errors(place, "providing device code"):
            if not place.is_symlink():
                place.symlink_to(output)
            self._requested.setdefault(folder, set()).add(unit)
        return place

    def _kernel(self, unit: str, kernel: str) -> Path | None:
        """The code of a single kernel; None if the whole unit is to be compiled."""
        with self._lock:
            alone = self._alone.setdefault(unit, {})
            if unit in self._outputs or (kernel not in alone and len(alone) >= _MOST_ALONE):
                return None
            if kernel in alone:
                return alone[kernel]
        compiled = compile_kernel(self._job(unit), kernel, self._compiler)
        if compiled is None:
            return None
        with self._lock:
            return alone.setdefault(kernel, compiled.output)

    def _unit(self, unit: str) -> Path:
        with self._lock:
            if unit in self._outputs:
                return self._outputs[unit]
        compiled = compile_unit(self._job(unit), self._compiler)
        with self._lock:
            return self._outputs.setdefault(unit, compiled.output)

    def _job(self, unit: str) -> Job:
        return Job(
            tree=self._tree,
            unit=unit,
            arch=self._arch,
            which="device",
            rocwmma=self._rocwmma,
            form="object",
            flags=self._flags,
        )

    @contextlib.contextmanager
    def served(self) -> Iterator[dict[str, str]]:
        """Answer requests in the background; yields the environment variables that point a program to it."""
        with disk_errors(self.folder, "providing device code"):
            self.folder.mkdir(parents=True, exist_ok=True)
        with _socket_place() as place:
            listener = _Listener(place, self)
            # The default interval is 0.5 s, and every run would wait that long at its end.
            thread = threading.Thread(target=listener.serve_forever, args=(_LOOK_S,), daemon=True)
            thread.start()
            try:
                yield {
                    UNITS: str(self.folder),
                    "PATCHKIT_EMULATOR_SERVER": str(place),
                }
            finally:
                listener.shutdown()
                listener.server_close()
                thread.join()

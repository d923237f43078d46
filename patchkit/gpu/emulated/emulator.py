"""The emulated GPU built for this machine, and what a program needs around it to run there."""

from __future__ import annotations

import contextlib
import json
import platform
import socketserver
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import Location, PatchkitError, ToolchainError
from patchkit.base.files import disk_error_from_tool, disk_errors, temporary_folder
from patchkit.base.jobs import run_parallel
from patchkit.base.process import ToolCrashed, ToolFailed, run_tool
from patchkit.gpu.emulated.checks import CheckName, native_checks
from patchkit.gpu.emulated.device import PlayedDevice, device_text
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.emulated.runtime import build_stub, cxx_of
from patchkit.toolchain.compile import Job, compile_kernel, compile_unit, unit_key
from patchkit.toolchain.compiler import Compiler, nice
from patchkit.toolchain.hip import Toolchain, hip_flags
from patchkit.toolchain.units import SourceTree

Level = Literal["x86-64-v4", "x86-64-v3", "x86-64", "armv8-a"]
"""What the emulator may use of the CPU, as compilers name it."""

Schedule = Literal["in-order", "late", "shuffle"]
"""When asynchronous work runs: at once, as late as HIP allows, or in any order that HIP allows."""

_NATIVE = Path(__file__).parent / "native" / "emulator"
_LIBRARY = "libpatchkit-emulator.so"
_PROGRAMS = ("alone", "look", "coverage")  # each one source, linked to the library
_TIMEOUT_S = 600.0  # of one source; the slowest took 8 s (memory.cpp, 2 cores of a server, 2026-11-22)
_FLAGS = (
    *("-std=c++20", "-O2", "-fPIC", "-pthread", native_checks()),
    # Vectors of 32 lanes are passed by no interface but our own.
    *("-Wall", "-Wextra", "-Werror", "-Wno-psabi"),
    # Every product and every sum of a kernel is rounded by itself, as its instructions say.
    "-ffp-contract=off",
)
_LEVEL_FLAGS: Mapping[Level, tuple[str, ...]] = {
    "x86-64-v4": ("-march=x86-64-v4", "-mprefer-vector-width=512", "-mno-vzeroupper"),
    "x86-64-v3": ("-march=x86-64-v3", "-mno-vzeroupper"),
    "x86-64": ("-march=x86-64",),
    "armv8-a": ("-march=armv8-a",),
}
# The psABI's levels by the names that Linux gives their features in /proc/cpuinfo.
_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def level_of(machine: str, cpuinfo: str) -> Level:
    """The best level of a CPU: ``machine`` as uname names it, ``cpuinfo`` the text of /proc/cpuinfo.

    Raises:
        EMULATOR_CPU_UNKNOWN: the emulator was not written for such a CPU.
    """
    if machine in {"aarch64", "arm64"}:
        return "armv8-a"
    if machine not in {"x86_64", "amd64"}:
        raise ToolchainError(
            f"the emulated GPU does not run on a CPU of type {machine}",
            code="EMULATOR_CPU_UNKNOWN",
            why="it is written for little-endian CPUs with IEEE floats and tested on x86-64 and arm64",
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
        DISASSEMBLER_MISSING: the compiler has none beside it: its LLVM is linked in.
    """
    home = toolchain.clang.resolve().parent.parent
    for root in (home, home / "compiler" / "usr"):
        for pattern in ("lib/libLLVM*.so*", "lib/*/libLLVM*.so*"):
            found = sorted(path for path in root.glob(pattern) if path.is_file())
            if found:
                return found[-1].resolve()
    raise ToolchainError(
        "the compiler has no library libLLVM, which decodes machine code for the emulated GPU",
        code="DISASSEMBLER_MISSING",
        where=Location(path=str(home)),
        hint="patchkit sdk install; an SDK of patchkit's own has it",
    )


def build_emulator(compiler: Compiler, level: Level) -> Path:
    """The emulator as a library; built once per toolchain and level.

    Raises:
        EMULATOR_NOT_BUILT: our sources do not compile with this toolchain.
        CacheError: the disk refused.
    """
    sources = [path for path in sorted(_NATIVE.glob("*.cpp")) if path.stem not in _PROGRAMS]
    return _built(compiler, level, "library", sources, _LIBRARY, ("-shared",)) / _LIBRARY


def build_alone(compiler: Compiler, level: Level) -> Path:
    """The program that runs pieces of code by themselves. Raises as :func:`build_emulator`."""
    return _built_program(compiler, level, "alone")


def build_look(compiler: Compiler, level: Level) -> Path:
    """The program that looks at code without running it. Raises as :func:`build_emulator`."""
    return _built_program(compiler, level, "look")


def build_coverage(compiler: Compiler, level: Level) -> Path:
    """The program that says which instructions are emulated. Raises as :func:`build_emulator`."""
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
        def compile_one(source: Path) -> Path:
            made = folder / f"{source.stem}.o"
            argv = [*nice(), *cxx_of(compiler.toolchain), *flags, "-c", str(source), "-o", str(made)]
            run_tool(
                argv, timeout_s=_TIMEOUT_S, reporter=compiler.reporter, stop=compiler.stop, work="compile"
            )
            return made

        try:
            objects = run_parallel(
                sources,
                compile_one,
                reporter=compiler.reporter,
                what="building the emulated GPU",
                unit="files",
                stop=compiler.stop,
            )
            argv = [*cxx_of(compiler.toolchain), *flags, *map(str, objects), *links, "-ldl"]
            run_tool(
                [*argv, "-o", str(folder / name)],
                timeout_s=_TIMEOUT_S,
                reporter=compiler.reporter,
                work="link",
            )
        except (ToolFailed, ToolCrashed) as error:
            refused = disk_error_from_tool(error, folder.parent, "building the emulated GPU")
            raise refused or ToolchainError(
                "the emulated GPU does not compile with this toolchain",
                code="EMULATOR_NOT_BUILT",
                where=Location(path=str(_NATIVE)),
                why=f"{error.message}: {error.why}",
                hint="patchkit doctor shows the compiler that was used",
            ) from error
        for made in objects:
            made.unlink()

    return compiler.store.obtain(key, fill)


_MOST_OF_SAMPLE = (
    1 << 31
)  # instructions of a wave: half a minute, a thousand times what waves of llama.cpp take


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationOptions:
    """How a program runs on the emulated GPU.

    ``schedule`` says when asynchronous work runs, with the seed of a shuffle. ``report`` is the file that
    says at the end what ran, with ``counts`` of each instruction. ``threads`` of the CPU: None for one per
    core. ``limit``: a kernel of which one wave executed so many instructions is stopped. ``checks`` says
    what is looked for; ``objects`` is the folder that then gets the code objects, for source lines.
    ``blocks``: of each launch at most so many run, the first and the last among them, and what the others
    would have computed is missing; a cooperative launch runs whole. ``repeats``: a launch that repeats an
    earlier one (code, arguments, and what it touches in memory) does not run, and leaves what that one left;
    not where counts, checks, another schedule or a sample of blocks are asked for.
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
        """As the runtime reads them."""
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
        """A block that waits for one which the sample leaves out would do so for ever."""
        return self.limit or (None if self.blocks is None else _MOST_OF_SAMPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedGpu:
    """A GPU that programs can run on. ``level`` is what it uses of the CPU.

    ``device_compiler`` is the command by which programs compile device code while they run (hiprtc).
    """

    device: PlayedDevice
    runtime: Path
    library: Path
    disassembler: Path
    level: Level
    device_compiler: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What results on it depend on, besides the program: the emulator, the runtime and the device."""
        parts = (self.library.parent.name, self.runtime.name, device_text(self.device))
        return key_of({"emulated": parts})[:12]

    def environment(self, folder: Path, options: EmulationOptions) -> dict[str, str]:
        """The variables of a program that runs on it; ``folder`` gets the file that describes the device.

        Raises:
            CacheError: the disk refused.
        """
        file = folder / "device"
        with disk_errors(file, "describing the emulated GPU"):
            file.write_text(device_text(self.device), "utf-8")
        return {
            "LD_LIBRARY_PATH": f"{self.runtime}:{self.disassembler.parent}",
            "PATCHKIT_RECORDER_DEVICE": str(file),
            "PATCHKIT_EMULATOR": str(self.library),
            "PATCHKIT_EMULATOR_DISASSEMBLER": str(self.disassembler),
            "PATCHKIT_EMULATOR_COMPILER": "\n".join(self.device_compiler),
            **options.variables(),
        }


def emulated_gpu(device: PlayedDevice, compiler: Compiler) -> EmulatedGpu:
    """The emulator and the runtime, built where they are not there yet.

    Raises:
        EMULATOR_NOT_BUILT, RECORDER_NOT_BUILT, DISASSEMBLER_MISSING, EMULATOR_CPU_UNKNOWN: as they say.
        CacheError: the disk refused.
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
    )


class _Entry(BaseModel):
    """Base of what the runtime writes at the end of a process; a program may have damaged it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class KernelCount(_Entry):
    """One kernel, or a function that kernels called (without launches of its own).

    ``instructions`` are those that waves executed, ``seconds`` what that took here by the clock on the wall.
    ``left_out``: blocks of its launches that did not run, as only a sample of each was asked for.
    ``repeats``: of its launches those that repeat an earlier one and did not run.
    ``by_instruction`` has, when it was asked for, each one's text, how often it ran, and whether its result
    is not defined to the bit.
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
    """Calls of hipBLAS or rocBLAS with one shape and one set of types: computed on the CPU."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    call: str


class CodePlace(_Entry):
    """An instruction: ``offset`` bytes from the start of a function of a code object (a file's name)."""

    object: str
    function: str
    offset: int
    text: str


class Frame(_Entry):
    """A call in the program: ``offset`` bytes behind where ``file`` was loaded; ``name``: the function."""

    file: str
    offset: int
    name: str


class Found(_Entry):
    """What a check found: where, in which block and wave it did so first, and how often it did.

    ``other`` is what it conflicts with; ``called_from`` where the program asked for the launch, innermost
    frame first, ``other_called_from`` the same of another launch, or copy; where ``other`` is nothing, where
    the program itself touched memory. Of an operation without code the place has a text alone, and there is
    no kernel. ``note``: it is worth knowing, and no fault.
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
    """Launches of one kernel that were refused, and why."""

    kernel: str
    why: str
    times: int

    def __str__(self) -> str:
        return f"{read_name(self.kernel)}: {self.why}"


class StoppedWave(_Entry):
    """A wave of a kernel that was stopped: what it did, in words, and at which instruction."""

    wave: int
    does: str
    at: CodePlace | None


class Stopped(_Entry):
    """A kernel that was stopped, with the waves of the block that this happened in."""

    kernel: str
    waves: list[StoppedWave]


class EmulationReport(_Entry):
    """What a process did on the emulated GPU; ``fault`` is what ended it, if the GPU did.

    ``stopped`` is where the kernel was that did so. Several ``processes`` when a command started them;
    kernels are listed for each.
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
        """Executed by waves, in all."""
        return sum(kernel.instructions for kernel in self.kernels)

    @property
    def left_out(self) -> int:
        """Blocks that did not run, in all: with any, what the program computed says nothing."""
        return sum(kernel.left_out for kernel in self.kernels)

    @property
    def repeats(self) -> int:
        """Launches that repeat an earlier one, in all: their results are known, and they did not run."""
        return sum(kernel.repeats for kernel in self.kernels)

    @property
    def with_tolerance(self) -> int:
        """Those whose result is not defined to the bit; needs counts."""
        return sum(n for kernel in self.kernels for _, n, is_open in kernel.by_instruction if is_open)


def load_report(path: Path) -> EmulationReport:
    """Read a report.

    Raises:
        EMULATION_UNREPORTED: the process ended before it wrote one, or wrote something else over it.
    """
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise _unreported(path, str(error)) from error
    return parse_report(text, path)


def parse_report(text: str, path: Path) -> EmulationReport:
    """Read what a process wrote to ``path``. Raises EMULATION_UNREPORTED."""
    try:
        return EmulationReport.model_validate(json.loads(text), strict=False)
    except (ValueError, RecursionError, ValidationError) as error:
        why = "what lies there is no report of the emulated GPU: it was cut off, or the program wrote over it"
        raise _unreported(path, why) from error


def _unreported(path: Path, why: str) -> ToolchainError:
    return ToolchainError(
        "the program left no report of what it ran on the emulated GPU",
        code="EMULATION_UNREPORTED",
        where=Location(path=str(path)),
        why=why,
        hint="it may have been killed, or ended itself without the usual cleaning up (_exit)",
    )


@contextlib.contextmanager
def _socket_place() -> Iterator[Path]:
    """A path short enough for a socket: those of caches may be longer than the 107 bytes that Linux takes."""
    with temporary_folder("units") as folder:
        yield folder / "units"


class _Request(socketserver.StreamRequestHandler):
    server: _Listener

    def handle(self) -> None:
        asked = self.rfile.readline(_LONGEST).decode("utf-8", "replace").strip().split("\t")
        unit, folder, kernel = (*asked, "", "")[:3]
        answer = self.server.units.answer(unit, Path(folder), kernel or None) + "\n"
        with contextlib.suppress(ConnectionError):  # who asked has ended, perhaps as another unit failed
            self.wfile.write(answer.encode("utf-8", "replace"))


_LOOK_S = 0.02  # between two looks whether to end
_LONGEST = 65536  # of a request: names of kernels with all their types take some hundred bytes
_BY_KERNELS = " by kernels"
_MOST_ALONE = 8  # kernels of one unit: eight times what one takes is what the unit takes

UNITS = "PATCHKIT_EMULATOR_UNITS"
"""The variable that names the folder in which the runtime looks for the code of units."""
OF_A_RUN = "run-"
"""How the names of folders for one run begin."""


class _Listener(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path, units: DeviceUnits) -> None:
        self.units = units
        super().__init__(str(path), _Request)


class DeviceUnits:
    """Device code of one tree's units, compiled when a program first launches a kernel of theirs.

    The runtime looks for a unit's code in ``folder``, or a folder in it that it was told to take, and asks
    this process for what is not there. The first kernels of a large unit are compiled alone, but not of those
    in ``whole`` (None: of none).
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
        self._asked: dict[Path, set[str]] = {}
        self.failed: PatchkitError | None = None
        self._lock = threading.Lock()

    def answer(self, unit: str, folder: Path, kernel: str | None = None) -> str:
        """``ok`` and the file in the folder with the code, of a unit or of a kernel of it, by mangled name.

        Else what is wrong, as one line.
        """
        if not self._tree.has(unit):
            return f"there is no unit {unit!r}"
        is_of_a_run = folder.parent == self.folder and folder.name.startswith(OF_A_RUN)
        if folder != self.folder and not is_of_a_run:
            return f"{folder} is no folder for device code"
        try:
            return f"ok {self.provide(unit, folder, kernel).name}"
        except PatchkitError as error:
            self.failed = error
            return " ".join(error.message.split())

    def asked(self, folder: Path) -> dict[str, str]:
        """The units that were asked for in a folder, and the keys of their code."""
        with self._lock:
            return {unit: self._keys[unit] for unit in self._asked.get(folder, ())}

    def key(self, unit: str) -> str:
        """The key of a unit's code, another one where kernels are compiled alone. Raises as `provide`."""
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
        """Compile a unit, or a kernel of it, or take what the store has, and put the code into the folder.

        The file of a unit is named like it, so that it is found without asking.

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
            self._asked.setdefault(folder, set()).add(unit)
        return place

    def _kernel(self, unit: str, kernel: str) -> Path | None:
        """The code of a kernel alone; None where the unit is to be compiled."""
        with self._lock:
            alone = self._alone.setdefault(unit, {})
            if unit in self._outputs or (kernel not in alone and len(alone) >= _MOST_ALONE):
                return None
            if kernel in alone:
                return alone[kernel]
        made = compile_kernel(self._job(unit), kernel, self._compiler)
        if made is None:
            return None
        with self._lock:
            return alone.setdefault(kernel, made.output)

    def _unit(self, unit: str) -> Path:
        with self._lock:
            if unit in self._outputs:
                return self._outputs[unit]
        made = compile_unit(self._job(unit), self._compiler)
        with self._lock:
            return self._outputs.setdefault(unit, made.output)

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
        """Answer requests in the background; the variables that tell a program about it."""
        with disk_errors(self.folder, "providing device code"):
            self.folder.mkdir(parents=True, exist_ok=True)
        with _socket_place() as place:
            listener = _Listener(place, self)
            # By default it looks twice a second whether to end, and each program waits for that.
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

"""Build the launch recorder for a tree: the stub runtime, the HIP backend's host code, and the drivers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_error_from_tool
from patchkit.base.jobs import run_parallel
from patchkit.base.process import ToolCrashed, ToolFailed, run_tool
from patchkit.base.upstreams import upstream_of
from patchkit.gpu.emulated.cases import CASE_READER
from patchkit.gpu.emulated.checks import check_names, native_checks
from patchkit.toolchain.compile import CompiledUnit, CompileFailed, Job, compile_all
from patchkit.toolchain.compiler import Compiler, nice
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.parts import GPU_LIBRARIES
from patchkit.toolchain.sides import BuiltSide
from patchkit.toolchain.units import SourceTree, platform_units

_NATIVE = Path(__file__).parent / "native"


def _files(*patterns: str) -> tuple[str, ...]:
    return tuple(
        sorted(str(path.relative_to(_NATIVE)) for pattern in patterns for path in _NATIVE.glob(pattern))
    )


_STUB_SOURCES = _files("runtime/*.cpp")
_STUB_HEADERS = _files(
    "runtime/*.hpp",
    "emulator/code_object.hpp",
    "emulator/emulator.hpp",
    "emulator/image.hpp",
    "emulator/library.hpp",
    "emulator/traces.hpp",
)
STUB_STANDARD = "-std=c++20"
ATTENTION_DRIVER = "drivers/fattn_cases.cpp"
OPERATIONS_DRIVER = "drivers/op_cases.cpp"
MODEL_DRIVER = "drivers/model_batches.cpp"
_TIMEOUT_S = 600.0  # per source file; the slowest took 8 s (memory.cpp, 2 cores of a server, 2026-11-22)
_WARNINGS = ("-Wall", "-Wextra", "-Werror")

# The names that libraries built against ROCm 6 and 7 load. Python programs load those without a number, as
# our own builds do.
STUB_NAMES = (
    "libamdhip64.so",
    "libamdhip64.so.6",
    "libamdhip64.so.7",
    "libhiprtc.so",
    "libhiprtc.so.6",
    "libhiprtc.so.7",
    "libhipblas.so",
    "libhipblas.so.2",
    "libhipblas.so.3",
    "librocblas.so",
    "librocblas.so.4",
    "librocblas.so.5",
    "libamd_comgr.so",
    "libamd_comgr.so.2",
    "libamd_comgr.so.3",
    # CuPy cannot be imported without these. It calls nothing of rocFFT; of the others see profiling.cpp.
    "librocfft.so.0",
    "libroctracer64.so.4",
    "libroctx64.so.4",
)


def cxx_of(toolchain: Toolchain) -> list[str]:
    """The command of a toolchain's C++ compiler, also if the toolchain names only its C compiler."""
    return [str(toolchain.clang), "--driver-mode=g++"]


def build_stub(compiler: Compiler) -> Path:
    """Build the folder with the stub runtime under each of its names; once per toolchain.

    Raises:
        NOT_BUILT: the recorder's sources do not compile against these HIP headers.
        CacheError: the cache cannot be written.
    """
    toolchain = compiler.toolchain
    flags = [
        STUB_STANDARD,
        native_checks(),
        "-O1",
        "-fPIC",
        "-pthread",
        # Keeps the stack frame of each HIP call, because findings name the call by its frame.
        "-fno-optimize-sibling-calls",
        *_WARNINGS,
        "-D__HIP_PLATFORM_AMD__",
        "-isystem",
        str(toolchain.root / "include"),
    ]
    links = ("-shared", f"-Wl,--no-undefined,-soname,{STUB_NAMES[0]}")
    sources = [_NATIVE / source for source in _STUB_SOURCES]

    def fill(folder: Path) -> None:
        build_native(compiler, sources, flags, folder / STUB_NAMES[0], links, "the launch recorder's stub")
        for name in STUB_NAMES[1:]:
            (folder / name).symlink_to(STUB_NAMES[0])

    key = key_of(
        {
            "what": "stub",
            "compiler": compiler.identity,
            "sources": _digests([*_STUB_SOURCES, *_STUB_HEADERS]),
            "names": STUB_NAMES,
            "checks": check_names(),
        }
    )
    return compiler.store.obtain(key, fill)


def build_driver(
    compiler: Compiler, tree: Path, programs: BuiltSide, stub: Path, *, source: str = ATTENTION_DRIVER
) -> Path:
    """Build a driver (``source``), linked against the ggml of ``programs``.

    The one that runs models is linked against libllama too, between the HIP backend and the runtime.

    Raises:
        NOT_BUILT: it does not compile against this upstream.
        CacheError: the cache cannot be written.
    """
    upstream = upstream_of(tree)
    if source == MODEL_DRIVER:
        argv = [STUB_STANDARD, "-O1", *_WARNINGS, "-D__HIP_PLATFORM_AMD__", "-rdynamic"]
        includes = [*(tree / folder for folder in upstream.folders.api), compiler.toolchain.root / "include"]
        of, library, sources = "llama", [f"-l{upstream.targets.library}"], [source]
    else:
        argv = [STUB_STANDARD, "-O1", *_WARNINGS]
        includes = [tree / upstream.ggml_path("include")]
        of, library, sources = "ggml", [], [source, f"drivers/{CASE_READER.name}"]
    places = [
        "-Wno-deprecated-declarations",  # build 11549 deprecates functions that exist in every build
        *(word for folder in includes for word in ("-isystem", str(folder))),
        *(str(_NATIVE / source), f"-L{programs.folder}", *library, "-lggml", "-lggml-base"),
        *(f"-L{stub}", "-lamdhip64", "-ldl", f"-Wl,-rpath-link,{programs.folder}"),
    ]
    # The HIP backend is loaded at run time, so it is not part of the driver's key.
    linked = [built.part.key for built in programs.parts if built.part.backend != "hip"]
    name = Path(source).stem

    def fill(folder: Path) -> None:
        compiler.reporter.step("building the launch recorder: driver")
        what = "the launch recorder's driver"
        _run_compiler(compiler, [*argv, *places], folder / name, what, _NATIVE / source)

    key = key_of(
        {
            "what": "driver",
            "compiler": compiler.identity,
            "sources": _digests(sources),
            of: linked,
            "stub": stub.name,
            "flags": compiler.portable(argv),
        }
    )
    return compiler.store.obtain(key, fill) / name


def _digests(sources: Sequence[str]) -> dict[str, str]:
    return {source: sha256((_NATIVE / source).read_bytes()) for source in sources}


def build_native(
    compiler: Compiler,
    sources: Sequence[Path],
    flags: Sequence[str],
    output: Path,
    links: Sequence[str],
    what: str,
) -> None:
    """Compile some of patchkit's own C++, and link it; ``what`` is its name in messages.

    Raises:
        NOT_BUILT: it does not compile with this toolchain.
        CacheError: a file cannot be written.
    """

    def compile_one(source: Path) -> Path:
        object_file = output.with_name(f"{source.stem}.o")
        _run_compiler(compiler, [*flags, "-c", str(source)], object_file, what, source)
        return object_file

    objects = run_parallel(
        sources,
        compile_one,
        reporter=compiler.reporter,
        what=f"building {what}",
        unit="files",
        stop=compiler.stop,
    )
    _run_compiler(compiler, ["-pthread", *map(str, objects), *links, "-ldl"], output, what, sources[0].parent)
    for object_file in objects:
        object_file.unlink()


def _run_compiler(compiler: Compiler, arguments: Sequence[str], output: Path, what: str, where: Path) -> None:
    """Compile or link; ``where`` is the location named in errors."""
    try:
        run_tool(
            [*nice(), *cxx_of(compiler.toolchain), *arguments, "-o", str(output)],
            timeout_s=_TIMEOUT_S,
            reporter=compiler.reporter,
            stop=compiler.stop,
            work="compile",
        )
    except (ToolFailed, ToolCrashed) as error:
        refused = disk_error_from_tool(error, output.parent, f"building {what}")
        raise refused or ToolchainError(
            f"{what} does not compile with this toolchain",
            code="NOT_BUILT",
            where=Location(path=str(where)),
            why=error.why,
            hint="'patchkit doctor' shows the headers and the compiler that were used",
        ) from error


_LIBRARY_TIMEOUT_S = 600.0
_LIBRARY = f"lib{GPU_LIBRARIES['hip']}.so"
# The programs load it at run time (GGML_BACKEND_DL), so both sides share the programs. -O0, because host code
# runs only briefly here and its decisions do not depend on optimisation: it compiles in a seventh of the time
# of -O1 (0.2 s instead of 1.4 s for a matmul unit at build 11549).
_HOST_FLAGS = ("-O0", "-DGGML_BACKEND_DL")
# Host code captures HIP graphs if upstream's default build does; programs switch that off at run time.
_GRAPHS = "-DGGML_HIP_GRAPHS"
_GRAPHS_ARE_DEFAULT = re.compile(r"option\s*\(\s*GGML_HIP_GRAPHS\s.*\sON\s*\)")
_UNDEFINED = re.compile(r"undefined symbol: (\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLibrary:
    """The library at ``path``, linked from this number of ``units``; ``key`` identifies its inputs."""

    path: Path
    key: str
    units: int


# Libraries by live tree: every gate that runs a program requests those of both trees (issue 43).
_libraries: WeakKeyDictionary[SourceTree, dict[tuple[object, ...], HostLibrary]] = WeakKeyDictionary()


def build_host_library(
    tree: SourceTree, compiler: Compiler, *, arch: str, stub: Path, libraries: Path, rocwmma: bool = True
) -> HostLibrary:
    """Compile the host pass of every unit that is not in the store yet, and link them.

    Args:
        tree: the exported tree.
        compiler: the toolchain and its store.
        arch: any GPU with the wanted wave size; host code is the same for all of them.
        stub: the folder of the stub runtime.
        libraries: the folder with libggml-base.so.
        rocwmma: with upstream's rocWMMA attention kernel.

    Raises:
        CompileFailed: a unit does not compile.
        RECORDER_LACKS_CALLS, HOST_LINK_FAILED: the objects do not link against the stub.
        CacheError: the cache cannot be written.
    """
    known = _libraries.setdefault(tree, {})
    wanted = (compiler.toolchain, compiler.identity, compiler.store.root, arch, stub, libraries, rocwmma)
    if wanted in known and known[wanted].path.is_file():
        return known[wanted]
    units = platform_units(tree.root, "hip")
    jobs = [host_job(tree, unit, arch, compiler, rocwmma=rocwmma) for unit in units]
    done = []
    for compiled in compile_all(jobs, compiler, what="host pass of the HIP backend"):
        if isinstance(compiled, CompileFailed):
            raise compiled
        done.append(compiled)
    key = key_of({"what": "host library", "objects": [unit.key for unit in done], "stub": stub.name})
    path = _link(done, key, compiler, stub, libraries)
    return known.setdefault(wanted, HostLibrary(path=path, key=key, units=len(done)))


def host_job(tree: SourceTree, unit: str, arch: str, compiler: Compiler, *, rocwmma: bool) -> Job:
    """The host compilation of a unit for the recorder: loadable, with a marker in place of device code.

    Raises CacheError.
    """
    embed = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(_marker(unit, compiler)))
    graphs = (_GRAPHS,) if _has_graphs(tree) else ()
    flags = (*_HOST_FLAGS, *graphs, *embed)
    return Job(tree=tree, unit=unit, arch=arch, which="host", rocwmma=rocwmma, form="object", flags=flags)


def _has_graphs(tree: SourceTree) -> bool:
    options = tree.root / upstream_of(tree.root).ggml_path("CMakeLists.txt")
    return options.is_file() and _GRAPHS_ARE_DEFAULT.search(options.read_text("utf-8", "replace")) is not None


def _marker(unit: str, compiler: Compiler) -> Path:
    """The file embedded instead of device code; native/runtime/launches.cpp reads the unit's name from it."""
    key = key_of({"what": "marker", "unit": unit})

    def fill(folder: Path) -> None:
        (folder / "marker").write_text(f"PATCHKIT-UNIT\n{unit}\n", "utf-8")

    return compiler.store.obtain(key, fill) / "marker"


def _link(objects: Sequence[CompiledUnit], key: str, compiler: Compiler, stub: Path, libraries: Path) -> Path:
    argv = [
        *nice(),
        *cxx_of(compiler.toolchain),
        "-shared",
        "-fuse-ld=lld",
        "-Wl,--no-undefined,--error-limit=0",
        *(str(unit.output) for unit in objects),
        f"-L{stub}",
        "-lamdhip64",
        f"-L{libraries}",
        "-lggml-base",
    ]

    def fill(folder: Path) -> None:
        compiler.reporter.step("linking the host library")
        try:
            run_tool(
                [*argv, "-o", str(folder / _LIBRARY)],
                timeout_s=_LIBRARY_TIMEOUT_S,
                reporter=compiler.reporter,
                work="link",
            )
        except ToolFailed as error:
            raise _link_error(error) from error

    return compiler.store.obtain(key, fill) / _LIBRARY


def _link_error(error: ToolFailed) -> ToolchainError:
    missing = sorted(set(_UNDEFINED.findall(error.why or "")))
    calls = [name for name in missing if name.startswith(("hip", "__hip", "rocblas"))]
    if not calls:
        return ToolchainError(
            "the host pass of the HIP backend does not link",
            code="HOST_LINK_FAILED",
            why=error.why,
            hint=error.hint,
        )
    return ToolchainError(
        f"the launch recorder has no stub for: {', '.join(calls)}",
        code="RECORDER_LACKS_CALLS",
        why="the backend calls these functions of HIP or hipBLAS, and each needs a stub to link",
        hint="report this, or add them to patchkit/gpu/emulated/native and to the table of stub_calls.cpp",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBackend:
    """One tree, ready to run. ``arch`` is the GPU that its host pass was compiled for.

    It works for every emulated GPU with the same wave size. ``programs`` is the tree's CPU build, which the
    gates on the emulated GPU run, too.
    """

    tree: SourceTree
    arch: str
    stub: Path
    programs: BuiltSide
    library: HostLibrary
    driver: Path


def build_backend(tree: SourceTree, compiler: Compiler, arch: str, programs: BuiltSide) -> RecordedBackend:
    """Build the missing parts of one tree's recorder; ``programs`` is the tree's CPU build.

    Raises:
        CompileFailed: a unit does not compile.
        ToolchainError, CacheError: as raised by the builders of the parts.
    """
    stub = build_stub(compiler)
    library = build_host_library(tree, compiler, arch=arch, stub=stub, libraries=programs.folder)
    driver = build_driver(compiler, tree.root, programs, stub)
    return RecordedBackend(tree=tree, arch=arch, stub=stub, programs=programs, library=library, driver=driver)

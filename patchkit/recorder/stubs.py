"""Building the recorder's own programs: the stub runtime, and the drivers of attention and other cases.

Vocabulary: the *stub* is one library that answers to the names of the HIP runtime, hipBLAS and rocBLAS; the
*driver* builds one graph per case with upstream's ggml and runs it on the backend that was loaded; one
has attention, one all other operations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchkit.build.compiler import Compiler, nice
from patchkit.build.store import key_of
from patchkit.build.toolchain import Toolchain
from patchkit.errors import Location, ToolchainError
from patchkit.proc import ToolFailed, run_tool
from patchkit.recorder.cases import CASE_READER

_NATIVE = Path(__file__).parent / "native"
_STUB_SOURCES = ("device.cpp", "launches.cpp", "memory.cpp", "streams.cpp", "runtime.cpp", "blas.cpp")
_STUB_HEADERS = ("answers.hpp", "handles.hpp", "recorder.hpp")
ATTENTION_DRIVER = "fattn_cases.cpp"
OPERATIONS_DRIVER = "op_cases.cpp"
_TIMEOUT_S = 300.0
_WARNINGS = ("-Wall", "-Wextra", "-Werror")

# What a library built against a real ROCm 6 or 7 asks the loader for; ours asks for the first.
STUB_NAMES = (
    "libamdhip64.so",
    "libamdhip64.so.6",
    "libamdhip64.so.7",
    "libhipblas.so.2",
    "libhipblas.so.3",
    "librocblas.so.4",
    "librocblas.so.5",
)


def cxx_of(toolchain: Toolchain) -> list[str]:
    """The C++ compiler of a toolchain, whichever of its names the toolchain goes by."""
    return [str(toolchain.clang), "--driver-mode=g++"]


def build_stub(compiler: Compiler) -> Path:
    """The folder with the stub under each of its names; built once per toolchain.

    Raises:
        RECORDER_NOT_BUILT: our sources do not compile against these HIP headers.
        CacheError: the disk refused.
    """
    toolchain = compiler.toolchain
    argv = [
        *cxx_of(toolchain),
        "-std=c++17",
        "-O1",
        "-fPIC",
        "-shared",
        *_WARNINGS,
        "-D__HIP_PLATFORM_AMD__",
        "-isystem",
        str(toolchain.root / "include"),
        f"-Wl,-soname,{STUB_NAMES[0]}",
        *(str(_NATIVE / name) for name in _STUB_SOURCES),
        "-ldl",
    ]
    sources = [*_STUB_SOURCES, *_STUB_HEADERS]
    return _built(compiler, {"what": "stub"}, argv, sources, STUB_NAMES[0], links=STUB_NAMES[1:])


def build_driver(
    compiler: Compiler,
    ggml_include: Path,
    libraries: Path,
    identity: str,
    stub: Path,
    *,
    source: str = ATTENTION_DRIVER,
) -> Path:
    """A driver as a program, linked to the ggml in ``libraries``; ``identity`` names that ggml.

    ``source`` is the driver of attention cases or that of other operations.

    Raises:
        RECORDER_NOT_BUILT: it does not compile against this ggml.
        CacheError: the disk refused.
    """
    argv = [*cxx_of(compiler.toolchain), "-std=c++17", "-O1", *_WARNINGS]
    places = [
        "-Wno-deprecated-declarations",  # those that build 11549 warns of are the ones that every build has
        *("-isystem", str(ggml_include), str(_NATIVE / source)),
        *(f"-L{libraries}", "-lggml", "-lggml-base", f"-L{stub}", "-lamdhip64"),
        f"-Wl,-rpath-link,{libraries}",
    ]
    key = {"what": "driver", "ggml": identity, "stub": stub.name, "flags": compiler.portable(argv)}
    name = source.removesuffix(".cpp")
    return _built(compiler, key, [*argv, *places], (source, CASE_READER.name), name) / name


def _built(
    compiler: Compiler,
    parts: Mapping[str, object],
    argv: Sequence[str],
    sources: Sequence[str],
    name: str,
    *,
    links: Sequence[str] = (),
) -> Path:
    digests = {source: hashlib.sha256((_NATIVE / source).read_bytes()).hexdigest() for source in sources}
    key = key_of({"compiler": compiler.identity, "sources": digests, **parts})

    def fill(folder: Path) -> None:
        compiler.reporter.step(f"building the launch recorder: {parts['what']}")
        try:
            run_tool(
                [*nice(), *argv, "-o", str(folder / name)], timeout_s=_TIMEOUT_S, reporter=compiler.reporter
            )
        except ToolFailed as error:
            raise ToolchainError(
                f"the launch recorder's {parts['what']} does not compile with this toolchain",
                code="RECORDER_NOT_BUILT",
                where=Location(path=str(_NATIVE / sources[0])),
                why=error.why,
                hint="patchkit doctor shows the headers and the compiler that were used",
            ) from error
        for link in links:
            (folder / link).symlink_to(name)

    return compiler.store.obtain(key, fill)

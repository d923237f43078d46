"""The HIP backend of one tree with real host code and no device code.

Vocabulary: the *host library* is libggml-hip.so from the host pass of every unit. Which kernel is chosen and
how it is launched is host code, so the choice is the real one; where a unit's device code would be, the
object holds the unit's path instead, and the recorder reads from it who registers which kernel. One host
library serves every GPU of one wave size: host code asks at run time which GPU it has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.build.compile import CompiledUnit, Job, compile_unit
from patchkit.build.compiler import Compiler, nice
from patchkit.build.parallel import run_parallel
from patchkit.build.sources import SourceTree
from patchkit.build.store import key_of
from patchkit.build.units import hip_units
from patchkit.errors import ToolchainError
from patchkit.proc import ToolFailed, run_tool
from patchkit.recorder.stubs import cxx_of

# The unit whose executed basic blocks are recorded on request: upstream's choice of the attention kernel.
SELECTION_UNIT = "ggml/src/ggml-cuda/fattn.cu"

_TIMEOUT_S = 600.0
_LIBRARY = "libggml-hip.so"
# Loaded at run time by the programs (GGML_BACKEND_DL), so that both sides share the programs. -O1 because
# nothing here runs long; what host code decides does not depend on it.
HOST_FLAGS = ("-O1", "-w", "-DGGML_BACKEND_DL")
# Every operand of && and || is a block of its own at -O0, with line and column, unless pruned.
_TRACED = (
    *("-O0", "-gline-tables-only", "-fdebug-compilation-dir=."),
    "-fsanitize-coverage=trace-pc-guard,no-prune",
)
_UNDEFINED = re.compile(r"undefined symbol: (\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLibrary:
    """``path`` is the library; ``key`` names what it was made from; ``compiled`` of ``units`` were new."""

    path: Path
    key: str
    units: int
    compiled: int
    seconds: float


def build_host_library(
    tree: SourceTree, compiler: Compiler, *, arch: str, stub: Path, libraries: Path
) -> HostLibrary:
    """Compile the host pass of every unit that is not in the store yet, and link.

    Args:
        tree: the exported tree.
        compiler: the toolchain with its store.
        arch: a GPU of the wave size in question; host code is the same for all of them.
        stub: the folder of the recorder's stub.
        libraries: the folder of libggml-base.so.

    Raises:
        CompileFailed: a unit has errors.
        RECORDER_LACKS_CALLS, HOST_LINK_FAILED: the objects do not link against the stub.
        CacheError: the disk refused.
    """
    units = hip_units(tree.root)
    markers = _markers(units, compiler)
    jobs = [_job(tree, unit, arch, markers) for unit in units]
    done = run_parallel(
        jobs,
        lambda job: compile_unit(job, compiler),
        reporter=compiler.reporter,
        what="host pass of the HIP backend",
        unit="units",
        stop=compiler.stop,
    )
    key = key_of({"what": "host library", "objects": [unit.key for unit in done], "stub": stub.name})
    path = _link(done, key, compiler, stub, libraries)
    fresh = [unit for unit in done if not unit.cached]
    return HostLibrary(
        path=path,
        key=key,
        units=len(done),
        compiled=len(fresh),
        seconds=round(sum(unit.seconds for unit in fresh), 1),
    )


def _job(tree: SourceTree, unit: str, arch: str, markers: Path) -> Job:
    embed = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(markers / _marker_name(unit)))
    traced = _TRACED if unit == SELECTION_UNIT else ()
    return Job(
        tree=tree, unit=unit, arch=arch, which="host", form="object", flags=(*HOST_FLAGS, *traced, *embed)
    )


def _marker_name(unit: str) -> str:
    return unit.replace("/", "_")


def _markers(units: Sequence[str], compiler: Compiler) -> Path:
    """The folder of what stands where device code would be; native/launches.cpp reads it back."""
    key = key_of({"what": "markers", "units": list(units)})

    def fill(folder: Path) -> None:
        for unit in units:
            (folder / _marker_name(unit)).write_text(f"PATCHKIT-UNIT\n{unit}\n", "utf-8")

    return compiler.store.obtain(key, fill)


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
            run_tool([*argv, "-o", str(folder / _LIBRARY)], timeout_s=_TIMEOUT_S, reporter=compiler.reporter)
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
        f"upstream calls what the launch recorder does not have: {', '.join(calls)}",
        code="RECORDER_LACKS_CALLS",
        why="every function of the HIP runtime and hipBLAS that the backend calls needs a stub",
        hint="add them to patchkit/recorder/native, each with its row in the table of stub_calls.cpp",
    )

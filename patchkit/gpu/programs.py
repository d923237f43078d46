"""Upstream's own programs: test-backend-ops and llama-bench with the libraries they need, on the CPU."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import ToolchainError
from patchkit.base.jobs import cores
from patchkit.base.process import ToolFailed, ToolMissing, run_tool
from patchkit.build.compiler import Compiler, nice
from patchkit.build.parts import MODULES, READ_BY_PROGRAMS, sources_digest
from patchkit.build.store import key_of
from patchkit.build.toolchain import Toolchain

_FORMAT = 1  # of an entry; a change makes every old one unknown
_TARGETS = ("test-backend-ops", "llama-bench", "ggml-cpu")
GPU_FOLDER = "ggml/src/ggml-cuda"
_TIMEOUT_S = 3600.0  # twenty times what two cores take (96 s at build 6900, -O1)

# -O1: nothing here runs long. Options that a build does not have are ignored by CMake.
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=None",
    "-DCMAKE_C_FLAGS=-O1 -DNDEBUG",
    "-DCMAKE_CXX_FLAGS=-O1 -DNDEBUG",
    *(f"-D{name}={'ON' if is_on else 'OFF'}" for name, is_on in MODULES.items()),
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_TESTS=ON",
    "-DLLAMA_BUILD_TOOLS=ON",
    "--no-warn-unused-cli",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """``folder`` holds the programs and their libraries; ``key`` names what they were made from."""

    folder: Path
    key: str


def build_programs(tree: Path, compiler: Compiler) -> Programs:
    """Configure and build with upstream's CMake, once for everything outside the GPU sources.

    Raises:
        CMAKE_MISSING: CMake or Ninja is not installed.
        PROGRAMS_NOT_BUILT: upstream does not build here.
        CacheError: the disk refused.
    """
    gpu = tree / GPU_FOLDER  # device code is not part of these programs

    def is_left_out(path: Path) -> bool:
        return path.is_symlink() or gpu in path.parents

    key = key_of(
        {
            "format": _FORMAT,
            "compiler": compiler.identity,
            "options": _OPTIONS,
            "targets": _TARGETS,
            "sources": sources_digest(tree, READ_BY_PROGRAMS, is_left_out),
        }
    )

    def fill(folder: Path) -> None:
        compiler.reporter.step("building test-backend-ops and llama-bench")
        with tempfile.TemporaryDirectory(dir=folder.parent) as build:
            try:
                _build(tree, Path(build), compiler)
            except ToolMissing as error:
                raise ToolchainError(
                    "upstream's programs need CMake and Ninja",
                    code="CMAKE_MISSING",
                    why=error.message,
                    hint="install the packages cmake and ninja-build, or: pip install cmake ninja",
                ) from error
            except ToolFailed as error:
                raise ToolchainError(
                    "upstream's test-backend-ops and llama-bench do not build",
                    code="PROGRAMS_NOT_BUILT",
                    why=error.why,
                    hint=error.hint,
                ) from error
            for path in (Path(build) / "bin").iterdir():
                shutil.copy2(path, folder / path.name, follow_symlinks=False)

    return Programs(folder=compiler.store.obtain(key, fill), key=key)


def _build(tree: Path, build: Path, compiler: Compiler) -> None:
    c, cxx = cmake_compilers(compiler.toolchain)
    configure = [
        *("cmake", "-S", str(tree), "-B", str(build), "-G", "Ninja"),
        *(f"-DCMAKE_C_COMPILER={c}", f"-DCMAKE_CXX_COMPILER={cxx}"),
        *_OPTIONS,
    ]
    run_tool(configure, timeout_s=_TIMEOUT_S, reporter=compiler.reporter)
    ninja = [*nice(), "cmake", "--build", str(build), "-j", str(cores())]
    run_tool([*ninja, "--target", *_TARGETS], timeout_s=_TIMEOUT_S, reporter=compiler.reporter)


def cmake_compilers(toolchain: Toolchain) -> tuple[Path, Path]:
    """The compilers of C and C++ beside the toolchain's clang: CMake takes no options with them."""
    name = toolchain.clang.name.replace("clang++", "clang")
    return toolchain.clang.with_name(name), toolchain.clang.with_name(name.replace("clang", "clang++", 1))

"""The whole library through CMake, on a project of one unit: real cmake, ninja and compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.toolchain import cmake as cmake_project
from patchkit.toolchain.cmake import BuildFailed, build_library
from patchkit.toolchain.compiler import Compiler, open_compiler

pytestmark = pytest.mark.hip

_CMAKE = """\
cmake_minimum_required(VERSION 3.21)
project(t LANGUAGES C CXX HIP)
find_package(hip REQUIRED)
find_package(hipblas REQUIRED)
add_library(ggml-hip SHARED k.cu)
set_source_files_properties(k.cu PROPERTIES LANGUAGE HIP)
target_link_libraries(ggml-hip PRIVATE hip::host roc::hipblas)
"""
_UNIT = """\
#include <hip/hip_runtime.h>
__global__ void k(float * x) { x[threadIdx.x] *= 2.0f; }
extern "C" void run(float * x) { k<<<1, 32>>>(x); }
"""


@pytest.fixture
def compiler(hip_toolchain, tmp_path: Path) -> Compiler:
    return open_compiler(hip_toolchain, tmp_path / "cache", NullReporter())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(_CMAKE)
    (folder / "k.cu").write_text(_UNIT)
    return folder


def test_it_is_built_once_linked_and_described(compiler: Compiler, tree: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    built = build_library(tree, folder, "gfx1151", compiler)
    assert (built.path.name, built.units, built.warnings) == ("libggml-hip.so", 1, ())
    assert built.cached_by is None  # GGML_CCACHE is an option of upstream's project, not of this one
    assert built.size_bytes == built.path.stat().st_size > 4096
    written = built.path.stat().st_mtime_ns
    again = build_library(tree, folder, "gfx1151", compiler)
    assert again.path.stat().st_mtime_ns == written
    assert b"no work to do" in (folder / "build.log").read_bytes()


def test_an_error_has_its_place_and_everything_said_is_kept(
    compiler: Compiler, tree: Path, tmp_path: Path
) -> None:
    (tree / "k.cu").write_text(_UNIT + "#warning look here\nint forgotten = nowhere;\n")
    with pytest.raises(BuildFailed, match="use of undeclared identifier 'nowhere'") as caught:
        build_library(tree, tmp_path / "build", "gfx1151", compiler)
    assert [(Path(place.path).name, place.line) for place in caught.value.where] == [("k.cu", 5)]
    log = tmp_path / "build" / "build.log"
    assert str(log) in (caught.value.hint or "")
    assert b"look here" in log.read_bytes()
    (tree / "k.cu").write_text(_UNIT)
    assert build_library(tree, tmp_path / "build", "gfx1151", compiler).units == 1


def test_a_project_that_does_not_configure_keeps_what_cmake_said(
    compiler: Compiler, tree: Path, tmp_path: Path
) -> None:
    (tree / "CMakeLists.txt").write_text(_CMAKE + "find_package(rocnothing REQUIRED)\n")
    with refused("CMAKE_CONFIGURE_FAILED") as caught:
        build_library(tree, tmp_path / "build", "gfx1151", compiler)
    assert "rocnothing" in (caught.value.why or "")
    assert b"rocnothing" in (tmp_path / "build" / "configure.log").read_bytes()


def test_without_ninja_the_error_says_what_to_install(
    compiler: Compiler, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cmake_project, "_NINJA", ">=99")
    with refused("LIBRARY_TOOLS_MISSING") as caught:
        build_library(tree, tmp_path / "build", "gfx1151", compiler)
    assert "pip install patchkit" in (caught.value.hint or "")

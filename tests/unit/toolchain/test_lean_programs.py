"""Reduced builds that do not change results, with real CMake on small projects."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.toolchain.parts import LEAN_ENTRY, cpu_part, programs_part
from patchkit.toolchain.sides import BuiltPart, Workshop, build_part

CMAKE = """\
cmake_minimum_required(VERSION 3.18...4.4)
project(small LANGUAGES CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${{CMAKE_BINARY_DIR}}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${{CMAKE_BINARY_DIR}}/bin)
set(parsers ${{CMAKE_CURRENT_SOURCE_DIR}}/common/parsers/one.cpp)
add_library({library} {kind} common/common.cpp common/chat.cpp ${{parsers}})
set_target_properties({library} PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_library(cpp-httplib STATIC common/http.cpp)
target_link_libraries({library} PRIVATE cpp-httplib)
add_library(bench-impl SHARED bench.cpp)
target_link_libraries(bench-impl PUBLIC {library})
add_executable(llama-bench main.cpp)
target_link_libraries(llama-bench PRIVATE bench-impl)
"""
FILES = {
    "common/common.cpp": "int chat(); int common(int n) { return n > 1 ? chat() : 7; }",
    "common/chat.cpp": "int one(); int chat() { return one(); }",
    "common/parsers/one.cpp": "int one() { return 3; }",
    "common/http.cpp": "int http() { return 1; }",
    "bench.cpp": "int common(int); int bench(int n) { return common(n); }",
    "main.cpp": "int bench(int); int main(int n, char **) { return bench(n); }",
}


def made(tmp_path: Path, kind: str = "SHARED", library: str = "llama-common", **changed: str) -> BuiltPart:
    tree = tmp_path / "tree"
    for name, text in {**FILES, "CMakeLists.txt": CMAKE.format(library=library, kind=kind)}.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changed.get(path.stem, text))
    part = programs_part(tree, build=1, commit="c", compiler="c", is_timed=False, wanted=("llama-bench",))
    workshop = Workshop(cache_root=tmp_path / "cache", reporter=NullReporter())
    return build_part(part, tree, ["llama-bench"], workshop)


def compiled(built: BuiltPart) -> set[str]:
    return {path.name.removesuffix(".o") for path in (built.folder / "build").rglob("*.cpp.o")}


def ended(built: BuiltPart, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([built.files / "llama-bench", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("library", ["llama-common", "common"])
def test_code_that_is_never_called_is_not_compiled(tmp_path: Path, library: str) -> None:
    built = made(tmp_path, library=library)
    assert compiled(built) == {"common.cpp", "bench.cpp", "main.cpp"}
    assert ended(built).returncode == 7


def test_a_call_of_excluded_code_ends_with_the_symbol_name(tmp_path: Path) -> None:
    done = ended(made(tmp_path), "more")
    assert done.returncode == 127
    assert "undefined symbol: _Z4chatv" in done.stderr


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("SHARED", {"bench": "int chat(); int bench(int) { return chat(); }"}),
        ("SHARED", {"main": "int chat(); int main() { return chat(); }"}),
        ("STATIC", {}),  # an archive's file that is taken calls what is left out
    ],
)
def test_a_program_that_calls_excluded_code_gets_the_full_build(
    tmp_path: Path, kind: str, changed: dict[str, str]
) -> None:
    built = made(tmp_path, kind=kind, **changed)
    assert {"chat.cpp", "one.cpp", "http.cpp"} < compiled(built)
    assert ended(built, "more").returncode == 3


def test_unused_members_of_an_archive_are_not_compiled(tmp_path: Path) -> None:
    built = made(tmp_path, kind="STATIC", common="int common(int) { return 5; }")
    assert compiled(built) == {"common.cpp", "bench.cpp", "main.cpp"}
    assert ended(built).returncode == 5


@pytest.mark.parametrize(
    ("wanted", "is_timed", "is_lean"),
    [
        (("llama-bench", "test-backend-ops"), False, True),
        (("llama-bench",), True, False),
        (("llama-bench", "test-llama-archs"), False, False),
        ((), False, False),
    ],
)
def test_only_untimed_programs_of_the_gates_are_lean(
    tmp_path: Path, wanted: tuple[str, ...], is_timed: bool, is_lean: bool
) -> None:
    part = programs_part(tmp_path, build=1, commit="c", compiler="c", is_timed=is_timed, wanted=wanted)
    assert (LEAN_ENTRY in part.entries) == is_lean


BACKEND = """\
cmake_minimum_required(VERSION 3.18...4.4)
project(small LANGUAGES CXX)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${{CMAKE_BINARY_DIR}}/bin)
{base}
add_library(ggml-cpu MODULE cpu.cpp)
target_link_libraries(ggml-cpu PRIVATE ggml-base)
"""


def backend(tmp_path: Path, base: str) -> tuple[BuiltPart, Path]:
    """A backend as it is built, and the ggml-base of the programs."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "CMakeLists.txt").write_text(BACKEND.format(base=base))
    (tree / "base.cpp").write_text('extern "C" int base() { return 4; }')
    (tree / "cpu.cpp").write_text('extern "C" int base(); extern "C" int cpu() { return base() + 1; }')
    workshop = Workshop(cache_root=tmp_path / "cache", reporter=NullReporter())
    built = build_part(cpu_part(tree, compiler="c"), tree, ["ggml-cpu"], workshop)
    whole = tmp_path / "libggml-base.so"
    soname = f"-Wl,-soname,{whole.name}"
    subprocess.run(["c++", "-shared", "-fPIC", soname, tree / "base.cpp", "-o", whole], check=True)
    return built, whole


def answer(built: BuiltPart, whole: Path) -> int:
    """The result of the backend with the ggml-base of the programs, in a separate process."""
    code = (
        "import ctypes, sys; ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL); "
        "sys.exit(ctypes.CDLL(sys.argv[2]).cpu())"
    )
    argv = ["python3", "-c", code, whole, built.files / "libggml-cpu.so"]
    return subprocess.run(argv, check=False).returncode


def test_a_backend_is_linked_without_compiling_what_the_programs_have(tmp_path: Path) -> None:
    built, whole = backend(tmp_path, "add_library(ggml-base SHARED base.cpp)")
    assert compiled(built) == {"nothing.cpp", "cpu.cpp"}
    assert answer(built, whole) == 5
    assert b"\0libggml-base.so\0" in (built.files / "libggml-cpu.so").read_bytes()  # what it asks for


def test_the_full_build_is_used_if_the_lean_one_does_not_configure(tmp_path: Path) -> None:
    base = "add_library(real SHARED base.cpp)\nadd_library(ggml-base ALIAS real)"
    built, whole = backend(tmp_path, base)
    assert compiled(built) == {"base.cpp", "cpu.cpp"}
    assert (built.files / "libreal.so").is_file()
    assert answer(built, whole) == 5

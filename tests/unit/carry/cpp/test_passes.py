"""What clang's own passes say: definitions with extents, and syntax errors only."""

from __future__ import annotations

import pytest

from patchkit.carry.cpp.ast import Preprocessing, parse_tree

PATH = "ggml/src/ggml-cuda/t.cu"


def tree(text, which="device", arch="gfx1151", defines=("GGML_USE_HIP",), **files):
    data = {PATH: text.encode()} | {name.replace("__", "/"): body for name, body in files.items()}
    return parse_tree(PATH, data, arch=arch, which=which, preprocessing=Preprocessing(defines=defines))


def names(text, **kwargs):
    return [definition.name for definition in tree(text, **kwargs).definitions]


def test_the_extent_begins_with_the_attribute_macro():
    text = "__launch_bounds__(64, g()) static __global__ void k(int * x) { *x = 1; }\n"
    (definition,) = tree(text).definitions
    assert text[definition.span.start : definition.span.end] == text.rstrip()


def test_missing_headers_and_names_are_no_issue():
    found = tree('#include "common.cuh"\n#include <hip/hip_runtime.h>\nvoid f() { half2 x = g(y); }\n')
    assert [definition.name for definition in found.definitions] == ["f"]
    assert found.issues == ()


def test_headers_of_the_tree_are_read_but_only_the_main_file_is_listed():
    header = b"void in_header() { int x = ; }\ntypedef int number;\n"
    found = tree('#include "h.cuh"\nnumber f() { return 1; }\n', **{"ggml/src/ggml-cuda/h.cuh": header})
    assert [definition.name for definition in found.definitions] == ["f"]
    assert found.issues == ()


FOLDER = "ggml/src/ggml-cuda"


@pytest.mark.parametrize(
    "include",
    [
        '#include "a.cuh"',
        "#  include <a.cuh>",
        '#define NAME "a.cuh"\n#include NAME',
        '#if __has_include("a.cuh")\n#include "a.cuh"\n#endif',
        '#include "other.cuh"',
    ],
)
def test_what_an_include_reaches_is_read_anew_when_it_changes(include):
    files = {f"{FOLDER}/other.cuh": b'#include "a.cuh"\n', f"{FOLDER}/vendors/hip.h": b"\n"}
    text = f"{include}\n#ifdef HERE\nvoid f() {{ }}\n#endif\n"
    assert names(text, **files, **{f"{FOLDER}/a.cuh": b"\n"}) == []
    assert names(text, **files, **{f"{FOLDER}/a.cuh": b"#define HERE\n"}) == ["f"]


@pytest.mark.parametrize(
    "broken",
    [
        "void f() { g(; }",
        "void f() { if (1) { }",
        "#if A\nvoid f() { }\n",
        "void f() {\n#pragma unroll\nint x = 1;\n}",
        "void f() { int x = 1 }",
    ],
)
def test_syntax_errors_are_issues_with_their_place(broken):
    issues = tree(broken + "\n").issues
    assert issues
    assert all(0 <= issue.offset <= len(broken) + 1 and issue.message for issue in issues)


def test_warnings_are_no_issues():
    assert tree("#warning careful\nvoid f() { }\n").issues == ()


def test_the_passes_see_different_branches():
    text = "#ifdef __HIP_DEVICE_COMPILE__\nvoid d() { }\n#else\nvoid h() { }\n#endif\n"
    assert names(text, which="device") == ["d"]
    assert names(text, which="host") == ["h"]


def test_defines_are_set():
    text = "#ifdef GGML_HIP_ROCWMMA_FATTN\nvoid w() { }\n#endif\n"
    assert names(text) == []
    assert names(text, defines=("GGML_HIP_ROCWMMA_FATTN",)) == ["w"]


@pytest.mark.parametrize("arch", ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1151", "gfx1201"])
def test_each_gpu_has_its_macro_in_the_device_pass(arch):
    assert names(f"#ifdef __{arch}__\nvoid f() {{ }}\n#endif\n", arch=arch) == ["f"]


@pytest.mark.parametrize(
    ("arch", "relative"), [("gfx1152", "gfx1150"), ("gfx1153", "gfx1150"), ("gfx950", "gfx942")]
)
def test_a_gpu_that_libclang_does_not_know_is_parsed_as_its_relative(arch, relative):
    text = f"#if defined(__{arch}__) && !defined(__{relative}__)\nvoid f() {{ }}\n#endif\n"
    assert names(text, arch=arch) == ["f"]
    assert names(text, arch=arch, which="host") == []


def test_members_operators_and_templates_go_by_their_plain_names():
    text = """
namespace n { extern "C++" {
template <typename T> struct s {
    s(T x) : x(x) { }
    ~s() { }
    operator bool() const { return true; }
    bool operator<(const s & o) const { return x < o.x; }
    T operator()(T y) { return y; }
    T x;
};
template <typename T> struct s<T *> { void m() { } };
template <typename T> void f(T x) { }
template <> void f<int>(int x) { }
} }
"""
    found = names(text)
    assert found == ["s", "~s", "operator bool", "operator<", "operator()", "m", "f", "f"]

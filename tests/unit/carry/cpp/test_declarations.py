"""What the declarations beside the parser let it read: names of libraries that are not there (issue 42)."""

from __future__ import annotations

import pytest

from patchkit.base.upstreams import llama_cpp
from patchkit.carry.cpp.ast import is_cpp, parse_tree, read_includes

FOLDER = "ggml/src/ggml-cuda"

RIGHT = (
    "struct s { std::vector<std::pair<int, int>> devices; };",
    "void f(size_t n) { auto p = std::make_unique<char[]>(n); use(p); }",
    "double f(long d) { return std::chrono::duration<double, std::milli>(d).count(); }",
    'void f(uint64_t x) { print("%" PRIu64 " of %" PRId64 "\\n", x, x); }',
    "uint64_t f(long total) { return total > 0 ? (uint64_t) total : 0; }",
    "size_t f(int v) { return std::hash<int>{}(v); }",
    "void f(std::map<int, std::string> & m) { std::map<int, std::string>::iterator it = m.begin(); }",
    "void f() { for (const auto & [key, value] : table<int, 4>()) { std::get<0>(key) = value; } }",
    "template <typename T> void f(T x) { if constexpr (std::is_same_v<T, half2>) { g<T>(x); } }",
    "namespace fs = std::filesystem; bool f(const fs::path & p) { return fs::exists(p); }",
    "using namespace std::chrono_literals; void f() { std::this_thread::sleep_for(10ms); }",
    "template <typename T> struct h { typename std::enable_if<std::is_integral<T>::value, T>::type x; };",
    "using json = nlohmann::ordered_json; auto f(const json & j) { return j.at(1).get<std::vector<int>>(); }",
    "void f(const nlohmann::json & j) { use(j[1].value<int>(2), j.get<std::string>()); }",
    "size_t f() { return offsetof(struct t, member); } struct t { int member; };",
    "void f(const char * x, ...) { va_list a; va_start(a, x); int i = va_arg(a, int); va_end(a); use(i); }",
    "static std::atomic<bool> on{false}; static std::array<int, 3> three = { 1, 2, 3 };",
    "std::function<bool(const std::string &, int)> call = [](const std::string &, int) { return true; };",
    "void f() { std::lock_guard<std::mutex> guard(m); std::unique_lock lock(m); }",
    "float f(const void * p) { return __half2float(((const half *) p)[threadIdx.x]) + (float) n; }",
    "void f(hipStream_t s) { (hipError_t) g(s); auto e = (hipEvent_t *) malloc(4); use(e); }",
)


@pytest.mark.parametrize("which", ["host", "device"])
@pytest.mark.parametrize("text", RIGHT)
def test_right_code_has_no_issue(text, which):
    path = f"{FOLDER}/t.cu"
    tree = parse_tree(path, {path: text.encode() + b"\n"}, arch="gfx1151", which=which)
    assert tree.issues == ()


def test_a_file_in_c_is_read_as_c():
    text = b"""
int f(float * restrict x, size_t n) {
    float * class = (float *) malloc(n * sizeof(float));
    bool new = class != NULL;
    for (uint64_t i = 0; i < n; ++i) { x[i] = (float) i; }
    return new ? (int32_t) n : 0;
}
"""
    found = {
        path: parse_tree(path, {path: text}, arch="gfx1151", which="host")
        for path in ("ggml/src/t.c", "ggml/src/t.cpp")
    }
    assert found["ggml/src/t.c"].issues == ()
    assert [each.name for each in found["ggml/src/t.c"].definitions] == ["f"]
    assert found["ggml/src/t.cpp"].issues


def test_templates_are_read_but_not_instantiated():
    text = b"template <int n> struct s { typedef typename s<n + 1>::t t; };\ns<0>::t f() { return 1; }\n"
    path = f"{FOLDER}/t.cu"
    tree = parse_tree(path, {path: text + b"int g() { return 1 }\n"}, arch="gfx1151", which="host")
    assert [issue.message for issue in tree.issues] == ["expected ';' after return statement"]


def test_an_include_is_found_through_the_folder_above():
    path, other = f"{FOLDER}/instances/t.cu", f"{FOLDER}/h.cuh"
    files = {
        path: b'#include "../h.cuh"\ncount_t f(long x) { return (count_t) x; }\n',
        other: b"typedef int count_t;\n",
    }
    assert parse_tree(path, files, arch="gfx1151", which="device").issues == ()


def test_names_are_told_when_there_is_an_issue():
    path = f"{FOLDER}/t.cu"
    text = b"int known; void f() { known = other.member + far::away<near>(1); int = known; }\n"
    tree = parse_tree(path, {path: text}, arch="gfx1151", which="host")
    assert tree.issues
    assert {b"other", b"far"} <= tree.unknown
    assert b"known" in tree.declared - tree.unknown
    assert b"other" not in tree.declared


@pytest.mark.parametrize(
    ("text", "name", "declared"),
    [
        ("enum e { A, B = 1 };", "B", True),
        ("auto [key, value] = pair;", "value", True),
        ("#define NAME(x) x", "NAME", True),
        ("std::vector<int> & list = x;", "list", True),
        ("int f(const half2 * const __restrict__ NAME);", "NAME", True),
        ("typedef struct { int x; } NAME;", "NAME", True),
        ("typedef void (*NAME)(int);", "NAME", True),
        ("", "uint64_t", True),
        ("", "is_same_v", True),
        ("", "uint3", True),
        ("static NAME f();", "NAME", False),
        ("return NAME;", "NAME", False),
        ("// the NAME here", "NAME", False),
        ('log("a NAME", x);', "NAME", False),
        ('log("%" NAME, x);', "NAME", False),
    ],
)
def test_what_looks_like_a_declaration(text, name, declared):
    path = f"{FOLDER}/t.cu"
    tree = parse_tree(path, {path: text.encode() + b"\n}\n"}, arch="gfx1151", which="host")
    assert (name.encode() in tree.declared) == declared


@pytest.mark.parametrize(
    "piece", ["// /*", "/* */", '"\\\\', "enum ", "enum {", "}", "a ", "auto [", "x*", "(*"]
)
def test_a_text_made_to_be_slow_is_read_all_the_same(piece):
    path, other = f"{FOLDER}/t.cu", f"{FOLDER}/slow.cuh"
    slow = b"#if 0\n" + piece.encode() * 50_000 + b"\n#endif\n"
    files = {path: b'#include "slow.cuh"\nint late = 1\n', other: slow}
    tree = parse_tree(path, files, arch="gfx1151", which="host")
    assert b"late" in tree.declared


def test_includes_are_read_as_far_as_they_go_and_no_further():
    tree = {
        "tools/server/server.h": b'#include "common.h"\n#include <vector>\n#include "../../src/deep.h"\n',
        "common/common.h": b'#include "llama.h"\n#include "server.h"\n',
        "include/llama.h": b"",
        "src/deep.h": b'#include "common.h"\n#include "../../../out.h"\n',
        "common/unused.h": b"",
        "vendor/nlohmann/json.hpp": b"",
    }
    asked = []

    def read(paths):
        asked.append(tuple(paths))
        return {path: tree[path] for path in paths}

    main = {"tools/server/server.cpp": b'#include "server.h"\n#include <nlohmann/json.hpp>\n'}
    found = read_includes(
        ["tools/server/server.cpp"], main, frozenset(tree), read, llama_cpp().folders.include
    )
    assert sorted(found) == ["common/common.h", "include/llama.h", "src/deep.h", "tools/server/server.h"]
    assert asked == [
        ("tools/server/server.h",),
        ("common/common.h", "src/deep.h"),
        ("include/llama.h",),
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/llama.cpp", True), ("ggml/src/ggml.c", True), ("common/common.h", True), ("a.cuh", True),
        ("ggml/src/ggml-metal/a.metal", False), ("ggml/src/ggml-metal/a.m", False), ("a.cl", False),
        ("a.comp", False), ("a.wgsl", False), ("a.glsl", False), ("CMakeLists.txt", False), ("a.py", False),
        ("a.yml", False), ("README.md", False), ("table.inc", False),
    ],
)  # fmt: skip
def test_which_files_a_compiler_for_the_host_reads(path, expected):
    assert is_cpp(path) == expected

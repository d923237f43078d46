"""Host code is compared without the bodies of kernels: which bodies are left out, and which stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.prove.gates.isolation.kernel_bodies import (
    kernel_bodies,
    may_define_when_used,
    trees_without_bodies,
)

FILE = "ggml/src/ggml-cuda/k.cu"
KERNEL = (
    "template <int n> __launch_bounds__(n, 1)\n"
    'static __global__ void k(int * p, int q[2]) {\n    f("}");\n}\n'
)
HOST = "void host(int * p) { k<1><<<1, 1>>>(p, p); }\n"


def bodies(text: str) -> list[str]:
    return [text.encode()[start:end].decode() for _, start, end in kernel_bodies(text.encode())]


def test_a_body_is_what_stands_between_its_braces() -> None:
    assert bodies(KERNEL + HOST) == ['\n    f("}");\n']
    assert bodies("__global__ void __launch_bounds__(f(1)) a() { if (x) { y(); } }\n" + KERNEL) == [
        " if (x) { y(); } ",
        '\n    f("}");\n',
    ]
    assert bodies("__global__ void a() { int i = 1'000'000; char c = '}'; /* } */ // }\n}\n") == [
        " int i = 1'000'000; char c = '}'; /* } */ // }\n"
    ]
    branches = " x();\n#if A\n if (b) { y(); }\n#elif B\n{ z(); }\n#else\n#endif\n#pragma unroll\n w(); "
    assert bodies(f"__global__ void a() {{{branches}}}") == [branches]


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void declared();\nvoid host() { x(); }\n",
        "// __global__ void a()\nvoid host() { x(); }\n",
        "/* __global__ */ void host() { x(); }\n",
        "#define KERNEL __global__ \\\n    void\nKERNEL a() { x(); }\n",
        "__global__ void a(\n#if B\n    int p\n#endif\n) { x(); }\n",
        "__global__ void a() {\n#if B\n    if (b) {\n#else\n    if (c) {\n#endif\n    }\n}\n",
        "__global__ void a() {\n#if B\n}\nvoid host() {\n#endif\n}\n",
        "__global__ void a() {\n#if B\n    x();\n}\n#else\n}\n#endif\n",
        "__global__ void a() {\n#define ROWS 2\n}\n",
        '__global__ void a() {\n#include "text.inc"\n}\n',
        '__global__ void a() { f(R"(})"); }\n',
        "__global__ void a() {\n#if B /* {\n    */\n#endif\n}\n",
        "__global__ void a() {",
    ],
)
def test_what_is_not_sure_to_be_a_body_stays(text: str) -> None:
    assert bodies(text) == []


def trees(folder: Path, before: dict[str, str], after: dict[str, str]) -> tuple[Path, Path]:
    roots = folder / "before", folder / "after"
    for root, files in zip(roots, (before, after), strict=True):
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return roots


def test_only_bodies_that_both_trees_have_alike_are_left_out(tmp_path: Path) -> None:
    own = "__global__ void own() { x(); }\n"
    roots = trees(tmp_path, {FILE: KERNEL + own + HOST}, {FILE: KERNEL + own.replace("x", "y") + HOST + HOST})
    found = trees_without_bodies(*roots, [FILE])
    assert found is not None
    empty = KERNEL.replace('\n    f("}");\n', "")
    assert (found[0] / FILE).read_text() == empty + own + HOST
    assert (found[1] / FILE).read_text() == empty + own.replace("x", "y") + HOST + HOST
    assert (roots[0] / FILE).read_text() == KERNEL + own + HOST


def test_where_macros_differ_every_body_stays(tmp_path: Path) -> None:
    define = "#define f(x) } int leak() { return 1;\n"
    assert (
        trees_without_bodies(*trees(tmp_path / "1", {FILE: KERNEL}, {FILE: define + KERNEL}), [FILE]) is None
    )
    new = "ggml/src/ggml-cuda/new.cuh"
    pair = trees(tmp_path / "2", {FILE: KERNEL}, {FILE: KERNEL, new: define})
    assert trees_without_bodies(*pair, [FILE, new]) is None
    pair = trees(tmp_path / "3", {FILE: KERNEL}, {FILE: KERNEL, new: "int rows;\n"})
    assert trees_without_bodies(*pair, [FILE, new]) is not None


@pytest.mark.parametrize(
    "added",
    [
        "template <int n> int v = f();",
        "template <int n> inline int v{f()};",
        "template <int n> int v(f());",
        "template <int n>\n",
        "template <> int v<3> = f();",
        "template <typename t> struct s { static int x; };",
        "template <int n> int s<n>::x = f();",
        "template <int n> void f(int);",
        "template void f<3>(int);",
        "friend int leaked(s);",
        "// goes on \\\ntemplate <int n> int v = f();",
        'f("//"); template <int n> int v = f();',
        "/* begun",
    ],
)
def test_what_may_define_something_when_a_kernel_uses_it_is_never_left_out(
    tmp_path: Path, added: str
) -> None:
    assert may_define_when_used(added.encode())
    roots = trees(tmp_path, {FILE: KERNEL + HOST}, {FILE: f"{KERNEL}{added}\n{HOST}"})
    assert trees_without_bodies(*roots, [FILE]) is None


def test_a_template_that_the_next_statement_lost_to_an_added_one_is_seen(tmp_path: Path) -> None:
    old, new = "template <int n>\nvoid a() {}\n", "template <int n>\nint v = f();\nvoid a() {}\n"
    roots = trees(tmp_path, {FILE: KERNEL + old + HOST}, {FILE: KERNEL + new + HOST})
    assert trees_without_bodies(*roots, [FILE]) is None


@pytest.mark.parametrize(
    "added",
    [
        "    if (false) {\n        return rows<3>(q);\n    }\n",
        'template <typename t>\nstatic constexpr t f(const t & a) {\n    static_assert(a.b == 2, "c");\n}\n',
        '// a class of its own :: "quoted"\nint x = 3; // why\n',
        "#pragma unroll 4\n",
    ],
)
def test_statements_and_function_templates_define_nothing_else(added: str) -> None:
    assert not may_define_when_used(added.encode())

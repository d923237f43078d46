"""Declarations that a patch uses and that differ between two upstreams."""

from __future__ import annotations

import pytest

from patchkit.carry.judging.callees import CompareDeclarations
from patchkit.carry.judging.uses import list_uses
from patchkit.carry.placing.tree import UpstreamFiles

HEADER = "ggml/src/ggml-cuda/common.cuh"
FILE = "ggml/src/ggml-cuda/a.cu"


def changes(old: str, new: str, code: str, now: str | None = None, *, before: str = "    old();"):
    """What is reported for ``code`` (later ``now``) if a header declares ``old``, and later ``new``."""

    def source(text: str) -> bytes:
        return f'#include "common.cuh"\nvoid run(ctx_t & ctx, int a, int b) {{\n{text}\n}}\n'.encode()

    trees = [
        UpstreamFiles({HEADER: text.encode(), FILE: source(before)}) for text in (old + "\n", new + "\n")
    ]
    uses = [
        list_uses(FILE, source(before), source(f"{before}\n    {text}"))
        for text in (code, now if now is not None else code)
    ]
    return CompareDeclarations(*trees).changes(*uses)


CHANGED = {
    "a parameter in the middle, to which the arguments convert": (
        "void f(ctx_t & ctx, int n, size_t bytes, bool k);",
        "void f(ctx_t & ctx, int n, size_t bytes, int rows, bool k = true);",
        "f(ctx, a, b, true);",
        "whose parameters changed",
    ),
    "more arguments than before": (
        "void f(int n);",
        "void f(int n, int m);",
        "f(a);",
        "which can no longer be called with 1 argument",
    ),
    "two parameters of one type are swapped": (
        "void f(int rows, int cols);",
        "void f(int cols, int rows);",
        "f(a, b);",
        "whose parameters changed",
    ),
    "a new parameter with a default": (
        "void f(int n);",
        "void f(int n, bool fast = false);",
        "f(a);",
        "which has 1 new parameter with a default value",
    ),
    "template parameters, in the launch of a kernel": (
        "template <int D> __global__ void k(const float * x);",
        "template <int D, int ncols> __global__ void k(const float * x);",
        "k<64><<<a, b, 0, ctx.stream()>>>(nullptr);",
        "whose template parameters changed",
    ),
    "a template parameter with a default": (
        "template <int n> void f();",
        "template <int n, int m = 0> void f();",
        "f<1>();",
        "which has 1 new template parameter with a default value",
    ),
    "two template parameters are swapped": (
        "template <int n, int m> void f();",
        "template <int m, int n> void f();",
        "f<1, 2>();",
        "whose template parameters changed",
    ),
    "the result is used": (
        "static int f(int n);",
        "static bool f(int n);",
        "int c = f(a);",
        "which returned int and now returns bool",
    ),
    "a function is gone": ("int f(int n);", "", "g(f(a));", "which upstream no longer declares"),
    "the parameters of a macro": (
        "#define F(x) (x)",
        "#define F(x, y) (x)",
        "F(a);",
        "which can no longer be called with 1 argument",
    ),
    "a number behind a macro": ("#define N 32", "#define N 64", "b += N;", "whose definition changed"),
    "a number behind a constant": (
        "static constexpr int N = 32;",
        "static constexpr int N = 64;",
        "b += N;",
        "whose definition changed",
    ),
    "an enum value is gone": (
        "enum op { ADD, MUL };",
        "enum op { ADD };",
        "b = MUL;",
        "which op no longer has",
    ),
    "an enum value has another number": (
        "enum op { ADD = 1, MUL = 2 };",
        "enum op { ADD = 1, MUL = 3 };",
        "b = MUL;",
        "whose definition changed",
    ),
    "the type of a member": (
        "struct ctx_t { int pool; };",
        "struct ctx_t { int * pool; };",
        "b = ctx.pool;",
        "whose type changed",
    ),
    "a member is gone": ("struct ctx_t { int pool; };", "struct ctx_t { int n; };", "b = ctx.pool;", None),
    "the parameters of a method": (
        "struct ctx_t { void * pool(int device) { return 0; } };",
        "struct ctx_t { void * pool(int device, int stream) { return 0; } };",
        "ctx.pool(a);",
        "which can no longer be called with 1 argument",
    ),
    "a member of a member": (
        "struct in_t { int n; };\nstruct ctx_t { in_t * in; };",
        "struct in_t { float n; };\nstruct ctx_t { in_t * in; };",
        "b = ctx.in->n;",
        "whose type changed",
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_what_changed_is_reported(case):
    old, new, code, how = CHANGED[case]
    (found,) = changes(old, new, code)
    assert found.how == (how or "which ctx_t no longer has")
    assert (found.used.path, found.used.line) == (FILE, 4)
    assert (found.declared is None) == (not found.after)


SAME = {
    "another function changed": ("void f(int n);\nvoid g();", "void f(int n);\nvoid g(int n);", "f(a);"),
    "it moved to another line, and has other comments": (
        "void f(int n);",
        "\n// f\nvoid f( int n );",
        "f(a);",
    ),
    "const and names of parameters": ("void f(int n);", "static void f(const int count);", "f(a);"),
    "a prototype and its definition": (
        "void f(int n, int m = 1);\nvoid f(int n, int m) {}",
        "void f(int n, int m = 1);\n\nvoid f(int n, int m) {}",
        "f(a);",
    ),
    "an overload was added": ("void f(int n);", "void f(int n);\nvoid f(float x);", "f(a);"),
    "an overload that the call does not mean changed": (
        "void f(int n);\nvoid f(int n, int m);",
        "void f(int n);\nvoid f(int n, float m);",
        "f(a);",
    ),
    "a result that is not used": ("int f(int n);", "bool f(int n);", "f(a);"),
    "template arguments are deduced": (
        "template <typename T> void f(T n);",
        "template <typename T, int n = 1> void f(T n);",
        "f(a);",
    ),
    "what is declared elsewhere now, for example by a library": (
        "static int f(int n) { return n; }",
        "inline int g() { return f(1); }",
        "f(a);",
    ),
    "a variable of the same name": (
        "int n(int x);",
        "int n(float x);",
        "auto n = [](int x) { return x; }; n(a);",
    ),
    "a method of another struct": (
        "struct other_t { int size(int a); };",
        "struct other_t { int size(float a); };",
        "b = ctx.size(a);",
    ),
    "a name of the C++ library": ("int max(int x, int y);", "int max(int x);", "b = std::max(a, b);"),
    "a later enum value": ("enum op { ADD, MUL };", "enum op { ADD, SUB, MUL };", "b = MUL;"),
    "the body of a macro with parameters": ("#define F(x) (x)", "#define F(x) ((x))", "F(a);"),
    "a function became a macro": ("int f(int n);", "#define f(n) (n)", "b = f(a);"),
    "one of two definitions under #if": (
        "#ifdef A\n#define N 1\n#else\n#define N 2\n#endif",
        "#ifdef A\n#define N 1\n#else\n#define N 3\n#endif",
        "b = N;",
    ),
    "a declaration of the function itself": ("void f(int n);", "void f(float n);", "void f(int n);"),
}


@pytest.mark.parametrize("case", SAME)
def test_what_is_as_before_is_not_reported(case):
    assert changes(*SAME[case]) == ()


def test_a_call_that_the_patch_adapted_is_not_reported():
    old, new = "void f(int n);", "void f(int n, int m);"
    assert changes(old, new, "f(a);", "f(a, b);") == ()
    assert changes(old, new, "f(a);") != ()


def test_code_that_the_patch_does_not_touch_is_not_reported():
    assert changes("void old();", "void old(int n);", "g();") == ()


def test_a_file_that_is_not_included_declares_nothing():
    other = "ggml/src/ggml-cuda/other.cuh"
    code = b"void run() {\n    f(1);\n}\n"
    trees = [UpstreamFiles({FILE: b"void run() {\n}\n", other: text}) for text in (b"void f(int n);", b"")]
    uses = list_uses(FILE, b"void run() {\n}\n", code)
    assert CompareDeclarations(*trees).changes(uses, uses) == ()


def test_a_file_that_is_gone_is_not_compared():
    code = b"void f(int n);\nvoid run() {\n    f(1);\n}\n"
    trees = [UpstreamFiles({FILE: b"void f(int n);\nvoid run() {\n}\n"}), UpstreamFiles({HEADER: b""})]
    uses = list_uses(FILE, b"void f(int n);\nvoid run() {\n}\n", code)
    assert CompareDeclarations(*trees).changes(uses, None) == ()


def test_a_declaration_that_another_patch_adds_is_not_upstreams():
    before, code = (
        b'#include "common.cuh"\nvoid run() {\n}\n',
        b'#include "common.cuh"\nvoid run() {\n    f(1);\n}\n',
    )
    old, new = (UpstreamFiles({FILE: before, HEADER: b"int n;\n" + text}) for text in (b"", b"int m;\n"))
    old.write(
        {HEADER: b"int n;\nvoid f(int n);\n"}
    )  # the patch that adds it is not placed on the new upstream
    uses = list_uses(FILE, before, code)
    assert CompareDeclarations(old, new).changes(uses, uses) == ()


def test_a_member_that_the_series_adds_is_not_upstreams_even_if_upstream_has_the_word():
    code = b'#include "common.cuh"\nvoid run(ctx_t & ctx) {\n    int v = ctx.major;\n}\n'
    before = code.replace(b"    int v = ctx.major;\n", b"")
    text = b"// the major version\nstruct ctx_t { int device; };\n"
    old, new = (UpstreamFiles({FILE: before, HEADER: text + more}) for more in (b"", b"int m;\n"))
    old.write({HEADER: text.replace(b"device;", b"device; int major;")})
    uses = list_uses(FILE, before, code)
    assert CompareDeclarations(old, new).changes(uses, None) == ()


def test_parameters_that_the_series_changes_are_not_upstreams():
    code = b'#include "common.cuh"\nvoid run() {\n    f(1, 2);\n}\n'
    before = code.replace(b"    f(1, 2);\n", b"")
    text = b"void f(int n);\n"
    old, new = (UpstreamFiles({FILE: before, HEADER: text + more}) for more in (b"", b"int m;\n"))
    old.write({HEADER: b"void f(int n, int m);\n"})
    uses = list_uses(FILE, before, code)
    assert CompareDeclarations(old, new).changes(uses, None) == ()


def test_a_member_of_an_unnamed_struct_has_the_name_of_its_typedef():
    old, new = "typedef struct {\n    int ncols;\n} args_t;", "typedef struct {\n    int ne00;\n} args_t;"
    (found,) = changes(old, new, "args_t args; b = args.ncols;")
    assert (found.name, found.how, found.is_gone) == ("args_t::ncols", "which args_t no longer has", True)


def test_the_name_of_a_table_that_the_patch_extends_is_no_use_of_it():
    before, after = (
        b"static const int TABLE[] = { 1, 2 };\n",
        b"static const int TABLE[] = { 1, 2, EXTRA };\n",
    )
    assert [use.name for use in list_uses(FILE, before, after)] == ["EXTRA"]


def test_a_member_that_another_struct_still_has_is_gone_if_nothing_is_inherited():
    other = "\nstruct other_t { int n_rot; };"
    old = "struct ctx_t { int n_rot; };" + other
    (found,) = changes(old, "struct ctx_t { int n; };" + other, "b = ctx.n_rot;")
    assert (found.name, found.is_gone) == ("ctx_t::n_rot", True)
    assert changes(old, "struct ctx_t : other_t { int n; };" + other, "b = ctx.n_rot;") == ()


def test_a_member_of_a_member_of_the_own_class_is_known():
    more = "\nstruct graph_t { const params_t & params; };\nstruct other_t { int heads; };"
    old = "struct params_t { int heads; };" + more
    (found,) = changes(old, "struct params_t { int heads() const; };" + more, "b = params.heads;")
    assert (found.name, found.how, found.is_gone) == ("params_t::heads", "which is a function now", True)


def test_a_member_of_a_pointer_type_is_that_of_its_struct():
    more = "\nstruct other_t { bool fast; };\ntypedef struct ctx_s * ptr_t;"
    old, new = (f"struct ctx_s {{ bool {name}; }};{more}" for name in ("fast", "slow"))
    (found,) = changes(old, new, "ptr_t p = 0; p->fast = true;")
    assert found.name == "ctx_s::fast"


def test_a_method_that_is_called_without_an_object_is_that_of_the_only_class_that_has_it():
    old, new = (f"struct graph_t {{ int attn(int q, {kv}); }};" for kv in ("int k", "int k, int v"))
    (found,) = changes(old, new, "b = attn(a, b);")
    assert (found.name, found.how) == ("graph_t::attn", "which can no longer be called with 2 arguments")
    other = "\nstruct other_t { int attn(int q, int k); };"
    assert changes(old + other, new + other, "b = attn(a, b);") == ()


def test_a_struct_in_an_objective_c_file_is_known_by_the_type_of_an_imported_header():
    path, header = "ggml/src/ggml-metal/context.m", "ggml/src/ggml-metal/context.h"
    text = '#import "context.h"\nstruct ctx_s { bool %s; };\nvoid run(ctx_t ctx) {\n}\n'
    before, now = ((text % name).encode() for name in ("fast", "slow"))
    trees = [
        UpstreamFiles({path: data, header: b"typedef struct ctx_s * ctx_t;\n"}) for data in (before, now)
    ]
    uses = list_uses(path, before, before.replace(b"ctx) {\n", b"ctx) {\n    ctx->fast = true;\n"))
    (found,) = CompareDeclarations(*trees).changes(uses, None)
    assert found.name == "ctx_s::fast"

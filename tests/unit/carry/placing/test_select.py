"""What each selector word covers."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter
from sources import read

from patchkit.carry.placing.select import select
from patchkit.carry.series.selector import Selector

KERNEL = """\
#include "common.cuh"

template <int D, int ncols>
__launch_bounds__(ncols*32, 1)
static __global__ void kernel(const float * x, float * dst) {
    constexpr int warp = 32;
#pragma unroll
#pragma clang loop vectorize(disable)
    for (int i = 0; i < D; ++i) {
        dst[i] = scale<D, 2>(x[i], pair<int, int>(1, 2));
    }
#pragma once
    if (warp < D && dst[0] > 1) {
        scale(x[0], a < b, c > d, pair<int, int>);
    }
    while (check()) { }
    if () { }
#ifdef FAST
    fast();
#elif defined(SLOW) && 1
    slow();
#else
#endif
}

static const cfg table[] = {
    CFG(64,  32, 1)
    CFG(128, 32, 1)
    { 64, 16 },
    { 128, 16, 2 },
};

void empty() { }
"""


def covered(selector, function=None, text=KERNEL):
    scopes = read(text)
    entity = next((e for e in scopes.entities if e.name == function), None)
    spans = select(scopes, entity, TypeAdapter(Selector).validate_python(selector))
    return [scopes.source.text(span).decode() for span in spans]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({"tokens": "warp"}, ["warp", "warp"]),
        ({"tokens": "nothing"}, []),
        ({"tokens": "i", "inside": {"condition": "i"}}, []),
        ({"tokens": "warp", "inside": {"condition": "warp"}}, ["warp"]),
        ({"statement": "constexpr int warp"}, ["constexpr int warp = 32;"]),
        ({"call": "__launch_bounds__"}, ["__launch_bounds__(ncols*32, 1)"]),
        ({"call": "kernel"}, []),
        ({"call": "scale", "inside": {"statement": "dst[i] ="}}, ["scale<D, 2>(x[i], pair<int, int>(1, 2))"]),
        ({"call": "warp"}, []),
        ({"call_arg": "pair<int, int>(1, 2)", "of": "scale"}, ["pair<int, int>(1, 2)"]),
        ({"call_arg": "pair<int, int>", "of": "scale"}, ["pair<int, int>"]),
        ({"call_arg": "x[...]", "of": "scale"}, ["x[i]", "x[0]"]),
        ({"call_arg": "x", "of": "scale"}, []),
        ({"call_arg": "x", "of": "check"}, []),
        ({"condition": "warp < D"}, ["warp < D && dst[0] > 1"]),
        ({"condition": "check"}, ["check()"]),
        ({"template_params": "int ncols"}, ["int ncols"]),
        ({"group": "ifdef FAST"}, ["    fast();\n"]),
        ({"group": "elif defined(SLOW) && 1"}, ["    slow();\n"]),
        ({"group": "else"}, [""]),
        ({"group": "ifdef SLOW"}, []),
        ({"before": {"tokens": "warp < D"}}, [""]),
        ({"between": [{"tokens": "x[0], a < b"}, {"tokens": ", pair<int, int>)"}]}, [", c > d"]),
    ],
)
def test_in_a_function(selector, found):
    assert covered(selector, "kernel") == found


def test_a_statement_includes_the_pragmas_tied_to_it_and_no_others():
    (loop,) = covered({"statement": "for (int i"}, "kernel")
    assert loop.startswith("#pragma unroll\n#pragma clang loop")
    (branch,) = covered({"statement": "if (warp"}, "kernel")
    assert branch.startswith("if (warp")


def test_before_and_after_are_the_two_empty_ends():
    scopes = read("a; b; c;")
    before, after = (
        select(scopes, None, TypeAdapter(Selector).validate_python({word: {"tokens": "b;"}}))
        for word in ("before", "after")
    )
    assert [(span.start, span.end) for span in (*before, *after)] == [(3, 3), (5, 5)]


def test_a_body_is_its_lines_or_what_is_between_its_braces():
    assert covered({"body": True}, "empty") == [" "]
    (body,) = covered({"body": True}, "kernel")
    assert body.startswith("    constexpr int warp")
    assert body.endswith("#endif")
    assert covered({"body": True}, "f", "void f() { a;\n}\n") == [" a;\n"]
    assert covered({"body": True}, "f", "void f() {\n}\n") == [""]
    assert covered({"body": True}, text="int a;") == ["int a;"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({"table_row": "64", "of": "CFG"}, ["CFG(64,  32, 1)"]),
        ({"table_row": "64, 32, 1", "of": "CFG"}, ["CFG(64,  32, 1)"]),
        ({"table_row": "32", "of": "CFG"}, []),
        ({"table_row": "6", "of": "CFG"}, []),
        ({"table_row": "64", "of": "{}"}, ["{ 64, 16 }"]),
        ({"table_row": "128, 16", "of": "{}"}, ["{ 128, 16, 2 }"]),
        ({"table_row": "128", "of": "OTHER"}, []),
        ({"template_params": "int D"}, ["int D"]),
        ({"group": "ifdef FAST"}, ["    fast();\n"]),
    ],
)
def test_in_the_file(selector, found):
    assert covered(selector) == found


def test_one_place_is_covered_once_however_often_it_matches():
    assert covered({"statement": "warp"}, "f", "void f() { warp = warp + warp; }") == ["warp = warp + warp;"]


def test_a_comparison_is_no_template_argument_list():
    text = "void f() { if (g < (1) || h > (2)) { x; } y = g < h; }"
    assert covered({"call": "g"}, "f", text) == []
    assert covered({"call_arg": "a < b", "of": "k"}, "f", "void f() { k(a < b, c); }") == ["a < b"]


def test_a_call_cut_off_by_its_domain_is_none():
    text = "void f() { g(1, 2); }"
    inside = {"tokens": "g(1"}
    assert covered({"call": "g", "inside": inside}, "f", text) == []
    assert covered({"call": "g", "inside": {"tokens": "g"}}, "f", text) == []
    assert covered({"condition": "a", "inside": {"tokens": "if"}}, "f", "void f() { if (a) b; }") == []
    assert covered({"call": "g", "inside": {"tokens": "g<1"}}, "f", "void f() { g<1>(2); }") == []


def test_if_constexpr_has_a_condition():
    assert covered({"condition": "a"}, "f", "void f() { if constexpr (a && b) c; }") == ["a && b"]

"""Exactly count places in exactly one entity, or an error that shows both files."""

from __future__ import annotations

import pytest
from refusing import refused
from sources import read

from patchkit.base.errors import Location
from patchkit.carry.placing.resolve import EntityNotFound, find_entity, resolve_anchor

PATH = "ggml/src/ggml-cuda/t.cu"
HERE = "patches/0001-p/patch.toml:7:1"

TWINS = """\
static void scale_half(const half * x, half * dst, int n) {
    const int i = index();
    if (i >= n) {
        return;
    }
    dst[i] = x[i];
}

static void scale_float(const float * x, float * dst, int n) {
    const int i = index();
    if (i >= n) {
        return;
    }
    dst[i] = x[i];
}

static void overload(int a) {
    a;
}

static void overload(float a) {
    a;
}

#ifdef FAST
static void branched(int a, int fast) { a; }
#else
static void branched(int a) { a; }
#endif
"""


def scopes(text=TWINS):
    return read(text, PATH)


def places(error):
    return [str(place) for place in error.where]


def test_no_match_in_the_file_tells_the_nearest_line(edit):
    with refused("ANCHOR_NOT_FOUND") as caught:
        resolve_anchor(scopes(), edit({"tokens": "dst[k] = x[i]"}))
    assert f"{PATH}:6:5" in places(caught.value)


@pytest.mark.parametrize(
    ("at", "text"),
    [
        ({"call": "gone"}, "gone"),
        ({"call_arg": "gone", "of": "index"}, "gone"),
        ({"condition": "gone"}, "gone"),
        ({"template_params": "gone"}, "gone"),
        ({"group": "ifdef GONE"}, "ifdef GONE"),
        ({"table_row": "gone", "of": "{}"}, "gone"),
        ({"table_row": "1", "of": "GONE"}, "GONE(1"),
        ({"before": {"tokens": "gone"}}, "gone"),
        ({"after": {"tokens": "gone"}}, "gone"),
        ({"between": [{"tokens": "gone"}, {"tokens": "x"}]}, "gone"),
        ({"between": [{"tokens": "const int i"}, {"tokens": "gone"}]}, "gone"),
        ({"tokens": "x", "inside": {"between": [{"tokens": "gone"}, {"tokens": "x"}]}}, "gone"),
        ({"after": {"between": [{"tokens": "gone"}, {"tokens": "x"}]}}, "gone"),
    ],
)
def test_every_word_says_what_it_looked_for(edit, at, text):
    with refused("ANCHOR_NOT_FOUND") as caught:
        resolve_anchor(scopes(), edit(at, function="scale_half"))
    assert caught.value.why == f"the tokens '{text}' do not occur there"


_STORE, _LIKE = "    dst[i] = x[i];", "    dst[i] = 2*x[i];"


@pytest.mark.parametrize(
    ("at", "why", "line", "label"),
    [
        ({"lines": _LIKE}, f"the line '{_LIKE.strip()}'", 6, "dst[i] = x[i];, expected dst[i] = 2*x[i];"),
        (
            {"lines": _LIKE, "above": "        return;\n    }", "below": "}"},
            f"the line '{_LIKE.strip()}', directly below '}}' and above '}}'",
            6,
            "dst[i] = x[i];, expected dst[i] = 2*x[i];",
        ),
        (
            {"lines": _STORE, "above": "    other();"},
            f"the line '{_STORE.strip()}', directly below 'other();'",
            5,
            "}, expected other();",
        ),
        ({"lines": "    nothing(of, it);\n    more();\n"}, "2 lines from 'nothing(of, it);' on", None, ""),
    ],
)
def test_lines_that_are_not_there_are_named_with_the_nearest_place(edit, at, why, line, label):
    with refused("ANCHOR_NOT_FOUND") as caught:
        resolve_anchor(scopes(), edit(at, function="scale_half"))
    assert caught.value.why == f"it looks for {why}"
    found = [(place.line, place.label) for place in caught.value.where if "nearest" in (place.label or "")]
    assert found == ([(line, f"nearest place: {label}")] if line is not None else [])
    there = "if the nearest place is the right one"
    assert caught.value.hint.startswith(there if line is not None else "nothing in 'scale_half' is similar")


def test_an_end_of_between_must_be_one_place(edit):
    at = {"tokens": "i", "inside": {"between": [{"tokens": "{"}, {"tokens": "dst[i] ="}]}}
    with refused("ANCHOR_AMBIGUOUS") as caught:
        resolve_anchor(scopes(), edit(at, function="scale_half"))
    assert "the first end of 'between' in edit 'my-edit' matches 2 places" in caught.value.message
    assert places(caught.value) == [HERE, f"{PATH}:1:59", f"{PATH}:3:17"]


def test_between_ends_in_the_wrong_order_cover_nothing(edit):
    at = {"between": [{"tokens": "dst[i] ="}, {"tokens": "const int i"}]}
    with refused("ANCHOR_NOT_FOUND"):
        resolve_anchor(scopes(), edit(at, function="scale_half"))


def test_a_function_that_is_like_nothing_may_have_been_renamed(edit):
    with pytest.raises(EntityNotFound) as caught:
        resolve_anchor(scopes(), edit({"tokens": "a"}, function="zzzzzz"))
    assert places(caught.value) == [HERE, PATH]
    assert caught.value.why is not None
    assert "renamed" in caught.value.why


def test_parameters_that_no_twin_has_show_the_twins(edit):
    with pytest.raises(EntityNotFound) as caught:
        resolve_anchor(scopes(), edit({"tokens": "a"}, function="overload", parameters="double a"))
    assert "'overload' with parameters like 'double a'" in caught.value.message
    assert places(caught.value)[2:] == [f"{PATH}:17:1", f"{PATH}:21:1"]


def test_a_name_may_be_given_by_its_last_components():
    found = find_entity(scopes("namespace a { void f() { } }"), "f", None, Location(path="p"))
    assert found.name == "a::f"


def test_a_macro_is_an_entity_and_a_record_is_not(edit):
    text = "#define SIZE 1\nstruct cfg { int SIZE2; };\n"
    assert resolve_anchor(scopes(text), edit({"body": True}, function="SIZE")).entity_name == "SIZE"
    with pytest.raises(EntityNotFound):
        resolve_anchor(scopes(text), edit({"body": True}, function="cfg"))


def test_an_edit_without_selector_has_no_spans(edit):
    anchor = resolve_anchor(scopes(), edit(None))
    assert (anchor.spans, anchor.digest, anchor.entity_name) == ((), "", "(file)")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_newline_behind_the_last_line_of_a_group_is_not_covered(edit, newline):
    text = newline.join(["#ifdef A", "  a;", "#endif", ""])
    (span,) = resolve_anchor(scopes(text), edit({"group": "ifdef A"})).spans
    assert scopes(text).source.text(span) == b"  a;"


def test_long_lines_are_cut_in_messages(edit):
    text = "void f() { a; } // " + "x" * 500 + "\nvoid g() { a; }\n"
    with refused("ANCHOR_AMBIGUOUS") as caught:
        resolve_anchor(scopes(text), edit({"tokens": "a;"}))
    assert max(len(place.label or "") for place in caught.value.where) == 100


def test_a_selector_without_a_pattern_says_so(edit):
    at = {"before": {"between": [{"body": True}, {"body": True}]}}
    with refused("ANCHOR_NOT_FOUND") as caught:
        resolve_anchor(scopes("void f() { a; }"), edit(at, function="f"))
    assert caught.value.why == "the selector matches nothing"

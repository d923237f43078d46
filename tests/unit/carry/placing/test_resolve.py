"""Exactly count places in exactly one entity, or an error that shows both files."""

from __future__ import annotations

import pytest
from refusing import refused
from sources import read

from patchkit.base.errors import Location
from patchkit.carry.placing.resolve import EntityAmbiguous, EntityNotFound, find_entity, resolve_anchor

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


def test_an_anchor_lies_in_the_function_it_names_and_never_in_its_neighbour(edit):
    for function, line in (("scale_half", 6), ("scale_float", 14)):
        anchor = resolve_anchor(scopes(), edit({"statement": "dst[i] = x[i]"}, function=function))
        (span,) = anchor.spans
        assert scopes().source.line_of(span.start) == line
        assert anchor.entity_name == function
        assert len(anchor.digest) == 64


def test_two_matches_are_an_error_with_both_lines(edit):
    with refused("ANCHOR_AMBIGUOUS") as caught:
        resolve_anchor(scopes(), edit({"statement": "dst[i] = x[i]"}))
    assert places(caught.value) == [HERE, f"{PATH}:6:5", f"{PATH}:14:5"]
    assert "covers 2 places in 'the file', it declares 1" in caught.value.message
    assert caught.value.where[1].label == "dst[i] = x[i];"


@pytest.mark.parametrize("count", [1, 3])
def test_the_count_is_exact(edit, count):
    chosen = edit({"tokens": "i"}, function="scale_half", count=count)
    with refused("ANCHOR_AMBIGUOUS") as caught:
        resolve_anchor(scopes(), chosen)
    assert f"covers 4 places in 'scale_half', it declares {count}" in caught.value.message
    assert len(resolve_anchor(scopes(), edit({"tokens": "i"}, function="scale_half", count=4)).spans) == 4


def test_no_match_names_the_places_elsewhere_and_the_similar_ones(edit):
    with refused("ANCHOR_NOT_FOUND") as caught:
        resolve_anchor(scopes(), edit({"statement": "const float * x, float * dst"}, function="scale_half"))
    labels = [place.label for place in caught.value.where]
    assert places(caught.value)[0] == HERE
    assert "'scale_half' begins here" in labels
    assert "the same tokens, but in 'scale_float'" in labels
    assert any(label is not None and label.startswith("similar: ") for label in labels)
    assert caught.value.why == "no tokens 'const float * x, float * dst' there"


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
    assert caught.value.why == f"no tokens '{text}' there"


def test_an_end_of_between_must_be_one_place(edit):
    at = {"tokens": "i", "inside": {"between": [{"tokens": "{"}, {"tokens": "dst[i] ="}]}}
    with refused("ANCHOR_AMBIGUOUS") as caught:
        resolve_anchor(scopes(), edit(at, function="scale_half"))
    assert "the first end of 'between' in edit 'my-edit' covers 2 places" in caught.value.message
    assert places(caught.value) == [HERE, f"{PATH}:1:59", f"{PATH}:3:17"]


def test_between_ends_in_the_wrong_order_cover_nothing(edit):
    at = {"between": [{"tokens": "dst[i] ="}, {"tokens": "const int i"}]}
    with refused("ANCHOR_NOT_FOUND"):
        resolve_anchor(scopes(), edit(at, function="scale_half"))


def test_a_missing_function_names_the_nearest(edit):
    with pytest.raises(EntityNotFound) as caught:
        resolve_anchor(scopes(), edit({"tokens": "a"}, function="scale_haf"))
    assert places(caught.value)[:3] == [HERE, PATH, f"{PATH}:1:1"]
    assert caught.value.where[2].label == "defines 'scale_half'"
    assert caught.value.why == "these are the nearest definitions"


def test_a_function_that_is_like_nothing_may_have_been_renamed(edit):
    with pytest.raises(EntityNotFound) as caught:
        resolve_anchor(scopes(), edit({"tokens": "a"}, function="zzzzzz"))
    assert places(caught.value) == [HERE, PATH]
    assert caught.value.why is not None
    assert "renamed" in caught.value.why


@pytest.mark.parametrize(("name", "lines"), [("overload", [17, 21]), ("branched", [26, 28])])
def test_twins_need_parameters(edit, name, lines):
    with pytest.raises(EntityAmbiguous) as caught:
        resolve_anchor(scopes(), edit({"tokens": "a;"}, function=name))
    assert places(caught.value) == [HERE, *(f"{PATH}:{line}:1" for line in lines)]
    assert caught.value.hint is not None
    assert "'parameters'" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "parameters", "line"),
    [
        ("overload", "float a", 22),
        ("overload", "int a", 18),
        ("branched", "int fast", 26),
        ("branched", "(int a)", 28),
    ],
)
def test_parameters_pick_one_twin(edit, name, parameters, line):
    anchor = resolve_anchor(scopes(), edit({"statement": "a;"}, function=name, parameters=parameters))
    assert scopes().source.line_of(anchor.spans[0].start) == line


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
    assert caught.value.why == "the selector covers nothing"

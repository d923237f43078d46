"""After the edit: in its entity, its twins untouched, and clang agrees."""

from __future__ import annotations

import contextlib

import pytest
from refusing import refused
from sources import read

from patchkit.base.errors import AnchorError
from patchkit.base.source import Span
from patchkit.carry.cpp.ast import Definition, ParseIssue, Tree, parse_tree
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.placing.confirm import (
    EditUnparsable,
    confirm_entities,
    confirm_passes,
)
from patchkit.carry.placing.expand import Applied, Placement, apply_placements
from patchkit.carry.placing.resolve import resolve_anchor

SOURCE = """\
#define SIZE 4
struct s { int get() { return a; } int a; };
void twin(int a) { b(a); }
[[maybe_unused]] static void twin(float a) { b(a); }
"""


@pytest.fixture
def confirm(edit, here):
    """Replaces the first ``old`` behind ``after`` by ``new`` on behalf of an edit of ``function``."""

    def run(old, new, function=None, after="", **fields):
        before = read(SOURCE)
        start = SOURCE.index(old, SOURCE.index(after))
        chosen = edit(None, function=function, **{"side": "host", **fields})
        anchor = resolve_anchor(before, chosen)
        placement = Placement(
            span=Span(start, start + len(old)), replacement=new.encode(), edit="my-edit", where=here
        )
        applied = apply_placements(before.source, [placement])
        scopes = parse_scopes(applied.after)
        confirm_entities(before, scopes, applied, [(anchor, applied.spans)])
        trees = [
            {
                (which, "gfx1151"): parse_tree("t.cu", {"t.cu": text.data}, arch="gfx1151", which=which)
                for which in ("host", "device")
            }
            for text in (before.source, applied.after)
        ]
        return confirm_passes(scopes, [(anchor, applied.spans)], *trees)[0]

    return run


def test_an_edit_in_its_function_is_confirmed_by_both_passes(confirm):
    assert confirm("b(a)", "c(a)", "twin", parameters="int a") == ("device gfx1151", "host gfx1151")


def test_an_edit_of_the_file_or_of_a_macro_is_confirmed_by_tokens(confirm):
    assert confirm("4", "8") == confirm("4", "8", "SIZE") == ()


def test_an_edit_of_the_first_token_or_behind_an_attribute_is_in_its_function(confirm):
    assert confirm("void", "#if 1\nint\n#else\nvoid\n#endif\n", "twin", "void twin", parameters="int a")
    assert confirm("[[maybe_unused]]", "[[x]]", "twin", parameters="float a")


def test_a_method_goes_by_its_own_name(confirm):
    assert confirm("return a", "return b", "get") == ("device gfx1151", "host gfx1151")


def test_an_edit_that_lands_in_the_twin_is_misplaced_or_touches_it(confirm):
    with pytest.raises(AnchorError) as caught:
        confirm("b(a)", "c(a)", "twin", "float", parameters="int a")
    assert caught.value.code in ("EDIT_MISPLACED", "TWIN_TOUCHED")
    assert caught.value.where[1].line == 4 or caught.value.where[0].line == 4


def test_an_edit_outside_its_function_is_misplaced(confirm):
    with refused("EDIT_MISPLACED") as caught:
        confirm("4", "8", "twin", parameters="int a")
    assert caught.value.where[1].label == "the edit is here"


@pytest.mark.parametrize(
    ("new", "names"),
    [("4\nvoid extra() { }", "extra"), ("4\nstruct s2 { };", "s2")],
)
def test_definitions_that_appear_are_named(confirm, new, names):
    with refused("TWIN_TOUCHED") as caught:
        confirm("4", new)
    assert names in caught.value.message


def test_definitions_that_change_places_are_no_new_ones(confirm):
    moved = "#define SIZE 4\nvoid twin(int a) { b(a); }\nstruct s { int get() { return a; } int a; };\n"
    with refused("TWIN_TOUCHED") as caught:
        confirm(SOURCE[: SOURCE.index("[[")], moved)
    assert "their order" in caught.value.message


def _passes(tree):
    return {("device", "gfx1151"): tree}


def _anchored(edit, **fields):
    scopes = read("void f() { a; }")
    anchor = resolve_anchor(scopes, edit({"tokens": "a"}, function="f", **fields))
    return scopes, [(anchor, list(anchor.spans))]


def test_a_pass_that_lacks_the_function_is_an_error_on_its_side_only(edit):
    scopes, anchored = _anchored(edit, side="device")
    empty = _passes(Tree((), (), ()))
    with refused("EDIT_MISPLACED") as caught:
        confirm_passes(scopes, anchored, empty, empty)
    assert "clang's device pass for gfx1151 does not have it" in caught.value.message
    scopes, anchored = _anchored(edit, side="host")
    assert confirm_passes(scopes, anchored, empty, empty) == ((),)


def test_issues_are_compared_by_how_often_they_occur(edit):
    scopes, anchored = _anchored(edit)
    definition = Definition("f", Span(0, 15), frozenset({"host", "device"}))
    issue = ParseIssue(3, "expected ';'")
    once, twice = Tree((definition,), (issue,), ()), Tree((definition,), (issue, issue), ())
    assert confirm_passes(scopes, anchored, _passes(twice), _passes(once))
    with pytest.raises(EditUnparsable):
        confirm_passes(scopes, anchored, _passes(once), _passes(twice))


@pytest.mark.parametrize(
    ("text", "touched"),
    [("void f() { a; }\nvoid g() { a; }", False), ("void f() { a; }\nvoid g() { b; }", True)],
)
def test_only_what_changed_without_an_edit_is_touched(edit, text, touched):
    before, after = read("void f() { a; }\nvoid g() { a; }"), read(text)
    anchor = resolve_anchor(before, edit({"tokens": "a"}, function="f"))
    applied = Applied(after=after.source, placements=(), spans=())
    with refused("TWIN_TOUCHED", match="'g' changed") if touched else contextlib.nullcontext():
        confirm_entities(before, after, applied, [(anchor, list(anchor.spans))])


def test_an_edit_for_a_side_that_the_function_does_not_run_on_is_refused(confirm):
    with refused("EDIT_WRONG_SIDE") as caught:
        confirm("b(a)", "c(a)", "twin", parameters="int a", side="device")
    assert caught.value.hint == 'use side = "host", or another function'


def test_an_edit_under_a_false_if_is_dead(edit):
    scopes, anchored = _anchored(edit, side="device")
    definition = Definition("f", Span(0, 15), frozenset({"device"}))
    live, dead = Tree((definition,), (), ()), Tree((definition,), (), (Span(5, 15),))
    assert confirm_passes(scopes, anchored, _passes(live), _passes(live))
    with refused("EDIT_DEAD"):
        confirm_passes(scopes, anchored, _passes(live), _passes(dead))

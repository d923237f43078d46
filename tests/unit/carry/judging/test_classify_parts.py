"""The parts of a classification, each on a few lines of code."""

from __future__ import annotations

import pytest
from refusing import refused

from patchkit.base.errors import AnchorError
from patchkit.base.reporter import NullReporter
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.judging.classes import Classified, Drift
from patchkit.carry.judging.derive import (
    Step,
    bare,
    compare_derivations,
    has_change,
    merge_file,
    revert_steps,
    same_tokens,
)
from patchkit.carry.judging.drift import align, find_drift, list_statements
from patchkit.carry.judging.follow import find_place, find_resemblances, near_place
from patchkit.carry.placing.tree import UpstreamFiles

QUIET = NullReporter()
BASE = b"int f(int x) {\n    int a = 1;\n    int b = 2;\n    int c = 3;\n    return a + b + c + x;\n}\n"


def scopes(text, path="a.cu"):
    return parse_scopes(SourceText(path, text))


def function(text, path="a.cu"):
    found = scopes(text, path)
    (entity,) = [each for each in found.entities if each.kind == "function"]
    return found, entity


def test_units_are_statements_and_directives_without_layout():
    found = scopes(b"#if A\nf( x ) ; // why\n#endif\ng() {\n}\n")
    statements = list_statements(found, Span(0, len(found.source.data)))
    assert statements.texts == ("# if A", "f ( x ) ;", "# endif", "g ( ) {", "}")
    assert statements.at(0) == 0
    assert statements.at(len(found.source.data)) is None


def test_an_alignment_has_equal_statements_and_corresponding_ranges():
    found = align(("a", "b", "c"), ("a", "x", "c"))
    assert found.same == {0: 0, 2: 2}
    assert found.changed == ((range(1, 2), range(1, 2)),)


def test_drift_is_in_tokens_not_in_layout():
    assert (
        find_drift(function(BASE), function(BASE.replace(b"    ", b"\t").replace(b";\n", b"; // x\n")))
        is None
    )
    drift = find_drift(function(BASE), function(BASE.replace(b"b = 2", b"b = 7")))
    assert (drift.entity, drift.removed, drift.added) == ("f", ("int b = 2;",), ("int b = 7;",))
    assert drift.before != drift.after


def test_a_long_drift_is_cut_with_a_note():
    other = b"int f(int x) {\n" + b"".join(b"    y%d();\n" % i for i in range(40)) + b"}\n"
    drift = find_drift(function(BASE), function(other))
    assert drift.added[-1].startswith("... and ")


def test_a_merge_without_and_with_a_conflict():
    theirs = BASE.replace(b"a = 1", b"a = 9")
    merged, conflicts = merge_file(BASE.replace(b"return a", b"return 0 + a"), BASE, theirs, QUIET)
    assert conflicts == 0
    assert b"a = 9" in merged
    assert b"return 0 + a" in merged
    assert merge_file(BASE.replace(b"a = 1", b"a = 5"), BASE, theirs, QUIET)[1] == 1
    assert merge_file(BASE, BASE, theirs, QUIET) == (theirs, 0)


def test_a_failing_git_merge_is_an_error_and_not_a_conflict():
    with refused("GIT_FAILED"):
        merge_file(b"a\0b\n", b"a\0c\n", b"a\0d\n", QUIET)


def test_both_derivations_agree_in_tokens_or_the_difference_is_shown():
    after = BASE.replace(b"a = 1", b"a = 9")
    upstream = BASE.replace(b"return a", b"return 0 + a")
    good = after.replace(b"return a", b"return 0 + a")
    files = {"a.cu": BASE}, {"a.cu": after}, {"a.cu": upstream}
    assert compare_derivations(*files, {"a.cu": good.replace(b"    ", b"  ")}, QUIET).verdict == "agree"
    other = compare_derivations(*files, {"a.cu": good.replace(b"a = 9", b"a = 8")}, QUIET)
    assert other.verdict == "differ"
    assert any(line.startswith("+    int a = 8") for line in other.lines)
    clash = {"a.cu": BASE.replace(b"a = 1", b"a = 5")}
    conflict = compare_derivations(files[0], files[1], clash, {"a.cu": good}, QUIET)
    assert (conflict.verdict, len(conflict.lines)) == ("does not apply", 1)
    assert same_tokens("a.cu", BASE, BASE.replace(b"    ", b"\t"))


GUARDED = b"""\
int f() {
#if defined(A) && defined(__gfx1151__)
    one();
#else
    two();
#endif
#if !(defined(A) && defined(__gfx1151__))
    three();
#endif
#if defined(B)
    four();
#endif
}
"""


def test_bare_code_keeps_our_side_of_guards_and_upstreams_own_ifs():
    text = bare("a.cu", GUARDED, frozenset({"defined(A) && defined(__gfx1151__)"})).decode()
    assert text == "int f() {\n    one();\n#if defined(B)\n    four();\n#endif\n}\n"


@pytest.mark.parametrize(("intent", "last"), [("", []), ("Count\nagain.\n", ["  intent: Count again."])])
def test_a_conflict_shows_the_failed_edit_before_what_upstream_changed(intent, last):
    conflict = Classified(
        id="one",
        title="one",
        intent=intent,
        patch_class="conflict",
        reason="an edit cannot be placed",
        drift=(Drift(file="a.cu", entity="f", before="", after="", removed=("int a ;",), added=()),),
        problems=(AnchorError("edit 'e' finds no place", code="ANCHOR_NOT_FOUND"),),
    )
    assert list(conflict.lines("b2")) == [
        "b2 one: conflict: an edit cannot be placed",
        "  ANCHOR_NOT_FOUND: edit 'e' finds no place",
        "  changed upstream: f in a.cu",
        "    - int a ;",
        *last,
    ]


def step(name, before, after):
    return Step(id=name, before={"a.cu": before}, after={"a.cu": after}, conditions=())


def test_overlapping_patches_are_reverted_from_the_last_to_the_first():
    first = BASE.replace(b"b = 2", b"b = 20")
    second = first.replace(b"b = 20", b"b = 200")
    steps = [step("first", BASE, first), step("second", first, second)]
    found = revert_steps(steps, {"a.cu": second.replace(b"+ x", b"- x")}, QUIET)
    assert [name for name, _ in found.found] == ["first", "second"]
    assert found.files["a.cu"] == BASE.replace(b"+ x", b"- x")
    assert revert_steps(steps, {"a.cu": BASE}, QUIET).found == ()


def test_a_partly_merged_patch_is_not_reverted():
    both = Step(
        id="both",
        before={"a.cu": BASE, "b.cu": BASE},
        after={"a.cu": BASE.replace(b"1", b"10"), "b.cu": BASE.replace(b"2", b"20"), "new.cuh": b"int n;\n"},
        conditions=(),
    )
    whole = dict(both.after)
    assert [name for name, _ in revert_steps([both], whole, QUIET).found] == ["both"]
    assert revert_steps([both], whole, QUIET).files["new.cuh"] is None
    for path, data in (("b.cu", BASE), ("new.cuh", b"int other;\n")):
        assert revert_steps([both], whole | {path: data}, QUIET).found == ()


def test_a_partly_merged_change_does_not_count():
    far = BASE + b"int y;\n" * 9 + BASE.replace(b"f(", b"g(")
    made = far.replace(b"a = 1", b"a = 10").replace(b"+ x", b"- x")
    newer = made.replace(b"int y;\nint y;\nint y;\nint g", b"int y;\nlong y;\nint y;\nint g")
    assert has_change("a.cu", newer, far, made, QUIET)
    half = newer.replace(b"a = 10", b"a = 1", 1)
    for ours in (half, far, newer.replace(b"- x", b"* x"), None):
        assert not has_change("a.cu", ours, far, made, QUIET)
    assert has_change("a.cu", b"int n; // more\n", None, b"int n;\n", QUIET)
    assert not has_change("a.cu", b"int m;\n", None, b"int n;\n", QUIET)
    assert not has_change("a.cu", BASE, BASE, None, QUIET)


def upstream(**names):
    """An older upstream with functions of these names in a.cu, b.cu and so on."""
    code = {
        f"{file}.cu": b"".join(b"int %s() {\n}\n" % name for name in found) for file, found in names.items()
    }
    return UpstreamFiles(code)


def target_of(files, **names):
    return find_place(function(BASE), upstream(**names), UpstreamFiles(files))


def test_a_function_is_followed_only_to_a_single_match():
    renamed = BASE.replace(b"int f(", b"int g(")
    had = {"a": [b"f"], "b": [b"h"]}
    assert target_of({"a.cu": renamed}, **had).function == "g"
    assert target_of({"a.cu": renamed + BASE.replace(b"int f(", b"int k(")}, **had) is None
    assert target_of({"a.cu": b"", "b.cu": BASE}, **had).file == "b.cu"
    assert target_of({"a.cu": b"", "b.cu": BASE, "c.cu": BASE}, **had) is None
    # The same name with other code is a different function.
    assert target_of({"a.cu": b"", "b.cu": BASE.replace(b"int b = 2;", b"if (x) { y(); }")}, **had) is None
    assert target_of({"a.cu": b"", "b.cu": BASE}, a=[], b=[b"f"]) is None
    assert target_of({"a.cu": renamed}, a=[b"f", b"g"]) is None


def test_similar_functions_are_named_with_their_share():
    other = scopes(BASE.replace(b"int f(", b"int g(").replace(b"c = 3", b"c = 4"))
    (found,) = find_resemblances(function(BASE), upstream(a=[b"f"]), [other])
    assert (found.where.line, "'g' has" in found.where.label) == (1, True)
    far = scopes(b"int g(int x) {\n    while (x) {\n        y();\n    }\n    z();\n}\n")
    assert find_resemblances(function(BASE), upstream(a=[b"f"]), [far]) == ()


LONG = (
    b"int f(int x) {\n"
    + b"".join(b"    x = step_%d(x);\n" % number for number in range(30))
    + b"    return x;\n}\n"
)


def alike(*others):
    new = scopes(b"\n".join(others))
    return find_resemblances(function(LONG), upstream(a=[b"f"]), [new])


def test_a_near_place_is_the_only_one_with_nearly_all_of_the_code():
    near = LONG.replace(b"int f(", b"int g(").replace(b"step_7", b"step_77")
    assert near_place(alike(near)).function == "g"
    assert near_place(alike(near, near.replace(b"int g(", b"int h("))) is None
    far = near
    for number in range(8, 16):
        far = far.replace(b"step_%d(" % number, b"other_%d(" % number)
    assert [each.function for each in alike(far)] == ["g"]
    assert near_place(alike(far)) is None


def test_a_rename_alone_is_no_drift():
    renamed = function(BASE.replace(b"int f(", b"int g("))
    assert find_drift(function(BASE), renamed) is None
    assert find_drift(
        function(BASE), function(BASE.replace(b"int f(", b"int g(").replace(b"b = 2", b"b = 7"))
    )


LOGO, NEW_LOGO = b"\x89PNG\0", b"\x89PNG\0\1"
FILES = Step(
    id="files",
    before={
        "a.cu": BASE,
        "b.cu": BASE,
        "logo.png": LOGO,
        "old.cu": BASE,
        "new.cu": BASE,
        "run.sh": b"echo\n",
    },
    after={
        "logo.png": NEW_LOGO,
        "new.cu": BASE.replace(b"a = 1", b"a = 9"),
        "run.sh": b"echo\n",
        "ours.png": LOGO,
    },
    conditions=(),
    gone=("b.cu", "old.cu"),
    renamed={"new.cu": "old.cu"},
    replaced=("logo.png",),
    modes={"run.sh": "100755"},
)
LATER = {**FILES.after, "new.cu": FILES.after["new.cu"].replace(b"+ x", b"- x"), "run.sh": b"echo more\n"}


def taken_from(upstream, mode="100755"):
    return revert_steps([FILES], upstream, QUIET, lambda path: mode if path == "run.sh" else "100644")


def test_whole_file_changes_that_upstream_has_are_reverted():
    found = taken_from(LATER)
    assert found.found == (("files", "guarded"),)
    assert found.files == {
        "b.cu": BASE,
        "logo.png": LOGO,
        "new.cu": None,
        "old.cu": BASE.replace(b"+ x", b"- x"),
        "run.sh": b"echo more\n",
        "ours.png": None,
    }
    assert found.modes == {"run.sh": "100644"}


@pytest.mark.parametrize(
    "other",
    [
        {"b.cu": BASE},
        {"old.cu": BASE},
        {"new.cu": BASE},
        {"new.cu": b"int other;\n" * 9},
        {"new.cu": None},
        {"new.cu": b"\0" + BASE},
        {"logo.png": LOGO},
        {"logo.png": b"\0other"},
        {"ours.png": b"\0other"},
    ],
)
def test_partial_whole_file_changes_are_not_reverted(other):
    upstream = {path: data for path, data in {**LATER, **other}.items() if data is not None}
    assert taken_from(upstream).found == ()


def test_a_mode_that_upstream_lacks_is_not_reverted():
    assert taken_from(LATER, mode="100644").found == ()


def test_both_derivations_of_a_binary_file_and_of_a_renamed_one():
    before = {"logo.png": LOGO, "new.cu": BASE}
    after = {"logo.png": NEW_LOGO, "new.cu": BASE.replace(b"a = 1", b"a = 9")}
    current = before | {"new.cu": BASE.replace(b"+ x", b"- x")}
    structural = after | {"new.cu": after["new.cu"].replace(b"+ x", b"- x")}
    assert compare_derivations(before, after, current, structural, QUIET).verdict == "agree"
    binary = current | {"new.cu": b"\0" + BASE}
    assert compare_derivations(before, after, binary, structural, QUIET).verdict == "does not apply"


def test_the_change_of_a_pull_request_to_whole_files():
    assert has_change("gone.cu", None, BASE, None, QUIET)
    assert not has_change("gone.cu", BASE, BASE, None, QUIET)
    assert has_change("logo.png", NEW_LOGO, LOGO, NEW_LOGO, QUIET)
    assert not has_change("logo.png", LOGO, LOGO, NEW_LOGO, QUIET)

"""Lifting changes to edits of whole lines: their size, and their selectors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from refusing import refused

from patchkit.base.errors import Location
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.lifting.draft import Draft, NotLifted, apply_drafts
from patchkit.carry.lifting.lines import lift_lines
from patchkit.carry.placing.expand import apply_placements
from patchkit.carry.placing.plain import expand_plain
from patchkit.carry.placing.resolve import resolve_anchor
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selector import Selector

CODE = """\
#include <cstdint>
#include "one.h"

struct params {
    int first  = 1; // a comment
    int second = 2;
};

static int helper(int x) {
    return x + 1; // one more
}

#define TWICE(x) (2 * (x))

int f(int x, int y) {
    // what comes first
    if (x > y) {
        log_it("greater", x, y);
        return helper(x);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        log_it("step", i, i);
    }
    log_it("greater", x, y);
    return y;
}
"""


def placed(data: bytes, drafts: tuple[Draft, ...], path: str) -> bytes:
    """The file with the drafts applied, placed again by their selectors as edits of a plain patch."""
    source = SourceText(path, data)
    placements = []
    for number, draft in enumerate(drafts):
        edit = Edit(
            id=f"edit-{number}",
            file=path,
            function=draft.function,
            parameters=draft.parameters,
            at=draft.selector,
            verb=draft.verb,
            text=draft.rows.decode() if draft.rows is not None else None,
            where=Location(path="patch.toml"),
        )
        placements += expand_plain(source, resolve_anchor(parse_scopes(source), edit), edit.text)
    return apply_placements(source, placements).after.data


def lifted(old: str, new: str, path: str = "a.cpp") -> tuple[Draft, ...]:
    """The drafts of a change, which give the exact result when applied and when placed."""
    drafts = lift_lines(path, old.encode(), new.encode())
    assert apply_drafts(old.encode(), drafts) == new.encode()
    assert placed(old.encode(), drafts, path) == new.encode()
    return drafts


@pytest.mark.parametrize(
    ("old", "new", "selector", "function"),
    [
        # Lines with enough words need no context.
        (
            "        return helper(x);\n",
            "        return helper(x + y);\n",
            Selector(lines="        return helper(x);", below="    }"),
            "f",
        ),
        (
            "    for (int i = 0; i < 4; ++i) {\n",
            "    for (int i = 0; i < 8; ++i) {\n",
            Selector(lines="    for (int i = 0; i < 4; ++i) {"),
            "f",
        ),
        # Preprocessor lines and comments are lines of their function.
        (
            "#pragma unroll\n",
            "#pragma unroll 2\n",
            Selector(lines="#pragma unroll", below="    for (int i = 0; i < 4; ++i) {"),
            "f",
        ),
        (
            "    int first  = 1; // a comment\n",
            "    int first  = 1; // another one\n",
            Selector(lines="    int first  = 1; // a comment", inside=Selector(definition="params")),
            None,
        ),
        # An insertion depends on the named thing before it.
        (
            "    int second = 2;\n",
            "    int second = 2;\n    int third = 3;\n",
            Selector(member="second", of="params"),
            None,
        ),
        ('#include "one.h"\n', '#include "one.h"\n#include "two.h"\n', Selector(include="one.h"), None),
        (
            "// one more\n}\n",
            "// one more\n}\n\nstatic int other(int x) {\n    return helper(x);\n}\n",
            Selector(definition="helper"),
            None,
        ),
        (
            "#define TWICE(x) (2 * (x))\n",
            "#define TWICE(x) (2 * (x))\n#define THRICE(x) (3 * (x))\n",
            Selector(definition="TWICE"),
            None,
        ),
        ("    return y;\n}\n", "    return y;\n}\n\nint g(int x) { return x; }\n", Selector(end=True), None),
        ("#include <cstdint>\n", "// of this and that\n#include <cstdint>\n", Selector(start=True), None),
        # Between two lines if there is no named thing before it.
        (
            '#include "one.h"\n\n',
            '#include "one.h"\n\nusing json = ordered_json;\n\n',
            Selector(lines='#include "one.h"', below="\nstruct params {\n"),
            None,
        ),
        # In a function it goes between two lines.
        (
            "    return y;\n",
            "    y += 1;\n    return y;\n",
            Selector(lines='    log_it("greater", x, y);', below="    return y;"),
            "f",
        ),
    ],
)  # fmt: skip
def test_how_one_change_is_written(old: str, new: str, selector: Selector, function: str | None) -> None:
    assert CODE.count(old) == 1
    (draft,) = lifted(CODE, CODE.replace(old, new))
    first = draft.selector.first_of[0] if draft.selector.first_of else draft.selector
    assert (first, draft.function, draft.reason) == (selector, function, "")


def test_lines_are_the_fallback_if_the_name_is_gone() -> None:
    first, second = "    int first  = 1; // a comment\n", "    int second = 2;\n"
    (draft,) = lifted(CODE, CODE.replace(first, f"{first}\n    int third = 3;\n"))
    several = draft.selector.first_of or ()
    assert [bool(each.member) for each in several] == [True, False, False, False]
    assert [each.member for each in (several[2].before,) if each] == ["second"]

    def later(old: str, new: str) -> str:
        return placed(CODE.replace(old, new).encode(), (draft,), "a.cpp").decode()

    ours = "\n    int third = 3;\n"
    assert "number second = 2;\n" in later("int second", "number second")
    assert f"one = 1; // a comment\n{ours}{second}" in later("int first ", "int one")  # the line behind it
    assert f"one = 1; // another\n{ours}{second}" in later(first, "    int one = 1; // another\n")
    with refused("ANCHOR_NOT_FOUND"):
        later(first + second, "    int one, two;\n")


def test_text_with_a_leading_empty_line_goes_before_existing_ones() -> None:
    old = "int one_thing(int);\n\nint another_thing(int);\n"
    (draft,) = lifted(old, old.replace("(int);\n\n", "(int);\n\nint ours(int);\n\n"))
    changed = old.replace("one_thing(int);\n", "changed_thing(long);\n\n")
    made = placed(changed.encode(), (draft,), "a.cpp").decode()
    assert made == "int changed_thing(long);\n\nint ours(int);\n\n\nint another_thing(int);\n"


@pytest.mark.parametrize(
    ("path", "old", "added"),
    [
        (
            "a.cpp",
            """\
void run(int what) {
    switch (what) {
    case ONE:
        run_one(1);

        break;
@    default:
        run_nothing();

        break;
    }
}
""",
            """\
    case TWO:
        run_two(2);

        break;
""",
        ),
        (
            "CMakeLists.txt",
            """\
if (KIND STREQUAL "one")
    foreach (each ${LIST})
        use(${each})
    endforeach()
@endif()
""",
            """\
elseif (KIND STREQUAL "two")
    set(DEFAULT two)

    foreach (each ${LIST})
        use(${each})
    endforeach()
""",
        ),
        # The position of a directive does not count as indentation.
        (
            "a.cpp",
            """\
int run() {
#ifdef ONE
    go(1);
#endif
    if (failed()) {
        return 0;
    }
@
    return 1;
}
""",
            """\

    // what comes second
#ifdef TWO
    go(2);
#endif
    if (failed()) {
        return 0;
    }
""",
        ),
    ],
)
def test_an_addition_begins_at_the_most_natural_place(path: str, old: str, added: str) -> None:
    (draft,) = lifted(old.replace("@", ""), old.replace("@", added), path)
    assert draft.rows == added.encode()


BRANCHES = """\
if (KIND STREQUAL "one")
    foreach (each ${LIST})
        use(${each})
    endforeach()
elseif (KIND STREQUAL "two")
    foreach (each ${LIST})
        use(${each})
    endforeach()
endif()
"""
BRANCH = """\
elseif (KIND STREQUAL "three")
    set(DEFAULT_KIND three)
    set(OTHER_KIND none)

    foreach (each ${LIST})
        use(${each})
    endforeach()
"""
CHECKS = """\
int check(int a, int b) {
    if (a > 1) {
        log_it("too much", LIMIT);
        return 0;
    }

    if (b > 1) {
        log_it("too much", LIMIT);
        return 0;
    }

    return 1;
}
"""
CHECK = """\

    if (a + b > 1) {
        log_it("too much", LIMIT);
        return 0;
    }
"""


@pytest.mark.parametrize(
    ("path", "old", "before", "added", "change"),
    [
        ("a.cmake", BRANCHES, "endif()", BRANCH, ('"two")\n', '"two")\n    set(DEFAULT_KIND two)\n\n')),
        ("a.cpp", CHECKS, "\n    return 1;", CHECK, ("if (b > 1)", "if (b > 2)")),
    ],
)
def test_an_addition_that_can_slide_is_placed_by_what_follows(
    path: str, old: str, before: str, added: str, change: tuple[str, str]
) -> None:
    new = old.replace(before, added + before)
    drafts = lifted(old, new, path)
    assert placed(old.replace(*change).encode(), drafts, path).decode() == new.replace(*change)
    with refused("ANCHOR_NOT_FOUND"):
        placed(old.replace(before, f"    other();\n{before}").replace("two", "2").encode(), drafts, path)


@pytest.mark.parametrize(
    "change",
    [
        ("set(", "option("),  # of what upstream has otherwise the head is there
        ('STREQUAL "three")', 'MATCHES "three")'),  # most lines are there
    ],
)
def test_a_sliding_addition_is_recognised_if_upstream_has_it(change: tuple[str, str]) -> None:
    new = BRANCHES.replace("endif()", f"{BRANCH}endif()")
    (draft,) = lifted(BRANCHES, new, "a.cmake")
    later = new.replace(*change)
    with refused("EDIT_THERE_ALREADY"):
        placed(later.encode(), (draft,), "a.cmake")
    # With the second selector alone, as a user may write it, it is placed there.
    alone = replace(draft, selector=(draft.selector.first_of or ())[1])
    assert placed(later.encode(), (alone,), "a.cmake").decode().count('"three")') == 2


def test_a_line_that_moves_to_the_top() -> None:
    lifted("#include <a>\n#define ONE_THING 1\n", "#define ONE_THING 1\n#include <a>\n")


def test_two_changes_stay_separate() -> None:
    new = CODE.replace("first  = 1;", "first  = 7;").replace("// one more", "// one less")
    assert len(lifted(CODE, new)) == 2
    later = CODE.replace("    int second = 2;", "    int second = 5; // a new comment of upstream's")
    made = placed(later.encode(), lifted(CODE, new), "a.cpp").decode()
    assert "// a new comment of upstream's" in made
    assert "// one less" in made


def test_frequent_lines_are_searched_between_unique_ones() -> None:
    step = "".join(f"    {letter}();\n" for letter in "abcdefghi")
    old = f"void f() {{\n    begin(1);\n{step}    middle(2);\n{step}    end(3);\n}}\n"
    at = old.index("    e();\n", old.index("middle"))
    (draft,) = lifted(old, old[:at] + "    stop(4);\n" + old[at:])
    assert draft.selector.inside is not None
    assert [end.lines for end in draft.selector.inside.between or ()] == ["    middle(2);", "    end(3);"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("one\n", "one"),
        ("one", "one\n"),
        ("one\n", "one\ntwo"),
        ("one", "one\ntwo\n"),
        ("", "one\n"),
        ("one\r\ntwo\r\n", "one\r\nthree\r\ntwo\r\n"),
        ("one\r\n", "one"),
        ("a\n\n\nb\n", "a\n\nb\n"),
        ("a\nb\n", "a\n\nb\n"),
        ("a\n\nb\n", "a\n"),
        ("a\n\nb c d e f\n", "a\n\n"),
        ("a\n", "a\n\nb c d e f\n"),
        ("a\n\n", "a\n\n\n"),
        ("a\n", ""),
        ("a\nb\n", "b\na\n"),
        ("x\nx\nx\nx\n", "x\nx\ny\nx\nx\n"),
        ("x\n" * 9, "x\n" * 8),
        ("if x:\n    go()\n", "if x:\n        go()\n"),
    ],
)
def test_the_result_is_exact_for_any_lines(old: str, new: str) -> None:
    for path in ("a.txt", "a.cpp"):
        lifted(old, new, path)


def test_the_indentation_alone() -> None:
    (draft,) = lifted(CODE, CODE.replace("        return helper(x);", "            return helper(x);"))
    assert draft.selector.exact


def test_a_repeated_first_line_is_refused_without_a_crash() -> None:
    old = b"\n#include <a>\nint y;\n"
    with pytest.raises(NotLifted):
        lift_lines("a.h", old, b"#include <a>\n" + old)

"""Edits of whole lines, and of what has a name: where they go, and where they are refused."""

from __future__ import annotations

import pytest
from refusing import refused

from patchkit.base.errors import Location
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.placing.expand import apply_placements
from patchkit.carry.placing.plain import expand_plain
from patchkit.carry.placing.resolve import resolve_anchor
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selector import Selector

CODE = """\
#include "one.h"

struct params {
    int  first = 1; // a comment
    std::vector<std::pair<int, int>> pairs;
private:
    int  second() { return 2; }
    bool flag{true};
};

enum kind {
    KIND_A,
    KIND_B = 3, // three
    KIND_LAST
};

int f(int x) {
    switch (x) {
        case KIND_A:
            return 1;
        default:
            return 0;
    }
}

void g() {
    // the same twice
    go(1);
    stop();
    // the same twice
    go(2);
}
"""
CMAKE = """\
add_subdirectory(one) # add_subdirectory(three)
set(TEXT "add_subdirectory(two)")
target_link_libraries(ggml
    PRIVATE one
            two)
"""


def made(text: str, at: Selector, verb: str, new: str | None, path: str = "a.cpp", **more: object) -> str:
    """The text with one plain edit in it."""
    edit = Edit(id="it", file=path, at=at, verb=verb, text=new, where=Location(path="patch.toml"), **more)
    source = SourceText(path, text.encode())
    placements = expand_plain(source, resolve_anchor(parse_scopes(source), edit), new)
    return apply_placements(source, placements).after.data.decode()


def added(text: str, made_of_it: str) -> tuple[str, str]:
    """The line in front of what was added to a text, and what was added."""
    at = next(i for i in range(len(made_of_it)) if text[i : i + 1] != made_of_it[i])
    while not text.endswith(made_of_it[at + len(made_of_it) - len(text) :]):
        at -= 1
    new = made_of_it[at : at + len(made_of_it) - len(text)]
    return made_of_it[:at].rstrip("\n").rpartition("\n")[2], new


@pytest.mark.parametrize(
    ("at", "line"),
    [
        (Selector(definition="params"), "};"),
        (Selector(definition="f"), "}"),
        (Selector(member="first", of="params"), "    int  first = 1; // a comment"),
        (Selector(member="pairs", of="params"), "    std::vector<std::pair<int, int>> pairs;"),
        (Selector(member="second", of="params"), "    int  second() { return 2; }"),
        (Selector(member="flag", of="params"), "    bool flag{true};"),
        (Selector(member="KIND_B", of="kind"), "    KIND_B = 3, // three"),
        (Selector(case="KIND_A"), "        case KIND_A:"),
        (Selector(include="one.h"), '#include "one.h"'),
    ],
    ids=lambda each: str(each)[:20] if isinstance(each, str) else "",
)
def test_what_has_a_name_is_followed_by_a_line_of_ours(at: Selector, line: str) -> None:
    assert added(CODE, made(CODE, at, "insert_after", "our new line;\n")) == (line, "our new line;\n")


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ("add_subdirectory(one)", "add_subdirectory(one) # add_subdirectory(three)"),
        ("TARGET_LINK_LIBRARIES( ggml PRIVATE", "            two)"),
    ],
)
def test_a_command_of_cmake(wanted: str, line: str) -> None:
    text = made(CMAKE, Selector(cmake=wanted), "insert_after", "our(new line)\n", path="CMakeLists.txt")
    assert added(CMAKE, text) == (line, "our(new line)\n")


def test_a_command_in_a_comment_or_a_string_is_none() -> None:
    for name in ("two", "three"):
        at = Selector(cmake=f"add_subdirectory({name})")
        with refused("ANCHOR_NOT_FOUND"):
            made(CMAKE, at, "insert_after", "our(new line)\n", path="CMakeLists.txt")


@pytest.mark.parametrize("data", ["one\ntwo\n", "one\ntwo", ""])
def test_the_beginning_and_the_end_of_a_file(data: str) -> None:
    assert made(data, Selector(start=True), "insert_before", "zero\n") == "zero\n" + data
    assert made(data, Selector(end=True), "insert_after", "\nthe end") == data + "\nthe end"


def test_the_last_line_break_goes() -> None:
    assert made("one\r\n", Selector(end=True), "remove", None) == "one"


def test_lines_are_told_apart_by_those_beside_them() -> None:
    at = Selector(lines="    // the same twice", below="    go(2);")
    assert made(CODE, at, "change_to", "    // ours\n") == CODE.replace(
        "stop();\n    // the same twice", "stop();\n    // ours"
    )
    with refused("ANCHOR_AMBIGUOUS"):
        made(CODE, Selector(lines="    // the same twice"), "remove", None)


def test_lines_are_looked_for_inside_of_something() -> None:
    between = Selector(between=(Selector(lines="    stop();"), Selector(lines="    go(2);")))
    at = Selector(lines="    // the same twice", inside=between)
    assert made(CODE, at, "remove", None) == CODE.replace("stop();\n    // the same twice\n", "stop();\n")


def test_what_was_moved_to_the_right_takes_ours_along() -> None:
    deeper = CODE.replace("    go(2);\n", "    if (on) {\n        go(2);\n    }\n")
    at = Selector(lines="    go(2);")
    new = "    if (x) {\n#pragma ours\n        go(3);\n    }\n"
    told = made(deeper, at, "change_to", new)
    assert "\n        if (x) {\n#pragma ours\n            go(3);\n        }\n    }\n" in told
    assert made(CODE, Selector(lines="        go(2);"), "change_to", "        go(3);\n") == CODE.replace(
        "go(2)", "go(3)"
    )


def test_the_indentation_counts_where_it_has_a_meaning_or_is_what_changes() -> None:
    with refused("ANCHOR_NOT_FOUND"):
        made("if x:\n    go()\n", Selector(lines="go()"), "remove", None, path="a.py")
    with refused("ANCHOR_NOT_FOUND"):
        made(CODE, Selector(lines="go(2);", exact=True), "remove", None)


def test_lines_that_moved_among_themselves_are_others() -> None:
    with refused("ANCHOR_NOT_FOUND"):
        made(CODE, Selector(lines="go(1);\n  stop();\n"), "remove", None)


@pytest.mark.parametrize(
    "at", [Selector(definition="f"), Selector(end=True), Selector(member="first", of="params")]
)
def test_what_upstream_has_already_is_not_added_again(at: Selector) -> None:
    with refused("EDIT_THERE_ALREADY") as caught:
        made(CODE, at, "insert_after", "\n  go(1);\n\n  stop();\n  // the same twice\n")
    assert caught.value.where[1].line == CODE[: CODE.index("    go(1)")].count("\n") + 1


def test_lines_of_a_function_only() -> None:
    with refused("ANCHOR_NOT_FOUND"):
        made(CODE, Selector(lines="    stop();"), "remove", None, function="f")
    assert "stop" not in made(CODE, Selector(lines="    stop();"), "remove", None, function="g")


def test_lines_that_upstream_has_put_into_a_comment_are_not_there() -> None:
    commented = CODE.replace("    go(1);\n    stop();\n", "    /*\n    go(1);\n    stop();\n    */\n")
    with refused("ANCHOR_NOT_FOUND"):
        made(commented, Selector(lines="    go(1);\n    stop();\n"), "insert_after", "    mine();\n")
    exact = Selector(lines="    go(1);\n    stop();\n", exact=True)
    assert "stop();\n    mine();\n" in made(commented, exact, "insert_after", "    mine();\n")


@pytest.mark.parametrize(
    ("at", "new"),
    [
        (Selector(lines="            return 0;"), "        case KIND_A:\n            return 3;\n"),
        (Selector(lines="    switch (x) {"), "            return 1;\n        default:\n"),
    ],
)
def test_what_its_function_has_already_is_not_added_between_lines(at: Selector, new: str) -> None:
    with refused("EDIT_THERE_ALREADY"):
        made(CODE, at, "insert_after", new, function="f")
    # In another function it is another thing.
    assert new in made(CODE, Selector(lines="    stop();"), "insert_after", new, function="g")


def test_a_header_is_not_included_twice() -> None:
    with refused("EDIT_THERE_ALREADY"):
        made(CODE, Selector(lines="struct params {"), "insert_before", '#include "one.h"\n')

"""Which insertions at the same place may be in any order."""

from __future__ import annotations

import pytest

from patchkit.base.source import SourceText
from patchkit.carry.judging.commute import can_follow
from patchkit.carry.judging.derive import differ_in_order

CALLS = "void tests(list & all) {\n    all.push_back(first());\n%s}\n"
SWITCH = "int kind(int n) {\n    switch (n) {\n        case 1: return 1;\n%s    }\n}\n"
TYPES = "enum kind {\n    ONE,\n%s    COUNT,\n};\n"
MEMBERS = "struct thing {\n    int one;\n%s};\n"
FILE = "int one() { return 1; }\n%s"
ROWS = 'static const std::map<kind, const char *> NAMES = {\n    { ONE, "one" },\n%s};\n'
LABELS = "int kind(int n) {\n    switch (n) {\n        case 1:\n%s            return 1;\n    }\n}\n"
OPTIONS = "void options(list & all) {\n    add_opt(first(), all);\n%s}\n"
INCLUDES = '#include "a.h"\n%s#include "z.h"\n'


def follows(around: str, theirs: str, ours: str, path: str = "a.cpp") -> bool:
    row = around.partition("%s")[0].count("\n")
    text = SourceText(path, (around % theirs).encode())
    rows = [each.removesuffix("\n").encode().split(b"\n") for each in (theirs, ours)]
    return can_follow(text, row, *rows)


@pytest.mark.parametrize(
    ("around", "theirs", "ours"),
    [
        (CALLS, "    all.push_back(second(2));\n", "    all.emplace_back(new third());\n"),
        (SWITCH, "        case 2: return 2;\n", "        case 3:\n            break;\n"),
        (FILE, "int two() { return 2; }\n", "struct three {\n    int n;\n};\n"),
        (FILE, "int two() {\n#if X\n    return 2;\n#endif\n}\n", "int three() { return 3; }\n"),
        (FILE, "#if X\nint two() { return 2; }\n#endif\n", "int three() { return 3; }\n"),
        (FILE, "static void two(int n);\n", "std::string three(\n    int n);\n"),
        (MEMBERS, "    int two(int n) const;\n", "    virtual bool three();\n"),
        (INCLUDES, '#include "b.h"\n', "#include <c>\n"),
        (CALLS, "    const int n = 2;\n", "    const bool b = is(all);\n"),
        (CALLS, "    // theirs\n", "    all.clear();\n"),
        (ROWS, '    { TWO, "two" },\n', '    { THREE, "three" },  // mine\n'),
        (LABELS, "        case 2:\n", "        case 3: case 4:\n"),
        (OPTIONS, '    add_opt(second(\n        "-b"), all);\n', '    add_opt(third("-c"), all);\n'),
        (TYPES, "    TWO,\n", "    THREE, // mine\n    FOUR,\n"),
        (MEMBERS, "    int two = 2;\n", "    // mine\n    std::vector<int> three;\n    int four[4];\n"),
    ],
)
def test_what_commutes_may_follow(around: str, theirs: str, ours: str) -> None:
    assert follows(around, theirs, ours)
    assert follows(around, ours, theirs)


@pytest.mark.parametrize(
    ("around", "theirs", "ours"),
    [
        (CALLS, "    all.push_back(second(2));\n", "    other.push_back(third());\n"),
        (CALLS, "    all.push_back(second(2));\n", "    all = {};\n"),
        (CALLS, "    const int n = 2;\n", "    const int m = n + 1;\n"),
        (CALLS, "    const int n = 2;\n", "    const int m = last++;\n"),
        (SWITCH, "        case 2:\n            note();\n", "        case 3: return 3;\n"),
        (SWITCH, "        case 2: return 2;\n", "        default: return 0;\n"),
        (TYPES, "    TWO,\n", "    THREE = 7,\n"),
        (TYPES, "    TWO,\n", "    TWO,\n"),
        (TYPES.replace("enum kind", "int kinds[] ="), "    TWO,\n", "    THREE,\n"),
        (MEMBERS, "    int two;\n", "    int three = two;\n"),
        (MEMBERS, "    int two;\n", "    int three();\n"),
        (MEMBERS, "    int two;\n", "#if X\n    int three;\n#endif\n"),
        (FILE, "int two() { return 2; }\n", "int three() { return two() + 1; }\n"),
        (FILE, "int two() { return 2; }\n", "static int count = 0;\n"),
        (INCLUDES, "#define B 1\n", '#include "c.h"\n'),
        (ROWS, '    { TWO, "two" },\n', '    { TWO, "three" },\n'),  # the first one of the two counts
        (
            ROWS.replace("std::map<kind, const char *> NAMES", "pair NAMES[]"),
            "    { 2, 2 },\n",
            "    { 3, 3 },\n",
        ),
        (LABELS, "        case 2:\n", "        case 3:\n            n++;\n"),
        (OPTIONS, '    add_opt(second("-b"), all);\n', '    add_arg(third("-c"), all);\n'),
        (FILE, "static two f(int n);\n", "struct two g(int n);\n".replace("g", "two")),
        (FILE, "CASE(2);\n", "static void three(int n);\n"),
        (FILE, "#define X\nint two() { return 2; }\n", "int three() { return 3; }\n"),
        (FILE, "#if X\nint two() { return 2; }\n#endif\n", "int three() { return two(); }\n"),
        (FILE, "#if X\nint two() { return 2; }\n", "int three() { return 3; }\n"),
        (CALLS, "#if X\n    all.pop();\n#endif\n", "    all.push_back(third());\n"),
        (CALLS, "    if (all.empty()) {\n", "    all.push_back(third());\n"),
    ],
)
def test_what_may_depend_on_the_order_does_not(around: str, theirs: str, ours: str) -> None:
    assert not follows(around, theirs, ours)


def test_lists_of_cmake_commute_and_other_text_does_not() -> None:
    around = "add_library(ggml\n    ggml.c\n%s)\n"
    assert follows(around, "    a.c\n", "    b.c\n", "CMakeLists.txt")
    assert not follows(around, "    a.c)\nset(X 1)\n", "    b.c\n", "CMakeLists.txt")
    assert not follows("one\n%s", "two\n", "three\n", "list.txt")


def test_results_that_differ_in_the_order_of_includes_are_the_same() -> None:
    one, other = (
        INCLUDES % text for text in ('#include "b.h"\n\n#include "c.h"\n', '#include "c.h"\n#include "b.h"\n')
    )
    assert differ_in_order("a.cpp", one.encode(), other.encode())
    moved = (
        CALLS % "    all.pop();\n    all.push_back(2);\n",
        CALLS % "    all.push_back(2);\n    all.pop();\n",
    )
    assert not differ_in_order("a.cpp", *(text.encode() for text in moved))
    assert not differ_in_order("a.cpp", one.encode(), one.replace("b.h", "d.h").encode())

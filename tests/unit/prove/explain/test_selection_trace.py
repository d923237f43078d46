"""The branches of a function, from the places that ran."""

from __future__ import annotations

from dataclasses import replace

import pytest
from refusing import refused

from patchkit.base.source import SourceText
from patchkit.prove.explain.selection import ExecutedBlock, decisions

_CODE = b"""\
static int choose(int a, int b) {
#ifdef NEVER
    return -1;
#endif
    const int c = a + b;
    switch (a) {
        case 1:
        case 2:
            if (b != 0) {
                return 10;
            }
            break;
        default:
            return 20;
    }
    if (c > 3 && b > 1
#ifdef NEVER
        && a > 100
#endif
        && a > 1) {
        if (b == 2) {
            return 30;
        }
        return 40;
    } else if (c == 1) {
        return 50;
    }
    return 60;
}
"""
_SOURCE = SourceText("choose.cu", _CODE)
_ACTIVE = frozenset(range(1, 40)) - {2, 3, 4, 17, 18, 19}


def _places(*at: tuple[int, int]) -> list[ExecutedBlock]:
    first = ExecutedBlock(function="choose(int, int)", line=1, column=0, entry=True)
    return [
        first,
        *(
            ExecutedBlock(function="choose(int, int)", line=line, column=column, entry=False)
            for line, column in at
        ),
    ]


def _told(*at: tuple[int, int]) -> list[tuple[int | None, str, str, str | None]]:
    found = decisions(_places(*at), _SOURCE, "choose", _ACTIVE)
    return [(each.where.line, each.kind, each.outcome or each.text, each.decided_by) for each in found]


def test_a_return_inside_a_case_ends_the_story():
    assert _told((9, 17), (10, 17)) == [
        (6, "switch", "case 1 or case 2", None),
        (9, "if", "true", None),
        (10, "return", "10", None),
    ]


def test_the_operand_that_was_evaluated_last_decided():
    told = _told((9, 17), (12, 13), (16, 9), (16, 18), (25, 16), (28, 5))
    assert told == [
        (6, "switch", "case 1 or case 2", None),
        (9, "if", "false", None),
        (16, "if", "false", "b > 1"),
        (25, "if", "false", None),
        (28, "return", "60", None),
    ]


def test_nested_branches_are_followed_and_dropped_lines_are_no_operands():
    told = _told((9, 17), (12, 13), (16, 9), (16, 18), (20, 12), (21, 13), (24, 9))
    assert told[2:] == [
        (16, "if", "true", None),  # all three held: none of them alone decided
        (21, "if", "false", None),
        (24, "return", "40", None),
    ]
    found = decisions(
        _places((9, 17), (12, 13), (16, 9), (16, 18), (25, 16), (28, 5)), _SOURCE, "choose", _ACTIVE
    )
    assert found[2].text == "c > 3 && b > 1 && a > 1"


@pytest.mark.parametrize(
    ("condition", "at", "outcome", "decided_by"),
    [
        ("a || b", [(1, 30)], "true", "a"),
        ("a || b", [(1, 25), (1, 30)], "true", "b"),
        ("a || b", [(1, 25), (2, 5)], "false", None),
        ("a && b", [(2, 5)], "false", "a"),
        ("a && b", [(1, 25), (2, 5)], "false", "b"),
        ("a && b", [(1, 25), (1, 30)], "true", None),
    ],
)
def test_an_operand_is_named_only_when_it_settled_the_matter_alone(condition, at, outcome, decided_by):
    code = f"int f(int a) {{ if ({condition}) {{ return 1; }}\n    return 2;\n}}\n"
    first = ExecutedBlock(function="f(int)", line=1, column=0, entry=True)
    places = [first, *(replace(first, line=line, column=column, entry=False) for line, column in at)]
    found = decisions(places, SourceText("f.cu", code.encode()), "f", frozenset({1, 2, 3}))
    assert (found[0].outcome, found[0].decided_by) == (outcome, decided_by)


def test_only_the_last_call_counts_and_other_functions_do_not():
    early = _places((14, 13))
    other = [ExecutedBlock(function="helper(int)", line=3, column=1, entry=True)]
    found = decisions([*early, *other, *_places((9, 17), (10, 17))], _SOURCE, "choose", _ACTIVE)
    assert found[-1].text == "10"


def test_a_default_is_named():
    assert _told((14, 13)) == [(6, "switch", "default", None), (14, "return", "20", None)]


@pytest.mark.parametrize("function", ["missing", "choose"])
def test_a_function_that_is_not_there_or_did_not_run_is_an_error(function):
    with refused("SELECTION_UNREADABLE") as caught:
        decisions([], _SOURCE, function, _ACTIVE)
    assert function in caught.value.message

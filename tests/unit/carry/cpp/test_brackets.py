"""Brackets across #if branches and through broken prose."""

from __future__ import annotations

import pytest
from sources import read


def pairs(text):
    scopes = read(text)
    return {
        (opening, closing)
        for opening, closing in scopes.match.items()
        if opening < closing and scopes.match[closing] == opening
    }, scopes


def test_nested_brackets_match_both_ways():
    found, scopes = pairs("f(a[1], {2});")
    assert {(scopes.code[o].text, scopes.code[c].text) for o, c in found} == {
        (b"(", b")"),
        (b"[", b"]"),
        (b"{", b"}"),
    }


def test_two_branches_that_open_the_same_block_share_its_end():
    _, scopes = pairs("#if A\nif (a) {\n#elif B\nif (b) {\n#else\nif (c) {\n#endif\n  x;\n}\ny;\n")
    openers = [i for i, token in enumerate(scopes.code) if token.text == b"{"]
    closer = next(i for i, token in enumerate(scopes.code) if token.text == b"}")
    assert [scopes.match[opener] for opener in openers] == [closer] * 3


def test_two_branches_that_close_the_same_block_share_its_start():
    _, scopes = pairs("if (a) {\n#if A\n  x; }\n#else\n  y; }\n#endif\n")
    closers = [i for i, token in enumerate(scopes.code) if token.text == b"}"]
    opener = next(i for i, token in enumerate(scopes.code) if token.text == b"{")
    assert [scopes.match[closer] for closer in closers] == [opener] * 2


def test_an_argument_list_may_contain_an_if_group():
    _, scopes = pairs("f(a,\n#ifdef X\n  g(1),\n#else\n  g(2),\n#endif\n  b);\n")
    first = next(i for i, token in enumerate(scopes.code) if token.text == b"(")
    assert scopes.code[scopes.match[first] + 1].text == b";"


@pytest.mark.parametrize("prose", ["it is (unclosed", "x[ and (y", ":-( ("])
def test_prose_that_never_closes_its_parenthesis_does_not_swallow_the_file(prose):
    _, scopes = pairs(f"void f() {{\n#if 0\n{prose}\n#endif\n}}\nvoid g() {{ }}\n")
    assert [entity.name for entity in scopes.entities] == ["f", "g"]


def test_a_stray_closing_bracket_matches_nothing():
    found, _ = pairs(") ] } ( } [ )")
    assert found == set()


def test_a_brace_that_closes_nothing_leaves_the_parentheses_alone():
    found, _ = pairs("( } )")
    assert len(found) == 1


def test_else_and_endif_without_if_are_survived():
    found, _ = pairs("#else\nf();\n#endif\n#endif\n")
    assert len(found) == 1

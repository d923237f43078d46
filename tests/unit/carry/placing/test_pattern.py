"""Token patterns: no fuzz, balanced wildcards, every place counted."""

from __future__ import annotations

import pytest
from sources import read

from patchkit.carry.placing.pattern import find_runs, matches_exactly, parse_pattern, similar_runs


def whole(text):
    scopes = read(text)
    return scopes, range(len(scopes.code))


def runs(text, pattern):
    scopes, everything = whole(text)
    return [
        " ".join(scopes.code[i].text.decode() for i in range(first, last + 1))
        for first, last in find_runs(scopes, parse_pattern(pattern), everything)
    ]


@pytest.mark.parametrize(
    ("text", "pattern", "found"),
    [
        ("a + b;", "a+b", ["a + b"]),
        ("a /* x */ + // y\n  b;", "a + b", ["a + b"]),
        ("a + bb;", "a + b", []),
        ("ab + b;", "b", ["b"]),
        ("a - b;", "a + b", []),
        ("f(1, (2), {3});", "f(...)", ["f ( 1 , ( 2 ) , { 3 } )"]),
        ("f();", "f(...)", ["f ( )"]),
        ("f(f(x));", "f(...)", ["f ( f ( x ) )", "f ( x )"]),
        ("x + x + x;", "x + x", ["x + x", "x + x"]),
        ("a; b;", "a ... b", []),
        ("a { ; } b", "a ... b", ["a { ; } b"]),
        ("(a) b", "a ... b", []),
        ("a 1 b 2 b", "a ... b", ["a 1 b"]),
        ("a 1 b 2 c", "a ... b ... c", ["a 1 b 2 c"]),
        ("a 1 b", "a ... ... b", ["a 1 b"]),
        ("a b", "... a ...", ["a"]),
        ("a b", "...", []),
        ("a b", "/* a */", []),
        ("a", "a ... b", []),
        ("f(Args... args)", "Args... args", ["Args ... args"]),
    ],
)
def test_runs(text, pattern, found):
    assert runs(text, pattern) == found


@pytest.mark.parametrize(
    ("text", "pattern", "exact"),
    [
        ("a + b", "a + b", True),
        ("a + b", "a ... b", True),
        ("a + b + b", "a ... b", True),
        ("a + b", "a", False),
        ("a + b", "b", False),
        ("a + b", "...", False),
        ("f(x) + 1", "f(...)", False),
    ],
)
def test_exact_means_all_of_it(text, pattern, exact):
    scopes, everything = whole(text)
    assert matches_exactly(scopes, parse_pattern(pattern), everything) is exact


def test_a_pattern_prints_as_its_tokens():
    assert str(parse_pattern("f( a,/* c */b )")) == "f ( a , b )"


def test_similar_runs_are_ranked_disjoint_and_limited():
    scopes, everything = whole("a + c; a + b + c; x - b; a + b; a + z; a + y;")
    found = similar_runs(scopes, parse_pattern("a + b + c"), everything)
    assert scopes.code[found[0][0]].span.start == 7
    assert all(left[1] < right[0] or right[1] < left[0] for left in found for right in found if left != right)


def test_similar_runs_stop_at_their_limit():
    scopes, everything = whole("a + b; a + b; a + b; a + b;")
    assert len(similar_runs(scopes, parse_pattern("a + c"), everything)) == 3


def test_nothing_is_similar_to_less_than_half_or_to_nothing():
    scopes, everything = whole("a + b;")
    assert similar_runs(scopes, parse_pattern("q r s b"), everything) == []
    assert similar_runs(scopes, parse_pattern("..."), everything) == []

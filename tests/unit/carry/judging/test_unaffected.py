"""Which changes of upstream need a patched file to be parsed by clang again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patchkit.base.errors import ErrorGroup
from patchkit.base.toml import parse_toml
from patchkit.carry.judging.unaffected import Unaffected
from patchkit.carry.placing.place import IsKnown, PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import parse_patch
from patchkit.carry.series.profile import NO_GPU
from patchkit.carry.series.selection import Selected

PATCH = """\
id = "demo"
title = "a change"
guard = "none"
builds = { first = 1, why = "any" }

[[edit]]
id = "edit-1"
file = "common/a.cpp"
function = "f"
at = { lines = "    return x;" }
verb = "insert_before"
text = '''
    x = (count) LIMIT + x;
'''
"""
SOURCE = """\
#include "names.h"
int f(int x) {
    return x;
}
#ifdef EXTRA
int g(int x) {
    return x;
}
#endif
"""
NAMES = """\
#pragma once
typedef long count;
typedef long other;
#define LIMIT HALF(10)
#define HALF(n) ((n) / 2)
#define SPARE 1
struct record {
    int first;
};
inline int twice(int n) { return 2 * n; }
"""


def tree(source: str, names: str) -> UpstreamFiles:
    included = {"common/names.h": names.encode()}
    return UpstreamFiles(
        {"common/a.cpp": source.encode()},
        ["common/a.cpp", *included],
        lambda more: {path: included[path] for path in more},
    )


@pytest.fixture
def place(tmp_path: Path) -> Callable[..., PlacedPatch]:
    (tmp_path / "0001-demo").mkdir()
    patch = parse_patch(parse_toml("patch.toml", PATCH.encode()), folder="0001-demo", number=1)
    selected = Selected(patch=patch, targets=(NO_GPU,), reason="")

    def run(files: UpstreamFiles, is_known: IsKnown | None = None) -> PlacedPatch:
        return place_patch(selected, files, tmp_path, tmp_path, is_known=is_known)

    return run


def changed(place: Callable[..., PlacedPatch], source: str, names: str) -> tuple[bool, object, object]:
    """Whether the file need not be parsed again, and the results of placing with and without that."""
    before, after = tree(SOURCE, NAMES), tree(source, names)
    last = place(before)
    assert not last.warnings
    decided = Unaffected(last.edits, before, after)
    found: list[bool] = []

    def is_known(*args: object) -> bool:
        found.append(decided(*args))  # type: ignore[arg-type]
        return found[-1]

    def outcome(is_known: IsKnown | None) -> object:
        try:
            placed = place(after, is_known)
        except ErrorGroup as group:
            return [(error.code, error.message) for error in group.errors]
        return placed.changes, placed.edits, placed.warnings

    results = outcome(is_known), outcome(None)
    return found == [True], *results


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ({"int g(int x) {\n    return x;": "int g(int x) {\n    return x + 1;"}, {}),
        ({"#ifdef EXTRA": "int h(int n) {\n    return n;\n}\n#ifdef EXTRA"}, {}),
        ({"int g(int x) {": "int g2(int x) {"}, {}),
        ({}, {"return 2 * n": "return n + n"}),
        ({}, {"#define SPARE 1": "#define SPARE 2"}),
        ({}, {"int first;": "int first;\n    int second;"}),
        ({}, {"typedef long other;": "typedef int other;"}),
    ],
)
def test_a_change_elsewhere_needs_no_parse(
    place: Callable[..., PlacedPatch], source: Mapping[str, str], names: Mapping[str, str]
) -> None:
    is_known, with_it, without = changed(place, edited(SOURCE, source), edited(NAMES, names))
    assert is_known
    assert with_it == without


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ({"int f(int x) {": "int f(int x) {\n    x += 1;"}, {}),  # the edited function
        ({"int f(int x)": "#ifdef MORE\nint f(int x)", "#ifdef EXTRA": "#endif\n#ifdef EXTRA"}, {}),
        ({'#include "names.h"\n': ""}, {}),
        ({}, {"#define LIMIT HALF(10)": "#define LIMIT HALF(10);"}),
        ({}, {"#define HALF(n) ((n) / 2)": "#define HALF(n) ((n) / 2"}),  # a macro of the macro
        ({}, {"typedef long count;": "static long count;"}),
        ({}, {"typedef long count;\n": ""}),
        ({}, {"    int first;": "    int first;\n    int x;"}),  # a member with the name of a variable
        ({}, {"#pragma once\n": "#pragma once\n#pragma pack(1)\n"}),
    ],
)
def test_a_change_of_what_the_edits_mean_needs_one(
    place: Callable[..., PlacedPatch], source: Mapping[str, str], names: Mapping[str, str]
) -> None:
    is_known, with_it, without = changed(place, edited(SOURCE, source), edited(NAMES, names))
    assert not is_known
    assert with_it == without


def edited(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text

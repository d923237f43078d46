"""Shortening long conflicts of git's merge."""

from __future__ import annotations

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.carry.judging.conflict_markers import list_conflicts, shorten_conflicts
from patchkit.carry.judging.derive import merge_file

LABELS = ("mine", "old", "new")


def function(name: str, size: int) -> list[str]:
    body = [f"    {name}_step_{number}(value, {number});" for number in range(size)]
    return [f"int {name}(int value) {{", *body, "    return value;", "}", ""]


def merged(base: list[str], patched: list[str], upstream: list[str], newline: str = "\n") -> bytes:
    ours, old, new = (
        "".join(f"{row}{newline}" for row in rows).encode() for rows in (patched, base, upstream)
    )
    found, conflicts = merge_file(ours, old, new, NullReporter(), LABELS)
    assert conflicts == 1
    return found


def changed(rows: list[str], *steps: int) -> list[str]:
    """The rows, with the second argument of some steps of ``two`` changed."""
    old = {f"    two_step_{step}(value, {step});": f"    two_step_{step}(value, -{step});" for step in steps}
    return [old.get(row, row) for row in rows]


ONE, TWO, SIX = function("one", 400), function("two", 300), function("six", 400)


def upstream_side(data: bytes) -> bytes:
    rows = data.split(b"\n")
    made, at = [], 0
    for each in list_conflicts(rows, LABELS):
        made += [*rows[at : each.first], *each.upstream]
        at = each.stop
    return b"\n".join([*made, *rows[at:]])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_function_that_moved_leaves_the_change_and_its_context(newline: str) -> None:
    other = function("other", 900)
    data = merged([*ONE, *TWO, *SIX], changed([*ONE, *TWO, *SIX], 150), other, newline)
    short, count = shorten_conflicts(data, LABELS)
    (conflict,) = list_conflicts(short.split(b"\n"), LABELS)
    assert count == 1
    assert (len(conflict.patch), len(conflict.base), conflict.upstream) == (21, 21, [])
    assert f"    two_step_150(value, -150);{newline}".encode().strip(b"\n") in conflict.patch
    assert upstream_side(short) == upstream_side(data)
    assert upstream_side(short).decode() == "".join(f"{row}{newline}" for row in other)


def test_it_is_shown_next_to_the_most_similar_lines() -> None:
    moved = [row.replace("value, 150", "value, 151") for row in TWO]
    rest = function("other", 300)
    data = merged([*ONE, *TWO, *SIX], changed([*ONE, *TWO, *SIX], 150), [*rest, *moved, *rest])
    short, _ = shorten_conflicts(data, LABELS)
    conflicts = list(list_conflicts(short.split(b"\n"), LABELS))
    assert b"    two_step_150(value, 151);" in [row for each in conflicts for row in each.upstream]
    assert sum(each.stop - each.first for each in conflicts) < 100


def test_distant_changes_are_separate_conflicts() -> None:
    data = merged([*ONE, *TWO, *SIX], changed([*ONE, *TWO, *SIX], 10, 20, 200), function("other", 900))
    short, count = shorten_conflicts(data, LABELS)
    assert count == len(list(list_conflicts(short.split(b"\n"), LABELS))) == 2
    assert upstream_side(short) == upstream_side(data)


def test_a_short_conflict_is_unchanged() -> None:
    rows = ["begin", "old", "end"]
    data = merged(rows, ["begin", "mine", "end"], ["begin", "new", "end"])
    assert shorten_conflicts(data, LABELS) == (data, 1)

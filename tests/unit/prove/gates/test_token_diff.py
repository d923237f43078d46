"""Differences of preprocessed text: as tokens, with the places of both sides."""

from __future__ import annotations

from patchkit.prove.gates.isolation.readings import differing_runs


def _text(*lines: str) -> bytes:
    return "\n".join(lines).encode() + b"\n"


_BEFORE = _text('# 1 "a.cu"', '# 1 "<built-in>" 1', '# 7 "dir/../a.cuh" 2', "float x = 1;", "", "int y = 2;")


def test_layout_and_line_markers_are_no_difference() -> None:
    after = _text('# 1 "a.cu"', '# 90 "a.cuh" 2', "float", "  x=1 ; int y", "= 2;")
    assert differing_runs(_BEFORE, after, most=3) == ()


def test_a_run_says_what_became_what_and_where() -> None:
    after = _text('# 1 "a.cu"', '# 20 "a.cuh" 2', "float x = 1;", "", "int y = 3;")
    (run,) = differing_runs(_BEFORE, after, most=3)
    assert (run.before, run.after) == ("2", "3")
    assert (str(run.old), str(run.new)) == ("a.cuh:9", "a.cuh:22")


def test_removed_and_added_tokens_are_placed_by_what_follows() -> None:
    after = _text('# 7 "a.cuh"', "int y = 2;", "long z;")
    first, second = differing_runs(_BEFORE, after, most=3)
    assert (first.before, first.after, str(first.new)) == ("float x = 1 ;", "", "a.cuh:7")
    assert (second.before, second.after, str(second.new)) == ("", "; long z", "a.cuh:7")
    assert len(differing_runs(_BEFORE, after, most=1)) == 1


def test_a_long_run_is_cut_and_counted() -> None:
    after = _text('# 7 "a.cuh"', "float x = 1;", *(f"long v{i};" for i in range(3000)), "int y = 2;")
    (run,) = differing_runs(_BEFORE, after, most=3)
    assert run.after.startswith("long v0 ; long v1")
    assert run.after.endswith("(9000 tokens)")

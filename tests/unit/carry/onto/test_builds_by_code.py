"""The build of a copy of ggml by the code that it has."""

from __future__ import annotations

import pytest

from patchkit.base.upstreams import CodeSign, Mark, llama_cpp
from patchkit.carry.judging.preconditions import has_sign
from patchkit.carry.onto.builds_by_code import BuildsByCode, find_builds_by_code
from patchkit.carry.onto.pin import BuildFound, _with_code
from patchkit.carry.placing.tree import UpstreamFiles


def mark(first: int, last: int | None = None) -> Mark:
    return Mark(first=first, last=last, why=f"b{first}", file=f"{first}.cu")


OLD, MIDDLE, SHORT, LATE, LATEST = mark(1, 49), mark(20), mark(30, 54), mark(50), mark(60)
MARKS = (OLD, MIDDLE, SHORT, LATE, LATEST)


@pytest.mark.parametrize("build", [5, 20, 29, 30, 49, 50, 54, 55, 59, 60, 99])
def test_a_plain_copy_of_a_build_is_of_the_one_span_that_has_it(build: int) -> None:
    build_range = find_builds_by_code(MARKS, {each for each in MARKS if each.covers(build)})
    assert build_range is not None
    assert build_range.unlike == ()
    assert build_range.low <= build <= (build_range.high or 99)
    limits = {0, 1, 20, 30, 50, 55, 60}
    assert build_range.low == max(limit for limit in limits if limit <= build)


def test_the_newest_span_has_no_end() -> None:
    assert find_builds_by_code(MARKS, {MIDDLE, LATE, LATEST}) == BuildsByCode(low=60, high=None)


def test_a_later_change_in_an_older_copy_is_reported_and_does_not_move_it() -> None:
    assert find_builds_by_code(MARKS, {OLD, MIDDLE, SHORT, LATEST}) == BuildsByCode(
        low=30, high=49, unlike=(LATEST,)
    )


def test_code_without_any_mark_says_nothing() -> None:
    assert find_builds_by_code(MARKS, set()) is None


def test_the_marks_of_llama_cpp_tell_every_two_spans_apart() -> None:
    marks = llama_cpp().marks
    limits = {limit for each in marks for limit in (each.first, (each.last or 0) + 1)}
    spans = [frozenset(each for each in marks if each.covers(low)) for low in limits]
    assert len(set(spans)) == len(limits)


def history(low: int, high: int | None) -> BuildFound:
    return BuildFound(low=low, high=high, known_by="the history")


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (None, (30, 39)),
        (history(35, 35), (35, 35)),
        (history(10, 35), (30, 35)),
        (history(35, None), (35, 39)),
        (history(7, 7), (30, 39)),  # a fork that copied newer code without its history
    ],
)
def test_history_and_code_are_combined_and_the_code_decides(
    before: BuildFound | None, expected: tuple[int, int]
) -> None:
    found = _with_code(before, BuildsByCode(low=30, high=39))
    assert found is not None
    assert (found.low, found.high) == expected


FILES = UpstreamFiles(
    {
        "a.cu": b"""#if defined(GPU_A) || defined(GPU_B)
#define KNOWN
#endif
static bool uses(int x) { return x > 1; }
void sums() { out[0] = sum; sync(); }
"""
    }
)


@pytest.mark.parametrize(
    ("sign", "expected"),
    [
        (CodeSign(file="a.cu"), True),
        (CodeSign(file="b.cu"), False),
        (CodeSign(file="a.cu", function="uses"), True),
        (CodeSign(file="a.cu", function="used"), False),
        (CodeSign(file="a.cu", function="uses", tokens="x>1"), True),
        (CodeSign(file="a.cu", function="sums", tokens="x>1"), False),
        (CodeSign(file="a.cu", function="sums", tokens="= sum; }"), False),
        (CodeSign(file="a.cu", function="sums", tokens="= sum; sync()"), True),
        (CodeSign(file="a.cu", tokens="defined(GPU_B)"), True),
        (CodeSign(file="a.cu", tokens="defined(GPU_C)", absent=True), True),
        (CodeSign(file="a.cu", tokens="defined(GPU_B)", absent=True), False),
        # What is not there lacks nothing.
        (CodeSign(file="b.cu", tokens="defined(GPU_B)", absent=True), False),
        (CodeSign(file="a.cu", function="used", tokens="x", absent=True), False),
    ],
)
def test_a_sign_is_code_of_one_function_or_a_line_of_the_file(sign: CodeSign, expected: bool) -> None:
    assert has_sign(sign, FILES) is expected


def test_a_sign_of_absence_needs_the_code_that_is_absent() -> None:
    with pytest.raises(ValueError, match="needs 'tokens'"):
        CodeSign(file="a.cu", absent=True)

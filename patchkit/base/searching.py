"""Binary search for the first bad one of an ordered list, where some cannot be tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Outcome = Literal["good", "bad", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBad:
    """Positions in the list: the last good one, the first bad one, and those between that were skipped.

    With ``skipped``, any of these may be the first bad one.
    """

    good: int
    bad: int
    skipped: tuple[int, ...] = ()


def find_first_bad(low: int, high: int, test: Callable[[int], Outcome]) -> FirstBad:
    """Search between ``low``, which is good, and ``high``, which is bad; neither is tested.

    The search is right if all before the first bad one are good, and all after it are bad. Each position is
    tested at most once, and all decisions depend only on the outcomes, so equal outcomes give an equal
    order.
    """
    skipped: set[int] = set()
    while (at := _next(low, high, sorted(each for each in skipped if low < each < high))) is not None:
        outcome = test(at)
        if outcome == "good":
            low = at
        elif outcome == "bad":
            high = at
        else:
            skipped.add(at)
    return FirstBad(good=low, bad=high, skipped=tuple(sorted(each for each in skipped if low < each < high)))


def _next(low: int, high: int, skipped: Sequence[int]) -> int | None:
    """The middle of a gap; None if there is none.

    Neighbours of what cannot be tested often cannot be tested either, so what lies between two of them is
    tested last.
    """
    edges = [low, *skipped, high]
    gaps = [(before, after) for before, after in pairwise(edges) if after - before > 1]
    outside = [gap for gap in gaps if low in gap or high in gap]
    if not gaps:
        return None
    before, after = max(outside or gaps, key=lambda gap: gap[1] - gap[0])
    return (before + after) // 2

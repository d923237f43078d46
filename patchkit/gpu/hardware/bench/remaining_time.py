"""Estimates the remaining time of a measurement from its finished calls."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

_MINUTE, _HOUR = 60, 3600


def seconds_left(took: Mapping[int, Sequence[float]], missing: Sequence[int]) -> float | None:
    """Estimated seconds for the missing runs; None until something was measured.

    Args:
        took: seconds of the finished runs, by depth in tokens.
        missing: the depth of each run to come.

    For a measured depth, its median time is used. For others, the time of the next lower measured depth,
    scaled with the tokens; below all measured depths, the time of the lowest one, as an upper limit.
    """
    known = {depth: statistics.median(seconds) for depth, seconds in took.items() if seconds}
    if not known:
        return None
    return sum(_expected(known, depth) for depth in missing)


def format_duration(seconds: float) -> str:
    """A duration as text: ``40 s``, ``12 min``, ``3 h 05 min``."""
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    hours, rest = divmod(round(seconds / _MINUTE), _MINUTE)
    return f"{hours} h {rest:02d} min"


def _expected(known: Mapping[int, float], depth: int) -> float:
    below = [each for each in known if each <= depth]
    if not below:
        return known[min(known)]
    nearest = max(below)
    # Filling a cache of twice the tokens takes twice the time at least; with attention it is more.
    return known[nearest] * max(1.0, depth / nearest if nearest else 1.0)

"""How long a measurement will still take, from what its calls took."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

_MINUTE, _HOUR = 60, 3600


def seconds_left(took: Mapping[int, Sequence[float]], missing: Sequence[int]) -> float | None:
    """Seconds that the missing runs will take; None as long as nothing was measured.

    Args:
        took: seconds of the finished runs, by depth in tokens.
        missing: the depth of each run to come.

    A depth that was measured takes its median again. One that was not takes as long as the nearest below it,
    and more in proportion to the tokens; a depth below all measured ones takes at most what they did.
    """
    known = {depth: statistics.median(seconds) for depth, seconds in took.items() if seconds}
    if not known:
        return None
    return sum(_expected(known, depth) for depth in missing)


def told_duration(seconds: float) -> str:
    """As people say it: ``40 s``, ``12 min``, ``3 h 05 min``."""
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

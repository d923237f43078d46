"""Which candidate is the best, by a documented order, and which are not beaten in everything.

Vocabulary: *headers* are one version of what the kernel includes (rocWMMA's); a candidate may be judged
with several at once, and must hold with each. It is *eligible* when with no headers it spills more
registers, has fewer waves or fewer resident waves than upstream's setting, in the variant itself and in
those that share its row. The *front* is the set of candidates that no other beats or equals in every
figure at once.

Among the eligible ones the order is, each only where the ones before are equal:

1. spilled registers, as a share of upstream's, summed over the headers;
2. waves per SIMD that are missing to five as the compiler reports them, at worst over the headers;
3. resident waves that are missing to six: registers and LDS together, in whole blocks;
4. the estimate (:mod:`patchkit.tune.estimate`), as a share of upstream's, summed over the headers;
   upstream's own counts a tenth less, so that an estimate alone must be ahead by that to displace it;
5. barriers per KV row, LDS bytes per KV row, and the share of matrix instructions, more being better;
6. the values of the setting, so that the order is total.

Five, six and the tenth are judgement: below five waves little hides memory, and nobody has measured what
more than six bring; the estimate, in which more waves hide latency, decides from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from patchkit.tune.estimate import Estimate
from patchkit.tune.family import Candidate
from patchkit.tune.outcome import Failure, Figures, Outcome

FEWEST_WAVES = 5
_ENOUGH_RESIDENT = 6
_UPSTREAM_COUNTS = 0.9

Key = tuple[float | int, ...]
_KEY_NAMES = (
    "spills",
    "waves below 5",
    "resident waves below 6",
    "estimate",
    "barriers",
    "LDS traffic",
    "matrix share",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A candidate with its figures, by headers in a fixed order, and why it is not eligible if it is not."""

    candidate: Candidate
    figures: tuple[Figures, ...]
    estimates: tuple[Estimate, ...]
    refused: str | None = None


def not_worse(found: Outcome, upstream: Outcome) -> str | None:
    """Why ``found`` is worse than upstream's, or None when it is not.

    A variant that upstream's setting cannot be compiled for has nothing to be worse than.
    """
    if isinstance(upstream, Failure):
        return None
    if isinstance(found, Failure):
        return f"does not compile: {found.message}"
    if found.spills > upstream.spills:
        return f"spills {found.spills} registers, upstream's {upstream.spills}"
    if found.waves < upstream.waves:
        return f"{found.waves} waves, upstream's {upstream.waves}"
    if found.resident < upstream.resident:
        return f"{found.resident} resident waves, upstream's {upstream.resident}"
    return None


def rank_key(judged: Judged, upstream: Judged) -> Key:
    """The order of the module's text; smaller is better."""
    pairs = list(zip(judged.figures, upstream.figures, strict=True))
    spills = sum(mine.spills / max(1, theirs.spills) for mine, theirs in pairs)
    waves = min(figures.waves for figures in judged.figures)
    resident = min(figures.resident for figures in judged.figures)
    kept = _UPSTREAM_COUNTS if judged.candidate == upstream.candidate else 1.0
    estimates = zip(judged.estimates, upstream.estimates, strict=True)
    return (
        round(spills, 6),
        max(0, FEWEST_WAVES - waves),
        max(0, _ENOUGH_RESIDENT - resident),
        round(kept * sum(mine.cost / theirs.cost for mine, theirs in estimates), 6),
        round(max(each.barriers_per_row for each in judged.estimates), 6),
        round(max(each.lds_bytes_per_row for each in judged.estimates), 3),
        -round(min(each.matrix_share for each in judged.estimates), 6),
        *judged.candidate.setting,
    )


def rank(judged: Sequence[Judged], upstream: Judged) -> list[Judged]:
    """The eligible ones, the best first."""
    eligible = [each for each in judged if each.refused is None]
    return sorted(eligible, key=lambda each: rank_key(each, upstream))


def margin(best: Judged, second: Judged | None, upstream: Judged) -> str:
    """In words, where the best is ahead of the next one."""
    if second is None:
        return "nothing else is eligible"
    ours, theirs = rank_key(best, upstream), rank_key(second, upstream)
    for name, mine, other in zip(_KEY_NAMES, ours, theirs, strict=False):
        if mine != other:
            return f"{name}: {_number(mine)} before {_number(other)} of {_setting(second)}"
    return f"equal to {_setting(second)}"


def _number(value: float) -> str:
    return f"{abs(value):.3g}"


def _setting(judged: Judged) -> str:
    return "/".join(str(value) for value in judged.candidate.setting)


def front(judged: Sequence[Judged]) -> list[Judged]:
    """The Pareto front over spills, reported and resident waves and the estimate, each at worst.

    Of candidates that are equal in all of these the first one stands for the others.
    """
    first: dict[tuple[float, ...], Judged] = {}
    for each in judged:
        if each.figures:
            first.setdefault(_point(each), each)
    return [each for point, each in first.items() if not _beaten(point, first)]


def _point(judged: Judged) -> tuple[float, ...]:
    return (
        max(figures.spills for figures in judged.figures),
        -min(figures.waves for figures in judged.figures),
        -min(figures.resident for figures in judged.figures),
        max(each.cost for each in judged.estimates),
    )


def _beaten(point: tuple[float, ...], points: Iterable[tuple[float, ...]]) -> bool:
    return any(
        other != point and all(theirs <= mine for theirs, mine in zip(other, point, strict=True))
        for other in points
    )

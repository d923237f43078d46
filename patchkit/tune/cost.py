"""Ranks candidates by a documented order, and finds the Pareto front.

If settings were timed by the model (:mod:`patchkit.tune.timed`), the order is by modelled time: the geometric
mean over the operations of time over upstream's. The ratio of upstream's own setting is reduced by the median
error of such ratios, so that a difference within the model's error does not replace it.

Otherwise eligible candidates are ranked by judgement; each criterion decides only among equals in all earlier
ones:

1. spilled registers, as a share of upstream's;
2. waves per SIMD below five as reported by the compiler;
3. resident waves below six: limited by registers and LDS together, in whole blocks;
4. the estimate (:func:`estimate`), as a share of upstream's; upstream's own
   counts a tenth less, so that an estimate must be better by that much to replace it;
5. barriers per KV row, LDS bytes per KV row, and the share of matrix instructions (more is better);
6. the values of the setting, so that the order is total.

Five, six and the tenth are judgement: with fewer than five waves little memory latency is hidden, and the
benefit of more than six has not been measured; from there the estimate decides, in which more waves hide
latency.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from patchkit.base.occupancy import HardwareLimits, resident_blocks
from patchkit.gpu.modelled.machine import ModelError
from patchkit.tune.family import Candidate, Traits
from patchkit.tune.outcome import Failure, Figures, Outcome

MATRIX_CYCLES = 32
LDS_BYTES_PER_CYCLE = 64
# A prompt of 512 tokens with 32 heads and 4096 KV rows: the middle of what the series is measured with.
_TOKENS, _HEADS, _KV_ROWS = 512, 32, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimated cycles of one pool (WGP) per KV row and column of the result.

    ``bound`` is the limiting factor: issue, lds or latency. ``tail`` is the share of block slots in use, 0 to
    1. Barriers and LDS bytes are per KV row and block; ``matrix_share`` is a share of the issue cycles.
    """

    json_keys: ClassVar = "cycles bound tail barriers_per_row lds_bytes_per_row matrix_share cost"

    cycles: float
    bound: str
    tail: float
    barriers_per_row: float
    lds_bytes_per_row: float
    matrix_share: float

    @property
    def cost(self) -> float:
        """Cycles, increased by the idle slots of the last round of blocks."""
        return self.cycles / self.tail


def estimate(figures: Figures, traits: Traits, limits: HardwareLimits, compute_units: int | None) -> Estimate:
    """Estimate one candidate; without ``compute_units`` (of the whole GPU) the tail is not considered."""
    loop = figures.loop
    waves = -(-traits.threads // limits.wave_size)
    issue = loop.instructions + (MATRIX_CYCLES - 1) * loop.matrix
    lds_bytes = loop.lds_bytes * limits.wave_size
    times = {
        "issue": float(issue),
        "lds": lds_bytes / LDS_BYTES_PER_CYCLE,
        "latency": (figures.latency or 0) / max(1, figures.resident),
    }
    bound = max(times, key=lambda name: times[name])
    blocks = max(1, resident_blocks(figures.vgprs, figures.lds_bytes, traits.threads, limits))
    tail = 1.0
    if compute_units is not None:
        pools = max(1, compute_units * _simds_per_cu(limits) // limits.simds_per_pool)
        tail = tail_share(traits, blocks * pools)
    return Estimate(
        cycles=times[bound] * waves / limits.simds_per_pool / traits.rows / traits.columns,
        bound=bound,
        tail=tail,
        barriers_per_row=loop.barriers / traits.rows,
        lds_bytes_per_row=lds_bytes * waves / traits.rows,
        matrix_share=MATRIX_CYCLES * loop.matrix / issue if issue else 0.0,
    )


def tail_share(traits: Traits, slots: int) -> float:
    """The share of block slots in use, over all rounds in which the GPU runs the blocks; 0 to 1.

    For attention, KV is split in the best way, as launch_fattn does; a kernel with ``tiles`` is not split.
    """
    if traits.tiles is not None:
        return traits.tiles / (-(-traits.tiles // slots) * slots)
    tiles = -(-_TOKENS // traits.columns) * _HEADS
    most = max(1, _KV_ROWS // traits.rows)
    shares = (tiles * parts / (-(-tiles * parts // slots) * slots) for parts in range(1, most + 1))
    return max(shares)


def _simds_per_cu(limits: HardwareLimits) -> int:
    """SIMDs per CU: a pool is a WGP of two CUs on RDNA, and a CU on GCN and CDNA."""
    return limits.simds_per_pool // 2 if limits.wave_size == 32 else limits.simds_per_pool  # noqa: PLR2004 - RDNA


_FEWEST_WAVES = 5
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
class Modelled:
    """Modelled times of a setting: microseconds per operation, and the geometric mean ratio to upstream's.

    ``error`` is the known error of such times.
    """

    json_keys: ClassVar = "us ratio error=half"

    us: tuple[float, ...]
    ratio: float
    error: ModelError

    @property
    def half(self) -> float:
        """The median error of such ratios, or of such times if no ratios were measured."""
        return self.error.median if self.error.ratio_median is None else self.error.ratio_median


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A candidate with its figures; ``refused`` is why it is not eligible, or None."""

    json_keys: ClassVar = "setting=candidate.setting refused figures estimate modelled"

    candidate: Candidate
    figures: Figures
    estimate: Estimate
    refused: str | None = None
    modelled: Modelled | None = None


def why_worse(found: Outcome, upstream: Outcome) -> str | None:
    """Why ``found`` is worse than upstream's setting; None if it is not, or if upstream's did not compile."""
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
    """The sort key for the order in the module docstring; smaller is better."""
    if judged.modelled is not None:
        kept = 1 - judged.modelled.half if judged.candidate == upstream.candidate else 1.0
        return (round(kept * judged.modelled.ratio, 6), *judged.candidate.setting)
    figures, cost = judged.figures, judged.estimate
    kept = _UPSTREAM_COUNTS if judged.candidate == upstream.candidate else 1.0
    return (
        round(figures.spills / max(1, upstream.figures.spills), 6),
        max(0, _FEWEST_WAVES - figures.waves),
        max(0, _ENOUGH_RESIDENT - figures.resident),
        round(kept * cost.cost / upstream.estimate.cost, 6),
        round(cost.barriers_per_row, 6),
        round(cost.lds_bytes_per_row, 3),
        -round(cost.matrix_share, 6),
        *judged.candidate.setting,
    )


def rank(judged: Sequence[Judged], upstream: Judged) -> list[Judged]:
    """The eligible candidates, the best first."""
    eligible = [each for each in judged if each.refused is None]
    return sorted(eligible, key=lambda each: rank_key(each, upstream))


def margin(best: Judged, second: Judged | None, upstream: Judged) -> str:
    """A text for the first criterion in which the best candidate is better than the next one."""
    if second is None:
        return "nothing else is eligible"
    ours, theirs = rank_key(best, upstream), rank_key(second, upstream)
    names = ("modelled time",) if best.modelled is not None else _KEY_NAMES
    for name, mine, other in zip(names, ours, theirs, strict=False):
        if mine != other:
            return f"{name}: {_number(mine)} against {_number(other)} of {_setting(second)}"
    return f"equal to {_setting(second)}"


def _number(value: float) -> str:
    return f"{abs(value):.3g}"


def _setting(judged: Judged) -> str:
    return "/".join(str(value) for value in judged.candidate.setting)


def front(judged: Sequence[Judged]) -> list[Judged]:
    """The Pareto front over spills, reported waves, resident waves and the estimate.

    Of candidates with equal values only the first is included.
    """
    first: dict[tuple[float, ...], Judged] = {}
    for each in judged:
        first.setdefault(_point(each), each)
    return [each for point, each in first.items() if not _is_dominated(point, first)]


def _point(judged: Judged) -> tuple[float, ...]:
    figures = judged.figures
    return (figures.spills, -figures.waves, -figures.resident, judged.estimate.cost)


def _is_dominated(point: tuple[float, ...], points: Iterable[tuple[float, ...]]) -> bool:
    return any(
        other != point and all(theirs <= mine for theirs, mine in zip(other, point, strict=True))
        for other in points
    )

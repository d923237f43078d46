"""A machine that is played: known effects of patches, and the noise that real ones have."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from patchkit.prove.pick.decide import Member, Visit, VisitTimes
from patchkit.prove.pick.factorial import Arm

TESTS = ("pp512", "tg128")
MODELS = ("small", "large")
PLANTED = (
    Member(id="0001-prompts", touches=frozenset({"0005-with-prompts"})),
    Member(id="0002-slow-text"),
    Member(id="0003-nothing"),
    Member(id="0004-wrong"),
    Member(id="0005-with-prompts"),
    Member(id="0006-one-model"),
)
"""The planted patches: what each is for stands in :func:`planted_factor`."""
RIGHT = ("0001-prompts", "0005-with-prompts")


def planted_factor(arm: Arm, model: str, test: str) -> float:
    """By what the time of a test is multiplied with these patches."""
    factor = 1.0
    if test.startswith("pp"):
        factor /= 1.1 if "0001-prompts" in arm else 1.0
        factor /= 1.05 if {"0001-prompts", "0005-with-prompts"} <= set(arm) else 1.0
    else:
        factor *= 1.03 if "0002-slow-text" in arm else 1.0
        factor /= 1.2 if "0004-wrong" in arm else 1.0
        if "0006-one-model" in arm:
            factor *= 1 / 1.06 if model == "small" else 1.06
    return factor


@dataclass(slots=True, kw_only=True)
class SimulatedMachine:
    """``noise`` is of single visits; of stalls one in ``1 / stalls`` visits is hit.

    It warms up (``drift`` until it is warm), and runs at four fifths of its clock for a while now and then
    (``throttling``: the chance that such a while begins with a visit).
    """

    seed: int
    noise: float
    drift: float = 0.05
    stalls: float = 0.03
    throttling: float = 0.01
    seconds: float = 4.0
    factor: Callable[[Arm, str, str], float] = planted_factor
    base: Mapping[str, float] = field(default_factory=lambda: {"pp512": 1e8, "tg128": 1e9})
    visits: list[Visit] = field(default_factory=list)
    checked: list[Arm] = field(default_factory=list)
    _slow_left: int = 0
    _wander: float = 0.0
    _draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Nothing has to be built."""

    def measure(self, visit: Visit) -> VisitTimes:
        """Run a visit of the played machine."""
        draw = self._draw
        warm = min(1.0, len(self.visits) / 200)
        self._wander = 0.98 * self._wander + draw.gauss(0, self.drift / 40)
        self.visits.append(visit)
        if not self._slow_left and draw.random() < self.throttling:
            self._slow_left = draw.randrange(3, 30)
        slow = 1.25 if self._slow_left else 1.0
        self._slow_left = max(0, self._slow_left - 1)
        times = {}
        for test, base in self.base.items():
            time = base * self.factor(visit.arm, visit.model, test) * slow
            time *= (1 + self.drift * warm) * (1 + self._wander)
            time *= max(0.5, 1 + draw.gauss(0, self.noise))
            if draw.random() < self.stalls:
                time *= 1 + draw.expovariate(3)
            times[test] = time
        return VisitTimes(times=times, seconds=self.seconds)

    def fault_of(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """What the planted wrong patch does."""
        del is_search
        self.checked.append(arm)
        return "MUL_MAT of one case" if "0004-wrong" in arm else None

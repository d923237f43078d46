"""Machines' measurements of a model, compared with modelled times of the same builds and tests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from patchkit.base.evidence import EvidenceFile, MeasuredTest
from patchkit.gpu.modelled.machine import Machine
from patchkit.gpu.modelled.network import ModelTime
from patchkit.gpu.modelled.operation import head_size_of, is_moe


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredComparison:
    """One test of one file. ``measured`` and ``modelled`` are tokens per second by side.

    ``ratio`` is candidate over upstream, measured with its interval; ``modelled_ratio`` is the modelled one.
    ``error`` is the largest known error of its kernels. None: not measured, or not known.
    """

    json_keys: ClassVar = (
        "who file day measured_tokens_per_second=measured measured_ratio=ratio modelled_ratio "
        "stated_error=error outside=is_outside"
    )

    who: str
    file: str
    day: str
    measured: Mapping[str, float]
    modelled: Mapping[str, float]
    ratio: tuple[float, float, float] | None
    modelled_ratio: float | None
    error: float | None

    @property
    def is_outside(self) -> bool:
        """Whether the measured interval and the model's error range do not overlap."""
        if self.ratio is None or self.modelled_ratio is None or self.error is None:
            return False
        low, _, high = self.ratio
        highest = self.modelled_ratio / (1 - self.error) if self.error < 1 else math.inf
        return high < self.modelled_ratio / (1 + self.error) or low > highest

    def lines(self) -> Iterator[str]:
        """The comparison as text."""
        for side, speed in self.measured.items():
            factor = self.modelled[side] / speed
            whose = f"({self.who}, {self.day})"
            yield f"  measured: {side} {speed:.1f} t/s {whose}; modelled is {factor:.2f} times that"
        if self.ratio is None or self.modelled_ratio is None:
            return
        low, middle, high = self.ratio
        text = f"  measured: the candidate is {middle:.3f} times as fast ({low:.3f} to {high:.3f})"
        if self.error is None:
            yield f"{text}; modelled {self.modelled_ratio:.3f}, whose error is not known"
        else:
            word = "OUTSIDE" if self.is_outside else "within"
            yield f"{text}; modelled {self.modelled_ratio:.3f}, {word} its error of {self.error:.1%}"


def compare_measured(
    files: Sequence[EvidenceFile],
    machine: Machine,
    *,
    model: str,
    trees: Mapping[str, str],
    times: Mapping[str, ModelTime],
    is_prompt: bool,
    count: int,
    depth: int,
) -> Iterator[MeasuredComparison]:
    """Compare every measurement of this test and model on this GPU, for builds that were modelled.

    ``trees`` and ``times`` are by side; ``count`` and ``depth`` are the test's, in tokens.
    """
    for file in files:
        if file.machine.arch != machine.device.arch:
            continue
        sides = {side: arm.name for side, tree in trees.items() for arm in file.arms if arm.tree == tree}
        for test in file.tests:
            tokens = (count, 0) if is_prompt else (0, count)
            same = (test.prompt, test.generated, test.depth) == (*tokens, depth)
            if not same or test.model.casefold() != model.casefold() or test.type_k != "f16":
                continue
            found = _one(file, test, sides, times, machine)
            if found is not None:
                yield found


def _one(
    file: EvidenceFile,
    test: MeasuredTest,
    sides: Mapping[str, str],
    times: Mapping[str, ModelTime],
    machine: Machine,
) -> MeasuredComparison | None:
    speeds = {side: speed for side, arm in sides.items() if side in times and (speed := _speed(test, arm))}
    if not speeds:
        return None
    number = file.tests.index(test)
    ratio = next(
        (
            (1 + one.low, 1 + one.change, 1 + one.high)
            for one in file.verdicts
            if one.test == number
            and {"upstream", "candidate"} <= speeds.keys()
            and _is(file, one.of, sides["candidate"])
            and _is(file, one.against, sides["upstream"])
        ),
        None,
    )
    both = {"upstream", "candidate"} <= times.keys()
    return MeasuredComparison(
        who=f"{file.who}, {file.machine.gpu}",
        file=file.name,
        day=file.day,
        measured=speeds,
        modelled={side: time.rate for side, time in times.items()},
        ratio=ratio,
        modelled_ratio=times["candidate"].rate / times["upstream"].rate if both else None,
        error=ratio_error(machine, times["upstream"], times["candidate"]) if both else None,
    )


def _is(file: EvidenceFile, one: str, other: str) -> bool:
    """Whether two arms are the same build."""
    return file.arm(one).tree == file.arm(other).tree


def _speed(test: MeasuredTest, arm: str) -> float | None:
    times = [statistics.median(one[arm]) for one in test.rounds if arm in one]
    return test.tokens * 1e9 / statistics.median(times) if times else None


def ratio_error(machine: Machine, before: ModelTime, after: ModelTime) -> float | None:
    """90th percentile of the relative error of the ratio of two whole-model times.

    None if it is unknown, as for MoE matmuls: none was compared with a published time.

    Errors of operations that are the same on both sides cancel out. So these are the errors of the operations
    whose time differs, each by its share of the time; 0 for equal models.
    """
    known = {part.case: part for part in before.parts}
    if before.missing or after.missing or known.keys() != {part.case for part in after.parts}:
        return None
    total = 0.0
    for part in after.parts:
        was = known[part.case]
        if math.isclose(was.us, part.us, rel_tol=1e-6):
            continue
        error = machine.ratio_error(was.time.kind, part.time.kind, head_size_of(part.case))
        if error is None or is_moe(part.case):
            return None
        total += error * max(was.us / before.us, part.us / after.us)
    return total

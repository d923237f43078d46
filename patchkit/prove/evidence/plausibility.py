"""Plausibility checks: clocks, dates, speeds and times that no machine and no measurement can have."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence

from patchkit.base.arch import GpuProfile
from patchkit.base.errors import PatchkitError
from patchkit.base.evidence import EvidenceFile, MeasuredTest
from patchkit.base.series_folder import PLAIN
from patchkit.carry.series.lock import Pin
from patchkit.gpu.modelled.roofline import peaks_of
from patchkit.prove.evidence.figures import speed_of

_HIGHEST_MHZ = 6000.0  # far above any GPU
_HOTTEST_C = 130.0
_BACKENDS = {"hip": "gfx", "cuda": "sm_", "cpu": "cpu"}
_OTHERS = {"hip": ("nvidia", "geforce", "tesla"), "cuda": ("amd", "radeon", "instinct"), "cpu": ()}


def impossible_machine(file: EvidenceFile) -> Iterator[str]:
    """Reasons why such a machine cannot exist."""
    machine = file.machine
    if not machine.arch.startswith(_BACKENDS[machine.backend]):
        yield f"{machine.backend} does not run on {machine.arch}"
    if any(word in machine.gpu.casefold() for word in _OTHERS[machine.backend]):
        yield f"{machine.gpu} does not support {machine.backend}"
    if machine.arch not in file.archs and machine.backend == "hip" and tuple(file.archs) != (PLAIN,):
        yield f"it is a {machine.arch}, but the builds are for {' '.join(file.archs)}"
    if machine.backend != "hip" and machine.rocm is not None:
        yield f"{machine.backend} does not use ROCm"
    for what, found, most in (
        ("MHz", machine.clock_mhz, _HIGHEST_MHZ),
        ("degrees C", machine.temperature_c, _HOTTEST_C),
        ("W", machine.power_w, 5000.0),
    ):
        if found is not None and not 0 <= found.low <= found.high <= most:
            yield f"{found.low} to {found.high} {what}"


def impossible_day(file: EvidenceFile, pin: Pin, today: dt.date) -> Iterator[str]:
    """Reasons why it cannot have been measured on the stated date."""
    day = _day(file.day)
    if day is None:
        yield f"{file.day} is not a date"
    # One day of tolerance in both directions: two dates exist on earth at the same time.
    elif day > today + dt.timedelta(days=1):
        yield f"{file.day} is in the future"
    else:
        committed = _day(pin.committed[:10])
        if committed is not None and day < committed - dt.timedelta(days=1):
            yield f"{pin.name} is from {committed}"


def _day(text: str) -> dt.date | None:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


# Models whose tokens read all weights, by llama-bench's names; others may be MoE models.
_DENSE = re.compile(r"(llama|qwen2|qwen3|gemma[23]?|phi[234]) \d+(\.\d+)?B [^ ]*[A-Z0-9_]+( - \w+)?")
_SLACK = 1.15  # the profile may have the figure of a slower memory than this machine's
_EXPERTS = 64  # the sparsest MoE models read about a thirtieth of their weights per token
_BYTES_A_WEIGHT = 4.0  # at most: F32
_INTEGERS = 4.0  # rate of 8-bit and 4-bit integer matmuls relative to f16, at most


def impossible_times(test: MeasuredTest, profile: GpuProfile | None) -> Iterator[str]:
    """Reasons why these cannot be times of that GPU; ``profile`` None: nothing is known about it."""
    if profile is not None:
        yield from _too_fast(test, profile)
    yield from _too_even(test)


def _too_fast(test: MeasuredTest, profile: GpuProfile) -> Iterator[str]:
    """Speeds beyond the memory bandwidth or the compute peak."""
    try:
        peaks = peaks_of(profile)
    except PatchkitError:  # the profile lacks the figures
        return
    share = 1.0 if _DENSE.fullmatch(test.model) else 1.0 / _EXPERTS
    names = {name for one in test.rounds for name in one}
    fastest = max((speed_of(test, name) or 0.0 for name in names), default=0.0)
    if test.generated:
        needed = fastest * test.model_bytes * share / 1e9
        if needed > peaks.bandwidth.value * _SLACK:
            rate = f"{fastest:.0f} tokens/s of {test.model} read {needed:.0f} GB/s"
            yield f"{rate}; the memory has {peaks.bandwidth}"
    else:
        needed = fastest * 2 * test.model_bytes / _BYTES_A_WEIGHT * share / 1e12
        if needed > peaks.compute.value * _SLACK * _INTEGERS:
            rate = f"{fastest:.0f} tokens/s of {test.model} need {needed:.0f} TFLOPS"
            yield f"{rate}; the peak is {peaks.compute}"


_FEW = 6  # number of times from which their spread is meaningful
_STILL = 1e-5  # real clocks and workloads vary a hundred times more


def _too_even(test: MeasuredTest) -> Iterator[str]:
    """Times without any spread, on their own or relative to another arm."""
    by_arm: dict[str, list[int]] = {}
    for one in test.rounds:
        for name, times in one.items():
            by_arm.setdefault(name, []).extend(times)
    for name, several in by_arm.items():
        if len(several) >= _FEW and spread([math.log(each) for each in several]) < _STILL:
            yield f"{len(several)} times of arm '{name}' are all equal"
    for first, second in itertools.combinations(sorted(by_arm), 2):
        rounds = [row for row in test.rounds if first in row and second in row]
        together = ((row[first], row[second]) for row in rounds)
        pairs = (pair for mine, theirs in together for pair in zip(mine, theirs, strict=True))
        if _is_multiple(pairs, sum(len(row[first]) for row in rounds)):
            yield f"the times of arm '{first}' are those of '{second}' times a constant"


def is_multiple(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether one list of times is the other times a constant, which two measurements never are."""
    return len(one) == len(other) and _is_multiple(zip(one, other, strict=True), len(one))


def _is_multiple(pairs: Iterable[tuple[int, int]], count: int) -> bool:
    """The same for ``count`` pairs. Files may have a hundred arms, so real pairs are recognised after a few.

    If two of n values are d apart, the deviation is at least d / sqrt(2 n), whatever the others are.
    """
    if count < _FEW:
        return False
    widest = _STILL * math.sqrt(2 * count)
    low, high, found = math.inf, -math.inf, []
    for mine, theirs in pairs:
        found.append(math.log(mine / theirs))
        low, high = min(low, found[-1]), max(high, found[-1])
        if high - low >= widest:
            return False
    return spread(found) < _STILL


def spread(values: Sequence[float]) -> float:
    """The standard deviation."""
    return statistics.pstdev(values)


def copied_test(file: EvidenceFile, other: EvidenceFile) -> str | None:
    """The name of a test whose times in one file are those of the other, or a constant multiple."""
    for test in file.tests:
        for same in other.tests:
            if (test.prompt, test.generated, test.depth) != (same.prompt, same.generated, same.depth):
                continue
            mine, theirs = _times(test), _times(same)
            if any(is_multiple(one, two) for one in mine for two in theirs):
                return test.name
            shared = {each for one in mine for each in one} & {each for two in theirs for each in two}
            if len(shared) >= _FEW:  # nanoseconds in a second: equal by chance once in millions
                return test.name
    return None


def _times(test: MeasuredTest) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for one in test.rounds:
        for name, times in one.items():
            found.setdefault(name, []).extend(times)
    return list(found.values())

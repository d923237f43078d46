"""``patchkit tune --device``: benchmarks the best-ranked settings of a variant on a GPU."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Literal

from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.files import write_whole
from patchkit.base.plain import fields_of
from patchkit.base.workspace import Workspace
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.hardware.bench.measure import Arm, Bench, Setup, open_bench
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.rounds import AGAIN, ARMS, BASELINE, CANDIDATE
from patchkit.gpu.hardware.bench.statistics import Comparison, compare
from patchkit.gpu.hardware.runner import Runner
from patchkit.tune.family import Setting
from patchkit.tune.profile_text import write_profile
from patchkit.tune.registry import KernelName, tunable
from patchkit.tune.report import read_report, report_path
from patchkit.tune.search import NOT_WORTH_TIMING

# Successive halving: three rungs of 3, 6 and 12 rounds. Fewer than three rounds give no interval.
FIRST_ROUNDS = 3
RUNGS = 3
_TIMEOUT_S = 3600.0  # for one run of llama-bench

Measure = Callable[[Setting, int], Comparison]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedArm:
    """An arm after its last rung, with its comparison to upstream's build."""

    arm: Setting
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """The result of a race of arms (successive halving).

    ``standings`` has the fastest arm first. ``winner`` is None if the first two are within noise of each
    other, or if the first is not faster than upstream's build.
    """

    standings: tuple[RankedArm, ...]
    winner: Setting | None
    why: str


def race(arms: Sequence[Setting], measure: Measure) -> Race:
    """Run a race; ``measure`` returns an arm's comparison over a total number of rounds.

    Rounds are cumulative: a measurement of six rounds includes the three from before.
    """
    if not arms:
        raise ValueError("no arms")
    running = list(dict.fromkeys(arms))
    out: list[RankedArm] = []
    current: list[RankedArm] = []
    for rung in range(RUNGS):
        rounds = FIRST_ROUNDS * 2**rung
        current = [RankedArm(arm=arm, comparison=measure(arm, rounds)) for arm in running]
        current.sort(key=_place)
        if rung + 1 < RUNGS:
            kept = _survivors(current)
            out = [*current[kept:], *out]
            current = current[:kept]
            running = [standing.arm for standing in current]
    winner, why = _verdict(current)
    return Race(standings=(*current, *out), winner=winner, why=why)


def _place(standing: RankedArm) -> tuple[float, Setting]:
    return (-standing.comparison.effect.middle, standing.arm)


def _survivors(standings: Sequence[RankedArm]) -> int:
    """The number of arms to keep: the faster half, plus any arm within noise of the last one kept."""
    kept = -(-len(standings) // 2)
    last = standings[kept - 1].comparison
    for standing in standings[kept:]:
        lag = last.effect.middle - standing.comparison.effect.middle
        if lag > max(last.margin, standing.comparison.margin):
            break
        kept += 1
    return kept


def _verdict(standings: Sequence[RankedArm]) -> tuple[Setting | None, str]:
    first = standings[0]
    if first.comparison.verdict != "faster":
        return None, f"the first is {first.comparison.verdict} compared with upstream's build"
    if len(standings) > 1:
        second = standings[1].comparison
        ahead = first.comparison.effect.low - second.effect.high
        if ahead <= 0:
            return None, "the intervals of the first two overlap"
    return first.arm, "its interval is above the noise, and above the interval of the next one"


_UPSTREAM = "upstream"
_LEAST = 0.01  # a smaller gain is not worth a row in the profile


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """What to measure.

    ``builds`` contains a folder per build; ``device`` is llama-bench's name of the GPU (ROCm0), or None for
    the CPU.
    """

    arch: str
    kernel: KernelName
    upstream: str | None
    variants: tuple[str, ...]
    builds: Path
    model: Path
    device: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected speed relative to upstream's setting, from the timing model or else the estimate."""

    speed: float
    by: Literal["modelled", "estimated"]


def _expected(candidate: Mapping[str, Any], upstream: Mapping[str, Any]) -> Expected:
    if candidate.get("modelled") is not None:
        return Expected(speed=1 / candidate["modelled"]["ratio"], by="modelled")
    before, after = (each["estimates"][0]["cost"] for each in (upstream, candidate))
    return Expected(speed=before / after, by="estimated")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceResult:
    """The result of a race, and the expected speeds relative to upstream's setting, by setting."""

    json_keys: ClassVar = "arch kernel build variant model winner=race.winner why=race.why standings"

    arch: str
    kernel: KernelName
    build: int
    variant: str
    model: str
    race: Race
    expected: Mapping[Setting, Expected]

    @property
    def standings(self) -> list[dict[str, object]]:
        """Each arm with its measured and expected speed relative to upstream's setting."""
        return [
            {
                "setting": standing.arm,
                "rounds": standing.comparison.rounds,
                "verdict": standing.comparison.verdict,
                "measured": math.exp(standing.comparison.effect.middle),
                "low": math.exp(standing.comparison.effect.low),
                "high": math.exp(standing.comparison.effect.high),
                "noise": math.exp(standing.comparison.noise.reach) - 1,
                "expected": self.expected[standing.arm].speed,
                "expected_by": self.expected[standing.arm].by,
            }
            for standing in self.race.standings
        ]


def _compare(bench: Bench, count: int) -> Comparison:
    """The comparison over ``count`` rounds, after measuring the missing ones."""
    bench.measure(count)
    rounds = bench.rounds(count)

    def times(arm: str) -> list[float]:
        """Per round, the geometric mean over the depths, so that the deepest does not dominate."""
        by_test = [rounds.medians(test, arm) for test in rounds.tests]
        return [statistics.geometric_mean(each) for each in zip(*by_test, strict=True)]

    return compare(*map(times, ARMS), least=_LEAST)


def run_device(workspace: Workspace, request: DeviceRequest, runner: Runner) -> DeviceResult:
    """Race the existing builds, in the order of the report, and save the result.

    Raises:
        TUNE_OPTIONS, TUNE_RECORD_BAD, TUNE_OPTIONS: there is nothing to race.
        BENCH_FAILED and other BENCH errors: a program failed; earlier measurements are kept.
        CacheError: a disk operation failed.
    """
    build = load_lock(workspace.series.lock).pin(request.upstream).build
    variant, entry = _variant_of_report(workspace, request, build)
    # Dominated settings that were not timed may still be fast on hardware, so they are measured, too.
    untimed = [each["setting"] for each in entry["candidates"] if each.get("refused") == NOT_WORTH_TIMING]
    arms = [tuple(setting) for setting in [*entry["order"], *untimed]]
    arms = [arm for arm in arms if _folder(request.builds, arm).is_dir()]
    _check(request, arms)
    plan = BenchPlan(generated=(), device=request.device)
    with ExitStack() as stack:
        benches: dict[Setting, Bench] = {}

        def measure(setting: Setting, count: int) -> Comparison:
            if setting not in benches:
                upstream = request.builds / _UPSTREAM
                named = f"{variant} {_name(setting)}"
                setup = Setup(
                    arms=(
                        Arm(label=BASELINE, folder=upstream, tree=_UPSTREAM),
                        Arm(label=CANDIDATE, folder=_folder(request.builds, setting), tree=named),
                        Arm(label=AGAIN, folder=upstream, tree=_UPSTREAM),
                    ),
                    model=request.model,
                    plan=plan,
                    runner=runner,
                )
                folder = workspace.cache_root / "tune" / "runs" / setup.key
                benches[setting] = stack.enter_context(
                    open_bench(folder, setup, reporter=workspace.reporter, timeout_s=_TIMEOUT_S)
                )
            workspace.reporter.step(f"{variant} {_name(setting)}: {count} rounds")
            return _compare(benches[setting], count)

        found = race(arms, measure)
        for bench in benches.values():
            bench.journal.finish()
    known = {tuple(each["setting"]): each for each in entry["candidates"]}
    base = known[tuple(entry["upstream"])]
    result = DeviceResult(
        arch=request.arch,
        kernel=request.kernel,
        build=build,
        variant=variant,
        model=request.model.name,
        race=found,
        expected={arm: _expected(known[arm], base) for arm in arms},
    )
    _write(
        report_path(workspace.cache_root, request.arch, f"{request.kernel}-{variant}-device", build), result
    )
    return result


def _variant_of_report(
    workspace: Workspace, request: DeviceRequest, build: int
) -> tuple[str, Mapping[str, Any]]:
    """The requested variant, and its entry in the saved report of the compiler's figures."""
    if len(request.variants) != 1:
        raise UsageError(
            "--device measures exactly one variant",
            code="TUNE_OPTIONS",
            hint="for example: --variant 64-32-f32, for a model of that head size",
        )
    (variant,) = request.variants
    report = read_report(workspace.cache_root, request.arch, request.kernel, build, whole=False)
    entry = next((each for each in report["variants"] if each["variant"] == variant), None)
    if entry is None:
        raise UsageError(
            f"the report has no variant '{variant}'",
            code="TUNE_OPTIONS",
            hint="run patchkit tune to list the variants",
        )
    return variant, entry


def write_winner(workspace: Workspace, result: DeviceResult, today: date) -> bool:
    """Write the measured winner to the profile, replacing the setting chosen by the compiler's figures.

    Without a winner nothing is written. Raises TUNE_PROFILE_NOT_WRITTEN, CacheError.
    """
    if result.race.winner is None:
        return False
    first, expected = result.race.standings[0].comparison, result.expected[result.race.winner]
    gain = f"{math.expm1(first.effect.middle) * 100:+.1f} % ({first.rounds} rounds, {expected.by} "
    gain += f"{(expected.speed - 1) * 100:+.0f} %)"
    measured_on = f"{result.arch} by patchkit tune --device, {today.isoformat()}: {result.model}, {gain}"
    profile = load_profile(workspace.series.profiles, result.arch)
    kernel = tunable(result.kernel)
    if kernel.table is None or kernel.rows_with is None:
        raise ConfigError(
            f"profiles have no table for single settings of {result.kernel}",
            code="TUNE_PROFILE_NOT_WRITTEN",
            where=profile.where,
            why="the result is saved in the cache folder only",
            hint="run it without --write",
        )
    rows = kernel.rows_with(profile, result.variant, result.race.winner, measured_on)
    return write_profile(workspace.series.profiles / f"{result.arch}.toml", kernel.table, rows)


def _check(request: DeviceRequest, arms: list[Setting]) -> None:
    why = None
    if not (request.builds / _UPSTREAM).is_dir():
        why = f"it has no folder '{_UPSTREAM}'"
    elif not arms:
        why = "none of its folders has the name of an eligible setting, such as 128-8"
    elif not request.model.is_file():
        why = f"the model {request.model} does not exist"
    if why is not None:
        raise UsageError(
            "there are no builds, or no model, to measure",
            code="TUNE_OPTIONS",
            where=Location(path=str(request.builds)),
            why=why,
            hint="see docs/how-it-works/tune.md for how to create the builds",
        )


def _name(arm: Setting) -> str:
    return "-".join(str(value) for value in arm)


def _folder(builds: Path, arm: Setting) -> Path:
    return builds / _name(arm)


def _write(path: Path, result: DeviceResult) -> None:
    write_whole(path, json.dumps(fields_of(result), indent=1) + "\n", "writing the result")

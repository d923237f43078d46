"""How long ``bench run``, ``verify`` and ``pick`` run llama-bench with a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.gpu.gguf import Kind
from patchkit.gpu.hardware.bench.options import SWEEP_DEPTHS, BenchPlan
from patchkit.gpu.modelled.estimate import MeasuredSpeed
from patchkit.gpu.modelled.roofline import Peaks, Test, bound_of
from patchkit.gpu.modelled.shape import ModelShape
from patchkit.prove.gates.bench import ROUNDS
from patchkit.prove.pick.decide import BUILDS, CHECK_ROUNDS, FIRST_LOOK, WHOLE_ROUNDS

Seconds = Callable[[Test], float]
_SIDES, _GATE_ARMS = 2, 3  # upstream and candidate; the gate measures upstream twice


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """The time in ``seconds`` of all ``calls`` of llama-bench of a command, without loading the model.

    ``what`` describes the calls.
    """

    json_keys: ClassVar = "command seconds calls what"

    command: str
    seconds: float
    calls: int
    what: str


def durations_of(seconds: Seconds) -> tuple[Duration, ...]:
    """The durations of the commands with their default options; ``seconds`` is the time of one test.

    For ``pick``, the fewest rounds that can decide, with as many builds as a round has at most.
    """
    sweep = BenchPlan(depths=SWEEP_DEPTHS, repetitions=1, micro_batch=512)
    gate = BenchPlan()
    round_of_pick = BenchPlan(depths=(0,), micro_batch=512)
    repetitions = BenchPlan().repetitions
    per_depth = [call_seconds(replace(sweep, depths=(depth,)), seconds) for depth in sweep.depths]
    decided = _SIDES * (WHOLE_ROUNDS + CHECK_ROUNDS) + BUILDS * FIRST_LOOK
    return (
        Duration(
            command="bench run",
            seconds=_SIDES * repetitions * sum(per_depth),
            calls=_SIDES * repetitions * len(per_depth),
            what=f"2 builds, {repetitions} calls at each of {len(per_depth)} depths",
        ),
        Duration(
            command="verify --gate bench",
            seconds=_GATE_ARMS * ROUNDS * call_seconds(gate, seconds),
            calls=_GATE_ARMS * ROUNDS,
            what=f"{_GATE_ARMS} builds in {ROUNDS} rounds; twice as many if a test stays unclear",
        ),
        Duration(
            command="pick",
            seconds=decided * call_seconds(round_of_pick, seconds),
            calls=decided,
            what=f"{WHOLE_ROUNDS} and {CHECK_ROUNDS} rounds of 2 builds, {FIRST_LOOK} of up to {BUILDS}",
        ),
    )


def call_seconds(plan: BenchPlan, seconds: Seconds) -> float:
    """The time of one call of llama-bench.

    As tools/llama-bench of build 11549 does it: the cache is filled once for each depth, a prompt is warmed
    up with the whole prompt and generation with one token, and then each test is repeated.
    """
    total = 0.0
    for depth in plan.depths:
        if depth:
            total += seconds(Test(tokens=depth, depth=0, batch=plan.micro_batch))
        for tokens in plan.prompts:
            prompt = Test(tokens=tokens, depth=depth, batch=min(tokens, plan.micro_batch))
            total += (1 + plan.repetitions) * seconds(prompt)
        for tokens in plan.generated:
            one, all_of_them = (Test(tokens=count, depth=depth, batch=1) for count in (1, tokens))
            total += seconds(one) + plan.repetitions * seconds(all_of_them)
    return total


def seconds_from(
    model: ModelShape, peaks: Peaks, kv: Kind, measured: Mapping[tuple[int, int, int], MeasuredSpeed]
) -> Seconds:
    """The time of a test: its bound, times how far the nearest measured test of its kind is from its own.

    Prompts and generation are kinds; the nearest is that of the nearest depth. Without a measured test of
    its kind the time is the bound, which is less than any GPU needs.
    """
    found: dict[Test, float] = {}

    def ratio(test: Test) -> float:
        of_kind = [each for each in measured.values() if bool(each.generated) == test.is_generation]
        if not of_kind:
            return 1.0
        near = min(of_kind, key=lambda each: (abs(each.depth - test.depth), each.prompt, each.generated))
        batch = 1 if near.generated else min(near.prompt, _BATCH)
        same = Test(tokens=near.prompt or near.generated, depth=near.depth, batch=batch)
        return bound_of(model, same, peaks, kv).rate / near.rate

    def seconds(test: Test) -> float:
        if test not in found:
            found[test] = bound_of(model, test, peaks, kv).seconds * ratio(test)
        return found[test]

    return seconds


_BATCH = 512  # llama-bench's default micro-batch; others are not in its result's key

"""The gate ``bench``: is the candidate as fast as the patches promise, and nowhere slower than they allow?

Baseline, candidate and the baseline again take turns in rounds. After the planned rounds those tests that
are still open get as many again, once; what is open then stays open, and an open test is not a passed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.bench.judge import Judged, Promise, judge, promises_for
from patchkit.bench.rounds import Rounds
from patchkit.errors import Location, PatchkitError
from patchkit.gates.base import GateResult
from patchkit.gates.bench_conditions import Conditions, summarise
from patchkit.gates.bench_errors import BenchGainMissing, BenchSlower
from patchkit.gates.bench_run import BenchSession, BenchSetup, open_session
from patchkit.gates.subject import Subject
from patchkit.runner.base import Runner

ROUNDS = 10
"""Planned rounds: a loss of 10 % is then seen on a machine whose runs differ by 1.5 %, as is simulated in
tests/property/test_bench_power.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchGate:
    """Runs where ``runner`` says.

    ``head_size`` is the model's, for the promises that name one (None: unknown, so none is asked for).
    ``name`` differs where no GPU takes part.
    """

    setup: BenchSetup
    runner: Runner
    head_size: int | None = None
    rounds: int = ROUNDS
    name: str = "bench"

    def run(self, subject: Subject) -> GateResult:
        """Measure and judge; raises what :meth:`BenchSession.add_round` raises."""
        rules = [(patch.id, patch.bench) for patch in subject.patches]
        promise = promises_for(rules, subject.archs, self.head_size)
        folder = subject.cache_root / "evidence" / subject.candidate_tree / self.name
        with open_session(self.setup, folder, runner=self.runner, reporter=subject.reporter) as session:
            rounds, looks, judged = self._measure(session, promise)
            session.close()
        return _result(self, session, rounds, looks, judged)

    def _measure(
        self, session: BenchSession, promise: Promise
    ) -> tuple[Rounds, list[Conditions], tuple[Judged, ...]]:
        arguments = session.arguments()
        rounds, looks = Rounds(), []
        judged: tuple[Judged, ...] = ()
        total = self.rounds
        with session.reporter.progress("measuring", "rounds") as advance:
            while rounds.count < total:
                looks.append(session.add_round(rounds.count, arguments, rounds))
                advance(rounds.count, total)
                if rounds.count == total:
                    judged = judge(rounds, promise)
                    if total == self.rounds and any(one.judgement == "open" for one in judged):
                        total *= 2
        return rounds, looks, judged


def _result(
    gate: BenchGate,
    session: BenchSession,
    rounds: Rounds,
    looks: Sequence[Conditions],
    judged: Sequence[Judged],
) -> GateResult:
    problems = tuple(_problem(one, session.folder) for one in judged if one.judgement in {"lost", "short"})
    still_open = [one for one in judged if one.judgement == "open"]
    counts = {name: sum(one.comparison.verdict == name for one in judged) for name in _VERDICTS}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    head = f"{len(judged)} tests in {rounds.count} rounds on {gate.runner.name}: {told}"
    if problems:
        summary = f"{head}; {len(problems)} not as the patches promise"
    elif still_open:
        summary = f"{head}; {len(still_open)} left open, which is no pass"
    else:
        summary = head
    return GateResult(
        gate=gate.name,
        verdict="failed" if problems else "not run" if still_open else "passed",
        summary=summary,
        problems=problems,
        evidence={
            "runner": gate.runner.name,
            "model": gate.setup.model.name,
            "head_size": gate.head_size,
            "tests": [one.as_json() for one in judged],
            "samples": rounds.as_json(),
            "conditions": [look.values for look in looks],
            "rounds_taken_from_an_interrupted_run": session.resumed // 3,
        },
        not_run=tuple(f"{one.test.name}: {one.why}" for one in still_open),
        lines=(*_table(judged), *summarise(looks)),
    )


_VERDICTS = ("faster", "same", "slower", "undecided")


def _table(judged: Sequence[Judged]) -> tuple[str, ...]:
    titles = (
        f"{'test':<16}{'baseline':>10}{'candidate':>11}  {'change':>7}  {'99 % interval':<18}{'verdict':<11}"
    )
    return (f"{titles}sees", *(_row(one) for one in judged))


def _row(one: Judged) -> str:
    data = one.as_json()
    low, high = data["interval"] if isinstance(data["interval"], list) else (0.0, 0.0)
    interval = f"{low:+.1%} to {high:+.1%}"
    return (
        f"{one.test.name:<16}{one.baseline:>10.1f}{one.candidate:>11.1f}  {one.change:>+7.1%}  "
        f"{interval:<18}{one.comparison.verdict:<11}-{one.comparison.smallest_loss_seen:.1%}"
        f"{' control' if one.control else ''}"
    )


def _problem(one: Judged, folder: Path) -> PatchkitError:
    kind = BenchSlower if one.judgement == "lost" else BenchGainMissing
    effect = one.as_json()["interval"]
    return kind(
        f"{one.test.name} changes by {one.change:+.1%}: {one.baseline:.1f} to {one.candidate:.1f} tokens/s",
        where=Location(path=str(folder)),
        why=f"{one.why}; 99 % interval {effect}, {one.comparison.rounds} rounds",
        hint="the samples lie in that folder; patchkit verify --gate bench measures again",
    )

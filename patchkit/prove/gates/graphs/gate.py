"""Gate ``graphs``: small graphs, stored and random, on both sides; a graph that fails is reduced."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import islice
from pathlib import Path

from patchkit.base.errors import GateError, Location, PatchkitError
from patchkit.base.files import write_whole
from patchkit.base.text import counted
from patchkit.carry.series.switches import switches_of
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.findings import Finding
from patchkit.gpu.hardware.graphs.description import Graph, read_graph, write_graph
from patchkit.gpu.hardware.graphs.patterns import pattern_graphs
from patchkit.gpu.hardware.graphs.reducing import reduce_graph
from patchkit.gpu.hardware.graphs.reproducer import reproducer
from patchkit.gpu.hardware.graphs.vary import captured, in_two_contexts, random_graphs
from patchkit.prove.build import CandidateBuildFailed, Machine, Sides, runs_folder
from patchkit.prove.gates.base import DeviceGate, DeviceSetup, GateResult
from patchkit.prove.gates.emulated import emulated_on, not_proven_on, verdict_on
from patchkit.prove.gates.graphs.comparing import AT_ONCE, Comparison, Outcome
from patchkit.prove.gates.graphs.evidence import FailedGraph, GraphsEvidence, GraphsLimits
from patchkit.prove.gates.graphs.judging import FACTOR, ROUNDING, claims_of, is_upstreams_fault
from patchkit.prove.gates.sides import built_sides, sides_on
from patchkit.prove.subject import Subject

NAME = "graphs"
BUDGET_S = 120.0
"""Seconds for random graphs; a batch that was started is finished."""
FULL_BUDGET_S = 1800.0
_BATCH = 24
_MOST_REDUCED = 4  # graphs; most failures after the first have the same cause
_REDUCING_S = 180.0  # per graph


def stored_graphs() -> tuple[Graph, ...]:
    """The corpus: graphs that showed a fault once, or show a matcher that lacks one of its conditions."""
    folder = files("patchkit.prove.gates.graphs") / "corpus"
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".json"))
    return tuple(read_graph((folder / name).read_bytes(), name) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphsGate(DeviceGate):
    """``stored`` run first, then ``patterns``, then random variations of them for ``budget_s`` seconds.

    Two contexts in two threads compute each pattern at the same time. Then each pattern is captured as a HIP
    graph, and replayed with other inputs. Stored graphs and patterns also run with patches off.

    ``seed``: of the random graphs; by default derived from the candidate's tree, so that another candidate
    gets other graphs and the same one the same. ``limit``: at most so many random graphs.
    """

    NAME = NAME
    stored: Sequence[Graph] = field(default_factory=stored_graphs)
    patterns: Sequence[Graph] = field(default_factory=pattern_graphs)
    budget_s: float = BUDGET_S
    seed: int | None = None
    limit: int | None = None
    reducing_s: float = _REDUCING_S

    @classmethod
    def make(cls, setup: DeviceSetup) -> GraphsGate:
        """The gate on a device."""
        return cls(machine=setup.machine, budget_s=FULL_BUDGET_S if setup.full else BUDGET_S)

    def run(self, subject: Subject) -> GateResult:
        """Build both sides, compute the graphs on both, and reduce those that fail.

        Raises:
            ToolchainError: building or running the baseline failed.
            CacheError: the disk is full or not writable.
        """
        if not self.machine.is_emulated:
            why = "needs the emulated GPU, because a real one cannot run the checks"
            return GateResult(gate=self.name, verdict="not run", summary=why)
        try:
            with sides_on(self.machine, subject) as sides:
                return self._run(subject, sides)
        except CandidateBuildFailed as error:
            return GateResult.ended_by(self.name, error)

    def _run(self, subject: Subject, sides: Sides) -> GateResult:
        folder = runs_folder(subject, NAME, self.machine)
        comparison = Comparison(
            subject=subject,
            machine=self.machine,
            sides=sides,
            claims=claims_of(subject.patches),
            folder=folder,
            stop=threading.Event(),
        )
        begun = time.monotonic()
        seed = int(subject.candidate_tree[:7], 16) if self.seed is None else self.seed
        parts: dict[str, list[Outcome]] = {"stored": [], "patterns": [], "off": [], "random": []}
        found_s: list[tuple[Outcome, float]] = []

        def note(part: str, outcomes: Sequence[Outcome]) -> None:
            parts[part] += outcomes
            found_s.extend((one, time.monotonic() - begun) for one in outcomes if one.difference)

        def compute(part: str, graphs: Sequence[Graph]) -> None:
            for start in range(0, len(graphs), _BATCH):
                note(part, comparison.outcomes(graphs[start : start + _BATCH], f"{part}-{len(parts[part])}"))

        subject.reporter.step(f"{counted(len(self.stored), 'stored graph')} on {self.machine.label}")
        compute("stored", self.stored)
        subject.reporter.step(f"{counted(len(self.patterns), 'graph')} of models on {self.machine.label}")
        compute("patterns", [in_two_contexts(one) for one in self.patterns])
        compute("patterns", [captured(one) for one in self.patterns])
        for off in _switched_off(subject):
            subject.reporter.step(f"the same graphs with patches off on {self.machine.label}: {off}")
            done = [one for one in parts["stored"] + parts["patterns"] if _may_be_off(one.graph)]
            for start in range(0, len(done), _BATCH):
                some, name = done[start : start + _BATCH], f"off-{len(parts['off'])}"
                note("off", comparison.switched_off(some, off, name))
        subject.reporter.step(f"random graphs on {self.machine.label}, seed {seed}, {self.budget_s:g} s")
        random_begun = time.monotonic()
        graphs = random_graphs(tuple(self.patterns), seed)
        with subject.reporter.progress("random graphs", "seconds") as advance:
            while (spent := time.monotonic() - random_begun) < self.budget_s:
                advance(int(spent), int(self.budget_s))
                left = _BATCH if self.limit is None else min(_BATCH, self.limit - len(parts["random"]))
                if left <= 0:
                    break
                compute("random", list(islice(graphs, left)))
        seconds = time.monotonic() - random_begun
        failed = self._reduced(comparison, found_s, folder)
        evidence = self._evidence(comparison, parts, seed, seconds, failed)
        problems = tuple(_problems(evidence))
        return GateResult(
            gate=self.name,
            verdict=verdict_on(self.machine, problems),
            summary=(
                f"{counted(evidence.ran, 'graph')} on {self.machine.label}, "
                f"{evidence.equal} bit-identical; {len(failed)} failed"
            ),
            problems=problems,
            evidence=evidence,
            not_run=tuple(_not_run(self.machine, subject, evidence)),
            lines=tuple(_lines(evidence)),
        )

    def _reduced(
        self, comparison: Comparison, found: Sequence[tuple[Outcome, float]], folder: Path
    ) -> tuple[FailedGraph, ...]:
        """Each failed graph, the first ones of each kind and pattern reduced."""
        done: list[FailedGraph] = []
        known: set[tuple[str, str]] = set()
        for number, (outcome, after_s) in enumerate(found):
            difference = outcome.difference
            assert difference is not None  # noqa: S101 - only failed graphs are in the list
            key = (difference.kind, outcome.graph.name)
            reduced = outcome
            if key not in known and len(known) < _MOST_REDUCED and self.reducing_s > 0:
                known.add(key)
                reduced = self._smallest(comparison, outcome, f"reducing-{number}")
            done.append(_failed(reduced, outcome, after_s, folder, number))
        return tuple(done)

    def _smallest(self, comparison: Comparison, outcome: Outcome, name: str) -> Outcome:
        difference = outcome.difference
        assert difference is not None  # noqa: S101 - as above
        comparison.subject.reporter.step(f"reducing a graph that failed ({outcome.graph.name})")
        end = time.monotonic() + self.reducing_s
        tried = 0

        is_found = difference.kind == "memory"

        def has_fault(graphs: Sequence[Graph]) -> list[bool]:
            nonlocal tried
            tried += 1
            if is_found:
                return comparison.has_findings(graphs, f"{name}-{tried}", outcome)
            return comparison.has_difference(graphs, f"{name}-{tried}", difference)

        graph = reduce_graph(
            outcome.graph,
            has_fault,
            comparison.shapes,
            at_once=AT_ONCE if is_found else _BATCH // 2,
            is_over=lambda: time.monotonic() > end,
        )
        (last,) = comparison.outcomes([graph], f"{name}-last")
        return last if last.difference is not None else outcome

    def _evidence(
        self,
        comparison: Comparison,
        parts: dict[str, list[Outcome]],
        seed: int,
        seconds: float,
        failed: tuple[FailedGraph, ...],
    ) -> GraphsEvidence:
        every = [one for some in parts.values() for one in some]
        ran = [one for one in every if one.has_run]
        own = Counter(kernel for one in ran for kernel in one.after.kernels)
        theirs = {kernel for one in ran for kernel in one.before.kernels}
        return GraphsEvidence(
            emulated=emulated_on(self.machine),
            device=self.machine.label,
            sides=built_sides(comparison.sides),
            checks=usual_checks(),
            seed=seed,
            stored=_count_run(parts["stored"]),
            patterns=_count_run(parts["patterns"]),
            random=_count_run(parts["random"]),
            switched_off=_count_run(parts["off"]),
            not_off=dict(sorted(comparison.not_off.items())),
            skipped=len(every) - len(ran),
            equal=sum(_is_equal(one) for one in ran),
            seconds=round(seconds, 1),
            differ=comparison.claims.differ,
            without_claim=comparison.claims.without,
            own_kernels={name: own[name] for name in sorted(own) if name not in theirs},
            upstream=tuple(
                dict.fromkeys(
                    one.graph.name for one in ran if is_upstreams_fault(one.before) or one.unordered
                )
            ),
            limits=GraphsLimits(factor=FACTOR, rounding=ROUNDING),
            failed=failed,
        )


def _switched_off(subject: Subject) -> Iterator[str]:
    """Which patches are off in two further runs: all, and those that no other patch requires.

    Without what it requires, a patch may do nothing although its own switch does not turn it off.
    """
    switches = switches_of([part.patch for part in subject.patches])
    if switches is not None:
        required = {name for each in switches.all for name in each.requires}
        yield "all"
        yield ",".join(each.patch for each in switches.all if each.patch not in required)


def _may_be_off(graph: Graph) -> bool:
    """Whether a graph also runs with patches off: those in two contexts or with variables do not."""
    return graph.contexts == 1 and not graph.environment


def _count_run(outcomes: Sequence[Outcome]) -> int:
    return sum(one.has_run for one in outcomes)


def _is_equal(one: Outcome) -> bool:
    return [each.hash for each in one.before.results] == [each.hash for each in one.after.results]


def _failed(reduced: Outcome, found: Outcome, after_s: float, folder: Path, number: int) -> FailedGraph:
    """The record of a failed graph, with its files."""
    difference = reduced.difference
    assert difference is not None  # noqa: S101 - only failed graphs are recorded
    graph, text = reduced.graph, write_graph(reduced.graph)
    description, program = folder / f"failed-{number}.json", folder / f"failed-{number}.cpp"
    write_whole(description, text, "writing a graph that failed")
    write_whole(program, reproducer(graph, difference.text), "writing a reproducer")
    return FailedGraph(
        pattern=graph.name,
        about=graph.about,
        kind=difference.kind,
        why=difference.text,
        operations=len(graph.operations),
        found_with=len(found.graph.operations),
        after_s=round(after_s, 1),
        kernels=tuple(sorted(reduced.after.kernels - reduced.before.kernels)),
        findings=(
            *(_named(one) for one in reduced.findings.values()),
            *(
                f"upstream has it, too, and the results may depend on it: {_named(one)}"
                for one in reduced.unordered
            ),
        ),
        description=str(description),
        reproducer=str(program),
        graph=text,
    )


def _named(one: Finding) -> str:
    return f"{one.kind} at {one.at.place}: {one.title}"


def _problems(evidence: GraphsEvidence) -> Iterator[PatchkitError]:
    if not evidence.ran:
        yield GateError(
            "no graph was computed, so nothing was compared",
            code="NOTHING_LAUNCHED",
            why=f"{evidence.skipped} graphs are not accepted by ggml or a backend",
        )
    for patch, runs in evidence.not_off.items():
        yield GateError(
            f"GGML_PATCHES_OFF does not turn '{patch}' off: its code ran {counted(runs, 'time')}",
            code="PATCH_NOT_OFF",
            why="a user who turns it off to find the cause of a wrong result would look elsewhere",
            hint=f"see the conditions of its edits: patchkit show {patch}",
        )
    for one in evidence.failed:
        kernels = (
            [f"kernels that upstream does not launch here: {', '.join(one.kernels)}"] if one.kernels else []
        )
        yield GateError(
            f"{one.pattern}, {counted(one.operations, 'operation')}: {one.why}",
            code="GRAPH_DIFFERS",
            where=Location(path=one.description),
            why="\n".join([*([one.about] if one.about else []), *one.findings, *kernels]) or None,
            hint=f"a program that shows it with ggml alone: {one.reproducer}",
        )


def _not_run(machine: Machine, subject: Subject, evidence: GraphsEvidence) -> Iterator[str]:
    yield from not_proven_on(machine, subject)
    if evidence.without_claim:
        yield (
            "results bit-identical to upstream's: no claim ([results]) by "
            f"{', '.join(evidence.without_claim)}; only the distance from the CPU was compared"
        )
    for name in evidence.upstream:
        yield (
            f"graphs of the pattern {name} in which upstream itself is far from the CPU, or accesses memory "
            "that its streams do not order"
        )


def _lines(evidence: GraphsEvidence) -> Iterator[str]:
    yield (
        f"{evidence.stored} stored, {evidence.patterns} of models, {evidence.switched_off} of both with "
        f"patches off, {evidence.random} random (seed {evidence.seed}, {evidence.seconds:g} s); "
        f"{evidence.skipped} not accepted by ggml or a backend"
    )
    if evidence.own_kernels:
        yield f"kernels of the candidate's own that ran: {', '.join(evidence.own_kernels)}"

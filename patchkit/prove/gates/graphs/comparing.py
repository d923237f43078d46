"""Computes graphs on both sides, with the checks of the emulated GPU on the candidate, and judges them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.errors import ToolchainError
from patchkit.gpu.emulated.findings import Finding
from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.gpu.hardware.graphs.description import Compared, Graph
from patchkit.gpu.hardware.graphs.reducing import Shapes
from patchkit.gpu.hardware.graphs.running import (
    DRIVER,
    Computed,
    by_environment,
    differing,
    read_shapes,
    run_graphs,
)
from patchkit.gpu.hardware.graphs.vary import OFF, STREAMS, switched_off
from patchkit.gpu.hardware.program import RunContext
from patchkit.prove.build import Machine, Sides, check_device
from patchkit.prove.gates.graphs.judging import Claims, Difference, compare
from patchkit.prove.gates.operations import Runs
from patchkit.prove.gates.sanitize import LineMap, read_findings
from patchkit.prove.gates.used import uses_in
from patchkit.prove.subject import Subject
from patchkit.toolchain.sides import BuiltSide

_TIMEOUT_S = 900.0
AT_ONCE = 2
"""Processes at once: findings belong to a process, so each graph needs its own."""
FaultKey = tuple[object, ...]
_OF_MEMORY = frozenset({"memory", "uninitialised"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A graph on both sides: the difference that fails it, if any, and faults that only the candidate has.

    ``unordered``: accesses of upstream's own kernels that no stream or event orders. Both sides may then give
    other results in each run.
    """

    graph: Graph
    before: Computed
    after: Computed
    difference: Difference | None = None
    findings: Mapping[FaultKey, Finding] = field(default_factory=dict)
    unordered: tuple[Finding, ...] = ()

    @property
    def has_run(self) -> bool:
        """Whether both sides computed it."""
        return bool(self.before.results and self.after.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both sides of a candidate, ready to compute graphs; ``folder`` gets the files of each run.

    ``not_off``: patches whose code ran in a program that turns them off, and how often.
    """

    subject: Subject
    machine: Machine
    sides: Sides
    claims: Claims
    folder: Path
    stop: threading.Event
    not_off: Counter[str] = field(default_factory=Counter)

    def outcomes(self, graphs: Sequence[Graph], name: str) -> list[Outcome]:
        """Compute and judge graphs; ``name`` names the files.

        Raises the errors of :func:`run_graphs`.
        """
        theirs, ours = self._computed(graphs, name, Runs(folder=self.folder / name))
        done: list[Outcome] = []
        for n, graph in enumerate(graphs):
            outcome = Outcome(
                graph=graph,
                before=theirs[n],
                after=ours[n],
                difference=compare(graph, theirs[n], ours[n], self.claims),
            )
            if ours[n].has_findings or (outcome.difference is not None and STREAMS in graph.environment):
                outcome = self._with_findings(outcome, f"{name}-finding-{n}")
            done.append(outcome)
        return done

    def switched_off(self, done: Sequence[Outcome], patches: str, name: str) -> list[Outcome]:
        """Graphs that both sides have computed, with these ``patches`` off, or ``all``.

        The results of the first round must be those that the baseline had. The checks are off, no graph is
        captured, and the CPU only computes graphs whose bits differ. ``name`` names the files. Raises as
        :meth:`outcomes`.
        """
        graphs = [switched_off(one.graph.changed(captured=False, rounds=1), patches) for one in done]
        ours = self._side("candidate", graphs, name, compared="nothing")
        found = [
            Outcome(graph=graph, before=_first_round(one.before), after=after)
            for graph, one, after in zip(graphs, done, ours, strict=True)
        ]
        again = [
            n
            for n, one in enumerate(found)
            if differing(one.before, one.after) or (one.before.has_ended and not one.after.has_ended)
        ]
        for n, outcome in zip(again, self.outcomes([graphs[n] for n in again], f"{name}-again"), strict=True):
            found[n] = outcome
        return found

    def _computed(
        self, graphs: Sequence[Graph], name: str, runs: Runs | None = None
    ) -> tuple[list[Computed], list[Computed]]:
        """Both sides; with ``runs`` the candidate's checks are on.

        The CPU takes longer than the emulated GPU, so it computes only graphs whose bits differ.
        """
        theirs, ours = self._both(
            lambda: self._side("baseline", graphs, name, compared="nothing"),
            lambda: self._side("candidate", graphs, name, runs, compared="nothing"),
        )
        again = [
            n
            for n, (before, after) in enumerate(zip(theirs, ours, strict=True))
            if differing(before, after) or not (before.has_ended and after.has_ended)
        ]
        some = [graphs[n] for n in again]
        if some:
            both = self._both(
                lambda: self._side("baseline", some, f"{name}-compared"),
                lambda: self._side("candidate", some, f"{name}-compared"),
            )
            for n, before, after in zip(again, *both, strict=True):
                theirs[n], ours[n] = before, replace(after, has_findings=ours[n].has_findings)
        return theirs, ours

    def _with_findings(self, outcome: Outcome, name: str) -> Outcome:
        """The outcome with what the checks report; a fault that only the candidate has fails the graph."""
        theirs, ours = self._findings_of_both(outcome.graph, name)
        found = _only_ours(theirs, ours)
        return replace(
            outcome,
            difference=outcome.difference or (Difference(kind="memory") if found else None),
            findings=found,
            unordered=tuple(one for one in theirs.values() if one.kind == "asynchrony"),
        )

    def _both(
        self, before: Callable[[], list[Computed]], after: Callable[[], list[Computed]]
    ) -> tuple[list[Computed], list[Computed]]:
        with ThreadPoolExecutor(max_workers=2) as pool:
            theirs, ours = pool.submit(before), pool.submit(after)
            try:
                return theirs.result(), ours.result()
            except BaseException:
                self.stop.set()
                raise

    def findings(self, graph: Graph, name: str) -> Mapping[FaultKey, Finding]:
        """The faults that the checks report for a graph on the candidate and not on the baseline."""
        return _only_ours(*self._findings_of_both(graph, name))

    def _findings_of_both(
        self, graph: Graph, name: str
    ) -> tuple[Mapping[FaultKey, Finding], Mapping[FaultKey, Finding]]:
        runs = Runs(folder=self.folder / name)
        self._both(
            lambda: self._side("baseline", [graph], name, runs),
            lambda: self._side("candidate", [graph], name, runs),
        )
        lines = LineMap(self.subject.baseline, self.subject.candidate)
        before = read_findings(runs, "baseline", self.subject.baseline, lines.same, may_be_short=True)
        theirs = {key: one for key, (one, _) in before.found.items()}
        return theirs, self._candidates_findings(runs, lines)

    def _candidates_findings(self, runs: Runs, lines: LineMap) -> dict[FaultKey, Finding]:
        found = read_findings(runs, "candidate", self.subject.candidate, lines.before, may_be_short=True)
        return {key: one for key, (one, _) in found.found.items()}

    def has_findings(self, graphs: Sequence[Graph], name: str, like: Outcome) -> list[bool]:
        """Whether the checks report one of an outcome's faults for each graph, on the candidate only.

        A smaller graph may be one that ggml should reject, with a mask that is too small: then upstream's
        kernels read past its end, too.
        """
        lines = LineMap(self.subject.baseline, self.subject.candidate)

        def is_like(number: int) -> bool:
            runs = Runs(folder=self.folder / f"{name}-{number}")
            self._side("candidate", [graphs[number]], f"{name}-{number}", runs)
            if not like.findings.keys() & self._candidates_findings(runs, lines).keys():
                return False
            return bool(like.findings.keys() & self.findings(graphs[number], f"{name}-{number}").keys())

        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            return list(pool.map(is_like, range(len(graphs))))

    def has_difference(self, graphs: Sequence[Graph], name: str, like: Difference) -> list[bool]:
        """Whether the results of each graph differ as those of a graph that is reduced."""
        theirs, ours = self._computed(graphs, name)
        found = (compare(*each, self.claims) for each in zip(graphs, theirs, ours, strict=True))
        return [one is not None and one.kind == like.kind for one in found]

    def shapes(self, graph: Graph) -> Shapes:
        """Type and extents of each node; empty for a graph that ggml does not accept."""
        side, tree = self.sides.before, self.subject.baseline
        place = RunContext(folder=self.folder / "shapes", reporter=self.subject.reporter, stop=self.stop)
        return read_shapes(self._driver(side, tree), side, graph, place=place)

    def _driver(self, side: BuiltSide, tree: Path) -> Path:
        return build_driver(DRIVER, side, tree, self.subject.cache_root, self.subject.reporter)

    def _side(
        self,
        which: str,
        graphs: Sequence[Graph],
        name: str,
        runs: Runs | None = None,
        *,
        compared: Compared = "results",
    ) -> list[Computed]:
        """The results of one side; with ``runs`` its checks are on. A crash only costs its own graph."""
        is_ours = which == "candidate"
        side = self.sides.after if is_ours else self.sides.before
        driver = self._driver(side, self.subject.candidate if is_ours else self.subject.baseline)
        place = RunContext(folder=self.folder / name, reporter=self.subject.reporter, stop=self.stop)
        done: dict[int, Computed] = {}
        number = 0
        for group in by_environment(graphs):
            left = list(group)
            while left:
                run_name = f"test-{which}-{number}"
                number += 1
                ran, results = run_graphs(
                    driver,
                    replace(side, kept=None),
                    [graphs[n] for n in left],
                    device=self.machine.device,
                    name=run_name,
                    timeout_s=_TIMEOUT_S,
                    place=place,
                    variables={} if runs is None else runs.variables(run_name),
                    compared=compared,
                )
                if ran is not None:
                    check_device(self.machine, ran.talk(), self.subject.archs, ran.stderr)
                    self.not_off.update(used_although_off(graphs[left[0]], ran.talk()))
                ended = next((n for n, one in enumerate(results) if not one.has_ended), len(left))
                if ran is not None and ended < len(left):
                    raise ToolchainError(
                        "the driver graph_check skipped a graph", code="PROGRAM_FAILED", where=()
                    )
                done.update(zip(left[: ended + 1], results[: ended + 1], strict=True))
                left = left[ended + 1 :]
        return [done[n] for n in range(len(graphs))]


def _only_ours(
    theirs: Mapping[FaultKey, Finding], ours: Mapping[FaultKey, Finding]
) -> Mapping[FaultKey, Finding]:
    """The candidate's faults that the baseline does not have.

    None if upstream's kernels also access memory wrongly somewhere: then it is the graph that is wrong.
    """
    if any(one.kind in _OF_MEMORY for one in theirs.values()):
        return {}
    return {key: one for key, one in ours.items() if key not in theirs}


def used_although_off(graph: Graph, stderr: str) -> dict[str, int]:
    """How often a program used each patch that the environment of its graphs turns off."""
    off = graph.environment.get(OFF, "").split(",")
    return {patch: runs for patch, runs in uses_in(stderr).items() if runs and {patch, "all"} & {*off}}


def _first_round(computed: Computed) -> Computed:
    return replace(computed, results=tuple(one for one in computed.results if one.round == 0))

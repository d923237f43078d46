"""Computes graphs on both sides, with the checks of the emulated GPU on the candidate, and judges them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import ToolchainError
from patchkit.gpu.emulated.findings import Finding
from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.gpu.hardware.graphs.description import Graph
from patchkit.gpu.hardware.graphs.reducing import Shapes
from patchkit.gpu.hardware.graphs.running import (
    DRIVER,
    Computed,
    by_environment,
    read_shapes,
    run_graphs,
)
from patchkit.gpu.hardware.program import RunContext
from patchkit.prove.build import Machine, Sides, check_device
from patchkit.prove.gates.graphs.judging import Claims, Difference, compare
from patchkit.prove.gates.operations import Runs
from patchkit.prove.gates.sanitize import LineMap, read_findings
from patchkit.prove.subject import Subject
from patchkit.toolchain.sides import BuiltSide

_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A graph on both sides: the difference that fails it, if any, and faults that only the candidate has."""

    graph: Graph
    before: Computed
    after: Computed
    difference: Difference | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def has_run(self) -> bool:
        """Whether both sides computed it."""
        return bool(self.before.results and self.after.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both sides of a candidate, ready to compute graphs; ``folder`` gets the files of each run."""

    subject: Subject
    machine: Machine
    sides: Sides
    claims: Claims
    folder: Path
    stop: threading.Event

    def outcomes(self, graphs: Sequence[Graph], name: str) -> list[Outcome]:
        """Compute and judge graphs; ``name`` names the files.

        Raises the errors of :func:`run_graphs`.
        """
        runs = Runs(folder=self.folder / name)
        theirs, ours = self._both(
            lambda: self._side("baseline", graphs, name), lambda: self._side("candidate", graphs, name, runs)
        )
        with_findings = [n for n, one in enumerate(ours) if one.has_findings]
        found: dict[int, tuple[Finding, ...]] = {}
        for n in with_findings:
            found[n] = self.findings(graphs[n], f"{name}-finding-{n}")
        return [self._outcome(graph, theirs[n], ours[n], found.get(n, ())) for n, graph in enumerate(graphs)]

    def _outcome(
        self, graph: Graph, before: Computed, after: Computed, findings: tuple[Finding, ...]
    ) -> Outcome:
        difference = compare(graph, before, after, self.claims)
        if difference is None and findings:
            difference = Difference(kind="memory")
        return Outcome(graph=graph, before=before, after=after, difference=difference, findings=findings)

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

    def findings(self, graph: Graph, name: str) -> tuple[Finding, ...]:
        """The faults that the checks report for a graph on the candidate and not on the baseline."""
        runs = Runs(folder=self.folder / name)
        self._both(
            lambda: self._side("baseline", [graph], name, runs),
            lambda: self._side("candidate", [graph], name, runs),
        )
        lines = LineMap(self.subject.baseline, self.subject.candidate)
        before = read_findings(runs, "baseline", self.subject.baseline, lines.same, may_be_short=True)
        after = read_findings(runs, "candidate", self.subject.candidate, lines.before, may_be_short=True)
        return tuple(one for key, (one, _) in after.found.items() if key not in before.found)

    def has_difference(self, graphs: Sequence[Graph], name: str, like: Difference) -> list[bool]:
        """Whether each graph fails as a graph that is reduced did."""
        if like.kind == "memory":
            return [bool(self.findings(graph, f"{name}-{n}")) for n, graph in enumerate(graphs)]
        theirs, ours = self._both(
            lambda: self._side("baseline", graphs, name), lambda: self._side("candidate", graphs, name)
        )
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
        self, which: str, graphs: Sequence[Graph], name: str, runs: Runs | None = None
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
                )
                if ran is not None:
                    check_device(self.machine, ran.talk(), self.subject.archs, ran.stderr)
                ended = next((n for n, one in enumerate(results) if not one.has_ended), len(left))
                if ran is not None and ended < len(left):
                    raise ToolchainError(
                        "the driver graph_check skipped a graph", code="PROGRAM_FAILED", where=()
                    )
                done.update(zip(left[: ended + 1], results[: ended + 1], strict=True))
                left = left[ended + 1 :]
        return [done[n] for n in range(len(graphs))]

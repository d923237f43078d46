"""The evidence of gate ``graphs``."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.base.report.blocks import Block, Row, Table, columns
from patchkit.base.text import counted
from patchkit.prove.gates.base import Count, DeviceEvidence, Many, MeasuredNumber, Record
from patchkit.prove.gates.sides import BuiltSides


class FailedGraph(Record):
    """A graph that failed: ``kind`` and ``why``, and the reduced graph.

    ``description`` and ``reproducer`` are files next to the evidence; ``graph`` is the description itself.
    ``operations`` counts the nodes that kernels compute, ``found_with`` those before the reduction.
    ``after_s`` is the time from the start of the gate until the graph was found.
    """

    pattern: str
    about: str
    kind: str
    why: str
    operations: Count
    found_with: Count
    after_s: MeasuredNumber
    kernels: Many[str]
    findings: Many[str]
    description: str
    reproducer: str
    graph: str


class GraphsLimits(Record):
    """The bound where bits may differ: a factor of the baseline's distance, and rounding errors by type."""

    factor: MeasuredNumber
    rounding: dict[str, MeasuredNumber]


class GraphsEvidence(DeviceEvidence):
    """What ran, which claims were checked, and every graph that failed.

    ``stored`` counts the graphs of the corpus, ``patterns`` the unchanged patterns, ``random`` the random
    graphs of ``seed`` that ran in ``seconds``; ``skipped`` are graphs that ggml or a backend does not accept.
    ``switched_off`` are runs of stored graphs and patterns with ``GGML_PATCHES_OFF``; ``not_off`` are patches
    whose code ran in a program that turns them off, and how often.
    ``equal`` graphs had equal bits in every result. ``differ`` are kernels whose results need not be
    upstream's bits; ``without_claim`` are patches that claim nothing. ``own_kernels`` are kernels that only
    the candidate launched, with the number of graphs that launched them. ``upstream`` are graphs in which
    the baseline itself is far from the CPU, or accesses memory that its streams do not order.
    """

    device: str
    sides: BuiltSides
    checks: Many[str]
    seed: Count
    stored: Count
    patterns: Count
    random: Count
    switched_off: Count
    not_off: dict[str, Count]
    skipped: Count
    equal: Count
    seconds: MeasuredNumber
    differ: Many[str]
    without_claim: Many[str]
    own_kernels: dict[str, Count]
    upstream: Many[str]
    limits: GraphsLimits
    failed: Many[FailedGraph]

    @property
    def ran(self) -> int:
        """Graphs that both sides computed."""
        return self.stored + self.patterns + self.switched_off + self.random

    @property
    def outcome(self) -> str:
        """How many graphs ran."""
        return counted(self.ran, "graph")

    def blocks(self) -> Iterator[Block]:
        """What ran, the kernels that only the candidate launches, and the failed graphs."""
        rows = (
            ("stored", self.stored),
            ("patterns", self.patterns),
            (f"random, seed {self.seed}", self.random),
            ("stored or of models, with patches off", self.switched_off),
            ("not accepted by ggml or a backend", self.skipped),
            ("bit-identical", self.equal),
            ("upstream itself is wrong", len(self.upstream)),
            ("failed", len(self.failed)),
        )
        yield Table(
            name="graphs",
            caption=f"Graphs on {self.device}, compared with upstream's results and the CPU's",
            columns=columns("graphs", "number #"),
            rows=tuple(Row(cells=(name, str(number))) for name, number in rows),
            note="bits may differ: " + (", ".join(self.differ) or "in no kernel"),
        )
        if self.own_kernels:
            yield Table(
                name="graphs-kernels",
                caption="Kernels that only the candidate launched",
                columns=columns("kernel", "graphs #"),
                rows=tuple(Row(cells=(name, str(count))) for name, count in self.own_kernels.items()),
                is_detail=True,
            )
        if self.not_off:
            yield Table(
                name="graphs-not-off",
                caption="Patches whose code ran although GGML_PATCHES_OFF turns them off",
                columns=columns("patch", "uses #"),
                rows=tuple(Row(cells=(name, str(count))) for name, count in self.not_off.items()),
            )
        yield Table(
            name="graphs-failed",
            caption="Graphs that failed, reduced",
            columns=columns("pattern", "operations #", "why", "file"),
            rows=tuple(
                Row(cells=(one.pattern, str(one.operations), one.why, one.description)) for one in self.failed
            ),
        )

    def provenance(self) -> Iterator[tuple[str, str]]:
        """Adds the checks and the seed."""
        yield from super().provenance()
        yield "checks", ", ".join(self.checks)
        yield "seed", str(self.seed)

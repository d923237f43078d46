"""What a report shows of each gate, and what it says of where the figures come from."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.gates.base import Evidence
from patchkit.gates.blocks import Block, Table
from patchkit.report.model import GateReport, Run


def blocks_of(gate: GateReport) -> tuple[Block, ...]:
    """What is shown of one gate: nothing where it has no evidence, or of a kind that nobody here knows."""
    return tuple(gate.evidence.blocks()) if isinstance(gate.evidence, Evidence) else ()


def tables_of(gate: GateReport) -> tuple[Table, ...]:
    """The tables of one gate."""
    return tuple(block for block in blocks_of(gate) if isinstance(block, Table))


def provenance(run: Run) -> tuple[tuple[str, str], ...]:
    """Everything that the figures rest on, by name."""
    return tuple(dict.fromkeys(_provenance(run)))


def _provenance(run: Run) -> Iterator[tuple[str, str]]:
    yield "candidate", run.branch
    yield "GPUs", ", ".join(run.archs)
    yield "upstream's commit", run.base
    yield "candidate's commit", run.tip
    yield "candidate's tree", run.tree
    yield from (("tool", told) for told in run.proven_with)
    for gate in run.gates:
        if isinstance(gate.evidence, Evidence):
            yield from ((f"{gate.name}: {name}", told) for name, told in gate.evidence.provenance())

"""Which tables a report shows of which gate, and what it says of where the figures come from.

Vocabulary: *provenance* is pairs of a name and what it was: pins, compiler, headers, device, driver, who
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from patchkit.reports.document import Node
from patchkit.reports.model import Evidence, GateReport
from patchkit.reports.section_bench import bench_tables
from patchkit.reports.section_code import anchors_tables, compile_tables, isolation_tables
from patchkit.reports.section_launch import launch_tables
from patchkit.reports.section_numbers import backend_ops_tables, logits_tables, numerics_tables
from patchkit.reports.section_resources import resources_tables
from patchkit.reports.tables import Table

_TABLES: Mapping[str, Callable[[Node], Iterator[Table]]] = MappingProxyType(
    {
        "anchors": anchors_tables,
        "isolation": isolation_tables,
        "compile": compile_tables,
        "resources": resources_tables,
        "launch": launch_tables,
        "backend-ops": backend_ops_tables,
        "logits": logits_tables,
        "bench": bench_tables,
        "numerics": numerics_tables,
    }
)


def tables_of(gate: GateReport) -> tuple[Table, ...]:
    """The tables of one gate; none where it has no evidence, or where this module knows nothing of it.

    Raises EvidenceMalformed.
    """
    make = _TABLES.get(gate.name.partition("@")[0])
    if make is None or gate.evidence is None or not gate.evidence.value:
        return ()
    return tuple(make(gate.evidence))


def provenance(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """Everything that the figures rest on, by name. Raises EvidenceMalformed."""
    return tuple(dict.fromkeys(_provenance(evidence)))


def _provenance(evidence: Evidence) -> Iterator[tuple[str, str]]:
    yield "candidate", evidence.branch
    yield "GPUs", ", ".join(evidence.archs)
    yield "upstream's commit", evidence.base
    yield "candidate's commit", evidence.tip
    yield "candidate's tree", evidence.tree
    yield from (("tool", told) for told in evidence.proven_with)
    for gate in evidence.gates:
        if gate.evidence is not None:
            yield from _measured(gate.name, gate.evidence)


def _measured(gate: str, evidence: Node) -> Iterator[tuple[str, str]]:
    """Who measured it, on what, when."""
    run_at = evidence.find("run_at")
    if run_at is not None:
        yield f"{gate}: run at", run_at.text()
    identity = evidence.find("identity")
    if identity is not None:
        yield f"{gate}: run by", identity.get("runner").text()
        yield f"{gate}: machine", identity.get("machine").text()
        yield f"{gate}: settings", identity.get("settings").text()
    for name in ("device", "model", "nvcc"):
        found = evidence.find(name)
        if found is not None:
            yield f"{gate}: {name}", found.text()
    gpu = evidence.find("gpu")
    if gpu is not None:
        yield f"{gate}: GPU and driver", f"{gpu.get('name').text()}, {gpu.get('driver').text()}"

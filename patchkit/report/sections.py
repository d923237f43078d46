"""Which tables a report shows of which gate, and what it says of where the figures come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from patchkit.gates.blocks import (
    Block,
    Row,
    Table,
    columns,
    group,
)
from patchkit.gates.document import Node
from patchkit.report.model import Evidence, GateReport

_ATTENTION = "flash_attn"
_MOST_GPUS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A list of launches in the evidence: its ``key``, what one ``row`` is named by, and what it is of."""

    key: str
    row: str
    told: str


_LAUNCHES = (
    _Kind(key="samples", row="case", told="for attention at 65536 rows of KV"),
    _Kind(key="models", row="run", told="in llama-bench on small models"),
)


def launch_tables(evidence: Node) -> Iterator[Table]:
    """Per GPU that a patch is for: kernels by phase, geometry by shape and model; then the other GPUs."""
    others: list[Row] = []
    guarded = 0
    for arch, node in evidence.get("archs").fields():
        if node.find("transitions") is not None:
            guarded += 1
            if guarded > _MOST_GPUS:
                continue  # each has tables of its own; a profile is there for 16 GPUs
            yield _transitions(arch, node.get("transitions"))
            for kind in _LAUNCHES:
                if node.find(kind.key) is not None:  # evidence of before 2026-11 has none
                    yield _launches(arch, node.get(kind.key), kind)
        else:
            others.append(_unguarded(arch, node))
    if others:
        yield Table(
            name="other-gpus",
            caption="GPUs that no patch is for",
            columns=columns("GPU", "cases #", "model runs #", "launches"),
            rows=tuple(others),
            is_detail=True,
        )


def _transitions(arch: str, transitions: Node) -> Table:
    rows = []
    for node in transitions.items():
        before, after = node.get("before").text(), node.get("after").text()
        cells = (node.get("phase").text(), before, after, str(node.get("cases").integer()))
        state = "as before" if before == after else "changed"
        rows.append(Row(cells=(state, *cells), state=state))
    rows.sort(key=lambda row: row.state == "as before")
    return Table(
        name=f"kernels-by-phase-{arch}",
        caption=f"Which attention kernel runs on {arch}, by number of recorded cases",
        columns=columns("state", "phase", "baseline", "candidate", "cases #"),
        rows=tuple(rows),
        note="The host code ran against a stub of the GPU: this is what is launched, not what is computed.",
    )


def _launches(arch: str, found: Node, kind: _Kind) -> Table:
    rows = []
    for node in found.items():
        before, after = _attention(node.get("before")), _attention(node.get("after"))
        state = "as before" if before == after else "changed"
        rows.append(Row(cells=(state, node.get(kind.row).text(), before, after), state=state))
    return Table(
        name=f"{kind.key}-{arch}",
        caption=f"Launches {kind.told} on {arch}",
        columns=columns("state", kind.row, "baseline", "candidate"),
        rows=tuple(rows),
        note="Grid of blocks, 'of' threads of a block.",
        is_detail=True,
    )


def _attention(launches: Node) -> str:
    """The attention kernels of a step, once each, with their geometry."""
    found: dict[str, None] = {}
    for launch in launches.items():
        kernel = launch.get("kernel").text()
        if kernel.startswith(_ATTENTION):
            grid, block = (_sizes(launch.get(name)) for name in ("grid", "block"))
            found[f"{kernel} {grid} of {block.removesuffix('x1')}"] = None
    return group(list(found)) or "none"


def _sizes(node: Node) -> str:
    return "x".join(str(each.integer()) for each in node.items())


def _unguarded(arch: str, node: Node) -> Row:
    runs = [bench.get("identical").flag() for bench in node.get("benches").items()]
    same = node.get("cases_identical").flag() and all(runs)
    state = "as before" if same else "differ"
    told = "the baseline's" if same else "differ from the baseline's"
    return Row(cells=(arch, str(node.get("cases").integer()), str(len(runs)), told), state=state)


_BLOCKS: Mapping[str, Callable[[Node], Iterator[Block]]] = MappingProxyType(
    {
        "launch": launch_tables,
    }
)


def blocks_of(gate: GateReport) -> tuple[Block, ...]:
    """What is shown of one gate: nothing where it has no evidence, or of a kind that nobody here knows.

    Raises EvidenceMalformed.
    """
    if gate.evidence is None:
        return ()
    if not isinstance(gate.evidence, Node):
        return tuple(gate.evidence.blocks())
    make = _BLOCKS.get(gate.name.partition("@")[0])
    return () if make is None else tuple(make(gate.evidence))


def tables_of(gate: GateReport) -> tuple[Table, ...]:
    """The tables of one gate. Raises EvidenceMalformed."""
    return tuple(block for block in blocks_of(gate) if isinstance(block, Table))


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
        if isinstance(gate.evidence, Node):
            yield from _measured(gate.name, gate.evidence)
        elif gate.evidence is not None:
            yield from ((f"{gate.name}: {name}", told) for name, told in gate.evidence.provenance())


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

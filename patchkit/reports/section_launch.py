"""Tables of the launch gate: which attention kernel ran, baseline against candidate.

Vocabulary: a *phase* is decode or prefill with a type of K and V; a *geometry* is written
``16x3x8 of 32x8`` (blocks of the grid, threads of a block), as the gate writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from patchkit.reports.document import Node
from patchkit.reports.tables import Row, Table, columns, group

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

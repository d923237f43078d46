"""Tables of the gates that compute: backend-ops, logits and numerics."""

from __future__ import annotations

import math
from collections.abc import Iterator

from patchkit.reports.document import Node
from patchkit.reports.tables import Row, Table, columns

_WORST = 40  # cases of ours that are shown, of several hundred


def backend_ops_tables(evidence: Node) -> Iterator[Table]:
    """Counts of upstream's cases, and the least exact of ours."""
    yield Table(
        name="backend-ops",
        caption=f"test-backend-ops on {evidence.get('device').text()}",
        columns=columns("side", "cases run #", "passed #"),
        rows=tuple(
            Row(
                cells=(
                    side,
                    str(evidence.get(f"{key}run").integer()),
                    str(evidence.get(f"{key}passed").integer()),
                )
            )
            for side, key in (("baseline", "baseline_tests_"), ("candidate", "tests_"))
        ),
    )
    cases = [(_largest(one.get("nmse")), one) for one in evidence.get("own").items()]
    cases.sort(key=lambda pair: -pair[0])
    rows = [
        Row(cells=(one.get("case").text(), *(_figures(one.get(name)) for name in ("nmse", "worst_row"))))
        for _, one in cases[:_WORST]
    ]
    if rows:
        yield Table(
            name="backend-ops-own",
            caption="patchkit's own cases against double precision, the least exact first",
            columns=columns("case", "NMSE #", "NMSE of the worst row #"),
            rows=tuple(rows),
            note=f"The {len(rows)} least exact of {len(cases)}; two figures are baseline and candidate.",
            is_detail=True,
        )


def _largest(node: Node) -> float:
    """The worse side; what is no number is worse than any number."""
    found = [one.measured() for one in node.items() if one.value is not None]
    return math.inf if any(map(math.isnan, found)) else max(found, default=0.0)


def _figures(node: Node) -> str:
    """Both sides, or one when both sides are the same files."""
    told = ["-" if one.value is None else f"{one.measured():.1e}" for one in node.items()]
    return " -> ".join(told) or "-"


def logits_tables(evidence: Node) -> Iterator[Table]:
    """Every scene of every model."""
    rows = []
    for one in evidence.get("scenes").items():
        before, after = one.get("baseline"), one.get("candidate")
        figures = [f"{_small(before, name)} -> {_small(after, name)}" for name in ("nmse", "kl")]
        finite = "yes" if after.get("is_finite").flag() else "NO"
        rows.append(
            Row(cells=(one.get("model").text(), one.get("scene").get("name").text(), *figures, finite))
        )
    yield Table(
        name="logits",
        caption=f"Logits against the CPU, on {evidence.get('device').text()}",
        columns=columns("model", "scene", "NMSE #", "KL in nats #", "finite"),
        rows=tuple(rows),
        note=evidence.get("reference").text(),
        is_detail=True,
    )


def _small(side: Node, name: str) -> str:
    found = side.find(name)
    return "-" if found is None else f"{found.measured():.1e}"


def numerics_tables(evidence: Node) -> Iterator[Table]:
    """Tables of settings, measured on an NVIDIA GPU."""
    rows = []
    for one in evidence.get("tables").items():
        worst = one.find("nmse_max")
        rows.append(
            Row(
                cells=(
                    one.get("name").text(),
                    *(str(one.get(name).integer()) for name in ("settings", "passed", "cases", "failed")),
                    f"{worst.measured():.1e}" if worst is not None else "-",
                )
            )
        )
    gpu = evidence.get("gpu")
    yield Table(
        name="numerics",
        caption=f"The kernel's numbers on {gpu.get('name').text()}, by table of settings",
        columns=columns("table", "settings #", "passed #", "cases #", "failed #", "largest NMSE #"),
        rows=tuple(rows),
        note="Measured on an NVIDIA GPU in place of the target: docs/gates.md says what that proves.",
    )

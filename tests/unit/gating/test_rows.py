from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.gates.base import GateResult
from patchkit.gates.hardware import Hardware
from patchkit.gates.registry import gate_names
from patchkit.gates.verify import Report, Timed
from patchkit.pull.judge import _rows
from patchkit.pull.verdict import GateRow

NEEDS = tuple(
    GateRow(gate=name, state="not needed" if name == "bench" else "would run", why="because")
    for name in gate_names()
)


def report(*gates: GateResult) -> Report:
    return Report(
        branch="b",
        archs=("gfx1151",),
        base="1",
        tip="2",
        tree="3",
        proven_with=(),
        gates=tuple(Timed(result=gate, seconds=1.0) for gate in gates),
        folder=Path("evidence"),
    )


def states(backend, made: Report | None) -> dict[str, str]:
    not_here = dict.fromkeys(gate_names("nvidia", "device"), "needs the GPU")
    return {
        row.gate: row.state
        for row in _rows(NEEDS, made, Hardware(backend=backend, gates=(), not_here=not_here))
    }


@pytest.mark.parametrize("backend", [None, "cpu"])
def test_a_gate_that_was_not_run_is_not_passed(backend) -> None:
    found = states(backend, report(GateResult(gate="anchors", verdict="passed", summary="x")))
    assert found["anchors"] == "passed"
    assert found["bench"] == "not needed"
    assert {found[name] for name in ("compile", "launch", "backend-ops", "logits", "numerics")} == {"not run"}


def test_a_row_of_the_cpu_never_stands_for_the_gpu() -> None:
    made = report(GateResult(gate="logits@cpu", verdict="passed", summary="x"))
    found = states("cpu", made)
    assert (found["logits@cpu"], found["logits"]) == ("passed", "not run")

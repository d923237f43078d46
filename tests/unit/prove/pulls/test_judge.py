"""What became of gates in a pull request, and whom a problem leaks into."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import ConfigError, GateError
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.isolation.evidence import HostBranch, IsolationEvidence, Reading
from patchkit.prove.gates.isolation.host_branch import HostBranchLeaks
from patchkit.prove.gates.isolation.readings import TokensDiffer
from patchkit.prove.gates.registry import gate_names
from patchkit.prove.pulls.blame import leaks_of
from patchkit.prove.pulls.judge import _rows
from patchkit.prove.pulls.verdict import GateRow
from patchkit.prove.verify.hardware import Hardware
from patchkit.prove.verify.run import Report

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
        gates=gates,
        folder=Path("evidence"),
    )


def states(backend, made: Report | None) -> dict[str, str]:
    not_here = dict.fromkeys(gate_names("device"), "needs the GPU")
    return {
        row.gate: row.state
        for row in _rows(NEEDS, made, Hardware(backend=backend, gates=(), not_here=not_here))
    }


@pytest.mark.parametrize("backend", [None, "cpu"])
def test_a_gate_that_was_not_run_is_not_passed(backend) -> None:
    found = states(backend, report(GateResult(gate="anchors", verdict="passed", summary="x")))
    assert found["anchors"] == "passed"
    assert found["bench"] == "not needed"
    assert {found[name] for name in ("compile", "launch", "backend-ops", "logits")} == {"not run"}


def test_a_row_of_the_emulated_gpu_says_so() -> None:
    made = report(GateResult(gate="logits", verdict="passed (emulated)", summary="x", not_run=("the GPU",)))
    hardware = Hardware(backend="hip", gates=(), not_here={})
    (row,) = (row for row in _rows(NEEDS, made, hardware) if row.gate == "logits")
    assert (row.state, row.not_proven, row.has_run) == ("passed (emulated)", ("the GPU",), True)


def test_a_row_of_the_cpu_never_stands_for_the_gpu() -> None:
    made = report(GateResult(gate="logits@cpu", verdict="passed", summary="x"))
    found = states("cpu", made)
    assert (found["logits@cpu"], found["logits"]) == ("passed", "not run")


READINGS = IsolationEvidence(
    changed_files=(),
    units={},
    stand_in_headers=(),
    readings=tuple(
        Reading(unit=unit, configuration=configuration, baseline="1", candidate=candidate)
        for unit, configuration, candidate in (
            ("a.cu", "cuda sm_70 device", "2"),
            ("a.cu", "cuda sm_80 device", "1"),
            ("b.cu", "hip gfx906 device", "2"),
        )
    ),
    host_branch=HostBranch(),
    device_code=(),
)


@pytest.mark.parametrize(
    ("problem", "leaks"),
    [
        (TokensDiffer("a.cu has different tokens for cuda sm_70 device: x"), ["cuda sm_70 device"]),
        (HostBranchLeaks("a.cu: the host code changes"), ["hip gfx1030 host", "hip gfx906 host"]),
        (
            GateError(
                "the candidate adds a.cu, which upstream's CMake compiles for musa", code="ISOLATION_UNITS"
            ),
            ["musa, every GPU and both passes"],
        ),
        (
            GateError(
                "a.cu has different code for gfx906, which no patch targets: b",
                code="ISOLATION_DEVICE_CODE",
            ),
            ["hip gfx906 device"],
        ),
        (ConfigError("something else"), []),
    ],
)
def test_a_problem_names_whom_it_leaks_into(problem, leaks: list[str]) -> None:
    assert list(leaks_of(problem, READINGS, ("gfx1030", "gfx906"))) == leaks

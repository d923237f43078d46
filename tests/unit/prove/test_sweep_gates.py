"""What the gates said of the pins of a sweep, and what is said when they could not run."""

from __future__ import annotations

from pathlib import Path

from patchkit.base.errors import AnchorError, ErrorGroup, Location, ToolchainError
from patchkit.base.plain import fields_of
from patchkit.prove.gates.base import GateResult
from patchkit.prove.sweep import Proof
from patchkit.prove.verify.run import Report


def report(*results):
    return Report(
        branch="candidate/gfx1151/b1",
        archs=("gfx1151",),
        base="0" * 40,
        tip="1" * 40,
        tree="2" * 40,
        gates=results,
        folder=Path("evidence"),
    )


def test_a_pin_has_a_line_for_each_gate_and_its_problems():
    problem = ToolchainError("does not compile", where=Location(path="a.cu", line=3))
    results = (
        GateResult(gate="anchors", verdict="not run", summary="not asked for"),
        GateResult(gate="isolation", verdict="passed", summary="all equal"),
        GateResult(gate="compile", verdict="failed", summary="1 unit", problems=(problem,)),
    )
    proof = Proof(build=7, patches=("x",), report=report(*results))
    assert proof.failed
    assert proof.lines() == [
        "b7  passed   isolation: all equal",
        "b7  failed   compile: 1 unit",
        f"    {problem.code}: does not compile (a.cu:3)",
    ]
    assert not Proof(build=7, patches=("x",), report=report(*results[:2])).failed


def test_a_pin_whose_gates_could_not_run_is_not_proven():
    problems = [AnchorError("one", where=Location(path="a.cu", line=1)), AnchorError("two")]
    proof = Proof(build=7, patches=("x",), report=None, error=ErrorGroup("cannot be applied", problems))
    assert proof.failed
    code = problems[0].code
    assert proof.lines() == [f"b7  not run  {code}: one (a.cu:1)", f"b7  not run  {code}: two"]
    document = fields_of(proof)
    assert (document["ok"], document["error"]["message"]) == (False, "cannot be applied")

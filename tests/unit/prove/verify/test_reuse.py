"""When evidence of an earlier run is reused, and when it is not."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from patchkit.base.errors import ToolchainError
from patchkit.base.plain import fields_of
from patchkit.base.reporter import NullReporter
from patchkit.base.verdict import EMULATED, Verdict
from patchkit.gpu.hardware.runner import LocalRunner
from patchkit.prove.gates.base import EmulatedOn, GateResult
from patchkit.prove.gates.bench import BenchEvidence
from patchkit.prove.subject import Subject
from patchkit.prove.verify.reuse import Reusing, machine_facts, model_identity

ROOT = Path(__file__).resolve().parents[4]
_KEPT = json.loads((ROOT / "tests/corpus/evidence/whole/bench@cpu.json").read_text())["evidence"]
EVIDENCE = BenchEvidence.model_validate(
    {key: value for key, value in _KEPT.items() if key not in {"identity", "run_at"}}
)
_LOCAL = LocalRunner(reporter=NullReporter())


@dataclass
class Counting:
    """A gate that counts how often it ran."""

    verdict: Verdict = "passed"
    runs: list[str] = field(default_factory=list)
    name: str = "bench"

    def run(self, subject: Subject) -> GateResult:
        self.runs.append(subject.candidate_tree)
        return GateResult(
            gate=self.name,
            verdict=self.verdict,
            summary="4 same",
            lines=(f"run {len(self.runs)}",),
            evidence=EVIDENCE,
            not_run=("x",),
        )


@pytest.fixture
def verify(make_subject: Callable[..., Subject]) -> Callable[..., GateResult]:
    """Runs a gate and keeps its result where verify does."""

    def run(gate: Counting, **changes: object) -> GateResult:
        tree = str(changes.pop("tree", "c" * 40))
        subject = dataclasses.replace(make_subject(), candidate_tree=tree)
        now = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
        values = {"inner": gate, "runner": _LOCAL, "settings": "cpu", "now": lambda: now, **changes}
        result = Reusing(**values).run(subject)
        path = subject.cache_root / "evidence" / tree / "bench.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(fields_of(result)))
        return result

    return run


def test_a_gate_that_passed_is_not_run_again_and_says_so(verify) -> None:
    gate = Counting()
    first = verify(gate)
    for _ in range(2):
        again = verify(gate)
        assert again.summary == (
            "4 same; evidence of 2026-01-02T03:04:05+00:00 reused (same trees, tools, machine)"
        )
        assert (again.lines, again.not_run, again.evidence) == (first.lines, first.not_run, first.evidence)
    assert len(gate.runs) == 1


@pytest.mark.parametrize("verdict", ["failed", "not run"])
def test_what_did_not_pass_runs_again(verify, verdict: Verdict) -> None:
    gate = Counting(verdict=verdict)
    verify(gate)
    verify(gate)
    assert len(gate.runs) == 2


@pytest.mark.parametrize(
    "changes", [{"tree": "d" * 40}, {"settings": "hip"}, {"fresh": True}], ids=["tree", "device", "fresh"]
)
def test_another_tree_or_machine_runs(verify, changes: dict[str, object]) -> None:
    gate = Counting()
    verify(gate)
    verify(gate, **changes)
    assert len(gate.runs) == 2


_ON = EmulatedOn(gpu="gfx1151", emulator="0" * 16)


def _emulated(verify, verdict: Verdict = EMULATED, **changes: object) -> tuple[Counting, GateResult]:
    gate = Counting(verdict=verdict)
    return gate, verify(gate, emulated=_ON, **changes)


def test_evidence_of_an_emulated_gpu_names_it_and_holds_for_the_same_one(verify) -> None:
    first, result = _emulated(verify)
    assert result.evidence.emulated == _ON
    assert ("GPU", "emulated gfx1151, emulator 0000000000000000") in result.evidence.provenance()
    assert result.evidence.identity.machine.startswith("emulated gfx1151")
    assert "kernel" not in result.evidence.identity.machine
    again, kept = _emulated(verify)
    assert (len(first.runs), len(again.runs), kept.verdict) == (1, 0, EMULATED)
    newer = Counting(verdict=EMULATED)
    verify(newer, emulated=EmulatedOn(gpu="gfx1151", emulator="1" * 16))
    assert len(newer.runs) == 1


def test_what_an_emulated_gpu_showed_does_not_keep_hardware_from_running(verify) -> None:
    _emulated(verify)
    gate = Counting()
    assert verify(gate).verdict == "passed"
    assert len(gate.runs) == 1


def test_a_pass_on_hardware_is_never_replaced_by_an_emulated_one(verify) -> None:
    verify(Counting())
    gate, kept = _emulated(verify)
    assert (len(gate.runs), kept.verdict, kept.evidence.emulated) == (0, "passed", None)
    assert "reused (on hardware; same trees, tools)" in kept.summary
    gate, kept = _emulated(verify, fresh=True)
    assert (len(gate.runs), kept.verdict, kept.evidence.emulated) == (1, "passed", None)
    assert "the emulated GPU agrees today" in kept.summary
    gate, kept = _emulated(verify, fresh=True, verdict="failed")
    assert kept.verdict == "failed"


def test_hardware_says_nothing_of_other_trees(verify) -> None:
    verify(Counting())
    gate, result = _emulated(verify, tree="d" * 40)
    assert (len(gate.runs), result.verdict) == (1, EMULATED)


@dataclass
class Raising(Counting):
    """A gate that cannot run."""

    code: str = "DISASSEMBLER_MISSING"

    def run(self, subject: Subject) -> GateResult:
        del subject
        raise ToolchainError("the compiler has no libLLVM", code=self.code, hint="patchkit sdk install")


def test_where_no_gpu_can_be_emulated_the_gate_is_not_run_and_the_run_goes_on(verify) -> None:
    result = verify(Raising(), emulated=_ON)
    assert (result.verdict, result.problems) == ("not run", ())
    assert result.summary == "needs gfx1151, which cannot be emulated here: the compiler has no libLLVM"
    with pytest.raises(ToolchainError):
        verify(Raising(code="NOT_BUILT"), emulated=_ON)
    with pytest.raises(ToolchainError):
        verify(Raising())


def test_a_failure_on_hardware_is_not_undone_by_an_emulated_gpu(verify) -> None:
    verify(Counting(verdict="failed"))
    for fresh in (False, True):
        gate, result = _emulated(verify, fresh=fresh)
        assert (len(gate.runs), result.verdict) == (1, "failed")
        assert [problem.code for problem in result.problems] == ["GATE_FAILED_ON_HARDWARE"]
    assert verify(Counting()).verdict == "passed"
    assert _emulated(verify)[1].verdict == "passed"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gate": "bench", "verdict": "passed"}'])
def test_evidence_that_cannot_be_read_is_none(verify, tmp_path: Path, text: str) -> None:
    gate = Counting()
    verify(gate)
    (kept,) = (tmp_path / "cache").rglob("bench.json")
    kept.write_text(text)
    verify(gate)
    assert len(gate.runs) == 2


def test_the_machine_names_its_kernel_and_processor() -> None:
    facts = machine_facts(_LOCAL).splitlines()
    assert facts[0].startswith("kernel Linux")
    assert any(line.startswith("cpu ") for line in facts)


def test_a_model_is_known_by_name_size_and_time(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"12345")
    assert model_identity(model).startswith("m.gguf, 5 bytes")
    assert model_identity(None) == model_identity(tmp_path / "none") == "patchkit's own model"

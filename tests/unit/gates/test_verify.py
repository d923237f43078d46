"""Order, stopping and evidence of gates, with gates that only answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from patchkit.base.errors import GateError
from patchkit.base.reporter import NullReporter
from patchkit.gates import verify
from patchkit.gates.base import Evidence, GateResult
from patchkit.gates.hardware import choose_hardware


class Seen(Evidence):
    seen: int


@dataclass(frozen=True)
class Answer:
    name: str
    verdict: str
    ran: list

    def run(self, subject: object) -> GateResult:
        del subject
        self.ran.append(self.name)
        problem = GateError("wrong", hint="look")
        failed = self.verdict == "failed"
        return GateResult(
            gate=self.name,
            verdict=self.verdict,
            summary="said",
            problems=(problem,) if failed else (),
            evidence=Seen(seen=1),
        )


def _run(folder: Path, verdicts: dict[str, str], only: tuple[str, ...] = ()):
    ran: list[str] = []
    gates = [Answer(name, verdict, ran) for name, verdict in verdicts.items()]
    done = verify._run(gates, SimpleNamespace(reporter=NullReporter()), only, folder)
    return ran, [(one.result.gate, one.result.verdict, one.result.summary) for one in done]


def test_a_failure_stops_and_the_rest_is_not_passed(tmp_path: Path) -> None:
    ran, results = _run(tmp_path, {"a": "passed", "b": "failed", "c": "passed"})
    assert ran == ["a", "b"]
    assert results[2] == ("c", "not run", "gate b failed")
    assert json.loads((tmp_path / "b.json").read_text())["problems"][0]["code"] == "GATE"
    assert not (tmp_path / "c.json").exists()


def test_a_gate_that_could_not_run_does_not_stop_the_others(tmp_path: Path) -> None:
    ran, results = _run(tmp_path, {"a": "not run", "b": "passed"})
    assert ran == ["a", "b"]
    assert results[0][1] == "not run"


def test_what_is_not_asked_for_is_listed(tmp_path: Path) -> None:
    ran, results = _run(tmp_path, {"a": "passed", "b": "passed"}, only=("b",))
    assert ran == ["b"]
    assert results[0] == ("a", "not run", "not asked for")


def test_gates_that_need_a_gpu_are_never_passed() -> None:
    nothing = choose_hardware(("gfx1151",), None, model=None, no_gpu=True)
    rows = [timed.result for timed in verify._not_here((), nothing)]
    assert [row.gate for row in rows] == ["numerics", "backend-ops", "logits", "bench"]
    assert {row.verdict for row in rows} == {"not run"}
    assert all("GPU" in row.summary for row in rows)


@pytest.mark.parametrize(("name", "says"), [("bench", "cannot run here"), ("isolat", "there is no gate")])
def test_an_unknown_gate_is_refused(name: str, says: str) -> None:
    with pytest.raises(verify.UnknownGate, match=says) as caught:
        verify._refuse_unknown(
            ("isolation", name), choose_hardware(("gfx1151",), None, model=None, no_gpu=True)
        )
    assert "isolation" in (caught.value.hint or "")


def test_a_report_fails_with_any_gate_and_leaves_evidence_in_its_files(tmp_path: Path) -> None:
    timed = [
        verify.Timed(
            result=GateResult(gate="a", verdict="passed", summary="", evidence=Seen(seen=1)), seconds=1.0
        ),
        verify.Timed(
            result=GateResult(gate="b", verdict="failed", summary="", problems=(GateError("bad"),)),
            seconds=2.0,
        ),
    ]
    report = verify.Report(
        branch="candidate/gfx1151/b6900",
        archs=("gfx1151",),
        base="b",
        tip="t",
        tree="c",
        proven_with=(),
        gates=tuple(timed),
        folder=tmp_path,
    )
    assert report.failed
    document = report.as_json()
    assert document["ok"] is False
    assert document["gates"][0]["evidence"] == str(tmp_path / "a.json")
    assert "seen" not in json.dumps(document["gates"])
    assert [problem.message for problem in verify.failures(report)] == ["bad"]

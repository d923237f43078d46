"""Gates on the emulated GPU, on the candidate that the series gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_subject import subject_for

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.gpu.hardware.attention import gate_cases
from patchkit.prove.build import Machine
from patchkit.prove.gates.backend_ops import BackendOpsEvidence, BackendOpsGate
from patchkit.prove.gates.sanitize import SanitizeGate
from patchkit.prove.subject import Subject
from patchkit.prove.verify.timings import Stopwatch
from patchkit.toolchain.hip import Toolchain

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.hip, pytest.mark.slow]

# A hundred and more: two processes.
OPS = BackendOpsGate(
    machine=Machine(backend="hip", emulates="gfx1151"),
    pattern="hsk=64,",
    cases=[case for case in gate_cases(is_sample=True) if case.head_size == 64][:3],
    is_sample=True,
)


@pytest.fixture(scope="module")
def subject(gates_cache: Path, hip_toolchain: Toolchain) -> Subject:
    """The series as it is."""
    return subject_for(SeriesDir(root=ROOT, origin="checkout"), gates_cache, hip_toolchain, ["gfx1151"])


def _counts(evidence: object) -> tuple[int, ...]:
    assert isinstance(evidence, BackendOpsEvidence)
    return (
        evidence.tests_run,
        evidence.tests_passed,
        evidence.baseline_tests_run,
        evidence.baseline_tests_passed,
    )


def test_backend_ops_passes_and_says_where(subject: Subject) -> None:
    watch = Stopwatch(NullReporter())
    with watch.stage("backend-ops"):
        fresh = replace(OPS, machine=replace(OPS.machine, is_fresh=True))
        result = fresh.run(replace(subject, reporter=watch))
    assert result.verdict == "passed (emulated)", result.problems
    (ran,) = (each for each in watch.stages[0].spent if each.work == "run")
    assert ran.tools > 4, "two processes of each side, besides those that only list cases"
    run, passed, *baseline = _counts(result.evidence)
    assert run == passed > 64
    assert baseline == [run, passed]
    assert "execution on the GPU itself: gfx1151 was emulated" in result.not_run
    assert any("a sample ran (--full runs all)" in text for text in result.not_run)


def test_what_backend_ops_ran_with_checks_is_not_run_again_to_look_for_faults(subject: Subject) -> None:
    looked = replace(OPS, is_sanitized=True).run(subject)
    assert _counts(looked.evidence) == _counts(OPS.run(subject).evidence)
    sanitize = SanitizeGate(machine=OPS.machine, pattern=OPS.pattern, cases=OPS.cases, is_sample=True)
    watch = Stopwatch(NullReporter())
    with watch.stage("sanitize"):
        result = sanitize.run(replace(subject, reporter=watch))
    assert result.verdict == "passed (emulated)", result.problems
    assert not [each for each in watch.stages[0].spent if each.work == "run"]  # ours neither
    (again,) = (line for line in result.lines if "reused from cache" in line)
    ran = _counts(looked.evidence)[0]
    assert int(again.split()[0]) >= 2 * (ran // 24), again

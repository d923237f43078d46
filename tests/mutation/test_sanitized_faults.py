"""Plant faults in kernels of a candidate, and see that the gate ``sanitize`` names them, not upstream's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from patchkit.prove.build import Machine
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.sanitize import SanitizeEvidence, SanitizeGate
from patchkit.prove.subject import Subject

CUDA = "ggml/src/ggml-cuda"
SOFT_MAX, SSM_SCAN = f"{CUDA}/softmax.cu", f"{CUDA}/ssm-scan.cu"
_SHIFT = "// a line that the baseline does not have\n" * 3
_STORED = "buf_iw[warp_id] = max_val;\n        }"
pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture
def gate_over(shipped: Subject, edited: Callable[..., Subject]) -> Callable[..., GateResult]:
    """Runs the gate over operations of a candidate with other kernels, without our cases."""

    def run(ops: tuple[str, ...], pattern: str | None, **files: tuple[str, str]) -> GateResult:
        changes = {}
        for name, (old, new) in files.items():
            path = f"{CUDA}/{name.replace('_', '-')}.cu"
            text = (shipped.candidate / path).read_text("utf-8")
            assert old in text
            changes[path] = (_SHIFT + text.replace(old, new, 1)).encode()
        subject = edited(shipped, changes, "fattn-keep-gqa-tiles")
        machine = Machine(backend="hip", emulates="gfx1151")
        return SanitizeGate(machine=machine, ops=ops, pattern=pattern, is_sample=True).run(subject)

    return run


def _evidence(result: GateResult) -> SanitizeEvidence:
    assert isinstance(result.evidence, SanitizeEvidence), result.summary
    return result.evidence


def test_what_upstream_does_is_shown_and_fails_nothing(gate_over) -> None:
    result = gate_over(("SSM_SCAN",), None, ssm_scan=("", ""))
    assert result.verdict == "passed (emulated)", result.problems
    found = _evidence(result)
    assert found.candidate.launches == found.baseline.launches > 0
    assert {one.file for one in found.baseline.findings} == {SSM_SCAN}
    assert not found.own
    lines = [sorted(one.line or 0 for one in side.findings) for side in (found.baseline, found.candidate)]
    assert lines[1] == [number + 3 for number in lines[0]]
    assert any(line.startswith("upstream's own: races in ssm_scan_f32") for line in result.lines)


@pytest.mark.parametrize(
    ("kind", "planted", "line"),
    [
        ("races", (f"{_STORED}\n        __syncthreads();", _STORED), "buf_iw["),
        ("memory", ("sinks[i02] - max_val", "sinks[i02 << 20] - max_val"), "sinks[i02 << 20] - max_val"),
    ],
    ids=["barrier", "index"],
)
def test_a_fault_of_the_candidates_fails_and_is_named(
    gate_over, kind: str, planted: tuple[str, str], line: str
) -> None:
    result = gate_over(("SOFT_MAX", "SSM_SCAN"), r"ne=\[(1023,15|16,2|32,2),|d_state", softmax=planted)
    assert result.verdict == "failed", result.summary
    found = _evidence(result)
    assert {(one.kind, one.file) for one in found.own} == {(kind, SOFT_MAX)}
    assert any(one.file == SSM_SCAN for one in found.candidate.findings if one.on_other_side)
    assert {problem.code for problem in result.problems} == {"SANITIZE_FOUND"}
    problem = next(one for one in result.problems if line in one.message)
    assert f"{kind} in kernel soft_max_f32" in problem.message
    (where,) = problem.where
    assert (where.path, where.label) == (SOFT_MAX, "fattn-keep-gqa-tiles")
    assert problem.hint is not None
    assert "--side candidate -- test-backend-ops test -b ROCm0 -o" in problem.hint


def test_a_candidate_that_ends_badly_keeps_what_was_found_until_then(gate_over) -> None:
    stored = f"{_STORED}\n        __syncthreads();"
    trap = f"{_STORED}\n        if (max_val == max_val) {{ __builtin_trap(); }}"
    result = gate_over(("SOFT_MAX",), r"ne=\[(1023,15|16,2|32,2),", softmax=(stored, trap))
    assert result.verdict == "failed"
    assert result.problems[0].code == "BACKEND_OPS_BROKEN"
    assert result.evidence is not None

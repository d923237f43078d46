"""The gate sanitize: which faults of both sides are the same, and what it makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from patchkit.gpu.emulated.findings import Finding, Instruction
from patchkit.prove.build import Machine
from patchkit.prove.gates import registry
from patchkit.prove.gates.base import DeviceSetup
from patchkit.prove.gates.record import GateReport
from patchkit.prove.gates.sanitize import (
    LineMap,
    RecordedFinding,
    RecordedSide,
    SanitizeEvidence,
    SanitizeGate,
    fault_key,
    judge,
    source_lines,
)

FILE = "ggml/src/ggml-cuda/sum.cu"
BASELINE = """\
__global__ void sum(float * to) {
    __shared__ float part[256];
    part[threadIdx.x] = 1;
    __syncthreads();
    to[0] = part[0];
    __syncthreads();
    to[1] = part[1];
}
"""


@pytest.fixture
def compared(tmp_path: Path):
    """The lines of the baseline that a candidate's are."""

    def compare(candidate: str) -> LineMap:
        for side, text in (("baseline", BASELINE), ("candidate", candidate)):
            path = tmp_path / side / FILE
            path.parent.mkdir(parents=True)
            path.write_text(text)
        return LineMap(tmp_path / "baseline", tmp_path / "candidate")

    return compare


def _at(line: int | None, *inlined: int, function: str = "_Z3sumPf", text: str = "ds_load_b32 v1, v0"):
    return Instruction(
        function=function,
        offset=8 * (line or 1),
        text=text,
        file=None if line is None else FILE,
        line=line,
        inlined_at=tuple((FILE, number) for number in inlined),
    )


def _finding(at: Instruction, other: Instruction | None = None, **more: object) -> Finding:
    given: dict[str, object] = {
        "kind": "races",
        "what": "reads byte 0 of LDS",
        "kernel": "_Z3sumPf",
        "at": at,
        "other": other,
        "block": (0, 0, 0),
        "wave": 1,
        "times": 3,
        "instructions": 1,
        "called_from": (),
        **more,
    }
    return Finding(**given)  # type: ignore[arg-type]


def test_lines_that_a_patch_shifts_are_the_same(compared) -> None:
    places = compared("// one\n// two\n" + BASELINE)
    old = fault_key(_finding(_at(5), _at(3)), places.same)
    assert fault_key(_finding(_at(7), _at(5)), places.before) == old
    assert fault_key(_finding(_at(5), _at(3)), places.before) != old


def test_a_line_that_moved_within_its_file_is_the_same(compared) -> None:
    moved = BASELINE.replace("    to[0] = part[0];\n", "").replace("}\n", "  to[0] = part[0];\n}\n")
    places = compared(moved)
    assert places.before(FILE, 7) == places.same(FILE, 5)


def test_a_line_that_a_patch_changed_or_that_is_there_twice_is_another(compared) -> None:
    places = compared(BASELINE.replace("part[0];", "part[2];") + "    to[1] = part[1];\n")
    assert places.before(FILE, 5) == ("candidate", FILE, 5)
    assert places.before(FILE, 7) == places.same(FILE, 7)
    assert places.before(FILE, 9) == ("candidate", FILE, 9)
    assert places.before("other.cu", 5) == places.same("other.cu", 5)


def test_names_arguments_registers_and_order_make_no_other_fault(compared) -> None:
    places = compared(BASELINE)
    old = fault_key(_finding(_at(5), _at(3)), places.same)
    renamed = _at(5, function="_Z3sumILi4EEvPf", text="ds_load_b64 v[8:9], v7")
    assert fault_key(_finding(renamed, _at(3), kernel="_Z3sumILi4EEvPf"), places.before) == old
    assert fault_key(_finding(_at(3), _at(5), what="writes byte 0 of LDS"), places.before) == old


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "waits"},
        {"at": _at(7)},
        {"at": _at(5, 7)},
        {"other": _at(6)},
        {"other": None},
    ],
    ids=str,
)
def test_another_kind_line_call_or_conflict_is_another_fault(compared, change: dict[str, object]) -> None:
    places = compared(BASELINE)
    one = _finding(_at(5), _at(3))
    assert fault_key(replace(one, **change), places.before) != fault_key(one, places.same)


def test_reads_and_writes_that_conflict_with_nothing_are_two(compared) -> None:
    places = compared(BASELINE)
    read, write = (
        _finding(_at(5), kind="memory", what=f"lane 1 {verb} 4 bytes") for verb in ("reads", "writes")
    )
    assert fault_key(read, places.same) != fault_key(write, places.same)


def test_code_without_lines_goes_by_function_and_instruction(compared) -> None:
    places = compared(BASELINE)
    one = fault_key(_finding(_at(None)), places.same)
    other = _at(None, function="_Z3sumILi4EEvPf", text="ds_load_b32 v7, v9")
    assert fault_key(_finding(other), places.before) == one
    assert fault_key(_finding(_at(None, function="_Z3maxPf")), places.before) != one


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret", "\0", "nothing.cu", "."])
def test_nothing_is_read_outside_of_the_tree(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "tree" / "a").mkdir(parents=True)
    assert source_lines(tmp_path / "tree", name) == []


@pytest.mark.parametrize(
    "machine", [Machine(backend="hip"), Machine(backend="cpu")], ids=lambda one: one.kind
)
def test_hardware_and_the_cpu_are_not_looked_at(machine: Machine) -> None:
    gate = SanitizeGate.make(DeviceSetup(machine=machine, runner=None))  # type: ignore[arg-type]
    result = gate.run(None)  # type: ignore[arg-type]
    assert result.verdict == "not run"
    assert "needs the emulated GPU" in result.summary
    assert "sanitize" in registry.gate_names("emulated")
    assert "sanitize@cpu" not in registry.cpu_names()


def _seen(**more: object) -> RecordedFinding:
    given: dict[str, object] = {
        "kind": "races",
        "what": "wave 1 reads byte 0 of LDS",
        "kernel": "sum<b>",
        "place": f"{FILE}:5",
        "file": FILE,
        "line": 5,
        "source": "to[0] = part[0]; // <script>",
        "code": "ds_load_b32 v1, v0",
        "inlined_at": (),
        "other": f"{FILE}:3   ds_store_b32 v1, v0",
        "times": 3,
        "called_from": ("main (x.cpp:1)",),
        "found_in": ("SOFT_MAX",),
        "on_other_side": False,
        **more,
    }
    return RecordedFinding.model_validate(given)


def _side(*findings: RecordedFinding, launches: int = 7) -> RecordedSide:
    return RecordedSide(
        cases=4,
        own_cases=0,
        launches=launches,
        kernels=1,
        instructions=99,
        on_cpu=(),
        cut_short=0,
        findings=findings,
    )


def _evidence(baseline: RecordedSide, candidate: RecordedSide) -> SanitizeEvidence:
    return SanitizeEvidence(
        device="emulated gfx1151",
        checks=("races",),
        operations=("SOFT_MAX",),
        sides={},
        commands=(),
        baseline=baseline,
        candidate=candidate,
    )


SUBJECT = SimpleNamespace(patches_of=lambda *_: ("my-patch",), archs=("gfx1151",))
COMMAND = "patchkit sanitize --side candidate -- test-backend-ops test -b ROCm0"


def test_only_what_the_baseline_does_not_do_fails() -> None:
    known = _seen(on_other_side=True)
    found = _evidence(_side(known), _side(known, _seen(line=7, place=f"{FILE}:7")))
    (problem,) = judge(found, SUBJECT, COMMAND)
    assert problem.code == "SANITIZE_FOUND"
    assert (
        problem.message == "races in kernel sum<b>, not found on the baseline: to[0] = part[0]; // <script>"
    )
    (where,) = problem.where
    assert (where.path, where.line, where.label) == (FILE, 7, "my-patch")
    assert problem.why is not None
    assert "wave 1 reads byte 0 of LDS; 3 times" in problem.why
    assert problem.hint == f"{COMMAND} -o SOFT_MAX"
    assert not list(judge(_evidence(_side(known), _side(known)), SUBJECT, COMMAND))


def test_what_only_our_cases_show_is_not_asked_of_upstreams_program() -> None:
    ours = _seen(found_in=("attention cases of patchkit's own",))
    (problem,) = judge(_evidence(_side(), _side(ours)), SUBJECT, COMMAND)
    assert problem.hint is not None
    assert "patchkit verify --arch gfx1151 --emulated --gate sanitize --fresh" in problem.hint


def test_a_run_that_launched_nothing_is_no_pass() -> None:
    (problem,) = judge(_evidence(_side(), _side(launches=0)), SUBJECT, COMMAND)
    assert problem.code == "NOTHING_LAUNCHED"


def test_many_findings_are_counted_and_not_all_told() -> None:
    many = [_seen(line=number) for number in range(1, 100)]
    problems = list(judge(_evidence(_side(), _side(*many)), SUBJECT, COMMAND))
    assert len(problems) == 21
    assert problems[-1].message == "79 more findings that the baseline does not have"


def test_reports_show_the_candidates_findings_and_then_upstreams() -> None:
    gone = _seen(place=f"{FILE}:9")
    found = _evidence(_side(_seen(on_other_side=True), gone), _side(_seen(on_other_side=True), _seen()))
    gate = GateReport(
        gate="sanitize", verdict="failed", summary="", problems=(), not_run=(), lines=(), evidence=found
    )
    tables = {table.name: table for table in gate.blocks}
    assert list(tables) == ["sanitize", "sanitize-own", "sanitize-upstream"]
    assert [row.cells[1] for row in tables["sanitize-own"].rows] == [f"{FILE}:5"]
    assert [row.cells[-1] for row in tables["sanitize-upstream"].rows] == ["too", "not seen"]
    assert SanitizeEvidence.model_validate_json(found.model_dump_json(), strict=False) == found

"""What the gate concludes from results of a real GPU, as they are and broken in every way thought of."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from patchkit.gates.base import GateResult
from patchkit.gates.numerics.judge import judge_numerics
from patchkit.gates.numerics.manifest import load_manifest
from patchkit.gates.numerics.outputs import load_results
from patchkit.gates.numerics.sets import PLANTED

CHECK = "check-stride128-warps8"
OPS = "ops-stride256-warps8"


def judged(folder: Path) -> GateResult:
    return judge_numerics(load_manifest(folder), load_results(folder))


def codes(folder: Path) -> set[str]:
    result = judged(folder)
    assert result.verdict == "failed"
    return {problem.code for problem in result.problems}


def edit(bundle: Path, name: str, old: str, new: str) -> None:
    """Replace the first ``old`` in a result."""
    path = bundle / "results" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def line_of(bundle: Path, name: str, *words: str) -> str:
    """The first line of a result that has these words."""
    lines = (bundle / "results" / name).read_text().splitlines()
    return next(line for line in lines if all(word in line for word in words))


def edit_check(bundle: Path, **changes: object) -> None:
    """Change what the first case of :data:`CHECK` measured."""
    line = line_of(bundle, f"{CHECK}.out", '{"case"')
    edit(bundle, f"{CHECK}.out", line, json.dumps({**json.loads(line), **changes}))


def test_the_run_on_the_gpu_passed(recorded: Path) -> None:
    result = judged(recorded)
    assert result.verdict == "passed", result.problems
    evidence = result.as_json()["evidence"]
    assert evidence["gpu"] == {"name": "NVIDIA H200", "driver": "580.159.04", "compute_capability": "9.0"}
    assert evidence["nvcc"] == "13.0.88"
    assert evidence["counts"] == {"own": 4056, "upstream": 13864, "failed": 0, "unsupported": 0}
    tables = {row["name"]: row for row in evidence["tables"]}
    assert {name: (row["passed"], row["settings"]) for name, row in tables.items()} == {
        "gfx1151": (22, 23),
        "gfx1100": (22, 23),
        "gfx1201": (23, 23),
        "alternatives": (6, 6),
    }
    assert tables["gfx1151"]["not_run"] == ["head size 80, 32 columns, f32: stride 256, 8 warps"]
    assert evidence["isolation"]["counts"] == {"baseline": "5248 of 5248", "candidate": "5248 of 5248"}
    assert evidence["isolation"]["equal_objects"] == evidence["isolation"]["units"] == 11
    assert evidence["isolation"]["programs_equal"] is True
    json.dumps(result.as_json())


def test_a_setting_that_needs_too_much_shared_memory_is_listed_as_not_run(recorded: Path) -> None:
    told = judged(recorded).not_run
    assert len(told) == 2
    assert all("50688 bytes of static shared memory, CUDA has 49152" in line for line in told)


def test_every_planted_setting_was_noticed(recorded: Path) -> None:
    planted = judged(recorded).as_json()["evidence"]["planted"]
    assert len(planted) == len(PLANTED) + 1  # and once by upstream's own program
    assert all(row["failed"] > 0 and not row["crashed"] for row in planted)


def test_a_wrong_setting_is_told_with_its_figures(bundle: Path) -> None:
    edit_check(bundle, nmse=1.0e3, row=3.5e3)
    (problem,) = judged(bundle).problems
    assert problem.code == "NUMERICS_WRONG"
    assert "head size 64, 16 columns, f32: stride 128, 8 warps" in problem.message
    assert "NMSE up to 1.0e+03" in problem.why


@pytest.mark.parametrize(
    "changes", [{"row": 4.0e-4}, {"nmse": -1.0, "row": -1.0, "finite": False}], ids=["one row", "no number"]
)
def test_an_error_in_a_single_row_and_a_value_that_is_no_number_are_wrong(
    bundle: Path, changes: dict[str, object]
) -> None:
    edit_check(bundle, **changes)
    assert codes(bundle) == {"NUMERICS_WRONG"}


def test_a_failure_of_upstreams_own_tests_counts(bundle: Path) -> None:
    line = line_of(bundle, f"{OPS}.out", "hsk=128", "nb=35", "prec=f32", "OK")
    edit(bundle, f"{OPS}.out", line, line.replace("OK", "FAIL"))
    edit(bundle, f"{OPS}.out", "3488/3488 tests passed", "3487/3488 tests passed")
    assert codes(bundle) == {"NUMERICS_WRONG"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"block": [32, 8, 1]', '"block": [32, 4, 1]'),
        ('"threads": 256', '"threads": 128'),
        ('"static": 11008', '"static": 19200'),
        ("flash_attn_ext_f16ILi64ELi16", "flash_attn_ext_f16ILi80ELi16"),
        ("flash_attn_ext_f16I", "flash_attn_ext_vecI"),
    ],
    ids=["warps of the launch", "launch bound", "shared memory", "another variant", "another kernel"],
)
def test_another_kernel_than_the_one_to_measure(bundle: Path, old: str, new: str) -> None:
    edit(bundle, f"{CHECK}.out", old, new)
    assert codes(bundle) == {"NUMERICS_OTHER_KERNEL"}


def test_a_planted_setting_that_passes_makes_the_measurement_worthless(bundle: Path) -> None:
    good = (bundle / "results" / f"{CHECK}.out").read_text().splitlines()
    few = [line for line in good if line.startswith('{"case"')][:5]
    (bundle / "results" / "planted-4.out").write_text("\n".join([*few, '{"done": 5}']) + "\n")
    assert codes(bundle) == {"NUMERICS_BLIND"}


def test_a_planted_setting_may_take_the_program_down(bundle: Path) -> None:
    (bundle / "results" / "planted-4.out").write_text("")
    (bundle / "results" / "planted-4.status").write_text("139 1\n")
    result = judged(bundle)
    assert result.verdict == "passed"
    assert any(row["crashed"] for row in result.as_json()["evidence"]["planted"])


@pytest.mark.parametrize(
    ("sample", "code"),
    [
        ("cuda-error", "NVIDIA_GPU_LOST"),
        ("no-device", "NVIDIA_GPU_LOST"),
        ("timeout", "NUMERICS_TIMEOUT"),
        ("killed", "NUMERICS_CRASH"),
    ],
)
def test_how_a_program_may_end(bundle: Path, sample: str, code: str) -> None:
    for kind in ("out", "err", "status"):
        shutil.copy(bundle / "samples" / f"{sample}.{kind}", bundle / "results" / f"{CHECK}.{kind}")
    found = codes(bundle)
    assert code in found
    # What was not measured is told as well, and never counts as passed.
    assert {"NUMERICS_NOT_MEASURED", "NUMERICS_UNFINISHED"} <= found


@pytest.mark.parametrize(
    ("status", "code"),
    [("137 1210", "NUMERICS_TIMEOUT"), ("139 5", "NUMERICS_CRASH")],
    ids=["killed at its limit", "a crash is no lost GPU"],
)
def test_how_a_program_ended_is_told_by_its_status(bundle: Path, status: str, code: str) -> None:
    (bundle / "results" / f"{CHECK}.status").write_text(f"{status}\n")
    assert codes(bundle) == {code}


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.999])
def test_an_output_that_stops_in_the_middle(bundle: Path, keep: float) -> None:
    path = bundle / "results" / f"{CHECK}.out"
    text = path.read_text()
    path.write_text(text[: int(len(text) * keep)])
    found = codes(bundle)
    assert found & {"NUMERICS_UNFINISHED", "NUMERICS_OUTPUT_GARBLED"}


def test_garbage_in_an_output(bundle: Path) -> None:
    path = bundle / "results" / f"{CHECK}.out"
    path.write_text("\x00\x01 not what it writes\n" + path.read_text())
    assert "NUMERICS_OUTPUT_GARBLED" in codes(bundle)


def test_a_job_without_a_result(bundle: Path) -> None:
    for kind in ("out", "err", "status"):
        (bundle / "results" / f"{CHECK}.{kind}").unlink()
    assert codes(bundle) == {"NUMERICS_UNFINISHED", "NUMERICS_NOT_MEASURED"}


def test_a_gpu_that_does_not_answer_afterwards(bundle: Path) -> None:
    (bundle / "results" / "gpu-after.csv").write_text("Unable to determine the device handle\n")
    assert codes(bundle) == {"NVIDIA_GPU_LOST"}


def test_an_unsteady_compiler_s_objects_are_equal_when_two_builds_agree(bundle: Path) -> None:
    path = bundle / "results" / "objects.txt"
    lines = path.read_text().splitlines()
    name = "baseline/fattn.cu.o"
    again = [line for line in lines if line.endswith("/fattn.cu.o")]
    lines = ["0" * 64 + line[64:] if line.endswith(name) else line for line in lines]
    path.write_text("\n".join(lines) + "\n")
    assert codes(bundle) == {"CUDA_OBJECTS_DIFFER"}
    path.write_text("\n".join([*lines, *again]) + "\n")
    result = judged(bundle)
    assert result.verdict == "passed"
    assert f"nvcc made more than one: {name}" in "\n".join(result.lines)
    path.write_text("\n".join([*lines, *lines]) + "\n")
    assert codes(bundle) == {"CUDA_OBJECTS_DIFFER"}


def test_cuda_objects_that_are_missing(bundle: Path) -> None:
    (bundle / "results" / "objects.txt").unlink()
    assert codes(bundle) == {"NUMERICS_UNFINISHED"}


def test_cuda_tests_that_differ(bundle: Path) -> None:
    line = line_of(bundle, "ops-candidate.out", "FLASH_ATTN_EXT", "OK")
    edit(bundle, "ops-candidate.out", line, line.replace("OK", "FAIL"))
    edit(bundle, "ops-candidate.out", "5248/5248 tests passed", "5247/5248 tests passed")
    assert codes(bundle) == {"CUDA_COUNTS_DIFFER"}


def test_cuda_that_is_slower_counts_only_when_the_programs_differ(bundle: Path) -> None:
    for path in (bundle / "results").glob("perf-candidate-*.out"):
        path.write_text(re.sub(r"([\d.]+) us/run", _half_as_long_again, path.read_text()))
    assert judged(bundle).verdict == "passed"
    line = line_of(bundle, "programs.txt", "candidate-ops")
    edit(bundle, "programs.txt", line, "1" * 64 + line[64:])
    assert codes(bundle) == {"CUDA_SLOWER"}


def _half_as_long_again(found: re.Match[str]) -> str:
    return f"{float(found[1]) * 1.5:.2f} us/run"


def test_cuda_that_was_not_timed(bundle: Path) -> None:
    for path in (bundle / "results").glob("perf-candidate-*.out"):
        path.write_text("")
    assert codes(bundle) == {"NUMERICS_UNFINISHED"}

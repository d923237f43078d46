"""The program that measures the numbers, on the CPU backend: its own sums are right, and it notices."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.candidate.build import build_sides
from patchkit.candidate.subject import Subject
from patchkit.gates.numerics.cases import CheckCase, check_cases, check_line
from patchkit.gates.numerics.judge import NMSE_LIMIT, ROW_LIMIT
from patchkit.gates.numerics.outputs import CheckRun, parse_check
from patchkit.gpu.cases import CASE_READER

pytestmark = [pytest.mark.cpu_build, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "patchkit" / "gates" / "numerics" / "native" / "attention_check.cpp"
MASK = "const float mv = mp ? slope*GGML_CPU_FP16_TO_FP32(mp[ic]) : 0.0f;"


def exact_cases() -> list[CheckCase]:
    """With f32 operands the CPU rounds nothing that matters, so what is left is the two sums' difference."""
    few = [
        check
        for check in check_cases()
        if check.case.head_size in {64, 80} and check.case.kv == 768 and check.case.tokens == 33
    ]
    return [replace(check, case=replace(check.case, type_k="f32", type_v="f32")) for check in few]


def run(subject: Subject, side: str, folder: Path, cases: list[CheckCase]) -> CheckRun:
    """Link against one side's libraries and run the cases on its CPU backend."""
    libraries = getattr(build_sides(subject, "cpu"), side).folder
    made, file = folder / f"check-{side}", folder / "cases.txt"
    file.write_text("".join(check_line(check) for check in cases))
    flags = ["-std=c++17", "-O2", f"-I{subject.baseline / 'ggml' / 'include'}", f"-I{CASE_READER.parent}"]
    link = [f"-L{libraries}", "-lggml", "-lggml-base", "-pthread", f"-Wl,-rpath,{libraries}"]
    subprocess.run(["c++", *flags, str(SOURCE), "-o", str(made), *link], check=True)
    env = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(libraries)}
    backend = libraries / "libggml-cpu.so"
    if backend.is_file():
        env["GGML_BACKEND_PATH"] = str(backend)
    done = subprocess.run([str(made), str(file), "CPU"], env=env, capture_output=True, text=True, check=True)
    return parse_check(done.stdout)


def test_its_sums_are_those_of_the_cpu_backend(cpu_subject: Subject, tmp_path: Path) -> None:
    cases = exact_cases()
    assert {check.pattern for check in cases} == {"free", "causal", "window", "short"}
    found = run(cpu_subject, "before", tmp_path, cases)
    assert found.is_complete
    assert len(found.checks) == len(cases) > 20
    assert max(check.nmse or 0.0 for check in found.checks) < 1e-10
    assert max(check.row or 0.0 for check in found.checks) < 1e-9


def test_one_key_of_64_that_is_forgotten_is_noticed(
    plant: Callable[[str, str], Subject], tmp_path: Path
) -> None:
    planted = plant(MASK, MASK + "\n            if (ic % 64 == 63) { continue; }")
    found = run(planted, "after", tmp_path, exact_cases())
    assert found.is_complete
    for check in found.checks:
        assert (check.nmse or 0.0) > NMSE_LIMIT or (check.row or 0.0) > ROW_LIMIT

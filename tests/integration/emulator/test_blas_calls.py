"""hipBLAS on the executing runtime: its calls compute, as work of streams, or refuse and say so."""

from __future__ import annotations

import json
import signal

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_FLAGS = ("-Wno-deprecated-declarations",)


@pytest.fixture(scope="module", params=["version 2", "version 3"])
def program(request, compile_program):
    """The program with the enums of one version of hipBLAS."""
    flags = (*_FLAGS, "-DHIPBLAS_V2") if request.param == "version 3" else _FLAGS
    return compile_program("blas_calls", *flags)


@pytest.mark.parametrize("schedule", ["in-order", "late", "shuffle 7"])
@pytest.mark.parametrize("name", ["computes", "replays"])
def test_every_call_computes_in_every_schedule(program, execute, name, schedule):
    done = execute(program, name, PATCHKIT_EMULATOR_SCHEDULE=schedule)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("schedule", "when"), [("in-order", "done at once"), ("late", "not done yet")])
def test_a_product_is_work_of_its_stream(program, execute, schedule, when):
    done = execute(program, "waits_its_turn", PATCHKIT_EMULATOR_SCHEDULE=schedule)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{when}\n", "")


def test_types_that_hipblas_does_not_multiply_are_refused_aloud(program, execute):
    done = execute(program, "refuses")
    assert (done.returncode, done.stdout) == (0, "")
    said = "patchkit: hipblasGemmEx is not supported: {}, computed as f32"
    assert done.stderr.splitlines() == [
        said.format("f32 times f16 to f32"),
        said.format("i8 times i8 to i32"),
    ]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("runs_over", "hipblasSgemm: operand B of batch entry 0 has 64 bytes at 0x"),
        ("follows_a_wrong_list", "hipblasSgemmBatched: operand C of batch entry 0 has 64 bytes at 0xdead0"),
    ],
)
def test_what_nobody_allocated_is_not_touched(program, execute, name, what):
    done = execute(program, name)
    assert done.returncode == -signal.SIGABRT
    assert f"patchkit emulator: {what}" in done.stderr


def test_the_report_says_what_the_cpu_computed(program, execute, tmp_path):
    report = tmp_path / "report.json"
    assert execute(program, "computes", PATCHKIT_EMULATOR_REPORT=str(report)).returncode == 0
    entries = {
        (one["call"], one["a"], one["c"], one["compute"]): one
        for one in json.loads(report.read_text("utf-8"))["on_cpu"]
    }
    types = {"a": "f16", "b": "f16", "c": "f16", "compute": "f16", "sums": "f32"}
    shape = {"call": "hipblasGemmEx", "m": 5, "n": 4, "k": 7, "batch": 1}
    assert entries["hipblasGemmEx", "f16", "f16", "f16"] == {**shape, **types, "calls": 4}
    assert entries["hipblasGemmBatchedEx", "f64", "f64", "f64"]["sums"] == "f64"
    assert entries["hipblasGemmStridedBatchedEx", "bf16", "f32", "f32"]["batch"] == 3
    assert entries["hipblasSgemmBatched", "f32", "f32", "f32"]["calls"] == 4
    solved = [one for one in json.loads(report.read_text("utf-8"))["on_cpu"] if "Strsm" in one["call"]]
    assert [(one["m"], one["n"], one["k"], one["calls"]) for one in solved] == [(6, 4, 4, 8), (6, 4, 6, 8)]

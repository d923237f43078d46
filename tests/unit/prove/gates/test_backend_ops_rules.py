"""The rules of the gate backend-ops, on rows that break them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from refusing import refused

from patchkit.base.jobs import cores
from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.attention import AttentionResult, gate_cases
from patchkit.gpu.hardware.backend_ops import Choice, Row, Stage, parts_of
from patchkit.gpu.hardware.program import RunContext
from patchkit.prove.build import Machine, check_device
from patchkit.prove.gates.backend_ops import (
    allowed_nmse,
    confirm_near_misses,
    judge_ops,
    judge_own,
    near_misses,
)
from patchkit.prove.gates.operations import (
    OpsRun,
    Selected,
    Tools,
    _parts,
    elements_of,
    narrowed_to,
    ops_of,
    sample_of,
)

ROW = Row(op="FLASH_ATTN_EXT", params="hsk=64", is_supported=True, error="", device="ROCm0")
OTHER = replace(ROW, params="hsk=128")
CASE = gate_cases()[0]
MEASURED = AttentionResult(case=CASE, is_supported=True, rows=8, nmse=1e-5, worst=2e-5, worst_at="0,0,0")


def run(before, after, *, status=0, support=None) -> OpsRun:
    return OpsRun(
        support=support or (tuple(before), tuple(after)),
        tests=(tuple(before), tuple(after)),
        status=status,
        runs=(),
    )


def codes(problems) -> list[str]:
    return [problem.code for problem in problems]


def test_equal_sides_pass() -> None:
    assert codes(judge_ops(run([ROW, OTHER], [ROW, OTHER]))) == []
    assert codes(judge_own([(MEASURED, MEASURED)])) == []


def test_a_case_that_only_the_candidate_fails_is_its_fault() -> None:
    bad = replace(OTHER, error="test failed", said="NMSE = 0.1 > 0.0005")
    (problem,) = judge_ops(run([ROW, OTHER], [ROW, bad], status=1))
    assert problem.code == "BACKEND_OPS_FAILED"
    assert "NMSE = 0.1" in (problem.why or "")
    assert codes(judge_ops(run([ROW, bad], [ROW, bad], status=1))) == []


def test_a_near_miss_is_none_if_the_case_is_right_whenever_it_runs_again() -> None:
    near = replace(OTHER, error="test failed", said="[MUL_MAT] ERR = 0.000613944 > 0.000500000")
    far = replace(OTHER, error="test failed", said="[MUL_MAT] ERR = 0.001000001 > 0.000500000")
    assert near_misses(run([ROW, OTHER], [ROW, near])) == (OTHER.case,)
    assert near_misses(run([ROW, near], [ROW, near])) == ()
    assert near_misses(run([ROW, OTHER], [ROW, far])) == ()
    assert near_misses(run([ROW, OTHER], [ROW, replace(near, said="inf mismatch")])) == ()

    def again(wrong_at: int):
        return lambda number, _: run([], [near if number == wrong_at else OTHER])

    assert confirm_near_misses([OTHER.case], again(4)) == (OTHER.case,)
    assert confirm_near_misses([OTHER.case], again(3)) == ()
    assert codes(judge_ops(run([ROW, OTHER], [ROW, near], status=1), [OTHER.case])) == []
    assert codes(judge_ops(run([ROW, OTHER], [ROW, near], status=1))) == ["BACKEND_OPS_FAILED"]


def test_a_device_that_computes_nothing_right_proves_nothing() -> None:
    bad = [replace(row, error="test failed") for row in (ROW, OTHER)]
    (problem,) = judge_ops(run(bad, bad, status=1))
    assert problem.code == "BACKEND_OPS_FAILED"
    assert "all 2 cases give wrong results" in problem.message


def test_a_case_no_longer_supported_is_no_pass() -> None:
    gone = replace(OTHER, is_supported=False)
    assert codes(judge_ops(run([ROW, OTHER], [ROW, gone]))) == ["BACKEND_OPS_SUPPORT_LOST"]
    only_support = ((ROW, OTHER), (ROW, gone))
    assert codes(judge_ops(run([ROW], [ROW], support=only_support))) == ["BACKEND_OPS_SUPPORT_LOST"]


def test_nothing_run_is_a_failure() -> None:
    none = replace(ROW, is_supported=False)
    assert codes(judge_ops(run([none], [none]))) == ["BACKEND_OPS_NOTHING_RUN"]
    assert codes(judge_ops(run([], []))) == ["BACKEND_OPS_NOTHING_RUN"]
    refused = replace(MEASURED, is_supported=False)
    assert codes(judge_own([(refused, refused)])) == ["BACKEND_OPS_NOTHING_RUN"]


def test_a_status_without_a_failed_row_is_not_passed_over() -> None:
    assert codes(judge_ops(run([ROW], [ROW], status=1))) == ["BACKEND_OPS_FAILED"]


@pytest.mark.parametrize(
    "worse",
    [
        {"nmse": 2e-4},
        {"nmse": math.nan},
        {"worst": 2e-3},
        {"worst": math.inf},
        {"is_finite": False},
    ],
)
def test_a_case_too_far_from_the_definition_fails(worse) -> None:
    (problem,) = judge_own([(MEASURED, replace(MEASURED, **worse))])
    assert problem.code == "BACKEND_OPS_INEXACT"
    assert str(CASE) in (problem.why or "")


def test_the_limit_follows_the_baseline_within_bounds() -> None:
    assert allowed_nmse(0.0) == pytest.approx(1e-4)
    assert allowed_nmse(1e-4) == pytest.approx(3e-4)
    assert allowed_nmse(3.5e-4) == pytest.approx(5e-4)  # upstream's own limit
    assert allowed_nmse(7e-4) == pytest.approx(7e-4)  # a baseline beyond it may not get worse


def test_changed_files_name_their_operations() -> None:
    folder = "ggml/src/ggml-cuda/"
    names = [
        "ABS",
        "FLASH_ATTN_EXT",
        "MUL_MAT",
        "MUL_MAT_ID",
        "MUL_MAT_VEC_FUSION",
        "NORM",
        "RMS_NORM_MUL_ADD",
    ]
    assert ops_of([folder + "fattn.cu", folder + "fattn-tile.cuh"], names) == ("FLASH_ATTN_EXT",)
    assert ops_of([folder + "mmq.cuh"], names) == ("MUL_MAT", "MUL_MAT_ID", "MUL_MAT_VEC_FUSION")
    assert ops_of([folder + "norm.cu"], names) == ("NORM", "RMS_NORM_MUL_ADD")
    assert ops_of([folder + "fattn.cu", folder + "common.cuh"], names) == ()


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        (("common/arg.cpp", "ggml/src/ggml-cuda/norm.cu"), ("ggml/src/ggml-cuda/norm.cu",)),
        (("CMakeLists.txt", "common/arg.cpp"), ("CMakeLists.txt",)),
        (("common/arg.cpp", "src/llama.cpp"), ("common/arg.cpp", "src/llama.cpp")),
    ],
)
def test_a_plain_patch_of_the_host_adds_no_operation(make_subject, changed, reached) -> None:
    assert make_subject(touched=changed).backend_files == reached


def test_the_sample_has_some_of_every_operation_and_type() -> None:
    def row(op: str, params: str, *, is_supported: bool = True) -> Row:
        return replace(ROW, op=op, params=params, is_supported=is_supported)

    products = [row("MUL_MAT", f"type_a=q{a}_0,n={n}") for a in range(4, 9) for n in range(500)]
    attention = [
        row("FLASH_ATTN_EXT", f"hsk=64,kv={kv},nb=1,mask=1,sinks=1,type_KV=f16") for kv in (113, 512, 1024)
    ]
    refused = [row("ABS", "type=f64", is_supported=False)]
    chosen = sample_of([*products, *attention, *refused])
    assert [case for case in chosen if case.startswith("F")] == [one.case for one in attention[:2]]
    counts = Counter(case.partition(",")[0] for case in chosen if case.startswith("M"))
    assert len(counts) == 5
    assert len(set(counts.values())) == 1
    assert not [case for case in chosen if case.startswith("A")]
    assert list(chosen) == [one.case for one in (*products, *attention) if one.case in set(chosen)]
    fewer = sample_of([*products[1:], *attention])
    assert len(set(chosen) - set(fewer)) <= 1


def test_another_gpu_than_the_candidates_is_refused(tmp_path) -> None:
    talk = "ggml_cuda_init: found 1 ROCm devices:\n  Device 0: AMD Radeon, gfx1151 (0x1151), VMM: no\n"
    check_device(Machine(backend="hip"), talk, ("gfx1151",), tmp_path)
    for other in (talk.replace("gfx1151", "gfx1100"), "", talk.replace("Device 0", "Device 1")):
        with refused("DEVICE_MISSING", match="the GPU here is not gfx1151"):
            check_device(Machine(backend="hip"), other, ("gfx1151",), tmp_path)
    check_device(Machine(backend="cpu"), "", ("gfx1151",), tmp_path)
    featured = "  Device 0: AMD Instinct, gfx90a:sramecc+:xnack- (0x90a), VMM: no\n"
    check_device(Machine(backend="hip"), featured, ("gfx90a",), tmp_path)


@pytest.mark.parametrize(
    ("case", "elements"),
    [
        ("MUL_MAT(type_a=f32,type_b=f32,m=16384,n=1,k=16384,bs=[1,1],nr=[1,1],per=[0,1,2,3])", 2**28),
        ("MUL_MAT(type_a=f16,type_b=f32,m=16,n=8,k=256,bs=[10,3],nr=[1,2])", 16 * 256 * 30),
        ("MUL_MAT_ID(type_a=iq3_s,type_b=f32,n_mats=1024,n_used=10,b=0,m=128,n=1,k=512)", 2**26),
        ("ROPE(type=f32,ne_a=[128,32,2,1],n_dims=128,mode=0)", 128 * 32 * 2),
        ("SOLVE_TRI(type=f32,lhs)", 0),
    ],
)
def test_the_size_of_a_case_is_read_from_its_text(case: str, elements: int) -> None:
    assert elements_of(case) == elements


def test_a_sample_has_the_large_cases_only_where_there_are_no_others() -> None:
    def product(kind: str, m: int) -> Row:
        params = f"type_a={kind},type_b=f32,m={m},n=1,k=16384,bs=[1,1]"
        return Row(op="MUL_MAT", params=params, is_supported=True, error="", device="d")

    small = [product("f16", m) for m in range(1, 9)]
    chosen = sample_of([product("f16", 16384), product("f16", 8192), *small, product("f32", 16384)])
    assert {case for case in chosen if "f16" in case} <= {row.case for row in small}
    assert [case for case in chosen if "f32,type_b" in case] == [product("f32", 16384).case]


def test_of_a_sample_the_cases_of_some_types_come_in_the_parts_of_all_of_it() -> None:
    kinds = ("f16", "q4_0", "q4_1", "iq4_nl", "q5_0", "q6_K")
    cases = tuple(f"MUL_MAT(type_a={kind},type_b=f32,n={n})" for kind in kinds for n in range(9))
    sample = Selected(ops=("MUL_MAT",), choice=Choice(cases=cases), skipped=("more",))
    chosen = narrowed_to(sample, ("q4_0",))
    (part,) = (part for part in parts_of(cases) if any("=q4_0," in case for case in part))
    assert chosen.choice.cases == part
    assert list(parts_of(chosen.choice.cases)) == [part]
    assert len(part) < len(cases)
    assert chosen.wanted == {case for case in cases if "=q4_0," in case}
    assert chosen.skipped == ("45 of 54 cases of the sample: not of q4_0", "more")
    assert narrowed_to(sample, ("Q6_k",)).choice.cases[-1] == cases[-1]  # ggml writes one K large
    for types in ((), ("q4",), ("q4_K",)):  # all of it, where none or nothing is named
        assert narrowed_to(sample, types) == sample


def test_only_the_candidates_cases_are_spread_over_the_cores(tmp_path: Path) -> None:
    cases = tuple(f"MUL_MAT(type_a=q4_0,type_b=f32,n={n})" for n in range(7))
    tools = Tools(
        subject=SimpleNamespace(),
        machine=Machine(backend="hip", emulates="gfx1151"),
        sides=SimpleNamespace(),
        place=RunContext(folder=tmp_path, reporter=NullReporter()),
        timeout_s=60.0,
        is_spread=True,
    )
    stage = Stage(program=tmp_path, module=tmp_path, reference=tmp_path)
    (whole,) = _parts(tools, stage, "baseline", cases, frozenset())
    assert whole.cases == cases
    spread = _parts(tools, stage, "candidate", cases, frozenset(cases[1:3]))
    assert [case for part in spread for case in part.cases] == [cases[0], *cases[3:]]
    assert len(spread) == min(cores(), 5)

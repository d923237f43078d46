"""Reading the table of test-backend-ops."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.errors import ToolchainError
from patchkit.gpu.hardware.backend_ops import (
    Choice,
    Part,
    Stage,
    loaded_backends,
    parse_rows,
    parts_of,
    single_out,
)
from patchkit.gpu.hardware.program import ProgramRun

HEADER = '"backend_name","op_name","op_params","test_mode","supported","error_message","backend_reg_name"\n'
PASSED = '"CPU","FLASH_ATTN_EXT","hsk=64,kv=113","test","1","",""\n'
REFUSED = '"CPU","FLASH_ATTN_EXT","hsk=72,kv=113","test","0","not supported",""\n'
# As build 6900 prints a failure: the size of the error comes first, on the same line.
WRONG = (
    '[FLASH_ATTN_EXT] NMSE = 0.010000000 > 0.000500000 "CPU","FLASH_ATTN_EXT","hsk=80,kv=113","test","1",'
    '"test failed",""\n'
)


def test_rows_are_read_with_what_was_said_before_them() -> None:
    rows = parse_rows("Testing 2 devices\n" + HEADER + PASSED + REFUSED + WRONG, where="x.out")
    assert [row.has_passed for row in rows] == [True, False, False]
    assert [row.is_supported for row in rows] == [True, False, True]
    assert rows[0].case == "FLASH_ATTN_EXT(hsk=64,kv=113)"
    assert rows[2].said == "[FLASH_ATTN_EXT] NMSE = 0.010000000 > 0.000500000"
    assert rows[2].error == "test failed"


def test_a_table_without_rows_is_one() -> None:
    assert parse_rows(HEADER, where="x.out") == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no table found"),
        ("\x00\x01garbage\n", "no table found"),
        (HEADER.replace("op_params", "params") + PASSED, "a column is missing"),
        (HEADER + PASSED + PASSED[:40], "truncated or garbled"),
        (HEADER + PASSED.replace('"1"', '"maybe"'), "invalid value in column 'supported'"),
        (HEADER + PASSED.replace('"",""', '""'), "truncated or garbled"),
    ],
)
def test_anything_else_is_an_error_with_its_place(text: str, says: str) -> None:
    with refused("PROGRAM_FAILED", match=says) as caught:
        parse_rows(text, where="x.out")
    assert caught.value.where[0].path == "x.out"


def test_what_was_loaded_is_read_in_order() -> None:
    talk = (
        "load_backend: loaded CPU backend from /a/libggml-cpu.so\n"
        "ggml_cuda_init: found 1 ROCm devices:\n"
        "load_backend: loaded ROCm backend from /b/libggml-hip.so\n"
    )
    assert loaded_backends(talk) == (("CPU", "/a/libggml-cpu.so"), ("ROCm", "/b/libggml-hip.so"))


def test_the_choice_of_cases_is_two_options() -> None:
    assert Choice(ops=("MUL_MAT", "MUL_MAT_ID")).words == ["-o", "MUL_MAT,MUL_MAT_ID"]
    assert Choice(ops=("FLASH_ATTN_EXT",), pattern="hsk=64").words == ["-o", "FLASH_ATTN_EXT", "-p", "hsk=64"]
    assert Choice(ops=()).words == []


CRASHED = ToolchainError("test-backend-ops was ended by SIGABRT", code="PROGRAM_CRASHED")
HERE = Path()
RAN = ProgramRun(argv=(), command="", status=0, stdout=HERE, stderr=HERE, seconds=0.0)
PART = Part(
    stage=Stage(program=HERE, module=HERE, reference=HERE),
    name="test-baseline-3",
    cases=tuple("abcdefgh"),
    device="ROCm0",
    timeout_s=1.0,
    folder=HERE,
)


@pytest.mark.parametrize("culprits", ["", "a", "h", "cd", "adh", "abcdefgh"])
def test_a_part_that_ends_badly_is_cut_down_to_the_cases_that_do(culprits: str) -> None:
    def run(part: Part) -> ProgramRun | ToolchainError:
        return CRASHED if set(part.cases) & set(culprits) else RAN

    pieces = list(single_out(PART, run(PART), run))
    assert "".join(case for part, _ in pieces for case in part.cases) == "abcdefgh"
    bad = [part.cases for part, ended in pieces if isinstance(ended, ToolchainError)]
    assert bad == [(case,) for case in culprits]
    assert len({part.name for part, _ in pieces}) == len(pieces)
    if not culprits:
        assert pieces == [(PART, RAN)]


def test_cases_that_end_badly_only_together_are_nobodys_fault() -> None:
    def run(part: Part) -> ProgramRun | ToolchainError:
        return CRASHED if {"c", "f"} <= set(part.cases) else RAN

    with refused("PROGRAM_CRASHED"):
        list(single_out(PART, CRASHED, run))


def test_cases_of_one_family_of_types_are_one_part() -> None:
    types = ["q4_0", "iq1_s", "f32", "iq2_xs", "q4_K", "iq1_m", "iq2_s", "f16"]
    cases = [f"MUL_MAT(type_a={of},type_b=f32,m={m})" for m in range(3) for of in types]
    parts = list(parts_of([*cases, "CPY()"], size=7))
    assert sorted(case for part in parts for case in part) == sorted([*cases, "CPY()"])
    assert max(map(len, parts)) <= 7
    for family in ("iq1_", "iq2_", "q4_"):  # whatever stood between them in upstream's list
        assert len([part for part in parts if any(f"type_a={family}" in case for case in part)]) == 1


def test_a_family_larger_than_a_part_is_cut() -> None:
    cases = [f"FLASH_ATTN_EXT(hsk=64,nb={n})" for n in range(5)]
    assert list(parts_of(cases, size=2)) == [tuple(cases[:2]), tuple(cases[2:4]), tuple(cases[4:])]

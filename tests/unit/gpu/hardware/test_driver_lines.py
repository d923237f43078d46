"""Reading what our drivers print, and what they are asked."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.cases import CaseAborted
from patchkit.gpu.hardware.attention import gate_cases, parse_measured, run_attention
from patchkit.gpu.hardware.logits import parse_distance, parse_divergence, parse_drafted, scenes
from patchkit.gpu.hardware.operation_widths import parse_widths
from patchkit.gpu.hardware.program import RunContext

CASES = gate_cases()[:2]
DONE = "own-0 done rows=8 nmse=3.303e-04 worst=5.8e-04 at=0,5,0 finite=1\n"


def test_measured_lines_are_read_in_order() -> None:
    first, second = parse_measured(DONE + "own-1 unsupported\n", CASES, where="x")
    assert (first.rows, first.nmse, first.worst_at, first.is_finite) == (8, 3.303e-04, "0,5,0", True)
    assert first.is_supported
    assert not second.is_supported


def test_no_number_is_read_as_such() -> None:
    text = "own-0 done rows=8 nmse=-nan worst=nan at=0,5,0 finite=0\n"
    (one,) = parse_measured(text, CASES[:1], where="x")
    assert math.isnan(one.nmse)
    assert not one.is_finite


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (DONE, "is missing"),
        ("", "is missing"),
        (DONE + "own-1 done rows=8 nm", "cannot parse"),
        (DONE + DONE, "cannot parse"),
    ],
)
def test_a_case_without_its_line_is_an_error(text: str, says: str) -> None:
    with refused("PROGRAM_FAILED", match=says):
        parse_measured(text, CASES, where="x")


def test_the_case_in_which_a_program_crashes_is_named(tmp_path: Path) -> None:
    # As the driver does: a line behind each case, and an abort in the second one.
    driver = tmp_path / "driver"
    driver.write_text(f"#!/bin/sh\nprintf '{DONE[:-1]}\\n'\necho '#0 a backtrace'\nkill -ABRT $$\n")
    driver.chmod(0o755)
    place = RunContext(folder=tmp_path / "runs", reporter=NullReporter())
    side = SimpleNamespace(module=tmp_path / "module.so", environment={}, kept=None)
    with pytest.raises(CaseAborted) as crashed:
        run_attention(driver, side, device="X", cases=CASES, name="own", timeout_s=60, place=place)  # type: ignore[arg-type]
    assert (crashed.value.code, crashed.value.case) == ("PROGRAM_CRASHED", "own-1")


def test_our_cases_are_those_that_upstream_lacks() -> None:
    cases = gate_cases()
    assert len({case.id for case in cases}) == len(cases)
    assert {case.tokens for case in cases} == {1, 2, 3, 33, 512, 1024}
    assert {case.head_size for case in cases} == {40, 64, 80, 96, 112, 128, 256, 576}
    assert all(case.kv >= 4096 for case in cases)
    assert {case.gqa for case in cases} == {1, 2, 4, 8, 16}
    assert {case.type_k for case in cases} == {"f16", "q8_0"}
    assert any(case.sinks for case in cases)
    assert any(case.sequences == 3 for case in cases)
    assert {case.head_size for case in cases if case.softcap} == {128, 256}
    assert not any(case.is_quantized and case.head_size % 32 for case in cases)


def test_a_distance_is_one_whole_line() -> None:
    line = (
        "rows=25 vocabulary=512 nmse=1.3e-05 worst=3.2e-05 at=24 kl=2.1e-05 kl_worst=5.6e-05 "
        "same_top=24 finite=1 equal=3\n"
    )
    distance = parse_distance(line, where="x")
    assert (distance.rows, distance.nmse, distance.same_top, distance.is_finite) == (25, 1.3e-05, 24, True)
    assert distance.equal == 3
    for broken in ("", line[:-1], line[:30], line + line):
        with refused("PROGRAM_FAILED"):
            parse_distance(broken, where="x")


def test_scenes_are_longer_than_a_physical_batch_and_interleave() -> None:
    every = scenes()
    assert all(scene.tokens * scene.sequences > scene.ubatch for scene in every)
    assert {scene.sequences for scene in every} == {1, 2}
    assert {scene.is_unified for scene in every} == {True, False}
    assert {scene.type_v for scene in every} == {"f16", "q8_0"}
    for scene in every:
        # llama.cpp refuses a quantized V cache without flash attention.
        assert scene.as_reference().flash == (scene.type_v == "q8_0")
        assert "device=ROCm0" in scene.words("ROCm0")
    assert "depth=4096" in every[0].model_copy(update={"depth": 4096}).words("CPU")


STATISTICS = """\
====== Perplexity statistics ======
Mean PPL(Q)                   :   6.812345 ±   0.123456
Mean PPL(base)                :   6.810000 ±   0.123000
====== KL divergence statistics ======
Mean    KLD:   0.000123 ±   0.000004
Maximum KLD:   0.012345
"""


def test_the_statistics_of_llama_perplexity() -> None:
    found = parse_divergence(STATISTICS, where="x")
    assert (found.mean, found.worst) == (0.000123, 0.012345)
    assert (found.perplexity, found.base_perplexity) == (6.812345, 6.81)
    for broken in ("", STATISTICS[:200], STATISTICS.replace("0.000123 ±", "nonsense ±")):
        with refused("PROGRAM_FAILED", match="no KL divergence"):
            parse_divergence(broken, where="x")


def test_the_tokens_of_a_draft_count_until_the_first_other_one() -> None:
    assert parse_drafted("single=5,6,7 drafted=5,6,7\n", where="x") == (3, 3)
    assert parse_drafted("single=5,6,7 drafted=5,9,7\n", where="x") == (3, 1)
    assert parse_drafted("single=5,6,7 drafted=9,6,7\n", where="x") == (3, 0)
    for broken in ("", "single=5,6", "single= drafted=\n"):
        with refused("PROGRAM_FAILED"):
            parse_drafted(broken, where="x")


def _width_line(case: int, width: int) -> str:
    return f"{case} width={width} rows=16 equal=12 nmse=1e-07 worst=nan at=3 finite=0\n"


def test_each_case_has_a_line_for_each_width_or_is_not_supported() -> None:
    text = "0 unsupported\n" + _width_line(1, 2) + _width_line(1, 16)
    none, found = parse_widths(text, 2, (2, 16), where="x")
    assert none == {}
    assert {width: (one.rows, one.equal, one.worst_row) for width, one in found.items()} == {
        2: (16, 12, 3),
        16: (16, 12, 3),
    }
    assert math.isnan(found[2].worst)
    assert not found[2].is_finite
    for broken in (_width_line(1, 2), text + _width_line(1, 2), text + _width_line(2, 2), text[:-3], "x\n"):
        with refused("PROGRAM_FAILED"):
            parse_widths(broken, 2, (2, 16), where="x")

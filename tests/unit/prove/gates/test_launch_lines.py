"""The rows of the launch gate on made-up runs: what a reader sees, and in how little space."""

from __future__ import annotations

from dataclasses import replace

import pytest
from launches import Event, comparison_of, recorded

from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.models import SmallModel
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.emulated.session import BenchRun, RecordedRun
from patchkit.prove.gates.launch.evidence import GpuRecord
from patchkit.prove.gates.launch.launch_text import (
    aborting_lines,
    guarded_evidence,
    guarded_lines,
    other_evidence,
    other_lines,
)
from patchkit.prove.gates.launch.rules import Broken
from patchkit.prove.gates.launch.runs import Comparison

_WMMA = ("_ZL18flash_attn_ext_f16ILi128ELi32ELi4ELi64EfLb0EEvPKc", "a/fattn-wmma-f16.cu")
_TILE = ("_ZL15flash_attn_tileILi128ELi128ELi1ELi4ELb0EEvPKc", "a/tile.cu")
_VEC = ("_ZL18flash_attn_ext_vecILi128ELi1EL9ggml_type1ELS0_1ELb0EEvPKc", "a/vec.cu")

_DECODE = Case(id="own-0", head_size=128, head_size_v=128, kv_heads=2, gqa=4, kv=65536, tokens=1)
_CASES = (
    _DECODE,
    replace(_DECODE, id="own-1", tokens=512),
    replace(_DECODE, id="own-2", gqa=1),
    replace(_DECODE, id="own-3", head_size=72, head_size_v=72),
)


def _launched(kernel: tuple[str, str]) -> Event:
    return (*kernel, (1, 60, 2), (32, 4, 1))


@pytest.fixture
def compared(tmp_path):
    def side(decode: tuple[str, str]) -> RecordedRun:
        events: list[Event] = []
        for case, kernel in zip(_CASES, (decode, _WMMA, _VEC), strict=False):
            events += [f"case {case.id}", _launched(kernel), "done"]
        return recorded(tmp_path, [*events, f"case {_CASES[-1].id}", "unsupported"])

    def bench(depth: int, before: tuple[str, str], after: tuple[str, str]):
        test = BenchRun(model=SmallModel(head_size=128), prompt=0, generated=4, depth=depth)
        return test, *(recorded(tmp_path, [_launched(side)]) for side in (before, after))

    def make(before: tuple[str, str], after: tuple[str, str], arch: str = "gfx1151") -> Comparison:
        benches = [bench(252, before, after), bench(4092, before, after)]
        return comparison_of((side(before), side(after)), benches, asked=_CASES, arch=arch)

    return make


def test_decode_comes_first_with_what_changed_before_what_did_not(compared):
    one = compared(_VEC, _TILE)
    lines = guarded_lines(one, one.pairs(), [])
    assert lines[0].startswith("gfx1151: upstream's list has 1 supported cases, 1 after; 4 cases and 2 model")
    decode = next(line for line in lines if "decode f16, grouped" in line)
    assert lines.index(decode) == 2
    assert decode.split("grouped", 1)[1].strip() == "VEC -> TILE 1; still not supported 1"
    assert any(line.split() == ["decode", "f16", "unchanged:", "VEC", "1"] for line in lines)
    assert any(line.split() == ["prefill", "f16", "unchanged:", "WMMA", "1"] for line in lines)


def test_samples_show_geometry_and_models_are_one_line_per_kernel_change(compared):
    one = compared(_VEC, _TILE)
    text = "\n".join(guarded_lines(one, one.pairs(), []))
    assert "D=128, decode             VEC 1x60x2 of 32x4 -> TILE 1x60x2 of 32x4" in text
    assert "D=128, 512 tokens         WMMA 1x60x2 of 32x4 -> the same" in text
    assert "llama-d128-gqa4 tg4       VEC 1x60x2 of 32x4 -> TILE 1x60x2 of 32x4, depth 252 4092" in text


def test_what_upstream_breaks_says_which_kernel_why_and_which_cases(compared):
    one = compared(_VEC, _TILE)
    message, how = "a launch that the GPU rejects", "with 131072 blocks in y, a grid has 1 to 65536"
    convert = read_name("_Z16dequantize_blockILi32EEvPKv")
    cases = [replace(_DECODE, id=f"own-{n}", kv=131072, tokens=n, type_k="q8_0") for n in range(1, 9)]
    own = [Broken(message=message, case=case, kernel=convert, how=how) for case in [*cases, *cases]]
    lines = guarded_lines(one, one.pairs(), own)
    assert lines[-2].strip() == f"upstream's own, before and after, 8 cases: {message}"
    assert lines[-1].strip() == f"dequantize_block {how} (KV q8_0, D 128, KV rows 131072, gqa 4)"


def test_cases_in_which_upstream_itself_aborts_are_told_once_with_the_gpus(compared):
    told = "head size 576/512 (300 cases): the baseline itself aborts in case x"
    other = "head size 320/256 (32 cases): the baseline itself aborts in case y"
    found = [
        replace(compared(_VEC, _VEC, arch), aborting=aborting)
        for arch, aborting in (("gfx1151", (told, other)), ("gfx906", (told,)), ("gfx1030", ()))
    ]
    assert aborting_lines(found) == [f"{told}, as gfx1151 gfx906", f"{other}, as gfx1151"]


def test_gpus_that_launch_the_same_share_a_line_and_others_stand_out(compared):
    same = [compared(_VEC, _VEC, arch) for arch in ("gfx1030", "gfx906")]
    other = compared(_VEC, _TILE, "gfx1100")
    assert other_lines([*same, other]) == [
        "gfx1100: 4 cases DIFFERENT, 0 of 2 model runs identical",
        "the same launches in all 4 cases and 2 model runs, 2 GPUs:",
        "  gfx1030 gfx906",
    ]


def test_no_row_is_wider_than_a_terminal(compared):
    one = compared(_VEC, _TILE)
    indent = 7  # what verify puts in front
    assert max(len(line) for line in guarded_lines(one, one.pairs(), [])) + indent <= 120


def test_many_gpus_are_wrapped(compared):
    one = compared(_VEC, _VEC)
    many = [replace(one, device=replace(one.device, arch=f"gfx{number}")) for number in range(1100, 1130)]
    rows = other_lines(many)
    assert " ".join(rows[1:]).split() == [each.device.arch for each in many]
    assert max(len(row) for row in rows) <= 100


def test_the_evidence_of_a_gpu_is_read_back_as_it_was_written(compared):
    one = compared(_VEC, _TILE)
    written = guarded_evidence(one, one.pairs(), [])
    assert GpuRecord.model_validate(written.model_dump(mode="json", exclude_unset=True)) == written
    assert written.cases == sum(each.cases for each in written.transitions) == len(_CASES)
    assert [run.identical for run in written.benches] == [False, False]
    (sample, *_) = written.samples
    assert (sample.before[0].kernel, sample.after[0].grid) == (
        "flash_attn_ext_vec<128, 1, 1, 1, false>",
        (1, 60, 2),
    )
    other = other_evidence(one).model_dump(mode="json", exclude_unset=True)
    assert set(other) == {"supported", "operations", "cases", "cases_identical", "logs", "benches"}

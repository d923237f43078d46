"""``explain``: what a person and a program are told of a choice of kernels, and mistakes in the options."""

from __future__ import annotations

from dataclasses import replace

import pytest
from launches import compiled_kernel, launch_of
from refusing import refused

from patchkit.base.errors import ExitCode, Location
from patchkit.base.plain import plain
from patchkit.cli.app import main
from patchkit.cli.verbs.explain import _lines, _sizes
from patchkit.gpu.emulated.cases import Case
from patchkit.prove.explain.run import Account, Explanation
from patchkit.prove.explain.selection import BranchDecision, Selection
from patchkit.toolchain.compile import CompiledKernel

_CASE = Case(id="c", head_size=128, head_size_v=128, kv_heads=8, gqa=4, kv=4096, tokens=1)


def _decision(line: int, kind: str, text: str, outcome: str = "", by: str | None = None) -> BranchDecision:
    where = Location(path="fattn.cu", line=line, column=5)
    return BranchDecision(where=where, kind=kind, text=text, outcome=outcome, decided_by=by)


def _explanation(compiled: CompiledKernel | None = None) -> Explanation:
    mangled = "_ZL15flash_attn_tileILi128ELi128ELi1ELi4ELb0EEvPKc"
    launch = replace(launch_of(mangled, "t.cu", grid=(1, 15, 8), block=(32, 4, 1)), resident=6)
    told = (
        _decision(307, "if", "wmma(cc) && a", "false", "a"),
        _decision(343, "return", "BEST_FATTN_KERNEL_TILE"),
    )
    code = {} if compiled is None else {mangled: compiled}
    after = Account.of("after", Selection(is_supported=True, decisions=told, launches=(launch,)), code)
    refused = (_decision(343, "return", "BEST_FATTN_KERNEL_NONE"),)
    before = Account.of("before", Selection(is_supported=False, decisions=refused, launches=()), {})
    return Explanation(
        arch="gfx1151", branch="candidate/x", case=str(_CASE), tools="clang 22", accounts=(before, after)
    )


def _both(one: Explanation) -> Explanation:
    """The same before as after."""
    after = one.accounts[1]
    return one.model_copy(update={"accounts": (after.model_copy(update={"side": "before"}), after)})


def test_both_sides_are_told_with_reason_and_geometry():
    text = "\n".join(_lines(_explanation()))
    assert "before the patches: not supported on the GPU; computed on the CPU" in text
    assert "after the patches: flash_attn_tile<128, 128, 1, 4, false> (TILE)" in text
    assert "307  if (wmma(cc) && a)" in text
    assert "false, by a" in text
    assert "343  return BEST_FATTN_KERNEL_TILE" in text
    assert "grid 1x15x8 of 32x4x1 (128 threads), dynamic LDS 0 bytes, 6 blocks per multiprocessor" in text


def test_what_changes_comes_first_with_the_branch_that_turned():
    lines = list(_lines(_explanation()))
    assert lines[3] == "not supported before the patches, TILE after"
    assert lines[4].strip() == "the selection differs from fattn.cu:307 on (before: line 343)"


def test_a_kernel_that_is_a_trap_is_called_one_in_the_first_line():
    trapped = _explanation(compiled_kernel("k", 128, is_trap=True))
    lines = list(_lines(trapped))
    assert lines[3] == "not supported before the patches, TILE (compiled to a trap) after"
    assert any("COMPILED TO A TRAP" in line for line in lines)
    assert list(_lines(_both(trapped)))[3] == "TILE (compiled to a trap), before and after"


def test_an_unknown_gpu_is_not_called_a_missing_candidate(capsys, tmp_path):
    argv = ["explain", "--arch", "gfx1115", "--head-size", "64", "--kv", "256", "--cache-dir", str(tmp_path)]
    assert main(argv) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "error[ARCH_UNKNOWN]: no profile for 'gfx1115'" in told


def test_where_both_sides_end_alike_nothing_turns():
    same = _both(_explanation())
    assert same.turn is None
    assert list(_lines(same))[3:5] == ["TILE, before and after", ""]
    assert plain(same)["turn"] is None


def test_the_json_has_the_same():
    assert plain(_explanation())["turn"]["after"]["decided_by"] == "a"
    document = plain(_explanation())
    assert document["case"] == "D=128 gqa=4 kv=4096 tokens=1 f16"
    before, after = document["accounts"]
    assert (before["supported"], before["launches"]) == (False, [])
    assert after["decisions"][0]["decided_by"] == "a"
    assert after["launches"][0]["family"] == "tile"


@pytest.mark.parametrize(("text", "sizes"), [("128", (128, 128)), ("576/512", (576, 512))])
def test_head_sizes_are_one_number_or_two(text, sizes):
    assert _sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "0", "64/", "64/64/64", "many", "-64"])
def test_another_head_size_is_refused(text):
    with refused("USAGE_VALUE"):
        _sizes(text)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--head-size", "many", "--kv", "256"], "USAGE_VALUE"),
        (["--head-size", "64", "--kv", "0"], "--kv"),
        (["--head-size", "64", "--kv", "256", "--type", "q3_k"], "--type"),
        (["--kv", "256"], "error[OPTIONS_CONTRADICT]"),
        (["--head-size", "64"], "--kv"),
        (["--path", "--kv", "256"], "error[OPTIONS_CONTRADICT]: --path cannot be combined with"),
        (["--head-size", "64", "--kv", "256", "--gpu", "gfx1100"], "--gpu requires --path"),
        (["--head-size", "80", "--kv", "100000000"], "error[SHAPE_IMPOSSIBLE]"),
        (["--head-size", "9" * 30, "--kv", "256"], "error[SHAPE_IMPOSSIBLE]"),
        (["--head-size", "80", "--kv", "256", "--kv-heads", "100000000"], "hint: use a smaller --kv"),
        (["--head-size", "80", "--kv", "256", "--softcap", "nan"], "must be finite numbers"),
        (["--head-size", "80", "--kv", "256", "--max-bias", "inf"], "must be finite numbers"),
        (["--head-size", "80", "--kv", "256", "--type", "q8_0"], "HEAD_SIZE_NOT_IN_BLOCKS"),
        (["--head-size", "80", "--kv", "256", "--type", "q4_0"], "hint: use --head-size 96"),
        (["--head-size", "72/40", "--kv", "256", "--type", "q4_0"], "hint: use --head-size 96/64"),
    ],
)
def test_bad_options_end_with_the_code_of_usage_errors(options, says, capsys):
    assert main(["explain", "--arch", "gfx1151", *options]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_without_a_candidate_the_next_command_is_named(capsys, tmp_path):
    argv = ["explain", "--arch", "gfx1151", "--head-size", "64", "--kv", "256", "--cache-dir", str(tmp_path)]
    assert main(argv) == ExitCode.GIT
    assert "patchkit apply --arch gfx1151" in capsys.readouterr().err

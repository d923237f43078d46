"""Rows of the resource table: states, rules, order, and the occupancy model beside the compiler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from patchkit.base.occupancy import limits_of
from patchkit.carry.series.promises import Allowance, ResourceRules
from patchkit.prove.gates import resources
from patchkit.prove.gates.resources import kernel_rows, variant_of


@pytest.fixture
def rows_of(make_subject, make_unit):
    def make(before: dict, after: dict):
        limits = limits_of(make_subject().profiles["gfx1151"])
        return kernel_rows(make_unit(before), make_unit(after), {}, limits)

    return make


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("void f<64, 2, false>(char const*, int)", "f<64, 2, false>"),
        ("void g<(ggml_type)8, float>(void (*)(int))", "g<(ggml_type)8, float>"),
        ("h(int)", "h"),
        ("_Z1x", "_Z1x"),
    ],
)
def test_a_variant_is_the_name_without_parameters(name: str, variant: str) -> None:
    assert variant_of(name) == variant


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        ({}, {}, "same"),
        ({"vgpr_spills": 1}, {"vgpr_spills": 0}, "better"),
        ({"waves": 5}, {"waves": 6}, "better"),
        ({"waves": 6}, {"waves": 5}, "worse"),
        ({"vgpr_spills": 0, "waves": 5}, {"vgpr_spills": 3, "waves": 6}, "mixed"),
        ({"vgprs": 100}, {"vgprs": 120}, "same"),
        ({"trap": 1}, {}, "new"),
        ({}, {"trap": 1}, "pruned"),
        ({"trap": 1, "waves": 16}, {"trap": 1, "waves": 3}, "trap"),
        (None, {}, "new"),
        ({}, None, "gone"),
    ],
)
def test_states(rows_of, before, after, state: str) -> None:
    sides = ({} if one is None else {"k": one} for one in (before, after))
    (row,) = rows_of(*sides)
    assert row.state == state


def test_the_model_is_held_against_the_compiler_on_each_side(rows_of) -> None:
    # 1536 registers per lane in steps of 24: 100 need 120, so 12 waves.
    (row,) = rows_of({"k": {"vgprs": 100, "waves": 12}}, {"k": {"vgprs": 100, "waves": 11}})
    assert row.disagreements == ("k (candidate): the model computes 12 waves, the compiler 11",)
    assert row.before.resident_waves == 12


def test_by_default_nothing_may_get_worse(make_subject, rows_of) -> None:
    rows = rows_of(
        {"a": {}, "b": {"waves": 6}, "c": {}}, {"a": {"vgpr_spills": 3}, "b": {"waves": 5}, "c": {}}
    )
    first, second = resources._worse(rows, make_subject())
    assert "a on gfx1151 spills 3 more VGPRs: VGPR 100, spilled 0 -> 3" in first.message
    assert "b on gfx1151 loses 1 waves per SIMD" in second.message
    assert first.where[0].label == "my-patch"
    assert "(the default)" in first.why


def test_a_patch_may_say_what_it_costs_which_kernel(make_subject, rows_of) -> None:
    rows = rows_of({"a": {}, "b": {}}, {"a": {"vgpr_spills": 3}, "b": {"vgpr_spills": 3}})
    subject = make_subject(rules=ResourceRules(kernels=("a",), more_spills=3, why="less LDS"))
    (only,) = resources._worse(rows, subject)
    assert only.message.startswith("b on")
    tighter = make_subject(rules=ResourceRules(kernels=("a",), more_spills=2, why="less LDS"))
    assert len(list(resources._worse(rows, tighter))) == 2


def test_kernels_of_one_patch_may_have_numbers_of_their_own(make_subject, rows_of) -> None:
    rows = rows_of(
        {"a": {}, "b": {"waves": 6}, "c": {"waves": 6}},
        {"a": {"vgpr_spills": 3}, "b": {"waves": 5}, "c": {"waves": 4}},
    )
    allow = (Allowance(kernels=("b", "c"), fewer_waves=1, why="half the threads"),)
    rules = ResourceRules(kernels=("a",), more_spills=3, why="less LDS", allow=allow)
    (only,) = resources._worse(rows, make_subject(rules=rules))
    assert only.message.startswith("c on gfx1151 loses 2 waves")
    assert only.why == "allowed: 0 more spills, 1 fewer waves (half the threads)"


def test_of_several_patches_each_may_cost_a_kernel_what_it_says(make_subject, rows_of) -> None:
    rows = rows_of(
        {"a": {"waves": 8}, "b": {"waves": 8}}, {"a": {"waves": 7, "vgpr_spills": 3}, "b": {"waves": 6}}
    )
    waves = ResourceRules(kernels=("a", "b"), fewer_waves=1, why="blocks")
    spills = ResourceRules(kernels=("a",), more_spills=3, why="loops")
    subject = make_subject(rules=waves)
    (part,) = subject.patches
    second = replace(part, patch=replace(part.patch, id="other", resources=spills))
    (only,) = resources._worse(rows, replace(subject, patches=(part, second)))
    assert only.message.startswith("b on gfx1151 loses 2 waves")
    (row,) = (row for row in rows if row.kernel == "a")
    assert resources._allowance_for(row, replace(subject, patches=(part, second))).why == "blocks; loops"


def test_lost_kernels_are_told_by_how_they_are_lost(make_subject, rows_of) -> None:
    rows = rows_of({"a": {}, "b": {}, "c": {}}, {"a": {"trap": 1}, "c": {"trap": 1}})
    trapped, gone = resources._pruned(rows, make_subject())
    assert trapped.message == "a on gfx1151 is only a trap in the candidate, and 1 more"
    assert gone.message == "b on gfx1151 is missing in the candidate"


def test_new_kernels_must_be_declared(make_subject, rows_of) -> None:
    rows = rows_of(
        {"f<1, false>": {"trap": 1}, "f<1, true>": {"trap": 1}}, {"f<1, false>": {}, "f<1, true>": {}}
    )
    (problem,) = resources._undeclared(rows, make_subject())
    assert "2 new kernels" in problem.message
    declared = make_subject(rules=ResourceRules(new_kernels=("f<*, false>",), why="x"))
    (problem,) = resources._undeclared(rows, declared)
    assert "1 new kernels that no patch declares, for example f<1, true>" in problem.message
    both = make_subject(rules=ResourceRules(new_kernels=("f<*>",), why="x"))
    assert list(resources._undeclared(rows, both)) == []


def test_the_table_shows_worse_before_better_and_counts_spills(rows_of) -> None:
    rows = rows_of(
        {"a": {"vgpr_spills": 9}, "b": {}, "c": {}, "d": {"trap": 1}},
        {"a": {}, "b": {"vgpr_spills": 1}, "c": {"vgpr_spills": 2}, "d": {"vgpr_spills": 5}},
    )
    lines = list(resources._lines(rows))
    assert [line.split()[:2] for line in lines[:3]] == [["worse", "c"], ["worse", "b"], ["better", "a"]]
    summary = resources._summary(rows, 2)
    assert (
        "2 worse, 1 better, 1 new; spilling variants 1 -> 2, spilled VGPRs 9 -> 3, plus 5 in 1 new variant;"
        in summary
    )


def test_new_variants_beyond_the_first_are_counted(rows_of) -> None:
    names = [f"f<{each}>" for each in range(resources._SHOWN_NEW + 4)]
    rows = rows_of({name: {"trap": 1} for name in names}, {name: {"vgpr_spills": 7} for name in names})
    lines = list(resources._lines(rows))
    assert sum(line.startswith("new ") and " on gfx1151: " in line for line in lines) == resources._SHOWN_NEW
    assert "new    4 more variants, in the evidence" in lines


def test_what_a_patch_allows_is_counted_apart_and_long_lists_are_cut(rows_of) -> None:
    count = resources._SHOWN_VARIANTS + 3
    names = [f"f<{each}>" for each in range(count)]
    rows = rows_of({name: {"waves": 6} for name in names}, {name: {"waves": 5} for name in names})
    assert f"{count} worse ({count} allowed by a patch), 0 better" in resources._summary(rows, 0)
    assert f"{count} worse, 0 better" in resources._summary(rows, count)
    lines = list(resources._lines(rows))
    assert lines[resources._SHOWN_VARIANTS] == "worse  f: 3 more variants, in the evidence"

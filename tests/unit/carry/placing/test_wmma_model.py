"""The register model against the compiler, and what it chooses."""

from __future__ import annotations

import dataclasses

import pytest
from refusing import refused

from patchkit.base.occupancy import resident_blocks
from patchkit.carry.placing.wmma import (
    UPSTREAM,
    VARIANTS,
    WmmaVariant,
    choose_params,
)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_by_the_compiler_no_choice_is_worse_than_upstream(compiled, limits, variant) -> None:
    gpu = limits["gfx1151"]
    rows = {row.params: row for row in compiled if row.variant == variant}

    def quality(params):
        row = rows[params]
        blocks = resident_blocks(row.vgprs, row.lds, 32 * params.nwarps, gpu)
        return row.spilled, -blocks * params.nwarps

    chosen, before = quality(choose_params(variant, gpu)), quality(UPSTREAM)
    assert chosen[0] <= before[0]
    assert chosen[1] <= before[1]


def test_the_choices_free_registers_and_hold_more_waves(compiled, limits) -> None:
    gpu = limits["gfx1151"]
    rows = {(row.variant, row.params): row for row in compiled}
    chosen = [rows[variant, choose_params(variant, gpu)] for variant in VARIANTS]
    before = [rows[variant, UPSTREAM] for variant in VARIANTS]
    assert (sum(row.spilled for row in before), sum(row.spilled for row in chosen)) == (427, 264)
    assert sum(row.waves for row in chosen) > sum(row.waves for row in before)


def test_where_registers_are_the_bound_nothing_changes(limits) -> None:
    # 1024 registers per SIMD: four waves of 256 registers, whatever the stride saves in LDS.
    assert choose_params(WmmaVariant(128, 16, "f16"), limits["gfx1150"]) == UPSTREAM


def test_a_gpu_where_nothing_is_legal_is_an_error(limits) -> None:
    small = dataclasses.replace(limits["gfx1151"], lds_per_workgroup_bytes=4096)
    with refused("WMMA_ILLEGAL", match="no legal parameters for head size 256, 32 columns, f16"):
        choose_params(WmmaVariant(256, 32, "f16"), small)

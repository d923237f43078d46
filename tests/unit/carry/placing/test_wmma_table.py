"""The table a template renders: tuned rows, upstream's rows, and the errors of tuned rows."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from patchkit.base.errors import ErrorGroup, Location
from patchkit.base.occupancy import limits_of, resident_blocks
from patchkit.carry.placing.wmma import (
    UPSTREAM,
    VARIANTS,
    WmmaParams,
    WmmaVariant,
    violations,
    wmma_table,
)
from patchkit.carry.series.profile import TunedWmma, Tuning, load_profile

PROFILES = Path(__file__).resolve().parents[4] / "arch_profiles"
PLACE = Location(path="gfx1151.toml", line=40, column=1)


def tuned(head_size, ncols, acc, kq_stride, nwarps, min_waves=1) -> TunedWmma:
    return TunedWmma(
        head_size=head_size,
        ncols=ncols,
        acc=acc,
        kq_stride=kq_stride,
        nwarps=nwarps,
        min_waves=min_waves,
        source="a test",
        measured_on="nothing",
        where=PLACE,
    )


def with_rows(*rows):
    return dataclasses.replace(load_profile(PROFILES, "gfx1151"), tuning=Tuning(wmma=rows))


@pytest.mark.parametrize("arch", [path.stem for path in sorted(PROFILES.glob("gfx*.toml"))])
def test_every_profile_gives_a_legal_table(arch) -> None:
    profile = load_profile(PROFILES, arch)
    limits = limits_of(profile)
    table = wmma_table(profile)
    assert [row.variant for row in table] == ([] if limits.matrix == "none" else list(VARIANTS))
    for row in table:
        assert violations(row.variant, row.params, limits) == {}


def test_origins() -> None:
    def origins(arch):
        return {row.origin for row in wmma_table(load_profile(PROFILES, arch))}

    assert origins("gfx1151") == origins("gfx1100") == {"tuned"}
    untuned = dataclasses.replace(load_profile(PROFILES, "gfx1101"), tuning=Tuning())
    assert {row.origin for row in wmma_table(untuned)} == {"upstream"}
    assert origins("gfx1201") == origins("gfx90a") == {"upstream"}
    assert {row.params for row in wmma_table(load_profile(PROFILES, "gfx942"))} == {UPSTREAM}


def test_a_tuned_row_wins_over_upstreams() -> None:
    table = {row.variant: row for row in wmma_table(with_rows(tuned(128, 32, "f32", 256, 16, 2)))}
    row = table[WmmaVariant(128, 32, "f32")]
    assert (row.params, row.origin) == (WmmaParams(256, 16, 2), "tuned")
    assert {each.origin for each in table.values()} == {"tuned", "upstream"}


def test_by_the_compiler_no_row_of_gfx1151_is_worse_than_upstream(compiled) -> None:
    gpu = limits_of(load_profile(PROFILES, "gfx1151"))
    remarks = {(row.variant, row.params): row for row in compiled}

    def blocks(row):
        return resident_blocks(row.vgprs, row.lds, 32 * row.params.nwarps, gpu)

    for row in wmma_table(load_profile(PROFILES, "gfx1151")):
        chosen, before = remarks[row.variant, row.params], remarks[row.variant, UPSTREAM]
        assert chosen.spilled <= before.spilled, row
        assert blocks(chosen) * chosen.params.nwarps >= blocks(before) * before.params.nwarps, row


def test_tuned_rows_that_break_rules_are_all_named_with_a_way_out() -> None:
    with pytest.raises(ErrorGroup, match="gfx1151: 2 tuned rows cannot be used") as caught:
        wmma_table(with_rows(tuned(112, 32, "f16", 128, 8), tuned(64, 16, "f16", 32, 2, 99)))
    first, second = caught.value.errors
    assert first.code == "WMMA_ILLEGAL"
    assert first.message == "gfx1151: the tuned row for head size 112, 32 columns, f16 breaks C8"
    assert first.where == (PLACE,)
    assert first.why == "C8: 69120 bytes of LDS are more than 65536"
    assert first.hint == "the nearest legal values: kq_stride 128, nwarps 4, min_waves 1"
    assert second.message.endswith("breaks C3, M1")


def test_a_tuned_row_for_no_variant() -> None:
    with pytest.raises(ErrorGroup) as caught:
        wmma_table(with_rows(tuned(256, 32, "f32", 256, 4)))
    assert [error.code for error in caught.value.errors] == ["WMMA_ILLEGAL"]


def test_a_tuned_row_where_nothing_is_legal() -> None:
    profile = with_rows(tuned(64, 16, "f16", 256, 4))
    facts = dict(profile.facts.by_name)
    facts["lds_per_workgroup_bytes"] = dataclasses.replace(facts["lds_per_workgroup_bytes"], value=1024)
    small = dataclasses.replace(profile, facts=dataclasses.replace(profile.facts, by_name=facts))
    with pytest.raises(ErrorGroup) as caught:
        wmma_table(small)
    assert caught.value.errors[0].hint == "nothing is legal here: remove the row"


def test_the_figures_in_the_profile_are_the_compilers(compiled) -> None:
    remarks = {(row.variant, row.params): row for row in compiled}
    for row in load_profile(PROFILES, "gfx1151").tuning.wmma:
        stated = re.search(r"1\.6\.0: ([^;]*)", row.source)
        assert stated is not None, row
        variant, params = (
            WmmaVariant(row.head_size, row.ncols, row.acc),
            WmmaParams(row.kq_stride, row.nwarps),
        )
        expected = [remarks[variant, UPSTREAM], remarks[variant, params]][: 1 + stated[1].count("->")]
        figures = [(r.vgprs, r.spilled, r.waves) for r in expected]
        found = re.findall(r"(\d+) registers, (\d+) spilled, (\d+) waves", stated[1])
        assert [tuple(map(int, each)) for each in found] == figures, row

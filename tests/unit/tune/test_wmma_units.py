"""The units of the rocWMMA kernel: one instantiation each, the kernel cut after its body."""

from __future__ import annotations

from dataclasses import replace

import pytest
from refusing import refused

from patchkit.base.occupancy import limits_of
from patchkit.base.source import SourceText
from patchkit.carry.placing.wmma import VARIANTS, WmmaParams, legal_params
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.modelled.shape import load_models
from patchkit.tune.family import Candidate
from patchkit.tune.wmma import KERNEL_FILE, TABLE_FILE, WmmaFamily, cut_after, family_of, name_of, variant_of

KERNEL = b"""#include "common.cuh"
#include "fattn-wmma-config.cuh"
#include <rocwmma/rocwmma.hpp>
template<int D> static __global__ void flash_attn_ext_f16(int x) {
    x = D;
}
static void launches_every_variant() {}
"""
FOLDER = "ggml/src/ggml-cuda/patchkit-tune"


@pytest.fixture
def asked() -> list[dict]:
    return []


@pytest.fixture
def family(checkout, asked) -> WmmaFamily:
    def table(rows) -> bytes:
        asked.append(dict(rows))
        return f"// {sorted(set(rows.values()))}\n".encode()

    limits = limits_of(load_profile(checkout / "arch_profiles", "gfx1151"))
    return family_of(limits, {KERNEL_FILE: KERNEL}, table)


def test_names_of_variants_are_unique_and_read_back() -> None:
    assert [variant_of(name_of(variant)) for variant in VARIANTS] == list(VARIANTS)
    with pytest.raises(KeyError):
        variant_of("64-8-f16")


def test_the_space_is_that_of_the_rules(family) -> None:
    for variant in VARIANTS:
        assert {WmmaParams(*setting) for setting in family.legal(name_of(variant))} == {
            *legal_params(variant, family.limits)
        }
        assert family.baseline(name_of(variant)) in family.legal(name_of(variant))


def test_a_unit_instantiates_its_variant_with_its_setting(family) -> None:
    candidate = Candidate("128-16-f16", (128, 8))
    files = family.sources({"128-16-f16": [(128, 8)]})
    unit = files[family.unit(candidate)].decode()
    assert '#include "../../common.cuh"' in unit  # so that its closure has upstream's headers
    assert "flash_attn_ext_f16<128, 16, 8, 128, half, false>" in unit
    (softcap,) = family.checks(candidate)
    assert "flash_attn_ext_f16<128, 16, 8, 128, half, true>" in files[softcap].decode()
    assert family.checks(Candidate("64-16-f16", (128, 8))) == ()
    kernel = files[f"{FOLDER}/wmma-s128-n8/kernel.cuh"]
    assert b"flash_attn_ext_f16" in kernel
    assert b"launches_every_variant" not in kernel
    assert family.traits(candidate).threads == 256


def test_only_requested_units_and_upstreams_are_created(family) -> None:
    units = {path for path in family.sources({"64-16-f16": [(128, 8)]}) if path.endswith(".cu")}
    assert units == {f"{FOLDER}/wmma-s128-n8/64-16-f16.cu", f"{FOLDER}/wmma-s256-n4/64-16-f16.cu"}


def test_the_includes_of_a_unit_do_not_depend_on_other_units(family) -> None:
    few = family.sources({"64-16-f16": [(128, 8)]})
    many = family.sources({name: family.legal(name) for name in family.variants})
    assert {path: many[path] for path in few} == dict(few)


def test_each_table_has_every_variant_that_the_setting_is_legal_for(family, asked) -> None:
    family.sources({name: family.legal(name) for name in family.variants})
    for rows in asked:
        (params,) = set(rows.values())
        assert all(params in legal_params(variant, family.limits) for variant in rows)


def test_a_variant_is_timed_with_attention_of_models_that_fills_its_blocks(family, checkout) -> None:
    timed = replace(family, models=load_models(checkout / "arch_profiles"))
    few, many = timed.cases("64-16-f32"), timed.cases("64-32-f32")
    assert {(case.head_size, case.tokens) for case in few} == {(64, 16)}
    assert {(case.tokens, case.kv) for case in many} == {
        *((512, depth + 512) for depth in (0, 4096, 16384, 65536)),
        (2048, 2048),
    }
    # With float no block of 32 columns has such heads.
    assert {case.tokens for case in timed.cases("256-16-f32")} == {512, 2048}
    assert timed.cases("64-32-f16") == ()


def test_rows_from_the_compiler_or_the_model_do_not_count_as_measured(family, checkout) -> None:
    profile = load_profile(checkout / "arch_profiles", "gfx1151")
    row = profile.tuning.wmma[0]
    sources = (
        "compiler for gfx1151, no hardware",
        "modelled for gfx1151 with stand-in",
        "gfx1151 by a user",
    )
    sizes = (64, 80, 96)
    rows = tuple(
        replace(row, head_size=size, ncols=32, acc="f32", measured_on=text)
        for size, text in zip(sizes, sources, strict=True)
    )
    found = replace(profile, tuning=replace(profile.tuning, wmma=rows))
    assert set(family.current(found)) == {f"{size}-32-f32" for size in sizes}
    assert set(family.measured(found)) == {"96-32-f32"}


def test_a_setting_is_put_into_the_patchs_table_for_the_variants_that_are_timed(family, asked) -> None:
    files = family.with_settings({"64-32-f32": (128, 8)})
    assert set(files) == {KERNEL_FILE, TABLE_FILE}
    assert files[KERNEL_FILE] == KERNEL  # whole: its launches run it
    assert asked == [{variant_of("64-32-f32"): WmmaParams(128, 8)}]


@pytest.mark.parametrize(
    ("arguments", "variant"),
    [
        ("64ELi32ELi8ELi64Ef", "64-32-f32"),
        ("64ELi32ELi4ELi64E6__half", "64-32-f16"),
        ("64ELi16ELi4ELi64Ef", "64-16-f32"),
    ],
)
def test_a_kernel_is_its_variants_whatever_the_waves(family, arguments, variant) -> None:
    name = read_name(f"_ZL18flash_attn_ext_f16ILi{arguments}Lb0EEvPKc")
    assert [each for each in family.variants if family.is_kernel(name, each)] == [variant]
    of_mma = read_name("_ZL18flash_attn_ext_f16ILi64ELi64ELi4ELi8ELb0ELb0ELb0EEvPKc")
    assert not any(family.is_kernel(of_mma, each) for each in family.variants)


@pytest.mark.parametrize("text", [b"", KERNEL + KERNEL])
def test_a_kernel_that_is_not_defined_once_is_an_error(text) -> None:
    with refused("TUNE_KERNEL_UNTUNABLE", match="flash_attn_ext_f16"):
        cut_after(SourceText("x.cu", text), "flash_attn_ext_f16")


def test_with_bounds_a_setting_has_a_third_value_and_units_without_one_keep_their_names(
    family, asked
) -> None:
    bounded = family_of(family.limits, family.placed, family.table, bounds=True)
    assert bounded.parameters == ("kq_stride", "nwarps", "min_waves")
    assert bounded.baseline("128-16-f16") == (256, 4, 1)
    legal = bounded.legal("128-16-f16")
    assert {each[:2] for each in legal} == {*family.legal("128-16-f16")}
    assert {each[2] for each in legal} == {1, 6, 7, 8}  # five waves fit whatever the registers
    plain, bound = Candidate("128-16-f16", (128, 8, 1)), Candidate("128-16-f16", (128, 8, 6))
    assert bounded.unit(plain) == family.unit(Candidate("128-16-f16", (128, 8)))
    assert bounded.unit(bound) == f"{FOLDER}/wmma-s128-n8-w6/128-16-f16.cu"
    assert bounded.traits(bound) == bounded.traits(plain)
    files = bounded.sources({"128-16-f16": [bound.setting]})
    assert bounded.unit(bound) in files
    assert WmmaParams(128, 8, 6) in {params for rows in asked for params in rows.values()}

"""The profiles that come with patchkit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchkit.config.facts import FactNotForDecisions
from patchkit.config.profile import list_profiles, load_profile
from patchkit.config.schema import SCHEMAS, write_schemas

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "arch_profiles"
ARCHS = [
    "gfx1030",
    "gfx1100",
    "gfx1101",
    "gfx1102",
    "gfx1103",
    "gfx1150",
    "gfx1151",
    "gfx1152",
    "gfx1153",
    "gfx1200",
    "gfx1201",
    "gfx906",
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx950",
]
SERIES = ("fattn-decode-tile", "tile-config-guard", "tile-unprune", "wmma-tile-params")


def test_the_sixteen_are_there_and_every_family_is_used() -> None:
    assert list(list_profiles(FOLDER)) == ARCHS
    used = {family for arch in ARCHS for family in load_profile(FOLDER, arch).families}
    assert {path.stem for path in (FOLDER / "families").glob("*.toml")} == used


@pytest.mark.parametrize("arch", ARCHS)
def test_the_series_of_each(arch: str) -> None:
    profile = load_profile(FOLDER, arch)
    expected = {"gfx1151": "on", "gfx1100": "opt-in", "gfx1101": "opt-in"}.get(arch)
    assert {name: choice.default for name, choice in profile.patches.items()} == (
        dict.fromkeys(SERIES, expected) if expected else {}
    )
    rocwmma = dict(profile.cmake_options(patched=True))["GGML_HIP_ROCWMMA_FATTN"]
    assert rocwmma == ("ON" if expected else "OFF")
    assert dict(profile.cmake_options(patched=False))["GGML_HIP_ROCWMMA_FATTN"] == "OFF"
    assert len(profile.tuned_wmma) == (23 if arch in {"gfx1100", "gfx1151"} else 0)


# The classes that decide guards: vector registers per lane and SIMD, and their granule.
CLASSES = {
    (1536, 24): {"gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"},
    (1024, 16): {"gfx1030", "gfx1102", "gfx1103", "gfx1150", "gfx1152", "gfx1153"},
    (256, 4): {"gfx906", "gfx908"},
    (512, 8): {"gfx90a", "gfx942", "gfx950"},
}


@pytest.mark.parametrize("arch", ARCHS)
def test_register_classes(arch: str) -> None:
    facts = load_profile(FOLDER, arch).facts
    pair = (facts.require_int("vgprs_per_simd"), facts.require_int("vgpr_granule"))
    assert arch in CLASSES[pair]


@pytest.mark.parametrize("arch", ARCHS)
def test_speeds_and_low_confidence_never_decide(arch: str) -> None:
    facts = load_profile(FOLDER, arch).facts
    for name, fact in facts.by_name.items():
        if fact.confidence == "low" or name in {"bandwidth_gb_s", "fp16_tflops"}:
            with pytest.raises(FactNotForDecisions):
                facts.require(name)


def test_the_compute_capability_is_what_upstream_computes() -> None:
    # ggml_cuda_parse_id: the last two characters as one hexadecimal number, the rest as another.
    for arch in ARCHS:
        digits = arch.removeprefix("gfx")
        expected = 0x100 * int(digits[:-2], 16) + int(digits[-2:], 16)
        assert load_profile(FOLDER, arch).compute_capability == expected
    assert load_profile(FOLDER, "gfx90a").compute_capability == 0x90A


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_committed_schemas_are_what_the_models_say(name: str, tmp_path: Path) -> None:
    write_schemas(tmp_path)
    assert (ROOT / name).read_bytes() == (tmp_path / name).read_bytes(), (
        "write the schemas anew: python -m patchkit.config.schema"
    )


def test_the_schema_knows_the_words_of_the_models() -> None:
    schema = json.loads((FOLDER / "schema.json").read_text())
    row = schema["$defs"]["WmmaRowModel"]
    assert row["properties"]["acc"]["enum"] == ["f16", "f32"]
    assert row["additionalProperties"] is False
    assert [each["$ref"] for each in schema["anyOf"]] == ["#/$defs/ProfileModel", "#/$defs/FamilyModel"]

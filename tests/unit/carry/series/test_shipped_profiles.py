"""The profiles that come with patchkit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchkit.base.arch import FactNotForDecisions, list_profiles
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.selection import terms_of
from patchkit.cli.schema import write_schemas

ROOT = Path(__file__).resolve().parents[4]
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
SEED = ("fattn-decode-tile", "fattn-keep-gqa-tiles", "wmma-tile-params")
LATER = ("mmq-batch-limits", "mmq-tile-config", "mmq-rolled-loops", "mmvq-batch-limits")
UNSETTLED = (
    "fattn-tile-config",
    "fattn-vec-heads-first",
    "mmq-wmma-batches",
    "moe-sum-coalesce",
    "reuse-q8-1-activations",
    "fattn-wmma-prefill",
    "mul-mat-wmma-prefill",
    "fuse-norm-q8-1",
    "fuse-qkv-rope-kv-store",
    "rope-block-size",
    "fattn-vec-gqa-heads",
)
# Neither AMD-only code nor settings that were tuned on gfx1151.
OF_SIBLINGS = dict.fromkeys(
    (
        name
        for name in UNSETTLED
        if name not in {"fattn-tile-config", "fattn-wmma-prefill", "mmq-wmma-batches", "mul-mat-wmma-prefill"}
    ),
    "opt-in",
)
RACES = ("ssm-scan-barrier", "ssm-group-barrier", "softmax-norm-barriers", "ssm-conv-tail")
HOST_BUFFERS = {"integrated-host-buffers": "on"}
# What each GPU's facts support; a GPU that is not here has an empty series in every era.
EXPECTED = {
    "gfx1151": {
        **dict.fromkeys(SEED + LATER, "on"),
        **HOST_BUFFERS,
        **dict.fromkeys(UNSETTLED + RACES, "opt-in"),
    },
    "gfx1100": dict.fromkeys(SEED, "opt-in") | OF_SIBLINGS,
    "gfx1101": dict.fromkeys(SEED, "opt-in"),
    "gfx1103": HOST_BUFFERS,
    **dict.fromkeys(
        ("gfx1150", "gfx1152", "gfx1153"), HOST_BUFFERS | dict.fromkeys(RACES, "opt-in") | OF_SIBLINGS
    ),
    "gfx1200": {"mmvq-decode-warps": "opt-in"},
    "gfx1201": {"mmvq-decode-warps": "opt-in"} | OF_SIBLINGS,
}


def test_the_sixteen_are_there_and_every_family_is_used() -> None:
    assert list(list_profiles(FOLDER)) == ARCHS
    used = {family for arch in ARCHS for family in load_profile(FOLDER, arch).families}
    assert {path.stem for path in (FOLDER / "families").glob("*.toml")} == used


@pytest.fixture(scope="module")
def series() -> Series:
    return load_series(ROOT / "patches")


@pytest.mark.parametrize("arch", ARCHS)
def test_the_series_of_each(series: Series, arch: str) -> None:
    profile = load_profile(FOLDER, arch)
    expected = EXPECTED.get(arch, {})
    terms = {patch.id: terms_of(series, patch, profile, None).default for patch in series.patches}
    assert {name: default for name, default in terms.items() if default != "off"} == expected
    asked = dict(profile.cmake_options({"GGML_USE_HIP", "GGML_HIP_ROCWMMA_FATTN"}))
    assert asked["GGML_HIP_ROCWMMA_FATTN"] == ("ON" if "wmma-tile-params" in expected else "OFF")
    # Patches of the builds after rocWMMA never turn it on.
    assert dict(profile.cmake_options({"GGML_USE_HIP"}))["GGML_HIP_ROCWMMA_FATTN"] == "OFF"
    assert bool(profile.tuning.wmma) == arch.startswith("gfx11")


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


def test_every_recorded_patch_says_what_it_is_for() -> None:
    recorded = {
        name for each in load_lock(ROOT / "patches" / "upstream.lock").results for name in each.patches
    }
    patches = [patch for patch in load_series(ROOT / "patches").patches if patch.id in recorded]
    assert {patch.id: patch.undocumented for patch in patches if patch.undocumented} == {}


def test_the_committed_schemas_are_what_the_models_say(tmp_path: Path) -> None:
    for made in write_schemas(tmp_path):
        kept = ROOT / made.relative_to(tmp_path)
        assert kept.read_bytes() == made.read_bytes(), "write it anew: python -m patchkit.cli.schema"


def test_the_schema_knows_the_words_of_the_models() -> None:
    schema = json.loads((FOLDER / "schema.json").read_text())
    row = schema["$defs"]["TunedWmma"]
    assert row["properties"]["acc"]["enum"] == ["f16", "f32"]
    assert row["additionalProperties"] is False
    assert [each["$ref"] for each in schema["anyOf"]] == ["#/$defs/ArchProfile", "#/$defs/Family"]


def test_tuned_rows_are_where_a_patch_reads_them() -> None:
    readers = {
        "tile": "fattn-tile-config",
        "mmq": "mmq-tile-config",
        "value": "mmq-batch-limits",
        "mmvq_batch": "mmvq-batch-limits",
        "mmvq_warps": "mmvq-decode-warps",
    }
    for arch in ARCHS:
        profile = load_profile(FOLDER, arch)
        for table, patch in readers.items():
            assert bool(getattr(profile.tuning, table)) == (patch in profile.patches), (arch, table)


def test_nothing_of_the_measured_losses_is_carried() -> None:
    # Joining RDNA3.0's decode table cost gfx1151 up to 38 % (mmvq-rdna3_5.md of justinappler's fork), and
    # eight warps raise the LDS of head size 80 on the host pass of every GPU unless a row says so by name.
    for arch in ARCHS:
        profile = load_profile(FOLDER, arch)
        if "rdna4" not in profile.families:
            assert not profile.tuning.mmvq_warps
        assert not any(row.min_j < 48 for row in profile.tuning.mmq)

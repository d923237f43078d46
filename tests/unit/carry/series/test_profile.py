"""Profiles: reading, inheritance, and an error of its own for everything that can be wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.arch import list_profiles
from patchkit.base.errors import ErrorGroup, ExitCode
from patchkit.carry.series.profile import load_profile

FAMILY = """family = "top"

[facts]
wave_size = { value = 32, source = "test", confidence = "high" }
simds_per_cu = { value = 2, source = "test", confidence = "high" }
vgprs_per_simd = { value = 1024, source = "family", confidence = "high" }
vgpr_granule = { value = 16, source = "test", confidence = "high" }
max_vgprs_per_wave = { value = 256, source = "test", confidence = "high" }
max_waves_per_simd = { value = 16, source = "test", confidence = "high" }
lds_per_wgp_bytes = { value = 131072, source = "test", confidence = "high" }
lds_per_workgroup_bytes = { value = 65536, source = "test", confidence = "high" }
"""
MIDDLE = """family = "middle"
inherits = "top"

[facts]
matrix = { value = "wmma", source = "test", confidence = "high" }
vgpr_granule = { value = 8, source = "middle", confidence = "high" }
"""
PROFILE = """arch = "gfx1199"
inherits = "middle"
note = "a GPU for tests"

[facts]
part = { value = "None", source = "test", confidence = "low" }
compute_units = { value = 4, source = "test", confidence = "low" }
compute_capability = { value = 0x1199, source = "test", confidence = "high" }
device_macro = { value = "__gfx1199__", source = "test", confidence = "high" }
vgprs_per_simd = { value = 1536, source = "arch", confidence = "high" }
bandwidth_gb_s = { value = [90, 120], source = "test", confidence = "low" }

[build]
why = "reasons for the build"
cmake = { GGML_HIP = "ON", GPU_TARGETS = "gfx1199", ROCWMMA = "OFF" }
cmake_with_series = { ROCWMMA = "ON" }

[patches]
one = { default = "on", why = "because it is good", source = "test" }
two = { default = "opt-in", why = "because it may be good", source = "test" }
three = { default = "on", why = "because it is good too", source = "test" }

[[tuning.wmma]]
head_size = 64
ncols = 16
acc = "f16"
kq_stride = 128
nwarps = 8
min_waves = 1
source = "test"
measured_on = "nothing"
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the files above, with replacements in the profile, and gives the folder."""

    def write(*changes: tuple[str, str], middle: str = MIDDLE, top: str = FAMILY, more: str = "") -> Path:
        (tmp_path / "families").mkdir(exist_ok=True)
        (tmp_path / "families" / "top.toml").write_text(top)
        (tmp_path / "families" / "middle.toml").write_text(middle)
        text = PROFILE + more
        for old, new in changes:
            assert text.count(old) >= 1
            text = text.replace(old, new)
        (tmp_path / "gfx1199.toml").write_text(text)
        (tmp_path / "gfx1100.toml").write_text("")
        return tmp_path

    return write


def test_a_profile_with_its_families(write: Write) -> None:
    folder = write()
    profile = load_profile(folder, "gfx1199")
    assert (profile.arch, profile.families) == ("gfx1199", ("middle", "top"))
    assert profile.compute_capability == 0x1199
    assert profile.device_macro == "__gfx1199__"
    assert [name for name, said in profile.patches.items() if said.default == "on"] == ["one", "three"]
    assert profile.patches["two"].why == "because it may be good"
    assert profile.tuning.wmma[0].nwarps == 8
    assert str(profile.tuning.wmma[0].where).endswith("gfx1199.toml:23:1")
    assert list(profile.inputs) == ["gfx1199.toml", "families/middle.toml", "families/top.toml"]
    assert profile.inputs["families/middle.toml"] == hashlib.sha256(MIDDLE.encode()).hexdigest()


def test_the_nearest_file_wins_fact_by_fact(write: Write) -> None:
    facts = load_profile(write(), "gfx1199").facts
    assert [
        (facts.require(name), facts.by_name[name].source) for name in ("vgprs_per_simd", "vgpr_granule")
    ] == [
        (1536, "arch"),
        (8, "middle"),
    ]
    assert str(facts.by_name["wave_size"].where).endswith("families/top.toml:4:1")
    bandwidth = facts.report("bandwidth_gb_s")
    assert bandwidth is not None
    assert bandwidth.value == (90, 120)


def test_build_options_follow_the_macros_that_patches_ask_for(write: Write) -> None:
    profile = load_profile(write(), "gfx1199")
    assert dict(profile.cmake_options())["ROCWMMA"] == "OFF"
    assert dict(profile.cmake_options({"GGML_USE_HIP"}))["ROCWMMA"] == "OFF"
    assert profile.cmake_options({"GGML_USE_HIP", "ROCWMMA"}) == (
        ("GGML_HIP", "ON"),
        ("GPU_TARGETS", "gfx1199"),
        ("ROCWMMA", "ON"),
    )


def test_unknown_archs_are_answered_with_all_known(write: Write) -> None:
    folder = write()
    with refused("ARCH_UNKNOWN") as caught:
        load_profile(folder, "gfx1109")
    assert caught.value.hint == "known: gfx1100, gfx1199"
    assert caught.value.exit_code is ExitCode.USAGE
    with refused("ARCH_UNKNOWN") as caught:
        load_profile(folder, "sm_90")
    assert caught.value.hint == "known: gfx1100, gfx1199"
    with refused("ARCH_UNKNOWN") as caught:
        load_profile(folder, "gfx1199:xnack-")
    assert "--arch gfx1199" in (caught.value.hint or "")
    with refused("ARCH_UNKNOWN"):
        load_profile(folder, "../families/top")


@pytest.mark.parametrize("target", ["gfx11-generic", "gfx9-4-generic", "gfx12-generic"])
def test_generic_targets_are_refused_with_the_reason(write: Write, target: str) -> None:
    with refused("ARCH_GENERIC", match="exact gfx ids only") as caught:
        load_profile(write(), target)
    assert caught.value.why is not None
    assert "25620" in caught.value.why


def test_a_folder_without_profiles(tmp_path: Path) -> None:
    with refused("PROFILES_NONE"):
        list_profiles(tmp_path)


def test_an_unknown_family(write: Write) -> None:
    with refused("PROFILE_BAD") as caught:
        load_profile(write(('inherits = "middle"', 'inherits = "midle"')), "gfx1199")
    assert caught.value.hint == "did you mean 'middle'?"
    assert str(caught.value.where[0]).endswith("gfx1199.toml:2:1")


def test_a_family_that_inherits_from_itself(write: Write) -> None:
    folder = write(top=FAMILY.replace('family = "top"', 'family = "top"\ninherits = "middle"'))
    with refused("PROFILE_BAD") as caught:
        load_profile(folder, "gfx1199")
    assert caught.value.why == "middle -> top -> middle"
    assert str(caught.value.where[0]).endswith("top.toml:2:1")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('arch = "gfx1199"', 'arch = "gfx1198"', 1),
        ('value = "__gfx1199__"', 'value = "__gfx1198__"', 9),
        ("0x1199", "0x1198", 8),
        ('GPU_TARGETS = "gfx1199"', 'GPU_TARGETS = "gfx1198"', 15),
        ('GPU_TARGETS = "gfx1199", ', "", 15),
    ],
)
def test_statements_that_do_not_agree(write: Write, old: str, new: str, line: int) -> None:
    with refused("PROFILE_BAD") as caught:
        load_profile(write((old, new)), "gfx1199")
    assert caught.value.where[0].line == line


def test_a_family_file_that_says_it_is_another(write: Write) -> None:
    with refused("PROFILE_BAD", match="has family = 'midle'"):
        load_profile(write(middle=MIDDLE.replace('"middle"\ni', '"midle"\ni')), "gfx1199")


def test_facts_that_nobody_states(write: Write) -> None:
    top = FAMILY.replace("lds_per_wgp_bytes", "l2_mib").replace("wave_size", "infinity_cache_mib")
    with refused("FACT_MISSING", match="wave_size, lds_per_wgp_bytes or lds_per_cu_bytes"):
        load_profile(write(top=top), "gfx1199")


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("nwarps = 8", "nwarps = 0", "'tuning.wmma[0].nwarps' is 0", 28),
        ("ncols = 16", "ncols = 8", "'tuning.wmma[0].ncols' is 8", 25),
        ("head_size = 64", "head_size = 72", "'tuning.wmma[0].head_size' is 72", 24),
        ('default = "opt-in"', 'default = "optin"', "'patches.two.default' is 'optin'", 20),
        ('source = "arch", ', "", "'facts.vgprs_per_simd.source' is missing", 10),
        ("1536", "true", "'facts.vgprs_per_simd.value' is true", 10),
        ("[90, 120]", "[120, 90]", "'facts.bandwidth_gb_s.value' is an array", 11),
        ("vgprs_per_simd", "vgpr_per_simd", "unknown key 'facts.vgpr_per_simd'", 10),
        ('arch = "gfx1199"', 'arch = "GFX1199"', "'arch' is 'GFX1199'", 1),
    ],
)
def test_wrong_fields_are_named_with_their_line(
    write: Write, old: str, new: str, message: str, line: int
) -> None:
    with pytest.raises(ErrorGroup, match="is not a valid profile") as caught:
        load_profile(write((old, new)), "gfx1199")
    found = {(error.message, error.where[0].line) for error in caught.value.errors}
    assert (f"profile: {message}", line) in found


def test_wrong_fields_of_a_family_are_named_in_its_file(write: Write) -> None:
    with pytest.raises(ErrorGroup, match="is not a valid family") as caught:
        load_profile(write(middle=MIDDLE.replace('"wmma"', '"wwma"')), "gfx1199")
    error = caught.value.errors[0]
    assert (str(error.where[0]).rpartition("/")[2], error.hint) == (
        "middle.toml:5:12",
        "did you mean 'wmma'?",
    )


LATER = """
[[tuning.tile]]
head_size_k = 256
head_size_v = 256
ncols = 32
nthreads = 256
occupancy = 3
nbatch_fa = 64
nbatch_k = 64
source = "test"
measured_on = "nothing"

[[tuning.mmq]]
type = "Q4_K"
min_j = 48
nthreads = 128
occupancy = 2
i = 64
source = "test"
measured_on = "nothing"

[[tuning.mmvq_batch]]
type = "Q4_K"
max_batch = 2
source = "test"
measured_on = "nothing"

[[tuning.mmvq_warps]]
type = "Q4_K"
nwarps = 3
source = "test"
measured_on = "nothing"
"""


def test_rows_of_the_later_kernels_keep_their_place(write: Write) -> None:
    profile = load_profile(write(more=LATER), "gfx1199")
    assert [(row.ncols, row.nbatch_k) for row in profile.tuning.tile] == [(32, 64)]
    assert [(row.type, row.nthreads, row.i) for row in profile.tuning.mmq] == [("Q4_K", 128, 64)]
    assert [(row.type, row.max_batch) for row in profile.tuning.mmvq_batch] == [("Q4_K", 2)]
    assert [(row.type, row.nwarps) for row in profile.tuning.mmvq_warps] == [("Q4_K", 3)]
    assert (
        profile.tuning.mmvq_warps[0].where.line
        == (PROFILE + LATER).split("\n").index("[[tuning.mmvq_warps]]") + 1
    )


@pytest.mark.parametrize("rows", [(128, 128), (256, 64), (64, 64)])
def test_rows_and_threads_of_an_mmq_block_are_one_number(write: Write, rows: tuple[int, int]) -> None:
    text = LATER.replace("nthreads = 128", f"nthreads = {rows[0]}").replace("i = 64", f"i = {rows[1]}")
    with pytest.raises(ErrorGroup) as caught:
        load_profile(write(more=text), "gfx1199")
    assert "nthreads/32*16" in str(caught.value.errors[0].why)


@pytest.mark.parametrize("table", ["wmma", "tile", "mmq", "mmvq_batch", "mmvq_warps"])
def test_two_rows_for_the_same_thing_are_refused_with_both_places(write: Write, table: str) -> None:
    rows = (PROFILE + LATER).split("\n\n")
    twice = next(row for row in rows if f"[[tuning.{table}]]" in row)
    text = f"{LATER}\n{twice}\n"
    with refused("PROFILE_BAD") as caught:
        load_profile(write(more=text), "gfx1199")
    lines = (PROFILE + text).split("\n")
    at = [number for number, line in enumerate(lines, start=1) if line == f"[[tuning.{table}]]"]
    assert [where.line for where in caught.value.where] == at[::-1]


def test_mmq_rows_are_one_per_type_and_bound(write: Write) -> None:
    row = next(row for row in LATER.split("\n\n") if "[[tuning.mmq]]" in row)
    more = [row.replace("Q4_K", "Q5_K"), row.replace("min_j = 48", "min_j = 96")]
    profile = load_profile(write(more="\n".join([LATER, *more])), "gfx1199")
    assert [(each.type, each.min_j) for each in profile.tuning.mmq] == [
        ("Q4_K", 48),
        ("Q5_K", 48),
        ("Q4_K", 96),
    ]

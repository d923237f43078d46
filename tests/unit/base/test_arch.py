"""GPU profiles, read without the keys of the patch manager."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.arch import load_gpu
from patchkit.base.errors import ErrorGroup, members_of
from patchkit.carry.series.profile import load_profile

PROFILES = Path(__file__).resolve().parents[3] / "arch_profiles"
_KNOWN = sorted(path.stem for path in PROFILES.glob("gfx*.toml"))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The profiles, to be changed."""
    return Path(shutil.copytree(PROFILES, tmp_path / "arch_profiles"))


@pytest.mark.parametrize("arch", _KNOWN)
def test_both_readers_see_the_same_gpu(arch: str) -> None:
    gpu, profile = load_gpu(PROFILES, arch), load_profile(PROFILES, arch)
    assert (gpu.arch, gpu.facts.by_name, gpu.families) == (
        profile.arch,
        profile.facts.by_name,
        profile.families,
    )


def test_a_wrong_name_in_a_profile_is_reported_for_the_requested_gpu(copied: Path) -> None:
    profile = copied / "gfx1151.toml"
    profile.write_text(profile.read_text("utf-8").replace('arch = "gfx1151"', 'arch = "gfx1150"', 1), "utf-8")
    with refused("PROFILE_BAD", match="^arch of gfx1151 is 'gfx1150', not 'gfx1151'"):
        load_gpu(copied, "gfx1151")


def test_only_the_patch_manager_validates_its_own_keys(copied: Path) -> None:
    profile = copied / "gfx1151.toml"
    profile.write_text(f"as_of = 'yesterday'\n{profile.read_text('utf-8')}", "utf-8")
    assert load_gpu(copied, "gfx1151").arch == "gfx1151"
    with pytest.raises(ErrorGroup) as raised:
        load_profile(copied, "gfx1151")
    assert [error.code for error in members_of(raised.value)] == ["CONFIG_VALUE"]

"""What a GPU is, read without what its profile says of patches."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.arch import load_gpu
from patchkit.base.errors import ErrorGroup, members_of
from patchkit.carry.series.profile import load_profile

PROFILES = Path(__file__).resolve().parents[3] / "arch_profiles"
_KNOWN = sorted(path.stem for path in PROFILES.glob("gfx*.toml"))


@pytest.mark.parametrize("arch", _KNOWN)
def test_both_readers_see_the_same_gpu(arch: str) -> None:
    gpu, profile = load_gpu(PROFILES, arch), load_profile(PROFILES, arch)
    assert (gpu.arch, gpu.facts.by_name, gpu.families) == (
        profile.arch,
        profile.facts.by_name,
        profile.families,
    )


def test_what_is_the_patch_managers_is_an_error_for_the_patch_manager_alone(tmp_path: Path) -> None:
    for path in PROFILES.rglob("*.toml"):
        copy = tmp_path / path.relative_to(PROFILES)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    profile = tmp_path / "gfx1151.toml"
    profile.write_text(f"as_of = 'yesterday'\n{profile.read_text('utf-8')}", "utf-8")
    assert load_gpu(tmp_path, "gfx1151").arch == "gfx1151"
    with pytest.raises(ErrorGroup) as raised:
        load_profile(tmp_path, "gfx1151")
    assert [error.code for error in members_of(raised.value)] == ["CONFIG_UNKNOWN_KEY"]

"""On what terms a GPU gets a patch: claims, the profile's word before them, faults and losses before both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.arch import list_profiles
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.profile import ArchProfile, PatchChoice, load_profile, load_profiles
from patchkit.carry.series.selection import terms_of
from patchkit.carry.series.trust import Claim


def claim(kind: str, says: str, who: str) -> Claim:
    return Claim(archs=("gfx1151",), kind=kind, says=says, who=who, link="a thread", figure="+1 %")


TWO = (claim("hardware", "gain", "ann"), claim("hardware", "gain", "bob"))
MODEL = claim("modelled", "gain", "patchkit")
LOSSES = (claim("hardware", "loss", "cid"), claim("hardware", "loss", "dan"))
ROWS = "mmq-tile-config"


@pytest.fixture(scope="module")
def series(checkout: Path) -> Series:
    return load_series(checkout / "patches")


@pytest.fixture(scope="module")
def profile(checkout: Path) -> ArchProfile:
    """gfx1151, without a word of its own on any patch."""
    return replace(load_profile(checkout / "arch_profiles", "gfx1151"), patches={})


def told(series: Series, profile: ArchProfile, claims: tuple[Claim, ...], default: str | None = None):
    patch = replace(series.patch(ROWS), claims=claims)
    if default is not None:
        word = PatchChoice(default=default, why="because I say so", source="me")
        profile = replace(profile, patches={ROWS: word})
    terms = terms_of(series, patch, profile, 11549)
    return terms.default, terms.needs


@pytest.mark.parametrize(
    ("claims", "default", "expected"),
    [
        ((), None, ("off", None)),
        (TWO, None, ("on", "measured")),
        ((MODEL,), None, ("opt-in", "modelled")),
        ((), "on", ("on", "published")),
        ((), "opt-in", ("opt-in", None)),
        (TWO, "off", ("off", None)),
        (TWO, "on", ("on", "measured")),
        ((MODEL,), "on", ("on", "published")),
        ((MODEL,), "opt-in", ("opt-in", "modelled")),
        (TWO, "opt-in", ("opt-in", None)),
        ((*TWO, *LOSSES), None, ("opt-in", None)),
        (LOSSES, "on", ("opt-in", None)),
    ],
)
def test_terms(series: Series, profile: ArchProfile, claims, default, expected) -> None:
    assert told(series, profile, claims, default) == expected


def test_what_profiles_say_of_our_patches_is_what_their_claims_come_to(
    series: Series, checkout: Path
) -> None:
    """The words stay for the bytes of the profiles, which are part of the commits of candidates."""
    folder = checkout / "arch_profiles"
    said = 0
    for profile in load_profiles(folder, list_profiles(folder)):
        for patch in series.patches:
            for build in (
                {patch.builds.first, patch.builds.last or 11549} if patch.id in profile.patches else ()
            ):
                silent = replace(profile, patches={})
                by_claims = terms_of(series, patch, silent, build).default
                assert by_claims == profile.patches[patch.id].default, (profile.arch, patch.id, build)
                said += 1
    assert said > 20


def test_what_mends_wrong_results_of_hardware_is_in_with_any_trust(
    series: Series, profile: ArchProfile
) -> None:
    patch = series.patch("integrated-host-buffers")
    for arch in ("gfx1103", "gfx1150", "gfx1152"):  # nobody's report from two of them
        terms = terms_of(series, patch, replace(profile, arch=arch), 10566)
        assert (terms.default, terms.needs) == ("on", "measured")
    silent = replace(series, faults=())
    assert terms_of(silent, patch, replace(profile, arch="gfx1152"), 10566).default == "opt-in"

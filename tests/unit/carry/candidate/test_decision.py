"""What a request may ask for: contradictions and empty choices are refused, not carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.errors import PatchkitError
from patchkit.carry.candidate.decision import Wish, decide
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.selection import Selected

CONFIG, UNPRUNE = "wmma-tile-params", "fattn-keep-gqa-tiles"


@pytest.fixture
def select(checkout: Path):
    """Selects from the series of this checkout."""
    series = load_series(checkout / "patches")
    pin = load_lock(checkout / "patches" / "upstream.lock").pin("b6900")

    def run(arch: str, *, only=(), without=(), with_=()) -> dict[str, Selected]:
        profiles = (load_profile(checkout / "arch_profiles", arch),)
        wish = Wish(only=tuple(only), without=tuple(without), with_=tuple(with_))
        return {each.patch.id: each for each in decide(series, profiles, pin, wish).selected}

    return run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"only": [CONFIG], "without": [CONFIG]},
            f"--only {CONFIG} and --without {CONFIG} contradict each other",
        ),
        (
            {"with_": [CONFIG], "without": [CONFIG]},
            f"--with {CONFIG} and --without {CONFIG} contradict each other",
        ),
        (
            {"only": [CONFIG], "with_": [UNPRUNE]},
            f"--with {UNPRUNE} adds a patch that --only excludes",
        ),
    ],
)
def test_a_request_that_contradicts_itself(select, options, message: str) -> None:
    with pytest.raises(PatchkitError) as caught:
        select("gfx1151", **options)
    assert caught.value.code == "OPTIONS_CONTRADICT"
    assert caught.value.message == message


def test_only_patches_that_do_not_apply(select) -> None:
    with pytest.raises(PatchkitError) as caught:
        select("gfx1100", only=[CONFIG])
    assert caught.value.code == "NOTHING_SELECTED"
    assert f"add --with {CONFIG}" in str(caught.value.why)
    assert select("gfx1100", only=[CONFIG], with_=[CONFIG])[CONFIG].targets


def test_a_gpu_without_patches_and_without_a_wish_is_no_mistake(select) -> None:
    assert not any(selected.targets for selected in select("gfx942").values())


def test_a_gpu_of_which_nothing_is_known_says_its_note(select, checkout: Path) -> None:
    stranger = load_profile(checkout / "arch_profiles", "gfx942")
    reasons = [select(arch)[UNPRUNE].reason for arch in ("gfx942", "gfx1201")]
    assert reasons == [f"not for gfx942: {stranger.note}", "not for gfx1201"]

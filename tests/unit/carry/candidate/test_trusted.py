"""What a word of trust makes of a request, on the series as it is shipped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from refusing import refused

from patchkit.carry.candidate.decision import Decision, Wish, decide
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profiles

SWITCHES = "patch-switches"
SEED = ("wmma-tile-params", "fattn-keep-gqa-tiles", "fattn-decode-tile")
MEASURED = ("mmq-batch-limits", "mmq-tile-config")


@pytest.fixture
def choose(checkout: Path):
    """The decision on a wish, from the series of this checkout."""
    series = load_series(checkout / "patches")
    lock = load_lock(checkout / "patches" / "upstream.lock")

    def run(build: int, *archs: str, **asked) -> Decision:
        profiles = load_profiles(checkout / "arch_profiles", archs)
        return decide(series, profiles, lock.pin(f"b{build}"), Wish(**asked))

    return run


def test_each_word_adds_to_the_one_before(choose) -> None:
    sets = [
        choose(11549, "gfx1151", trust=word).ids for word in ("measured", "published", "modelled", "faults")
    ]
    assert sets[0] == (SWITCHES, *MEASURED)
    assert sets[1] == choose(11549, "gfx1151").ids
    assert {*sets[0]} < {*sets[1]} <= {*sets[2]} <= {*sets[3]}
    assert "ssm-conv-tail" in sets[3]
    assert "mmq-wmma-batches" not in sets[3]  # the model says otherwise


def test_documents_say_what_the_words_give_today(choose, checkout: Path) -> None:
    """The number of patches in the README's example, and the patches per word in the guide's table."""
    more = choose(11549, "gfx1151").more_trust
    count = f"--trust {more.level} would add {len(more.patches)} optional patches"
    assert count in (checkout / "README.md").read_text()
    guide = (checkout / "docs" / "guide" / "which-build.md").read_text()
    before: set[str] = set()
    for word in ("measured", "published", "modelled", "faults"):
        (row,) = (line for line in guide.splitlines() if line.startswith(f"| `{word}`"))
        now = {*choose(11549, "gfx1151", trust=word).ids}
        assert {*re.findall("`([a-z0-9-]+)`", row.split("|")[3])} == now - before - {SWITCHES}, word
        before = now


def test_the_seed_needs_that_one_source_is_trusted(choose) -> None:
    assert choose(6900, "gfx1151").ids == (SWITCHES, *SEED)
    nothing = choose(6900, "gfx1151", trust="measured")
    assert nothing.ids == ()
    (reason,) = [each.reason for each in nothing.selected if each.patch.id == "wmma-tile-params"]
    assert reason.endswith(": needs --trust published")
    more = nothing.more_trust
    assert more is not None
    assert (more.trust, more.level, more.patches) == ("measured", "published", SEED)


def test_wrong_results_of_hardware_are_mended_with_any_trust(choose) -> None:
    assert "integrated-host-buffers" in choose(10068, "gfx1152", trust="measured").ids


def test_what_is_named_beside_a_trust_counts(choose) -> None:
    more = choose(
        11549, "gfx1151", trust="measured", with_=("fattn-tile-config",), without=("mmq-tile-config",)
    )
    assert more.ids == (SWITCHES, "fattn-tile-config", "mmq-batch-limits")


REUSE, NORM = "reuse-q8-1-activations", "fuse-norm-q8-1"


@pytest.mark.parametrize("trust", [None, "measured", "modelled"])
def test_with_adds_the_patches_that_a_patch_requires(choose, trust) -> None:
    """Required patches are added, and reported unless the trust adds them anyway."""
    decision = choose(11549, "gfx1151", with_=(NORM,), trust=trust)
    assert {REUSE, NORM} <= {*decision.ids}
    assert decision.brought == ({} if trust == "modelled" else {NORM: (REUSE,)})
    named = choose(11549, "gfx1151", with_=(NORM, REUSE), trust=trust)
    assert named.ids == decision.ids


def test_an_excluded_requirement_is_not_added_by_with(choose) -> None:
    with refused("PATCH_PAIR_SPLIT", match=f"requires '{REUSE}', which the request excludes"):
        choose(11549, "gfx1151", with_=(NORM,), without=(REUSE,))
    with refused("PATCH_PAIR_SPLIT", match="which the request excludes"):
        choose(11549, "gfx1151", with_=(NORM,), only=(NORM,))
    assert choose(11549, "gfx1151", with_=(NORM,), only=(REUSE, NORM)).ids == (SWITCHES, REUSE, NORM)


def test_with_adds_nothing_for_a_patch_that_is_not_for_the_build(choose) -> None:
    decision = choose(10068, "gfx1151", with_=(NORM,))
    assert decision.brought == {}
    assert decision.ids == choose(10068, "gfx1151").ids


def test_the_next_word_is_told_with_what_nobody_measured(choose) -> None:
    more = choose(11549, "gfx1201").more_trust
    assert more is not None
    assert more.sentence() == ("published; --trust modelled would add mmvq-decode-warps: measured by Shardss")
    less = choose(11549, "gfx1151").more_trust
    assert less is not None
    assert less.sentence() == (
        "published; --trust modelled would add fattn-vec-heads-first, reuse-q8-1-activations, "
        "moe-sum-coalesce, fattn-wmma-prefill, mul-mat-wmma-prefill, fuse-norm-q8-1, "
        "fuse-qkv-rope-kv-store, rope-block-size, fattn-vec-gqa-heads: not measured"
    )
    assert choose(11549, "gfx1201", without=("mmvq-decode-warps",)).more_trust is None
    assert (
        choose(11549, "gfx1201", only=("mmvq-decode-warps",), with_=("mmvq-decode-warps",)).more_trust is None
    )


def test_of_several_gpus_all_that_are_offered_it_decide(choose) -> None:
    both = choose(6900, "gfx1100", "gfx1151", trust="modelled")
    assert {arch.arch for each in both.selected for arch in each.targets} == {"gfx1151"}


@pytest.mark.parametrize(
    ("asked", "named"),
    [({"only": ("mmq-tile-config",)}, "--only mmq-tile-config"), ({"with_opt_in": True}, "--with-opt-in")],
)
def test_a_trust_beside_what_leaves_nothing_to_it_is_refused(choose, asked, named: str) -> None:
    with refused("OPTIONS_CONTRADICT", match=f"--trust modelled and {named} contradict each other"):
        choose(11549, "gfx1151", trust="modelled", **asked)
    with refused("OPTIONS_CONTRADICT", match="--trust modelled and --arch plain contradict"):
        choose(11549, "plain", trust="modelled")

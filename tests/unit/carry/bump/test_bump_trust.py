"""``bump --trust``: the patches that a trust level selects on the new build."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.series_folder import SeriesDir
from patchkit.carry.bump.request import BumpRequest, find_variants
from patchkit.carry.series.lock import load_lock


@pytest.mark.parametrize(
    ("word", "with_", "without"),
    [
        ("measured", (), {"mmvq-batch-limits", "mmq-rolled-loops"}),
        ("published", (), set()),
    ],
)
def test_a_trust_level_selects_patches_on_the_new_build(checkout: Path, word: str, with_, without) -> None:
    folder = SeriesDir(root=checkout, origin="checkout")
    request = BumpRequest(to="b11549", archs=("gfx1151",), trust=word)
    lock = load_lock(folder.lock)
    (variant,), newer = find_variants(request, lock, lock.pin("b11549"), folder)
    assert newer == ()
    assert (variant.with_, without <= {*variant.without}) == (with_, True)
    assert not without or not {"mmq-tile-config", "mmq-batch-limits"} & {*variant.without}


def test_more_trust_adds_opt_in_patches(checkout: Path) -> None:
    folder = SeriesDir(root=checkout, origin="checkout")
    request = BumpRequest(to="b11549", archs=("gfx1151",), trust="faults")
    lock = load_lock(folder.lock)
    (variant,), _ = find_variants(request, lock, lock.pin("b11549"), folder)
    assert "ssm-conv-tail" in variant.with_
    assert "--trust faults" in request.command(to="b11549")

"""A pin of another source than the lock, held against the lock's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from refusing import refused

from patchkit.carry.candidate.target import find_target_pin, own_pin
from patchkit.carry.series.lock import GitSource, Lock, Pin, SdistSource

PACKAGE = SdistSource(package="some", version="1", sha256="2" * 64, subdir="src", omit=())
BARE = Pin(
    name="b2",
    build=2,
    commit=None,
    tree="1" * 40,
    committed="2025-01-02T03:04:05+00:00",
    commit_object=None,
    sources=(PACKAGE,),
)
TOLD = replace(BARE, commit="a" * 40, commit_object=b"raw", sources=(GitSource(url="/somewhere"),))


def lock_of(*pins):
    return Lock(version=2, path="upstream.lock", default="b2", pins=pins, results=())


def test_what_the_lock_has_is_what_results_rest_on():
    assert own_pin(lock_of(BARE), TOLD) is BARE
    assert own_pin(lock_of(TOLD), BARE) is TOLD
    assert own_pin(lock_of(), TOLD) is TOLD


@pytest.mark.parametrize("other", [{"tree": "3" * 40}, {"commit": "b" * 40}])
def test_another_tree_or_commit_under_the_same_build_is_refused(other):
    with refused("PIN_DIFFERS") as caught:
        own_pin(lock_of(TOLD), replace(TOLD, **other))
    assert next(iter(other.values())) in caught.value.message


def test_a_remote_and_source_packages_alone_contradict_each_other(tmp_path):
    with refused("UPSTREAM_URL_UNUSED"):
        find_target_pin(
            "b2",
            lock=lock_of(BARE),
            catalogue=tmp_path / "none.toml",
            source="sdist",
            upstream_url="/somewhere",
            cache=None,
            reporter=None,
        )

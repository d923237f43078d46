"""Import on upstream's own history: byte for byte where it was made, right or a conflict where it goes on."""

from __future__ import annotations

import collections
import functools
import itertools
import random
from pathlib import Path

import pytest
from round_trip import Carried, carried, changes, lifted

from patchkit.base.reporter import NullReporter
from patchkit.carry.series.lock import load_lock
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import obtain

pytestmark = [pytest.mark.upstream, pytest.mark.network]
FOLDER = "ggml/src/ggml-cuda/"
LOCK = load_lock(Path(__file__).parent / "corpus.toml")
BUILDS = sorted(pin.build for pin in LOCK.pins)
SEED = 18  # any; another one takes other changes


@pytest.fixture(scope="session")
def trees(test_cache):
    """Reads the sources of ggml-cuda of a tree of the corpus, by build."""
    cache = open_cache(test_cache / "corpus")

    def read(build: int) -> dict[str, bytes]:
        base = obtain(LOCK.pin(f"b{build}"), cache=cache, reporter=NullReporter())
        repository = cache.peek(NullReporter())
        entries = repository.list_files(base, FOLDER)
        paths = [each.path for each in entries if each.path.endswith((".cu", ".cuh"))]
        flat = [path for path in paths if "/" not in path.removeprefix(FOLDER)]
        return repository.read_blobs(base, flat)

    return functools.cache(read)


def round_trip(found, words: str) -> collections.Counter:
    """How many changes were taken, lifted and refused, and what became of their edits."""
    told: collections.Counter = collections.Counter()
    for change in found:
        told["changes"] += 1
        drafts = lifted(change, words)
        if drafts is None:
            told["refused"] += 1
            continue
        told["edits"] += len(drafts)
        told["hunks of text"] += sum(bool(draft.reason) for draft in drafts)
        for missing, there in carried(change, words):
            told[f"missing: {missing}"] += 1
            told[f"there: {there}"] += 1
            assert missing is not Carried.WRONG, change
            assert there is not Carried.WRONG, change
    return told


@pytest.mark.parametrize("words", ["lines", "tokens"])
def test_a_few_changes_of_one_step_come_out_and_go_on(trees, words: str) -> None:
    found = list(changes(trees(6628), trees(6900), []))
    told = round_trip(random.Random(SEED).sample(found, 6), words)
    assert told["refused"] == 0
    assert told["missing: right"] >= 5


@pytest.mark.hours
@pytest.mark.parametrize("words", ["lines", "tokens"])
def test_two_hundred_and_fifty_changes_of_all_steps(trees, words: str) -> None:
    steps = []
    for rank, (older, newer) in enumerate(itertools.pairwise(BUILDS)):
        before = [trees(build) for build in BUILDS[:rank]]
        steps += changes(trees(older), trees(newer), before)
    told = round_trip(random.Random(SEED).sample(steps, 250), words)
    print(dict(sorted(told.items())))  # noqa: T201 - the table of the note
    assert told["refused"] <= 0.05 * told["changes"]

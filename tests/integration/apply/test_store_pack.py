"""Packing what runs of verify used: upstream's part, the candidate's when asked; what is gone is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run_patchkit
from shipped import SEED

from patchkit.base.digests import key_of
from patchkit.base.errors import ExitCode
from patchkit.base.reporter import NullReporter
from patchkit.base.store import Journal, Store, shared_key
from patchkit.toolchain.compiler import journal_file
from patchkit.toolchain.shared import SharedStore

KEYS = {name: key_of({"what": name}) for name in ("baseline", "candidate", "both", "nobody", "gone", "build")}


@pytest.fixture
def used(candidate_cache: Path, applied: dict[str, Any]) -> Path:
    """A cache whose journal has an entry for each kind of tree, as verify leaves it."""
    before, after = (Path(name) for name in (_tree(candidate_cache, applied["base"]), applied["tree"]))
    journal = Journal()
    store = Store(root=candidate_cache / "objects", journal=journal)

    def fill(folder: Path) -> None:
        (folder / "output").write_bytes(b"made")

    store.obtain(KEYS["baseline"], fill, of=before)
    store.obtain(KEYS["candidate"], fill, of=after)
    store.sibling("recorder", "runs").obtain(KEYS["both"], fill, of=after)
    store.sibling("recorder", "runs").obtain(KEYS["both"], fill, of=before)
    store.sibling("timing", "traces").obtain(KEYS["nobody"], fill)
    journal.note("objects", KEYS["gone"], before)
    part = candidate_cache / "builds" / f"programs-{KEYS['build'][:16]}"
    (part / "build" / "bin").mkdir(parents=True)
    (part / "build" / "bin" / "llama-bench").write_bytes(b"program")
    (part / "build" / "CMakeCache.txt").write_bytes(b"of this machine")
    (part / "built.json").write_text('["llama-bench"]')
    journal.note("builds", KEYS["build"], before)
    journal.keep(journal_file(candidate_cache, applied["tree"]))
    return candidate_cache


def _tree(cache: Path, commit: str) -> str:
    from patchkit.carry.upstream.repository import Repository

    return Repository(path=cache / "upstream.git", reporter=NullReporter()).tree_of(commit)


def _has(place: Path, store: str, name: str, folder: Path) -> bool:
    shared = SharedStore(place=str(place), reporter=NullReporter())
    return shared.fetch(shared_key(store, KEYS[name]), folder / f"{store}-{name}")


def test_what_upstreams_tree_needs_is_packed(used: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    done = run_patchkit("store", "pack", *SEED, "--to", place, "--cache-dir", used, "--json")
    assert done.returncode == ExitCode.OK, done.stderr
    told = json.loads(done.stdout)
    assert (told["entries"], told["missing"]) == (4, 1)
    stores = ("objects", "objects", "runs", "traces", "builds")
    names = ("baseline", "candidate", "both", "nobody", "build")
    found = [_has(place, store, name, tmp_path) for store, name in zip(stores, names, strict=True)]
    assert found == [True, False, True, True, True]
    assert (tmp_path / "builds-build" / "build" / "bin" / "llama-bench").read_bytes() == b"program"
    assert not (tmp_path / "builds-build" / "build" / "CMakeCache.txt").exists()


def test_the_whole_run_is_packed_when_asked(used: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    for new in (True, False):
        done = run_patchkit("store", "pack", *SEED, "--whole", "--to", place, "--cache-dir", used, "--json")
        told = json.loads(done.stdout)
        assert (told["entries"], told["bytes"] > 0) == (5, new)
    assert _has(place, "objects", "candidate", tmp_path)


def test_a_candidate_that_nobody_verified_has_nothing(candidate_cache: Path, tmp_path: Path) -> None:
    done = run_patchkit("store", "pack", *SEED, "--to", tmp_path / "place", "--cache-dir", candidate_cache)
    assert done.returncode == ExitCode.USAGE
    assert "error[STORE_NOTHING_USED]" in done.stderr
    assert not (tmp_path / "place").exists()

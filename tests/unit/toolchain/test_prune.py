"""Pruning the cache: least recently used items first, and only what can be recreated."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from patchkit.base.locks import locked
from patchkit.toolchain.prune import list_items, prune

DAY = 86400.0
MIB = 2**20
FILES = {
    "objects/aa/" + "a" * 64: 40,
    "timing/traces/bb/" + "b" * 64: 30,
    "builds/cpu-1234": 20,
    "builds/sides/hip-1234": 4,
    "trees/" + "c" * 40: 10,
}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Items of one MiB each, with ages in days from the table, and files that must never be removed."""
    for path, days in FILES.items():
        folder = tmp_path / path
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(os.urandom(MIB))
        used = time.time() - days * DAY
        os.utime(folder, (used, used))
    for name in ("upstream.git", "evidence", "sdk", "objects/failed", "objects/used"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "kept").write_bytes(b"x" * MIB)
    return tmp_path


def left(cache: Path) -> list[str]:
    return [path for path in FILES if (cache / path).exists()]


def test_the_least_recently_used_is_removed_first(cache: Path) -> None:
    found = [str(each.path.relative_to(cache)) for each in list_items(cache)]
    assert found == sorted(FILES, key=lambda path: -FILES[path])
    done = prune(cache, most_bytes=3 * MIB + MIB // 2, older_than_s=None)
    assert left(cache) == list(FILES)[2:]
    assert done.gone["results"] == (2, 2 * MIB)
    assert (done.left["builds"], done.left["trees"]) == ((2, 2 * MIB), (1, MIB))


def test_age_counts_by_itself(cache: Path) -> None:
    prune(cache, most_bytes=None, older_than_s=15 * DAY)
    assert left(cache) == list(FILES)[3:]


def test_nothing_else_is_removed(cache: Path) -> None:
    prune(cache, most_bytes=0, older_than_s=None)
    assert left(cache) == []
    assert len(list(cache.rglob("kept"))) == 5
    assert not list(cache.rglob(".partial-*"))


def test_a_dry_run_removes_nothing(cache: Path) -> None:
    done = prune(cache, most_bytes=0, older_than_s=None, dry_run=True)
    assert (left(cache), sum(count for count, _ in done.gone.values())) == (list(FILES), 5)


def test_a_build_in_use_is_kept(cache: Path) -> None:
    with locked(cache / "builds/cpu-1234/lock"):
        prune(cache, most_bytes=0, older_than_s=None)
    assert left(cache) == ["builds/cpu-1234"]


def test_hard_links_count_once(cache: Path) -> None:
    os.link(cache / "builds/cpu-1234/file", cache / "builds/sides/hip-1234/linked")
    assert sum(each.size for each in list_items(cache)) == 5 * MIB


def test_a_read_only_tree_is_removed(cache: Path) -> None:
    inner = cache / "trees" / ("c" * 40) / "inner"
    inner.mkdir()
    (inner / "file").write_bytes(b"x")
    inner.chmod(0o555)
    prune(cache, most_bytes=0, older_than_s=None)
    assert left(cache) == []

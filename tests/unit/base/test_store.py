"""The store of results: entries are filled once, atomically."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from patchkit.base.digests import key_of
from patchkit.base.store import Store

_KEY = key_of({"what": "test"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(root=tmp_path / "store")


def _never(_: Path) -> None:
    raise AssertionError("it was there already")


def test_an_entry_is_filled_once_and_found_again(store: Store) -> None:
    made = store.obtain(_KEY, lambda folder: (folder / "a").write_text("x") and None)
    assert (made / "a").read_text() == "x"
    assert store.obtain(_KEY, _never) == made
    assert store.find(_KEY) == made


def test_a_failed_fill_leaves_no_entry(store: Store) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.obtain(_KEY, fill)
    assert store.find(_KEY) is None
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_an_entry_that_another_process_created_meanwhile_is_used(store: Store) -> None:
    def fill(folder: Path) -> None:
        (folder / "mine").write_text("x")
        store.obtain(_KEY, lambda other: (other / "theirs").write_text("x") and None)

    assert [path.name for path in store.obtain(_KEY, fill).iterdir()] == ["theirs"]


def test_threads_fill_the_same_entry_once(store: Store) -> None:
    began, go_on = threading.Event(), threading.Event()
    made: list[Path] = []

    def fill(folder: Path) -> None:
        made.append(folder)
        began.set()
        assert go_on.wait(timeout=60)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(store.obtain, _KEY, fill)
        assert began.wait(timeout=60)
        second = pool.submit(store.obtain, _KEY, _never)
        other = store.obtain(
            key_of({"what": "another"}), lambda _: None
        )  # threads wait only for the same entry
        go_on.set()
        assert first.result(timeout=60) == second.result(timeout=60) != other
    assert len(made) == 1


def test_a_text_is_kept_replaced_and_dropped(store: Store) -> None:
    assert store.read(_KEY) is None
    for text in (b"", b"two\nlines\n", b"\xff"):
        store.write(_KEY, text)
        assert store.read(_KEY) == text
    store.drop(_KEY)
    assert store.read(_KEY) is None


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[:-1], lambda _: b"", lambda text: b"\xff" + text],
    ids=["cut", "empty", "more"],
)
def test_a_damaged_text_is_removed(store: Store, damage) -> None:
    store.write(_KEY, b"text")
    (path,) = (path for path in store.root.rglob("*") if path.is_file())
    path.write_bytes(damage(path.read_bytes()))
    assert store.read(_KEY) is None
    assert store.find(_KEY) is None


def test_keys_depend_on_values_and_not_on_their_order() -> None:
    assert key_of({"a": 1, "b": [2]}) == key_of({"b": [2], "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})


def test_partial_folders_of_killed_runs_are_removed_after_a_day(store: Store) -> None:
    folder = store.root / _KEY[:2]
    for name, age_s in (("old", 90_000), ("young", 3_600)):
        partial = folder / f".partial-{name}"
        partial.mkdir(parents=True)
        (partial / "output").write_text("half")
        os.utime(partial, (time.time() - age_s,) * 2)
    store.obtain(_KEY, lambda made: (made / "a").write_text("x") and None)
    assert sorted(path.name for path in folder.iterdir()) == [".partial-young", _KEY]

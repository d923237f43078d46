"""Prunes the cache: removes the least recently used results, builds and trees, which can be recreated."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.files import disk_errors
from patchkit.base.locks import LockBusy, locked
from patchkit.base.store import STORES

Kind = Literal["results", "builds", "trees"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheItem:
    """A result, build or tree that may be removed: ``size`` in bytes, last ``used`` in Unix time."""

    kind: Kind
    path: Path
    size: int
    used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The items removed (``gone``) and kept (``left``): their number and size in bytes, by kind."""

    gone: dict[Kind, tuple[int, int]]
    left: dict[Kind, tuple[int, int]]


def list_items(cache_root: Path) -> list[CacheItem]:
    """All items that may be removed, the least recently used first. Raises CacheError."""
    with disk_errors(cache_root, "listing the cache"):
        seen: set[tuple[int, int]] = set()
        found = [_item(kind, path, seen) for kind, path in _paths(cache_root)]
    return sorted(found, key=lambda each: (each.used, str(each.path)))


def prune(
    cache_root: Path, *, most_bytes: int | None, older_than_s: float | None, dry_run: bool = False
) -> Pruned:
    """Remove older items, then the least recently used ones until at most ``most_bytes`` remain.

    A build folder in use by another patchkit is kept. Raises CacheError.
    """
    items = list_items(cache_root)
    total, now = sum(each.size for each in items), time.time()
    gone: list[CacheItem] = []
    for each in items:
        is_old = older_than_s is not None and now - each.used > older_than_s
        if not is_old and (most_bytes is None or total <= most_bytes):
            continue
        with _unused(each) as is_free:
            if not is_free:
                continue
            if not dry_run:
                with disk_errors(each.path, "removing from the cache"):
                    _remove(each.path)
        gone.append(each)
        total -= each.size
    left = [each for each in items if each not in gone]
    return Pruned(gone=_by_kind(gone), left=_by_kind(left))


def _by_kind(items: list[CacheItem]) -> dict[Kind, tuple[int, int]]:
    kinds: tuple[Kind, ...] = ("results", "builds", "trees")
    found = {kind: [each.size for each in items if each.kind == kind] for kind in kinds}
    return {kind: (len(sizes), sum(sizes)) for kind, sizes in found.items()}


def _paths(cache_root: Path) -> Iterator[tuple[Kind, Path]]:
    for store in STORES.values():
        for path in (cache_root / store).glob("[0-9a-f][0-9a-f]/*"):
            if not path.name.startswith("."):
                yield "results", path
    for path in (cache_root / "builds").glob("*"):
        if path.is_dir() and path.name != "sides":
            yield "builds", path
    for path in (cache_root / "builds" / "sides").glob("*"):
        yield "builds", path
    for path in (cache_root / "trees").glob("*"):
        if path.is_dir() and not path.name.startswith("."):
            yield "trees", path


def _item(kind: Kind, path: Path, seen: set[tuple[int, int]]) -> CacheItem:
    size, used = 0, path.stat().st_mtime
    for folder, _, names in os.walk(path):
        for name in names:
            state = Path(folder, name).lstat()
            if (state.st_dev, state.st_ino) not in seen:  # hard links count once
                seen.add((state.st_dev, state.st_ino))
                size += state.st_blocks * 512
    stamp = path / "built.json"
    if stamp.is_file():
        used = max(used, stamp.stat().st_mtime)
    return CacheItem(kind=kind, path=path, size=size, used=used)


@contextmanager
def _unused(item: CacheItem) -> Iterator[bool]:
    """Whether no build is running in a folder; its lock is held until the context ends."""
    lock = item.path / "lock"
    if item.kind != "builds" or not lock.is_file():
        yield True
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, timeout_s=0))
            is_free = True
        except LockBusy:
            is_free = False
        yield is_free


def _remove(path: Path) -> None:
    """Rename the folder first, so that a killed run does not leave a partial item."""
    going = path.with_name(f".partial-going-{os.getpid()}-{path.name}")
    path.rename(going)
    for folder, _, _ in os.walk(going):  # exported trees are read-only
        Path(folder).chmod(0o755)
    shutil.rmtree(going)

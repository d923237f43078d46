"""Pack the results that a verification used for upstream's own tree, so that others can reuse them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import UsageError
from patchkit.base.store import STORES, Store, read_journal, shared_key
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.series.lock import PinWanted, load_lock
from patchkit.toolchain.compiler import journal_file
from patchkit.toolchain.shared import pack_entry
from patchkit.toolchain.sides import BUILDS, files_of_build


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The result: ``entries``, and ``bytes`` that were new there; ``missing`` were pruned in the meantime."""

    place: Path
    baseline_tree: str
    entries: int
    bytes: int
    missing: int


def pack_store(
    workspace: Workspace, archs: Sequence[str], upstream: PinWanted, place: Path, *, whole: bool
) -> Packed:
    """Write the results that ``verify`` used for a candidate to ``place``, which ``PATCHKIT_STORE`` can name.

    By default those for upstream's tree and those for no tree; ``whole``: also those for the candidate's
    tree. Existing entries are kept. An entry is complete when its record exists, which is written last.

    Raises:
        CANDIDATE_MISSING, CANDIDATE_STALE: there is no candidate.
        STORE_NOTHING_USED: the candidate was never verified in this cache folder.
        CacheError: the disk is full or not writable.
    """
    pin = load_lock(workspace.series.lock).pin(upstream)
    repository, candidate = find_candidate(workspace, archs, pin)
    tree, baseline = repository.tree_of(candidate.tip), repository.tree_of(candidate.base)
    used = read_journal(journal_file(workspace.cache_root, tree))
    if not used:
        words = " ".join(f"--arch {arch}" for arch in archs)
        raise UsageError(
            f"{candidate.branch} was not verified with the cache {workspace.cache_root}",
            code="STORE_NOTHING_USED",
            why="only results that verify used are packed",
            hint=f"patchkit verify {words} --upstream {build_name(candidate.build)}",
        )
    wanted = [each for each, trees in used.items() if whole or not trees or baseline in trees]
    entries, size, missing = 0, 0, 0
    with workspace.reporter.progress(f"packing into {place}", "entries") as advance:
        for number, (store, key) in enumerate(sorted(wanted)):
            folder, names = _entry(workspace.cache_root, store, key)
            if folder is None:
                missing += 1
            else:
                size += pack_entry(shared_key(store, key), folder, names, place)
                entries += 1
            advance(number + 1, len(wanted))
    return Packed(place=place, baseline_tree=baseline, entries=entries, bytes=size, missing=missing)


def _entry(cache_root: Path, store: str, key: str) -> tuple[Path | None, Iterator[Path]]:
    """The folder of an entry and its files; None if it no longer exists."""
    if store == BUILDS:
        found = next((cache_root / BUILDS).glob(f"*-{key[:16]}"), None)
        is_whole = found is not None and (found / "built.json").is_file()
        return (found, files_of_build(found)) if found is not None and is_whole else (None, iter(()))
    folder = Store(root=cache_root / STORES[store]).find(key) if store in STORES else None
    if folder is None:
        return None, iter(())
    return folder, (path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file())

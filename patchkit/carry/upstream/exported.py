"""Write the files of a commit into a folder, for tools that need files; written once and never changed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import CacheError, Location
from patchkit.base.files import disk_errors, mark_used, whole_folder
from patchkit.base.reporter import Reporter
from patchkit.base.workspace import Workspace
from patchkit.carry.series.git_object import object_id
from patchkit.carry.series.lock import Pin
from patchkit.carry.upstream.cache import create_repository, open_cache
from patchkit.carry.upstream.pin import obtain
from patchkit.carry.upstream.remote import fetch_commit
from patchkit.carry.upstream.repository import Repository, TreeEntry, git_path

_BATCH = 256  # files read from git at once; limits memory to a few tens of MB

_PLAIN, _EXECUTABLE, _LINK, _SUBMODULE = "100644", "100755", "120000", "160000"
_MODES = {_PLAIN: 0o444, _EXECUTABLE: 0o555}
_ANSWER_S = 10.0  # time limit for a remote's first response


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTree:
    """``root`` contains the files of the git tree ``tree`` of ``commit`` (40 hex digits each)."""

    root: Path
    tree: str
    commit: str


def export_pin(pin: Pin, workspace: Workspace) -> ExportedTree:
    """Export the files of a pin into the cache folder.

    Raises:
        SourceError, GitError: the pin could not be obtained.
        The errors of :func:`export_tree`.
    """
    cache = open_cache(workspace.cache_root)
    commit = obtain(pin, cache=cache, reporter=workspace.reporter)
    repository = cache.peek(workspace.reporter)
    if repository is None:
        raise AssertionError("the pin was obtained, but there is no repository")
    return export_tree(repository, commit, workspace.cache_root / "trees")


def fetch_folder(
    url: str, commit: str, folder: str, scratch: Path, reporter: Reporter
) -> tuple[str | None, dict[str, bytes]]:
    """One folder of a commit of a remote: its tree hash, None if it does not exist, and its regular files.

    Raises:
        SourceError: the remote cannot be reached, or lacks the commit.
        CacheError: the disk reported an error.
    """
    repository = create_repository(scratch / "fetched.git", reporter)
    fetch_commit(repository, url, commit, answer_s=_ANSWER_S)
    (tree,) = repository.resolve(f"{commit}:{folder}")
    if tree is None:
        return None, {}
    plain = [entry.path for entry in repository.list_files(tree) if entry.mode in {_PLAIN, _EXECUTABLE}]
    return tree, dict(repository.read_blobs(tree, plain))


def export_tree(
    repository: Repository, commit: str, directory: Path, *, like: ExportedTree | None = None
) -> ExportedTree:
    """Export the files of ``commit`` to ``directory``/<tree hash>; an existing folder is reused.

    The folder appears complete or not at all, because it is filled under another name and renamed. Files of
    ``like`` are hard-linked after checking that they are unchanged, which takes 0.3 s instead of 1.7 (build
    11549).

    Raises:
        GIT_OBJECT_MISSING: the repository has no such commit.
        TREE_ENTRY_REFUSED: a path or link leads out of the folder, or an entry is a submodule.
        CacheError: the disk reported an error.
    """
    tree = repository.tree_of(commit)
    root = directory / tree
    exported = ExportedTree(root=root, tree=tree, commit=commit)
    if root.is_dir():
        mark_used(root)
        return exported
    repository.reporter.step(f"exporting tree {tree[:12]}")
    entries = repository.list_files(tree)
    for entry in entries:
        _refuse_unsafe(entry, root)
    same = frozenset(entries).intersection(repository.list_files(like.tree)) if like is not None else ()
    with disk_errors(directory, "exporting a tree"), whole_folder(root) as partial:
        lacking = []
        for entry in entries:
            if like is None or entry not in same or not _link(like.root, partial, entry):
                lacking.append(entry)  # noqa: PERF401 - _link() has a side effect
        for start in range(0, len(lacking), _BATCH):
            batch = lacking[start : start + _BATCH]
            blobs = repository.read_blobs(tree, [entry.path for entry in batch])
            for entry in batch:
                _write(partial, entry, blobs[entry.path])
    return exported


def _link(other: Path, root: Path, entry: TreeEntry) -> bool:
    """Hard-link a file of another exported tree into this one; False if its content is not git's any more."""
    source, target = _place(other, entry), _place(root, entry)
    if entry.mode == _LINK or source.is_symlink():
        return False
    try:
        if stat.S_IMODE(source.stat().st_mode) != _MODES[entry.mode]:
            return False
        if object_id("blob", source.read_bytes()) != entry.sha:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target)
    except OSError:  # missing, or no hard links on this disk: write it instead
        return False
    return True


def _place(root: Path, entry: TreeEntry) -> Path:
    return Path(os.fsdecode(os.path.join(os.fsencode(root), git_path(entry.path))))  # noqa: PTH118 - bytes


def _refuse_unsafe(entry: TreeEntry, root: Path) -> None:
    parts = entry.path.split("/")
    if entry.mode == _SUBMODULE or any(part in {"", ".", "..", ".git"} for part in parts):
        raise _refused(entry, root, "it is a submodule, or git would not check out its path")


def _refused(entry: TreeEntry, root: Path, why: str) -> CacheError:
    return CacheError(
        f"{entry.path} of tree {root.name[:12]} cannot be exported",
        code="TREE_ENTRY_REFUSED",
        where=Location(path=entry.path),
        why=why,
        hint="patchkit status shows the source of the pin",
    )


def _write(root: Path, entry: TreeEntry, data: bytes) -> None:
    target = _place(root, entry)
    target.parent.mkdir(parents=True, exist_ok=True)
    if entry.mode == _LINK:
        pointed = os.path.normpath(os.path.join(os.path.dirname(entry.path), os.fsdecode(data)))  # noqa: PTH118, PTH120 - lexical, on purpose
        if os.fsdecode(data).startswith("/") or pointed.split("/")[0] == "..":
            raise _refused(entry, root, f"it is a link out of the tree: {os.fsdecode(data)}")
        target.symlink_to(os.fsdecode(data))
        return
    target.write_bytes(data)
    target.chmod(_MODES[entry.mode])

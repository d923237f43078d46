"""Writes the files of a commit into a folder for tools that need files; made once and never changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import CacheError, Location
from patchkit.base.files import disk_errors
from patchkit.carry.upstream.repository import Repository, TreeEntry, git_path
from patchkit.toolchain.store import remove_stale

_BATCH = 256  # files read from git at once: bounds memory to a few tens of MB

_EXECUTABLE, _LINK, _SUBMODULE = "100755", "120000", "160000"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTree:
    """``root`` holds the files of the git tree ``tree`` (40 hex digits)."""

    root: Path
    tree: str


def export_tree(repository: Repository, commit: str, directory: Path) -> ExportedTree:
    """The files of ``commit`` in ``directory``/<tree hash>; a tree that is there already is taken as it is.

    The folder appears whole or not at all: it is filled beside its place and renamed.

    Raises:
        GIT_OBJECT_MISSING: no such commit in the repository.
        TREE_ENTRY_REFUSED: a path or link leads out of the folder, or an entry is a submodule.
        CacheError: the disk refused.
    """
    tree = repository.tree_of(commit)
    root = directory / tree
    if root.is_dir():
        return ExportedTree(root=root, tree=tree)
    repository.reporter.step(f"exporting tree {tree[:12]}")
    entries = repository.list_files(tree)
    for entry in entries:
        _refuse_unsafe(entry, root)
    with disk_errors(directory, "exporting a tree"):
        partial = _begin(directory, tree)
        try:
            for start in range(0, len(entries), _BATCH):
                batch = entries[start : start + _BATCH]
                blobs = repository.read_blobs(tree, [entry.path for entry in batch])
                for entry in batch:
                    _write(partial, entry, blobs[entry.path])
            _finish(partial, root)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return ExportedTree(root=root, tree=tree)


def files_digest(files: Mapping[str, bytes]) -> str:
    """sha256 over paths and bytes, as 64 hex digits."""
    digest = hashlib.sha256()
    for path, data in sorted(files.items()):
        digest.update(f"{path} {hashlib.sha256(data).hexdigest()}\n".encode())
    return digest.hexdigest()


def overlay_tree(base: Path, changes: Mapping[str, bytes], what: str, *, below: str) -> Path:
    """A tree beside ``base`` that differs from it in some files: ``<base>+<what>-<digest of changes>``.

    Only the folder ``below`` is carried over (``.``: all); unchanged files are hard links. A folder that is
    there is taken as it is.

    Raises:
        CacheError: the disk refused.
    """
    root = base.with_name(f"{base.name}+{what}-{files_digest(changes)[:12]}")
    if root.is_dir():
        return root
    with disk_errors(base.parent, "making a variant of a tree"):
        partial = _begin(base.parent, root.name)
        try:
            shutil.copytree(
                base / below, partial / below, symlinks=True, copy_function=_link, dirs_exist_ok=True
            )
            for path, data in changes.items():
                target = partial / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                target.write_bytes(data)
            _finish(partial, root)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return root


def _begin(directory: Path, name: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    remove_stale(directory.glob(".*.partial-*"))
    return Path(tempfile.mkdtemp(prefix=f".{name}.partial-", dir=directory))


def _finish(partial: Path, root: Path) -> None:
    partial.chmod(0o755)
    try:
        partial.rename(root)
    except OSError:
        # Somebody else made the same tree meanwhile; theirs is as good.
        if not root.is_dir():
            raise


def _refuse_unsafe(entry: TreeEntry, root: Path) -> None:
    parts = entry.path.split("/")
    if entry.mode == _SUBMODULE or any(part in {"", ".", "..", ".git"} for part in parts):
        raise _refused(entry, root, "it is a submodule, or its path is none that git would check out")


def _refused(entry: TreeEntry, root: Path, why: str) -> CacheError:
    return CacheError(
        f"{entry.path} of tree {root.name[:12]} is not exported",
        code="TREE_ENTRY_REFUSED",
        where=Location(path=entry.path),
        why=why,
        hint="patchkit status shows where the pin came from",
    )


def _write(root: Path, entry: TreeEntry, data: bytes) -> None:
    target = Path(os.fsdecode(os.path.join(os.fsencode(root), git_path(entry.path))))  # noqa: PTH118 - bytes
    target.parent.mkdir(parents=True, exist_ok=True)
    if entry.mode == _LINK:
        pointed = os.path.normpath(os.path.join(os.path.dirname(entry.path), os.fsdecode(data)))  # noqa: PTH118, PTH120 - lexical, on purpose
        if os.fsdecode(data).startswith("/") or pointed.split("/")[0] == "..":
            raise _refused(entry, root, f"it is a link out of the tree, to {os.fsdecode(data)}")
        target.symlink_to(os.fsdecode(data))
        return
    target.write_bytes(data)
    target.chmod(0o555 if entry.mode == _EXECUTABLE else 0o444)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without hard links
        return shutil.copy2(source, target)
    return target

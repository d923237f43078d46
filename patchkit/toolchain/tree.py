"""Copies of source trees: variants with a few changed files, and a build folder's copy that is updated."""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from patchkit.base.digests import sha256
from patchkit.base.files import disk_errors, whole_folder


def files_digest(files: Mapping[str, bytes], gone: Iterable[str] = ()) -> str:
    """sha256, as 64 hex digits, over the paths and bytes of files, and over the paths of removed ones."""
    digest = hashlib.sha256()
    for path, data in sorted(files.items()):
        digest.update(f"{path} {sha256(data)}\n".encode())
    for path in sorted(gone):
        digest.update(f"{path} gone\n".encode())
    return digest.hexdigest()


def overlay_tree(
    base: Path, changes: Mapping[str, bytes], what: str, *, below: str, gone: Collection[str] = ()
) -> Path:
    """Create a variant of the tree ``base`` next to it: ``<base>+<what>-<digest of changes>``.

    It contains the folder ``below`` (``.`` for all) without the files in ``gone``. Unchanged files are hard
    links. An existing variant is reused.

    Raises:
        CacheError: a disk operation failed.
    """
    root = base.with_name(f"{base.name}+{what}-{files_digest(changes, gone)[:12]}")
    if root.is_dir():
        return root
    with disk_errors(base.parent, "creating a variant of a tree"), whole_folder(root) as partial:
        shutil.copytree(base / below, partial / below, symlinks=True, copy_function=_link, dirs_exist_ok=True)
        for path in gone:
            (partial / path).unlink(missing_ok=True)
            _remove_empty((partial / path).parent, partial)
        for path, data in changes.items():
            target = partial / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.write_bytes(data)
    return root


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder and its parents if they are empty, since git has no empty folders."""
    while folder != root and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without hard links
        return shutil.copy2(source, target)
    return target


def follow_tree(tree: Path, copy: Path, build: Path) -> None:
    """Update the folder ``copy`` to the content of ``tree``; only changed files get a new mtime.

    So Ninja rebuilds only what depends on them. If a file is added or removed whose name another file has,
    an ``#include`` may now find another file, so ``build`` is deleted. If any file is added or removed,
    CMakeLists.txt is touched to make CMake run again.

    Raises:
        OSError: a disk operation failed.
    """
    wanted = {path.relative_to(tree) for path in tree.rglob("*") if path.is_symlink() or path.is_file()}
    here = {path.relative_to(copy) for path in copy.rglob("*") if path.is_symlink() or path.is_file()}
    gone, new = here - wanted, wanted - here
    for path in gone:
        (copy / path).unlink()
    for path in wanted:
        source, target = tree / path, copy / path
        if path in new:
            target.parent.mkdir(parents=True, exist_ok=True)
        elif _is_same(source, target):
            continue
        else:
            target.unlink()
        if source.is_symlink():
            target.symlink_to(source.readlink())
        else:
            shutil.copyfile(source, target)  # sets the mtime to now
            target.chmod(source.stat().st_mode & 0o777)
    if not here or not (gone or new):
        return
    names = [path.name for path in wanted | here]
    if any(names.count(path.name) > 1 for path in gone | new):
        shutil.rmtree(build, ignore_errors=True)
    (copy / "CMakeLists.txt").touch()


def _is_same(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    return filecmp.cmp(one, other, shallow=False)

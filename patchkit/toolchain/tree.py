"""A tree of files that differs from another one in a few: made once and never changed."""

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
    """sha256 over paths and bytes, and over the paths of what is gone, as 64 hex digits."""
    digest = hashlib.sha256()
    for path, data in sorted(files.items()):
        digest.update(f"{path} {sha256(data)}\n".encode())
    for path in sorted(gone):
        digest.update(f"{path} gone\n".encode())
    return digest.hexdigest()


def overlay_tree(
    base: Path, changes: Mapping[str, bytes], what: str, *, below: str, gone: Collection[str] = ()
) -> Path:
    """A tree beside ``base`` that differs from it in some files: ``<base>+<what>-<digest of changes>``.

    Only the folder ``below`` is carried over (``.``: all), without what is ``gone``; unchanged files are hard
    links. A folder that is there is taken as it is.

    Raises:
        CacheError: the disk refused.
    """
    root = base.with_name(f"{base.name}+{what}-{files_digest(changes, gone)[:12]}")
    if root.is_dir():
        return root
    with disk_errors(base.parent, "making a variant of a tree"), whole_folder(root) as partial:
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
    """Take away a folder that nothing is left in, and those above it: git has none either."""
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
    """Make the folder ``copy`` the same as a tree; what reads otherwise than before is newer than any build.

    Files that stay have the age that they had, so Ninja compiles nothing for them. When a header comes or
    goes whose name another one has, an ``#include`` may mean another file than before: then ``build`` goes.
    When any file comes or goes, CMake is made to look again.

    Raises:
        OSError: the disk refused.
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
            shutil.copyfile(source, target)  # as old as this moment
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

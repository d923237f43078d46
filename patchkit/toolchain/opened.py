"""Caches results by the files that a compiler pass opened, not by all files that it could have opened.

Most includes of a unit are inside an ``#if``: a header with the tuning table of one GPU is read only by that
GPU's passes. Which files a pass opens depends only on its flags and on the *preprocessor directives* of all
files that it can reach (:meth:`patchkit.toolchain.units.SourceTree.directives`). So the list of opened files
is cached by flags and directives, and the result by flags and the content of the files on that list. If only
a number changes in such a header, the passes of other GPUs have the same list with unchanged files, and
nothing is repeated (issue 43: before, a change of one row at build 11549 caused 147 preprocessor runs and
six front-end runs).
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from patchkit.base.digests import key_of
from patchkit.base.store import Store
from patchkit.toolchain.units import SourceTree

_LIST, _RESULT = "opened.json", "result"
_DEPENDENCIES = "opened.d"  # written by clang, in make's format
_WORD = re.compile(r"(?:\\.|[^\s\\])+")  # spaces in names are escaped by a backslash

Make = Callable[[Path, Path], None]
"""Fills the folder of an entry, and has clang write the opened files into the second path."""


def obtain_by_opened(
    store: Store, inputs: Mapping[str, object], tree: SourceTree, unit: str, make: Make
) -> tuple[Path, bool]:
    """The result folder of a pass of a unit, and whether it was cached.

    ``inputs`` is what the result depends on besides the files. If clang did not list the files that it
    opened, or listed one that the unit cannot include, the result depends on all files in reach.

    Raises what ``make`` raises, and CacheError.
    """
    made: list[Path] = []

    def result_key(opened: Iterable[str] | None) -> str:
        return key_of({**inputs, "sources": tree.digest(unit, opened)})

    def fill_list(folder: Path) -> None:
        (folder / _RESULT).mkdir()
        make(folder / _RESULT, folder / _DEPENDENCIES)
        opened = opened_files(folder / _DEPENDENCIES, tree, unit)
        (folder / _DEPENDENCIES).unlink(missing_ok=True)
        key = result_key(opened)
        made.append(store.obtain(key, lambda entry: _move(folder / _RESULT, entry)))
        shutil.rmtree(folder / _RESULT)
        (folder / _LIST).write_text(json.dumps(opened), "utf-8")

    def fill(folder: Path) -> None:
        make(folder, folder / _DEPENDENCIES)
        (folder / _DEPENDENCIES).unlink(missing_ok=True)
        made.append(folder)

    listed = store.obtain(key_of({**inputs, "directives": tree.directives(unit)}), fill_list)
    if made:
        return made[0], False
    found = store.obtain(result_key(_read_list(listed)), fill)
    return found, not made


def opened_files(dependencies: Path, tree: SourceTree, unit: str) -> list[str] | None:
    """The files of the tree in clang's dependency file, with the unit, sorted; None if they are unclear.

    With a precompiled header the names are absolute, with the tree's path as given or with links resolved.
    """
    try:
        words = _WORD.findall(dependencies.read_text("utf-8").partition(": ")[2])
    except (OSError, ValueError):
        return None
    names = {re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words}
    roots = [f"{root}/" for root in {tree.root, tree.root.resolve()}]
    opened = {unit}
    for name in names:
        root = next((root for root in roots if name.startswith(root)), "")
        opened.add(_normalize(tree, name.removeprefix(root)))
    return sorted(opened) if opened <= set(tree.closure(unit)) else None


def _normalize(tree: SourceTree, name: str) -> str:
    """The path without ``.`` and ``..``, unless that is another file (``..`` after a link to a folder)."""
    normal = posixpath.normpath(name)
    if ".." in name.split("/") and (tree.root / normal).resolve() != (tree.root / name).resolve():
        return name
    return normal


def _read_list(folder: Path) -> list[str] | None:
    found: list[str] | None = json.loads((folder / _LIST).read_text("utf-8"))
    return found


def _move(source: Path, target: Path) -> None:
    for path in source.iterdir():
        path.rename(target / path.name)

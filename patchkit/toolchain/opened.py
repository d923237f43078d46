"""Results found again by the files that a pass opened, and not by all that it could have opened.

Most of what a unit can include stands behind an ``#if``: a header with the rows of one GPU is read by the
passes of no other. Which files a pass opens depends on its flags and on the *directives* of all files in
reach (:meth:`patchkit.toolchain.units.SourceTree.directives`): nothing else decides what an ``#if`` says and
what an ``#include`` names. So a list of the opened files is kept under flags and directives, and the result
under flags and every byte of the files on the list. After a number was changed in that header, the other
passes have the same list, no file on it differs, and nothing is done again (issue 43: 147 readings and six
front ends after a change of one row at build 11549).
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
_TOLD = "opened.d"  # what clang writes, as make reads it
_WORD = re.compile(r"(?:\\.|[^\s\\])+")  # a space within a name has a backslash in front

Make = Callable[[Path, Path], None]
"""Fills the folder of an entry, and has clang write into the second file what it opened."""


def obtain_by_opened(
    store: Store, told: Mapping[str, object], tree: SourceTree, unit: str, make: Make
) -> tuple[Path, bool]:
    """The folder of what a pass of a unit gives, and whether it was there without running the pass.

    ``told`` is what it depends on besides the files. Where clang did not say what it opened, or named a file
    that is not in reach of the unit, it counts as all of them.

    Raises what ``make`` raises, and CacheError when the disk refuses.
    """
    made: list[Path] = []

    def result(opened: Iterable[str] | None) -> str:
        return key_of({**told, "sources": tree.digest(unit, opened)})

    def fill_list(folder: Path) -> None:
        (folder / _RESULT).mkdir()
        make(folder / _RESULT, folder / _TOLD)
        opened = opened_files(folder / _TOLD, tree, unit)
        (folder / _TOLD).unlink(missing_ok=True)
        made.append(store.obtain(result(opened), lambda place: _move(folder / _RESULT, place), of=tree.root))
        shutil.rmtree(folder / _RESULT)
        (folder / _LIST).write_text(json.dumps(opened), "utf-8")

    def fill(folder: Path) -> None:
        make(folder, folder / _TOLD)
        (folder / _TOLD).unlink(missing_ok=True)
        made.append(folder)

    listed = store.obtain(key_of({**told, "directives": tree.directives(unit)}), fill_list, of=tree.root)
    if made:
        return made[0], False
    found = store.obtain(result(_listed(listed)), fill, of=tree.root)
    return found, not made


def opened_files(told: Path, tree: SourceTree, unit: str) -> list[str] | None:
    """The files of the tree that clang says it opened, the unit among them, sorted; None where it is unclear.

    Behind a precompiled header the names are whole paths, by the tree's own name or by where it lies.
    """
    try:
        words = _WORD.findall(told.read_text("utf-8").partition(": ")[2])
    except (OSError, ValueError):
        return None
    names = {re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words}
    roots = [f"{root}/" for root in {tree.root, tree.root.resolve()}]
    opened = {unit}
    for name in names:
        root = next((root for root in roots if name.startswith(root)), "")
        opened.add(_straight(tree, name.removeprefix(root)))
    return sorted(opened) if opened <= set(tree.closure(unit)) else None


def _straight(tree: SourceTree, name: str) -> str:
    """A name without ``.`` and ``..``, where that is the same file: behind a link to a folder it is not."""
    straight = posixpath.normpath(name)
    if ".." in name.split("/") and (tree.root / straight).resolve() != (tree.root / name).resolve():
        return name
    return straight


def _listed(folder: Path) -> list[str] | None:
    found: list[str] | None = json.loads((folder / _LIST).read_text("utf-8"))
    return found


def _move(made: Path, place: Path) -> None:
    for path in made.iterdir():
        path.rename(place / path.name)

"""Read files of a new upstream that a series does not name, because upstream moved code there.

A renamed file is found by its lines, as git does. For a function that its file no longer has, the files with
the first line of its definition are read. Whether edits have a place in these files is decided later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from patchkit.carry.judging.follow import function_of
from patchkit.carry.judging.preconditions import defines
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.placing.resolve import EntityAmbiguous, EntityNotFound
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import Edit, Patch
from patchkit.carry.series.selection import Selected

_SAME_FILE = 0.5  # share of lines; git's own limit for renames
_LEAST = 8  # lines; shorter files resemble each other by accident
_MOST = 5  # files with the first line of a definition


def find_moved_files(
    chosen: Sequence[Selected], last: Mapping[str, Rendering], files: UpstreamFiles
) -> tuple[UpstreamFiles, dict[str, str]]:
    """The new upstream with the files to which code of these patches moved; and renamed files, new by old.

    ``last``: the patches on the old upstream, by id. Files that an earlier bump followed count from there.
    """
    earlier = _followed_before(chosen, last, files)
    edits = [
        (last[each.patch.id].upstream, edit)
        for each in chosen
        if each.targets and each.patch.id in last
        for edit in in_renamed_files(each.patch, earlier).edits
    ]
    gone = {edit.file: old for old, edit in edits if edit.file in old.base and edit.file not in files.names}
    renamed = dict(_renamed(gone, files))
    lost = [(old, edit) for old, edit in edits if edit.function is not None and edit.file not in renamed]
    known = [path for path in earlier.values() if path in files.names]
    wanted = {*renamed.values(), *known, *_with_functions(lost, files)} - set(files.base)
    renamed |= {path: renamed.get(now, now) for path, now in earlier.items()}
    return (files.reading(sorted(wanted)) if wanted else files), renamed


def _followed_before(
    chosen: Sequence[Selected], last: Mapping[str, Rendering], files: UpstreamFiles
) -> dict[str, str]:
    """Files of patch.toml that the new upstream does not have, with their paths on the old one.

    A file whose functions went to several files is left out: each of them is followed on its own.
    """
    found: dict[str, set[str]] = {}
    for each in chosen:
        if each.targets and each.patch.id in last:
            was = {(edit.id, edit.first_build): edit.file for edit in last[each.patch.id].patch.edits}
            for edit in each.patch.edits:
                if edit.file not in files.names:
                    found.setdefault(edit.file, set()).add(was.get((edit.id, edit.first_build), edit.file))
    only = {path: next(iter(paths)) for path, paths in found.items() if len(paths) == 1}
    return {path: before for path, before in only.items() if before != path}


def in_renamed_files(patch: Patch, renamed: Mapping[str, str]) -> Patch:
    """The patch with its edits in the renamed files."""
    edits = (replace(edit, file=renamed.get(edit.file, edit.file)) for edit in patch.edits)
    return replace(patch, edits=tuple(edits))


def _renamed(gone: Mapping[str, UpstreamFiles], files: UpstreamFiles) -> Iterator[tuple[str, str]]:
    """Each file that is gone with its new path, if exactly one new file has enough of its lines."""
    known = frozenset[str]().union(*(old.names for old in gone.values()))
    suffixes = {_suffix(path) for path in gone}
    new = files.contents(sorted(path for path in files.names - known if _suffix(path) in suffixes))
    rows = {path: _rows(data) for path, data in new.items()}
    found: dict[str, list[str]] = {}
    for path, old in gone.items():
        mine = _rows(old.base[path])
        alike = [each for each in rows if _suffix(each) == _suffix(path) and _is_same(mine, rows[each])]
        if len(alike) == 1:
            found.setdefault(alike[0], []).append(path)
    yield from ((paths[0], now) for now, paths in found.items() if len(paths) == 1)


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix


def _rows(data: bytes) -> Counter[bytes]:
    return Counter(row for line in data.split(b"\n") if (row := line.strip()))


def _is_same(one: Counter[bytes], other: Counter[bytes]) -> bool:
    if min(one.total(), other.total()) < _LEAST:
        return one == other
    return 2 * (one & other).total() >= _SAME_FILE * (one.total() + other.total())


def _with_functions(edits: Iterable[tuple[UpstreamFiles, Edit]], files: UpstreamFiles) -> set[str]:
    """The files that have the first line of a function which its own file lacks now, and had it nowhere."""
    found: set[str] = set()
    for old, edit in {(edit.file, edit.function): (old, edit) for old, edit in edits}.values():
        if edit.file not in old.base or defines(files, edit.file, edit.function):
            continue
        try:
            scopes, entity = function_of(old, edit)
        except (EntityNotFound, EntityAmbiguous):
            continue  # an earlier patch of the series adds it
        row = scopes.source.text(entity.span).decode("utf-8", "replace").split("\n")[0]
        now, before = ({path for path, _ in tree.search([row])[row]} for tree in (files, old))
        if len(now - before) <= _MOST:
            found |= now - before
    return found

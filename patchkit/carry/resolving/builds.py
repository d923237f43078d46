"""Other edits from some build on: what patch.toml has of a file stays for the builds before it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.series_folder import SeriesDir
from patchkit.base.toml import find_places, parse_toml
from patchkit.base.upstreams import build_name
from patchkit.carry.lifting.write import Body, NewEdit, body_files, read_beside, replace_text
from patchkit.carry.series.patch import Edit, NewFile, Patch, is_for

_LIMITS = ("first_build", "last_build")


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """From ``build`` on ``body`` replaces what is ``ended``, in a patch whose patch.toml has ``text``."""

    patch: Patch
    text: str
    build: int
    ended: tuple[Edit | NewFile, ...]
    body: Body

    def put(self, series: SeriesDir) -> Path:
        """Write its templates, then patch.toml in one step; the patch's folder.

        Raises PATCH_CHANGED; RESOLVE_BUILDS: the tables are not written so that a line can be added to them;
        CacheError. Then, and after Ctrl-C, the patch is as it was.
        """
        folder = series.patches / self.patch.folder
        beside = read_beside(folder, self.text)
        body, templates, _ = body_files(self.body, beside)
        ended = _ended(str(folder / "patch.toml"), self.text, self.patch, self)
        replace_text(folder, self.text, f"{ended.rstrip()}\n\n{body}", templates, beside)
        return folder


def succeed(patch: Patch, text: str, build: int, paths: Iterable[str], body: Body) -> Succession:
    """What ends all edits of the files ``paths`` before ``build``; ``patch`` has those of all builds.

    Raises RESOLVE_BUILDS: what there is at that build cannot be ended before it.
    """
    touched = set(paths)
    ended: list[Edit | NewFile] = [e for e in patch.edits if e.file in touched and is_for(e, build)]
    ended += [file for file in patch.files if file.path in touched and is_for(file, build)]
    begun = [each for each in ended if each.first_build is not None and each.first_build >= build]
    lasts = {each.last_build for each in ended}
    if begun or len(lasts) > 1:
        raise UsageError(
            f"the edits of '{patch.id}' at {build_name(build)} cannot be followed by others from there on",
            code="RESOLVE_BUILDS",
            where=[each.where for each in begun or ended],
            why="they begin at that very build" if begun else "they end at different builds",
            hint="change them by hand: docs/guide/patch.md",
        )
    last = next(iter(lasts), None)
    limits = {"first_build": build} | ({"last_build": last} if last is not None else {})
    free = Body(edits=tuple(_named(body.edits, patch, ended)), files=body.files, limits=limits)
    return Succession(patch=patch, text=text, build=build, ended=tuple(ended), body=free)


def _named(edits: Sequence[NewEdit], patch: Patch, ended: Sequence[Edit | NewFile]) -> Iterable[NewEdit]:
    """The new edits under names that are free: that of an edit that ends just before is."""
    over = {each.id for each in ended if isinstance(each, Edit)}
    later = {
        each.id for each in patch.edits if each not in ended and each.id in over and _is_later(each, ended)
    }
    taken = {each.id for each in patch.edits} - (over - later)
    taken |= {alias.name for alias in patch.aliases} | {file.path for file in patch.files}
    for edit in edits:
        name, number = edit.id, 1
        while name in taken:
            number += 1
            name = f"{edit.id}-{number}"
        taken.add(name)
        yield replace(edit, id=name)


def _is_later(edit: Edit, ended: Sequence[Edit | NewFile]) -> bool:
    last = max((each.last_build or 0 for each in ended), default=0)
    return edit.first_build is not None and edit.first_build != last + 1 and edit.first_build > last


def _ended(path: str, text: str, patch: Patch, change: Succession) -> str:
    """The text with the last build of everything that ends."""
    data = text.encode()
    table = copy.deepcopy(dict(parse_toml(path, data).table))
    last = change.build - 1
    rows: list[tuple[int, int, bytes]] = []
    places = find_places(data)
    for key, named, parts in (("edit", "file", patch.edits), ("file", "path", patch.files)):
        for number, part in enumerate(parts):
            if not any(part is each for each in change.ended):
                continue
            head, anchor = places[key, number], places[key, number, named]
            known = places.get((key, number, "last_build"))
            if not data.startswith(b"[[", head):
                raise _unwritable(path, data, head)
            if known is not None:
                end = _line_end(data, known)
                rows.append((known, end, f"last_build = {last}".encode()))
            else:
                end = _line_end(data, anchor)
                rows.append((end, end, f"\nlast_build = {last}".encode()))
            table[key][number]["last_build"] = last
    for start, end, row in sorted(rows, reverse=True):
        data = data[:start] + row + data[end:]
    if parse_toml(path, data).table != table:
        raise _unwritable(path, data, 0)
    return data.decode()


def _line_end(data: bytes, at: int) -> int:
    found = re.compile(rb"\r?\n|\Z").search(data, at)
    return found.start() if found is not None else len(data)


def _unwritable(path: str, data: bytes, at: int) -> ConfigError:
    return ConfigError(
        "a last_build cannot be added to what this patch.toml has",
        code="RESOLVE_BUILDS",
        where=Location(path=path, line=data.count(b"\n", 0, at) + 1),
        why="a line is added to tables that begin with [[edit]] or [[file]] on a line of their own",
        hint="write them so",
    )


def said_at(table: Mapping[str, Any], build: int) -> dict[str, Any]:
    """What the table of a patch.toml says of ``build``: without what is for others, and without limits."""
    said = dict(table)
    for key in ("edit", "file"):
        said[key] = [
            {name: value for name, value in each.items() if name not in _LIMITS}
            for each in table.get(key, ())
            if each.get("first_build", build) <= build <= each.get("last_build", build)
        ]
    return said

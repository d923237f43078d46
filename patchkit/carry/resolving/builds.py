"""Give a patch new edits from some build on; the old edits of these files are kept for earlier builds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from patchkit.base.errors import UsageError
from patchkit.base.series_folder import SeriesDir
from patchkit.base.text import free_name
from patchkit.base.upstreams import build_name
from patchkit.carry.lifting.tables import Part, join_text, split_text
from patchkit.carry.lifting.write import Body, NewEdit, body_files, read_existing, replace_text
from patchkit.carry.series.patch import Edit, NewFile, Patch, is_for, path_of

_LIMITS = ("first_build", "last_build")


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """New edits: from ``build`` on, ``body`` replaces ``ended``. ``text``: the present patch.toml."""

    patch: Patch
    text: str
    build: int
    ended: tuple[Edit | NewFile, ...]
    body: Body

    def put(self, series: SeriesDir) -> Path:
        """Write the templates, then patch.toml in one step; return the patch's folder.

        Raises PATCH_CHANGED, CacheError, and PATCH_BAD if no line can be added to the tables as they are
        written. After that and after Ctrl-C the patch is unchanged.
        """
        folder = series.patches / self.patch.folder
        existing = read_existing(folder, self.text)
        body, templates, _ = body_files(self.body, existing)
        path = str(folder / "patch.toml")
        ended = end_parts(path, self.text, self.patch, self.ended, self.build - 1)
        replace_text(folder, self.text, f"{ended.rstrip()}\n\n{body}", templates, existing)
        return folder


def succeed(
    patch: Patch, text: str, build: int, paths: Iterable[str], body: Body, kept: Collection[str] = ()
) -> Succession:
    """End the edits of the files ``paths`` before ``build``, except the ``kept`` ids; ``body`` replaces them.

    ``patch`` must have the edits of all builds. Raises UsageError if the edits at that build cannot end
    before it.
    """
    touched = set(paths)
    ended = [
        each
        for each in patch.parts
        if path_of(each) in touched
        and is_for(each, build)
        and not (isinstance(each, Edit) and each.id in kept)
    ]
    starting = [each for each in ended if each.first_build is not None and each.first_build >= build]
    lasts = {each.last_build for each in ended}
    if starting or len(lasts) > 1:
        raise UsageError(
            f"the edits of '{patch.id}' at {build_name(build)} cannot be replaced from that build on",
            where=[each.where for each in starting or ended],
            why="their first_build is that build" if starting else "they end at different builds",
            hint="change them by hand (docs/guide/patch.md)",
        )
    last = next(iter(lasts), None)
    limits = {"first_build": build} | ({"last_build": last} if last is not None else {})
    free = Body(edits=tuple(_named(body.edits, patch, ended)), files=body.files, limits=limits)
    return Succession(patch=patch, text=text, build=build, ended=tuple(ended), body=free)


def _named(edits: Sequence[NewEdit], patch: Patch, ended: Sequence[Edit | NewFile]) -> Iterable[NewEdit]:
    """The new edits with unused ids; the id of an edit that ends just before may be used again."""
    over = {each.id for each in ended if isinstance(each, Edit)}
    later = {
        each.id for each in patch.edits if each not in ended and each.id in over and _is_later(each, ended)
    }
    used = {each.id for each in patch.edits} - (over - later)
    used |= {alias.name for alias in patch.aliases} | {file.path for file in patch.files}
    for edit in edits:
        name = free_name(edit.id, used)
        used.add(name)
        yield replace(edit, id=name)


def _is_later(edit: Edit, ended: Sequence[Edit | NewFile]) -> bool:
    last = max((each.last_build or 0 for each in ended), default=0)
    return edit.first_build is not None and edit.first_build != last + 1 and edit.first_build > last


def end_parts(path: str, text: str, patch: Patch, ended: Collection[Edit | NewFile], last: int) -> str:
    """The text of patch.toml, in which some edits and files of the patch have this ``last_build``.

    ``patch`` is the one that was read from the text. Raises PATCH_BAD if a table cannot be changed.
    """
    whole = split_text(path, text)
    parts = [end_part(part, last) if is_one_of(part, patch, ended) else part for part in whole.parts]
    return join_text(whole, whole.head, parts)


def is_one_of(part: Part, patch: Patch, parts: Collection[Edit | NewFile]) -> bool:
    """Whether a table of the patch's text is that of one of some edits and files of it."""
    every = patch.edits if part.key == "edit" else patch.files if part.key == "file" else ()
    return bool(every) and any(every[part.number] is each for each in parts)


def end_part(part: Part, last: int) -> Part:
    """The table of an edit or a file with this ``last_build``. Raises PATCH_BAD."""
    return part.with_value("last_build", last, after="file" if part.key == "edit" else "path")


def table_at(table: Mapping[str, Any], build: int) -> dict[str, Any]:
    """The table of a patch.toml for one build: without edits of other builds, and without build limits."""
    found = dict(table)
    for key in ("edit", "file"):
        found[key] = [
            {name: value for name, value in each.items() if name not in _LIMITS}
            for each in table.get(key, ())
            if each.get("first_build", build) <= build <= each.get("last_build", build)
        ]
    return found

"""New content for an existing patch: edits that did not change keep their text in patch.toml.

The edits that :mod:`patchkit.carry.lifting.kept` leaves to lift become new ones. Those take the ids, the
positions and the comments of the edits that they replace.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import tomlkit

from patchkit.base.files import disk_errors
from patchkit.base.series_folder import EVIDENCE, SeriesDir
from patchkit.base.text import free_name
from patchkit.carry.lifting.change import FileChange
from patchkit.carry.lifting.draft import Draft
from patchkit.carry.lifting.kept import Remainder
from patchkit.carry.lifting.lift import Lifted
from patchkit.carry.lifting.tables import Part, PatchText, join_text, split_text
from patchkit.carry.lifting.whole import expected_files
from patchkit.carry.lifting.write import Body, NewEdit, body_files, read_existing, read_text, replace_text
from patchkit.carry.placing.place import PlacedPatch
from patchkit.carry.resolving.builds import end_part, is_one_of
from patchkit.carry.series.body import BODY_TABLES, NOTE
from patchkit.carry.series.patch import Edit, Patch, is_for, path_of

Limits = tuple[tuple[str, int], ...]
"""``first_build`` and ``last_build`` of an edit, as far as it has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """New content of a patch's folder: ``text`` for patch.toml, which was ``before``, and other ``files``.

    ``gone``: files that it no longer names. The ids of its edits and the paths of its files at the build of
    the change are in ``kept``, ``changed``, ``added`` and ``removed``. ``ended``: the ids of changed edits
    that keep their old version for earlier builds.
    """

    folder: str
    before: str
    text: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    kept: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()

    def put(self, series: SeriesDir) -> Path:
        """As in :class:`patchkit.carry.lifting.write.Writing`; also raises PATCH_CHANGED."""
        folder = series.patches / self.folder
        existing = read_existing(folder, self.before)
        replace_text(folder, self.before, self.text, self.files, existing)
        with disk_errors(folder, "writing the patch"):
            for name in self.gone:
                (folder / name).unlink(missing_ok=True)
        return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class OldPatch:
    """A patch with its files. ``now``: with the edits of the build of the change; ``text``: its patch.toml.

    ``placed``: the result of placing it before the change; None if it cannot be placed. ``moved``: the edits
    that the lock has at another place than patch.toml, with that place, by id; ``build``: that of the change.
    """

    patch: Patch
    now: Patch
    text: PatchText
    raw: str
    existing: Mapping[str, bytes]
    placed: PlacedPatch | None
    build: int
    moved: Mapping[str, Edit] = field(default_factory=dict)

    def can_end(self, edit: Edit) -> bool:
        """Whether an edit is for builds before that of the change."""
        return max(edit.first_build or 0, self.patch.builds.first or 0) < self.build

    @property
    def current(self) -> tuple[Part, ...]:
        """The tables of edits and files for the build of the change."""
        parts = {"edit": self.patch.edits, "file": self.patch.files}
        now: set[int] = {id(each) for each in self.now.parts}
        return tuple(
            part
            for part in self.text.of(*BODY_TABLES)
            if part.key not in parts or id(parts[part.key][part.number]) in now
        )


def revise(
    old: OldPatch, files: Sequence[FileChange], lifted: Lifted, left: Remainder, *, old_places: bool = False
) -> Revision:
    """The patch with new content: kept parts as they are, and new ones for the rest.

    A new edit that replaces one that moved is only for the build of the change and later ones, and the old
    one stays for the builds before. With ``old_places``, it has the place that patch.toml gives the old one
    instead, if it can, so that it is for all of its builds; this need not give the change.

    ``files``: the whole change. Raises PATCH_BAD if single tables of patch.toml cannot be changed.
    """
    named = tuple(name_edits(old, lifted, left))
    there = _at_old_places(old, named) if old_places else {}
    named = tuple(there.get(edit.id, edit) for edit in named)
    replaced = old.moved.keys() & ({edit.id for edit in named} - there.keys())
    ended = [edit for edit in old.now.edits if edit.id in replaced and old.can_end(edit)]
    body = replace(lifted.body, edits=named)
    parts, written, blobs = _render(old, body, ended)
    earlier = _ended_parts(old, ended)
    kept = {part.order for part in old.current if _is_kept(part, old, left, files, parts)}
    same = {key_of(part) for part in old.current if part.order in kept}
    new = {key_of(part): part for part in parts if key_of(part) not in same}
    current = {part.order for part in old.current}
    first = {name: part.order for part in reversed(old.current) if (name := key_of(part)) in new}
    result: list[Part] = []
    used: dict[tuple[str, str], None] = {}
    for part in old.text.parts:
        name = key_of(part)
        if part.order not in current or part.order in kept:
            result.append(part)
        elif first.get(name) == part.order:
            result += [earlier[part.order]] if part.order in earlier else []
            result.append(_with_comment_of(part, new[name]))
            used[name] = None
    rest = [part for name, part in new.items() if name not in used]
    at = max(
        (number for number, part in enumerate(result, 1) if part.key in BODY_TABLES), default=len(result)
    )
    result[at:at] = rest
    data: dict[str, str | bytes] = {**written, **blobs}
    head = _with_context(old, body, result, data)
    text = join_text(old.text, head, result)
    names = named_in(split_text(old.text.path, text).parts)
    return Revision(
        folder=old.patch.folder,
        before=old.raw,
        text=text,
        files={name: each for name, each in data.items() if name in names},
        gone=frozenset((named_in(old.text.parts) - names) & old.existing.keys()),
        kept=tuple(key_of(part)[1] for part in old.current if part.order in kept),
        changed=tuple(name for _, name in used),
        added=tuple(key_of(part)[1] for part in rest),
        ended=tuple(edit.id for edit in ended),
        removed=tuple(
            dict.fromkeys(
                key_of(part)[1]
                for part in old.current
                if part.order not in kept and first.get(key_of(part)) != part.order
            )
        ),
    )


def _at_old_places(old: OldPatch, edits: Iterable[NewEdit]) -> dict[str, NewEdit]:
    """The new edits that can have the place that patch.toml gives the moved ones which they replace.

    They have it, by id. Other edits of a function that was renamed, or that moved to another file, name it as
    patch.toml does.
    """
    by_id = {edit.id: edit for edit in old.now.edits}
    names = {
        (moved.file, moved.function): (by_id[name].file, by_id[name].function)
        for name, moved in old.moved.items()
    }
    found = {}
    for new in edits:
        was, moved = by_id.get(new.id), old.moved.get(new.id)
        file, function = names.get((new.file, new.function), (new.file, new.function))
        named = replace(new, file=file, function=function)
        if was is None or moved is None or was.at == moved.at:
            found[new.id] = named
        elif was.verb == new.verb:
            found[new.id] = replace(named, selector=was.at, parameters=was.parameters)
    return found


def _ended_parts(old: OldPatch, ended: Sequence[Edit]) -> dict[int, Part]:
    """The tables of edits that end before the build of the change, by their position."""
    return {
        part.order: end_part(part, old.build - 1).moved()
        for part in old.text.of("edit")
        if is_one_of(part, old.patch, ended)
    }


def _with_context(old: OldPatch, body: Body, parts: Sequence[Part], files: Mapping[str, str | bytes]) -> str:
    """The head of patch.toml with the context names that the templates use now."""
    read = {name: data.encode() if isinstance(data, str) else data for name, data in files.items()}
    names = used_context(old.patch.context, parts, {**old.existing, **read})
    names += [name for name in body.context if name not in names]
    return with_context(old.text.head, old.patch.context, names)


def used_context(names: Sequence[str], parts: Sequence[Part], files: Mapping[str, bytes]) -> list[str]:
    """Those of the context names that the texts and templates of some tables use."""
    texts = [str(part.table.get(key, "")) for part in parts for key in ("text", "device")]
    texts += [files.get(name, b"").decode("utf-8", "replace") for name in named_in(parts)]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    return [name for name in names if name in words]


def with_context(head: str, before: Sequence[str], names: Sequence[str]) -> str:
    """The head of a patch.toml with other context names than ``before``."""
    if [*names] == [*before]:
        return head
    document = tomlkit.parse(head)
    document.pop("context", None)
    if names:
        document["context"] = [*names]
    return f"{tomlkit.dumps(document).rstrip()}\n\n"


def match_tables(old: OldPatch, lifted: Lifted) -> dict[str, int]:
    """The edits of a guarded patch that a new version has too: the number of the lifted edit, by old id.

    Two edits are the same if their tables are, apart from the id, the builds and ``pairs``.
    """
    tables = []
    for edit in lifted.body.edits:
        text, files, _ = body_files(Body(edits=(edit,)), {})
        (part,) = split_text(old.text.path, text).parts
        tables.append(_content(part, {name: data.encode() for name, data in files.items()}))
    found: dict[str, int] = {}
    for part in old.current:
        if part.key == "edit":
            content = _content(part, old.existing)
            free = (at for at, each in enumerate(tables) if each == content and at not in found.values())
            at = next(free, None)
            if at is not None:
                found[str(part.table["id"])] = at
    return found


def _content(part: Part, files: Mapping[str, bytes]) -> dict[str, object]:
    """The keys of an edit that affect the rendered text, with the template's text instead of its name."""
    ignored = ("id", "first_build", "last_build", "pairs", "template")
    table: dict[str, object] = {key: value for key, value in part.table.items() if key not in ignored}
    name = part.table.get("template")
    return table | ({"text": files.get(name, b"").decode("utf-8", "replace")} if name is not None else {})


def key_of(part: Part) -> tuple[str, str]:
    """The kind of a table and the value that identifies it: the id of an edit, or the path of a file."""
    name = {"edit": "id", "rename": "from"}.get(part.key, "path")
    return part.key, str(part.table.get(name, ""))


def named_in(parts: Iterable[Part]) -> frozenset[str]:
    """The templates and blobs that some tables name."""
    found = (part.table.get(key) for part in parts for key in ("template", "blob"))
    return frozenset(str(each) for each in found if each is not None)


def _with_comment_of(old: Part, new: Part) -> Part:
    """The new table below the comment of the old one, except for notes that patchkit wrote."""
    lines = [line for line in old.comment.splitlines(keepends=True) if not line.startswith(NOTE)]
    return replace(new, text="".join(lines) + new.text)


def _is_kept(
    part: Part, old: OldPatch, left: Remainder, files: Sequence[FileChange], new: Sequence[Part]
) -> bool:
    key, name = key_of(part)
    if key == "edit":
        return name in left.kept
    twin = next((each for each in new if key_of(each) == (key, name)), None)
    if twin is None or old.placed is None:
        return False
    if key != "file":
        return twin.table == part.table
    ignored = ("template", "blob", "first_build", "last_build")
    one, other = ({k: v for k, v in each.table.items() if k not in ignored} for each in (part, twin))
    same = old.placed.changes.get(name) == expected_files(files).get(name)
    return same and one == other and ("blob" in part.table) == ("blob" in twin.table)


def name_edits(old: OldPatch, lifted: Lifted, left: Remainder) -> Iterator[NewEdit]:
    """The new edits, in order, with the ids of those that they replace, or unused ones."""
    patch = old.patch
    used = {edit.id for edit in patch.edits if edit.id in left.kept or edit not in old.now.edits}
    used |= {alias.name for alias in patch.aliases} | {file.path for file in patch.files}
    free = {edit.id: old.moved.get(edit.id, edit) for edit in old.now.edits if edit.id not in left.kept}
    matched: dict[int, str] = {}
    for is_close in (True, False):
        for number, (edit, text) in enumerate(zip(lifted.body.edits, lifted.texts, strict=True)):
            if number in matched:
                continue
            found = next(
                (
                    each
                    for each in free.values()
                    if _replaces(text.draft, edit, each, left, is_close=is_close)
                ),
                None,
            )
            if found is not None:
                matched[number] = found.id
                del free[found.id]
    used |= set(matched.values())
    for number, edit in enumerate(lifted.body.edits):
        if number in matched:
            yield replace(edit, id=matched[number])
            continue
        name = free_name(edit.id, used)
        used.add(name)
        yield replace(edit, id=name)


def _replaces(draft: Draft, new: NewEdit, old: Edit, left: Remainder, *, is_close: bool) -> bool:
    """Whether a new edit is for an old one: they overlap, or, if not ``is_close``, are in one function."""
    if new.file != old.file:
        return False
    if not is_close:
        return new.function is not None and new.function == old.function
    spans = left.spans.get(old.id, ())
    return any(span.start <= draft.span.end and draft.span.start <= span.end for span in spans)


def limits_at(patch: Patch, path: str) -> Limits:
    """The builds that all edits and files for a path are limited to; none if they differ.

    ``patch`` has the edits of one build only.
    """
    found = {
        tuple(
            (key, build) for key in ("first_build", "last_build") if (build := getattr(part, key)) is not None
        )
        for part in patch.parts
        if path_of(part) == path
    }
    return next(iter(found)) if len(found) == 1 else ()


def _render(
    old: OldPatch, body: Body, ended: Sequence[Edit]
) -> tuple[list[Part], dict[str, str], dict[str, bytes]]:
    """The tables of a body, and the templates and blobs that they name; each with the limits of its path.

    Edits of a function in which edits end begin at the build of the change.
    """
    by_limits: dict[Limits, Body] = {}
    empty = Body(edits=())
    begins = {(old.moved[edit.id].file, old.moved[edit.id].function) for edit in ended}
    for edit in body.edits:
        limits = limits_at(old.now, edit.file)
        if (edit.file, edit.function) in begins:
            limits = tuple(sorted(({**dict(limits), "first_build": old.build}).items()))
        known = by_limits.get(limits, replace(empty, limits=dict(limits)))
        by_limits[limits] = replace(known, edits=(*known.edits, edit))
    for path, text in body.files.items():
        limits = limits_at(old.now, path)
        known = by_limits.get(limits, replace(empty, limits=dict(limits)))
        by_limits[limits] = replace(
            known, files={**known.files, path: text}, whole=replace(known.whole, programs=body.whole.programs)
        )
    if body.whole.blobs or body.whole.removes or body.whole.renames or body.whole.modes:
        known = by_limits.get((), empty)
        by_limits[()] = replace(known, whole=body.whole)
    parts: list[Part] = []
    existing = dict(old.existing)
    templates: dict[str, str] = {}
    blobs: dict[str, bytes] = {}
    for each in by_limits.values():
        text, new, raw = body_files(each, existing)
        parts += (part.moved() for part in split_text(old.text.path, text).parts)
        templates |= new
        blobs |= raw
        existing |= {name: data.encode() for name, data in new.items()} | raw
    order = {edit.id: number for number, edit in enumerate(body.edits)}
    parts.sort(key=lambda part: order.get(str(part.table.get("id", "")), -1))
    return parts, templates, blobs


def rows_for_other_builds(patch: Patch, build: int, paths: Collection[str]) -> tuple[str, ...]:
    """The edits and files of these paths that are for other builds, with their builds, as text."""
    found = []
    for part in patch.parts:
        if path_of(part) in paths and not is_for(part, build):
            since = f"from b{part.first_build}" if part.first_build is not None else ""
            until = f"up to b{part.last_build}" if part.last_build is not None else ""
            name = part.id if isinstance(part, Edit) else part.path
            found.append(f"{name} ({' '.join(filter(None, (since, until)))})")
    return tuple(found)


def load_old(
    patch: Patch, placed: PlacedPatch | None, build: int, on_pin: Patch, series: SeriesDir
) -> OldPatch:
    """The patch with its files as they are now; ``on_pin``: at its places on the pin of the build.

    Raises PATCH_BAD, CacheError.
    """
    now = patch.for_build(build)
    places = {edit.id: edit for edit in on_pin.edits}
    folder = series.patches / patch.folder
    path = folder / "patch.toml"
    with disk_errors(path, "reading the patch"):
        raw = path.read_text("utf-8")
    return OldPatch(
        patch=patch,
        now=now,
        text=split_text(str(path), raw),
        raw=raw,
        existing=read_existing(folder, raw),
        placed=placed,
        build=build,
        moved={
            edit.id: each
            for edit in now.edits
            if (each := places.get(edit.id)) is not None
            and (each.file, each.function, each.at) != (edit.file, edit.function, edit.at)
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The patch.toml of a patch in parts, and the other files of its folder, without its evidence."""

    text: PatchText
    files: Mapping[str, bytes]

    @classmethod
    def load(cls, series: SeriesDir, patch: Patch) -> Texts:
        """Read the folder of a patch."""
        folder = series.patches / patch.folder
        raw = read_text(folder)
        files = read_existing(folder, raw)
        return cls(
            text=split_text(str(folder / "patch.toml"), raw),
            files={name: data for name, data in files.items() if name not in ("patch.toml", EVIDENCE)},
        )

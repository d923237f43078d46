"""Find the names that a patch uses and whose declarations differ between two upstreams.

The code of a patch may be placed without a conflict and still be wrong, because upstream changed the
parameters of a function that it calls. If the arguments convert to the new types, it even compiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple, Protocol

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.series_folder import SeriesDir
from patchkit.base.source import SourceText
from patchkit.base.text import counted
from patchkit.carry.cpp.scopes import is_code, parse_scopes
from patchkit.carry.judging.classes import DEFINED_TOO, NEW_CALLER, ChangedDeclaration, Classified
from patchkit.carry.judging.declarations import Declaration, Kind, Parameter, list_declarations
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.judging.uses import Use, list_uses
from patchkit.carry.placing.place import render_edits
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.selection import Selected

_SHORTEST_MEMBER = 4  # characters, to recognise a member whose struct is not known
_WORD = re.compile(rb"[A-Za-z_]\w*")
_ALIAS = re.compile(rb"\btypedef\s+struct\s+(\w+)\s*\*?\s*(\w+)\s*;")


def with_declarations(
    verdicts: Sequence[Classified],
    last: Mapping[str, Rendering],
    renderings: Sequence[Rendering],
    files: UpstreamFiles,
    chosen: Iterable[Selected],
    series: SeriesDir,
) -> list[Classified]:
    """Add the changed declarations of names that each patch uses, also to a patch in conflict.

    ``last``: the last rendering of each patch that has one; ``renderings``: those on the new upstream, whose
    files are ``files``; ``chosen``: the patches as they are there.
    """
    selected = {each.patch.id: each for each in chosen}
    new = files.fresh()
    for rendering in renderings:
        rendering.write(new)
    for name in last.keys() & {each.id for each in verdicts if each.patch_class == "conflict"}:
        added = {each.path for each in selected[name].patch.files}
        new.write({path: data for path, data in last[name].changes.items() if path in added})
    old: dict[int, UpstreamFiles] = {}  # patches may have been rendered on different trees
    for rendering in last.values():
        rendering.write(old.setdefault(id(rendering.upstream.base), rendering.upstream.fresh()))
    compared = {key: CompareDeclarations(tree, new) for key, tree in old.items()}
    placed = {each.patch.id: each for each in renderings}
    found: list[Classified] = []
    for verdict in verdicts:
        before, now = last.get(verdict.id), placed.get(verdict.id)
        if before is None or (now is None and verdict.patch_class != "conflict"):
            found.append(verdict)
            continue
        uses = _uses(before)
        comparison = compared[id(before.upstream.base)]
        if now is None:
            changes = comparison.changes(_kept(uses, before, selected[verdict.id], files, series), None)
        else:
            changes = (
                *comparison.changes(uses, _uses(now)),
                *comparison.redeclared(now),
                *_new_callers(now, before.upstream, new),
            )
        reason = verdict.reason
        if changes:
            names = dict.fromkeys(each.name for each in changes)
            reason += f"; declared differently upstream: {', '.join(names)}"
        found.append(replace(verdict, declarations=changes, reason=reason))
    return found


def _uses(rendering: Rendering) -> list[Use]:
    """The names that the code of a placed patch uses, without the code around it."""
    renamed = rendering.placed.renamed if rendering.placed is not None else {}
    found: list[Use] = []
    for path, data in rendering.changes.items():
        found += list_uses(path, rendering.before.get(renamed.get(path, path)), data)
    return found


def _kept(
    uses: list[Use], before: Rendering, selected: Selected, files: UpstreamFiles, series: SeriesDir
) -> list[Use]:
    """The uses without names that the edits for the new build, which cannot be placed yet, no longer have."""
    if before.patch.edits == selected.patch.edits:
        return uses
    try:
        texts = render_edits(selected, files, series.patches, series.templates)
    except PatchkitError:
        return uses
    words = _words("\n".join(texts.values()).encode())
    added = before.placed.new_files if before.placed is not None else ()
    return [use for use in uses if use.path in added or use.name.encode() in words]


def _new_callers(now: Rendering, old: UpstreamFiles, new: UpstreamFiles) -> Iterator[ChangedDeclaration]:
    """The functions whose parameters a patch changes and that a further file of upstream calls now."""
    changed: dict[str, Compared] = {}
    for path, data in now.changes.items():
        known, declared = (_declarations(path, each) for each in (now.before.get(path), data))
        for name in known.keys() & declared.keys():
            before, after = (_with_defaults(each[name]) for each in (known, declared))
            unmet = (
                each for each in before if not any(other.least <= each.least <= other.most for other in after)
            )
            was = next(unmet, None)
            if was is not None and after:
                changed.setdefault(name, Compared(NEW_CALLER, was, after[before.index(was) % len(after)]))
    there, here = (tree.search(tuple(sorted(changed))) for tree in (old, new))
    for name, compared in sorted(changed.items()):
        files = {path for path, _ in there[name]} | now.changes.keys()
        more = [place for place in here[name] if place[0] not in files and is_code(place[0])]
        if more and there[name]:
            found = _changed("function", name, compared, compared.before.where)
            yield replace(found, declared=Location(path=more[0][0], line=more[0][1]))


@lru_cache(maxsize=4096)
def _words(data: bytes) -> frozenset[bytes]:
    return frozenset(_WORD.findall(data))


@lru_cache(maxsize=1024)
def _different_words(old: bytes, new: bytes) -> frozenset[bytes]:
    """The words of the definitions that only one version of a file has, with the lines before each."""
    if old == new:
        return frozenset()
    return frozenset(_WORD.findall(b"\n".join(_definitions(old) ^ _definitions(new))))


def _definitions(data: bytes) -> set[bytes]:
    """A file in parts, each up to the last line of a definition."""
    for end in (b"\n}\n", b"\n};\n"):
        data = data.replace(end, end + b"\0")
    return {*data.split(b"\0")}


@lru_cache(maxsize=1024)
def _aliases(data: bytes) -> Mapping[bytes, bytes]:
    """The struct of each ``typedef struct s * name`` of a file, the first one of each name."""
    return {name: struct for struct, name in reversed(_ALIAS.findall(data))}


def _declarations(path: str, data: bytes | None) -> Mapping[str, tuple[Declaration, ...]]:
    """The declarations of a file by name; none in one that cannot be parsed."""
    if data is not None and b"\0" not in data:
        with suppress(PatchkitError, RecursionError):
            return list_declarations(path, data)
    return {}


def _declared(path: str, data: bytes | None, name: str) -> tuple[Declaration, ...]:
    """The declarations of a name in a file. A file without the name is not parsed."""
    if data is None or name.encode() not in _words(data):
        return ()
    return _declarations(path, data).get(name, ())


class Sources(Protocol):
    """A tree of upstream with the changes of a series, as :class:`UpstreamFiles`."""

    def visible(self, path: str) -> Mapping[str, bytes]:
        """The files whose declarations a file may use: itself and what it includes; empty if it is gone."""

    def unpatched(self, path: str) -> bytes | None:
        """A file as it is upstream."""

    @property
    def paths(self) -> Iterable[str]:
        """Every file that was read."""


class _Tree:
    """The declarations of one tree that a file may use."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._files: dict[str, Mapping[str, bytes]] = {}

    def files(self, path: str) -> Mapping[str, bytes]:
        if path not in self._files:
            self._files[path] = self.sources.visible(path)
        return self._files[path]

    def find(self, path: str, name: str) -> list[Declaration]:
        """The declarations of a name that a file may use."""
        return [each for file, data in self.files(path).items() for each in _declared(file, data, name)]

    def mentions(self, name: str) -> bool:
        """Whether any file that was read has the name, in upstream's version."""
        word = name.encode()
        return any(word in _words(self.sources.unpatched(path) or b"") for path in self.sources.paths)

    def is_upstream(self, declaration: Declaration) -> bool:
        """Whether the declaration is not one that the series adds or changes."""
        data = self.sources.unpatched(declaration.where.path)
        known = _declared(declaration.where.path, data, declaration.name)
        return any((each.owner, each.text) == (declaration.owner, declaration.text) for each in known)

    def aliased(self, path: str, name: str) -> str:
        """The struct to which ``typedef struct s * name`` refers; ``name`` if there is none."""
        word = name.encode()
        found = (_aliases(data).get(word) for data in self.files(path).values() if word in _words(data))
        return next((each.decode() for each in found if each is not None), name)

    def is_closed(self, path: str, owner: str) -> bool:
        """Whether a struct is defined in one of the files and inherits nothing."""
        for file, data in self.files(path).items():
            if owner.encode() in _words(data) and b"\0" not in data:
                with suppress(PatchkitError, RecursionError):
                    scopes = parse_scopes(SourceText(file, data))
                    for each in scopes.entities:
                        if each.kind == "record" and each.answers_to(owner):
                            return b":" not in [token.text for token in scopes.tokens_in(each.header)]
        return False


class Compared(NamedTuple):
    """The difference between two declarations of a name."""

    how: str
    before: Declaration
    after: Declaration | None


class CompareDeclarations:
    """Compares the declarations of two trees, each with the changes of the series."""

    def __init__(self, old: Sources, new: Sources) -> None:
        self._old, self._new = _Tree(old), _Tree(new)
        self._changed: dict[tuple[str, str], frozenset[bytes]] = {}

    def changes(self, last: Iterable[Use], now: Iterable[Use] | None) -> tuple[ChangedDeclaration, ...]:
        """One entry per changed name that the patch uses in the same way on both trees.

        ``last`` and ``now``: its uses on each; ``now`` is None if it cannot be placed on the new one.
        """
        placed = {(use.name, use.text): use for use in now} if now is not None else None
        found: dict[tuple[str, str], ChangedDeclaration] = {}
        for use in last:
            there = placed.get((use.name, use.text)) if placed is not None else use
            if there is None:
                continue  # the patch has another call on the new tree
            compared = self._compare(use, there.path)
            if compared is None:
                continue
            kind = compared.before.kind
            name = f"{compared.before.owner}::{use.name}" if compared.before.owner else use.name
            name = use.name if kind == "enum value" else name
            found.setdefault((name, compared.how), _changed(kind, name, compared, there.where))
        return tuple(found.values())

    def redeclared(self, now: Rendering) -> Iterator[ChangedDeclaration]:
        """The macros that a placed patch defines and that upstream defines now, too, in another way."""
        for path, data in now.changes.items():
            known = _declarations(path, now.before.get(path))
            for name, declared in sorted(_declarations(path, data).items()):
                before = [each.text for each in known.get(name, ())]
                mine = [each for each in declared if each.text not in before]
                if not mine or mine[0].kind != "macro" or self._old.mentions(name):
                    continue
                theirs = [
                    each
                    for file in self._new.files(path)
                    for each in _declared(file, self._new.sources.unpatched(file), name)
                ]
                if theirs and mine[0].text not in [each.text for each in theirs]:
                    yield _changed("macro", name, Compared(DEFINED_TOO, mine[0], theirs[0]), mine[0].where)

    def _compare(self, use: Use, path: str) -> Compared | None:
        """``path``: that of the file in the new tree."""
        if use.name.encode() not in self._changed_words(use.path, path):
            return None
        old, new = self._old.find(use.path, use.name), self._new.find(path, use.name)
        # A name before '::' that is not a struct is a namespace.
        owner: str | None = use.qualifier if any(each.owner == use.qualifier for each in old) else ""
        owners = {each.owner for each in old}
        if use.arguments is not None and len(owners) == 1 and not use.qualifier:
            owner = owners.pop()  # a method that another one of the class calls
        if use.is_member:
            old, new = (_members(each) for each in (old, new))
            owner = self._owner(use, old, new)
        old, same = (_owned(each, owner) for each in (old, new))
        if all(map(self._new.is_upstream, same)):  # the patch that declares it may not be placed
            old = [each for each in old if self._old.is_upstream(each)]
        if old and not same:
            if new and not (owner and self._new.is_closed(path, owner)):
                return None  # it may be inherited, or in a class of another name
            if not use.is_member and self._new.mentions(use.name):
                return None  # a library may declare it, or a file that this one no longer includes
            lost = "upstream no longer declares" if not old[0].owner else f"{old[0].owner} no longer has"
            return Compared(f"which {lost}", old[0], None)
        if use.arguments is not None and any(each.parameters is not None for each in old):
            return _compare_calls(use, use.arguments, old, same)
        return _compare_values(old, same)

    def _changed_words(self, path: str, now: str) -> frozenset[bytes]:
        """The words of definitions that differ in files that upstream changed.

        All other names are declared as before, and their files need not be parsed.
        """
        if (path, now) not in self._changed:
            old, new = self._old.files(path), self._new.files(now)
            words: set[bytes] = set()
            different: set[bytes] = set()
            for name in old.keys() | new.keys() if old and new else ():
                before, after = self._old.sources.unpatched(name), self._new.sources.unpatched(name)
                if before != after:
                    words |= _words(before or b"") | _words(after or b"")
                    different |= _different_words(before or b"", after or b"")
                different |= _different_words(old.get(name, b""), new.get(name, b""))
            self._changed[path, now] = frozenset(words & different)
        return self._changed[path, now]

    def _owner(self, use: Use, old: Sequence[Declaration], new: Sequence[Declaration]) -> str | None:
        """The struct whose member is used; None if that is not known."""
        first = use.types.get(use.base[0], "auto") if use.base else ""
        kind = self._old.aliased(use.path, first)
        for name in use.base[1:] if first != "auto" else use.base:  # it may be a member of its own class
            every = _members(self._old.find(use.path, name))
            found = {_last_name(each.value) for each in every if kind in ("auto", each.owner)}
            kind = self._old.aliased(use.path, found.pop()) if len(found) == 1 else ""
        if kind not in ("", "auto"):
            return kind
        # If only one struct has it, and none has it now. A short name may be of a type of HIP or of C++.
        owners = {each.owner for each in old}
        is_certain = len(use.name) >= _SHORTEST_MEMBER and use.arguments is None and not new
        return owners.pop() if len(owners) == 1 and is_certain else None


def _changed(kind: Kind, name: str, compared: Compared, used: Location) -> ChangedDeclaration:
    after = compared.after
    return ChangedDeclaration(
        kind=kind,
        name=name,
        how=compared.how,
        used=used,
        declared=after.where if after is not None else None,
        before=compared.before.text,
        after=after.text if after is not None else "",
        is_gone=after is None or (kind == "member" and after.kind == "function"),
    )


def _members(declarations: Sequence[Declaration]) -> list[Declaration]:
    return [each for each in declarations if each.owner and each.kind != "enum value"]


def _owned(declarations: Sequence[Declaration], owner: str | None) -> list[Declaration]:
    """Those of a struct, or those outside of all if it is empty; enum values are named without their enum."""
    return [
        each for each in declarations if each.owner == owner or (each.kind == "enum value" and owner == "")
    ]


def _last_name(text: str) -> str:
    words = [
        word for word in text.split("[", maxsplit=1)[0].split() if word.isidentifier() and word != "const"
    ]
    return words[-1] if words else ""


def _compare_values(old: Sequence[Declaration], new: Sequence[Declaration]) -> Compared | None:
    """Compare macros, constants, enum values and members by value."""
    if all(each.kind == "member" for each in old) and new and all(each.kind == "function" for each in new):
        return Compared("which is a function now", old[0], new[0]) if old else None
    old = [each for each in old if each.parameters is None]
    after = {each.value for each in new}
    changed = [each for each in old if each.value not in after]
    if not old or len(changed) < len(old) or not any(each.parameters is None for each in new):
        return None
    before, now = changed[0], new[0]
    if before.kind == "enum value" and not (before.value and now.value):
        return None  # its number follows from its position
    what = {"member": "type"}.get(before.kind, "definition")
    return Compared(f"whose {what} changed", before, now)


def _compare_calls(
    use: Use, arguments: tuple[int, int], old: Sequence[Declaration], new: Sequence[Declaration]
) -> Compared | None:
    """Compare the functions that a call may mean. If one of them is as before, nothing is reported."""
    low, high = arguments

    def fits(each: Declaration) -> bool:
        return each.least <= high and low <= each.most

    fitting = [each for each in _with_defaults(old) if fits(each)]
    now = _with_defaults(new)
    if not fitting or not now or any(_serves(use, each, now) for each in fitting):
        return None
    before = fitting[0]
    after = max(now, key=lambda each: SequenceMatcher(None, before.text, each.text, autojunk=False).ratio())
    if not any(map(fits, now)):
        many = counted(low, "argument") if low == high else f"{low} to {high} arguments"
        return Compared(f"which can no longer be called with {many}", before, after)
    return Compared(_difference(use, before, after), before, after)


def _serves(use: Use, old: Declaration, new: Sequence[Declaration]) -> bool:
    """Whether one of the new declarations is the old one, for this call."""
    same = [each for each in new if _is_same(old, each, with_templates=use.is_template)]
    results = {each.value for each in same if each.kind == old.kind == "function"}
    return bool(same) and (not use.is_result_used or not results or old.value in results)


def _difference(use: Use, before: Declaration, after: Declaration) -> str:
    if _is_same(before, after, with_templates=use.is_template):
        return f"which returned {before.value} and now returns {after.value}"
    old, new = before.parameters or (), after.parameters or ()
    if _types_of(new[: len(old)]) == _types_of(old) and len(new) > len(old):
        return f"which has {counted(len(new) - len(old), 'new parameter')} with a default value"
    if _types_of(old) == _types_of(new) and not _is_reordered(old, new):
        was, now = before.templates, after.templates
        more = now[len(was) :]
        if more and _types_of(now[: len(was)]) == _types_of(was) and all(each.has_default for each in more):
            return f"which has {counted(len(more), 'new template parameter')} with a default value"
        return "whose template parameters changed"
    return "whose parameters changed"


def _with_defaults(several: Sequence[Declaration]) -> list[Declaration]:
    """One of each signature: the one that accepts the fewest arguments, as a prototype has the defaults."""
    found: dict[tuple[object, ...], Declaration] = {}
    for each in several:
        if each.parameters is None:
            continue
        key = (_types_of(each.templates), _types_of(each.parameters))
        if key not in found or each.least < found[key].least:
            found[key] = each
    return list(found.values())


def _types_of(parameters: Sequence[Parameter] | None) -> tuple[str, ...]:
    return tuple(each.type for each in parameters or ())


def _is_same(old: Declaration, new: Declaration, *, with_templates: bool) -> bool:
    if "macro" in (old.kind, new.kind):  # its parameters have no types
        return old.least <= new.most and new.least <= old.most
    pairs = [(old.parameters, new.parameters)]
    if with_templates:
        pairs.append((old.templates, new.templates))
    return all(
        _types_of(left) == _types_of(right) and not _is_reordered(left, right) for left, right in pairs
    )


def _is_reordered(old: Sequence[Parameter] | None, new: Sequence[Parameter] | None) -> bool:
    """Whether a parameter's name is at another position, as in two swapped parameters of the same type."""
    names = [each.name for each in old or ()]
    others = [each.name for each in new or ()]
    return any(name and name != other and name in others for name, other in zip(names, others, strict=False))

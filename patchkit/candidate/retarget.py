"""Following a function that was renamed or that moved to another file, where that is certain."""

from __future__ import annotations

import bisect
import difflib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from patchkit.base.errors import Location
from patchkit.base.source import Span
from patchkit.cpp.scopes import Entity, ScopeMap
from patchkit.series.patch import Alias, Edit, Patch

_ENDS = frozenset({b";", b"{", b"}"})
_Placed = TypeVar("_Placed", Edit, Alias)


@dataclass(frozen=True, slots=True)
class Unit:
    """A statement, the head of a block, or a preprocessor line: its tokens as one text."""

    text: str
    span: Span


@dataclass(frozen=True)
class UnitList:
    """The units of a span of one file, in order."""

    units: tuple[Unit, ...]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Their texts."""
        return tuple(unit.text for unit in self.units)

    def at(self, offset: int) -> int | None:
        """Which unit the byte offset is in, or the next one behind it; None behind the last."""
        rank = bisect.bisect_right(self.units, offset, key=lambda unit: unit.span.end - 1)
        return rank if rank < len(self.units) else None


@dataclass(frozen=True, slots=True)
class Alignment:
    """``same`` maps ranks of the old list to the new one; ``changed`` pairs ranges that correspond."""

    same: dict[int, int]
    changed: tuple[tuple[range, range], ...]


def list_units(scopes: ScopeMap, span: Span) -> UnitList:
    """The units of ``span``."""
    pieces: list[tuple[Span, bytes, bool]] = [
        (scopes.code[i].span, scopes.code[i].text, False) for i in scopes.code_in(span)
    ]
    pieces += [
        (line.span, b"# " + line.condition, True) for line in scopes.directives if span.contains(line.span)
    ]
    pieces.sort(key=lambda piece: piece[0].start)
    units: list[Unit] = []
    run: list[tuple[Span, bytes]] = []
    for place, text, is_directive in pieces:
        if is_directive:
            _close(units, run)
            units.append(Unit(text.decode("utf-8", "replace"), place))
            continue
        run.append((place, text))
        if text in _ENDS:
            _close(units, run)
    _close(units, run)
    return UnitList(tuple(units))


def _close(units: list[Unit], run: list[tuple[Span, bytes]]) -> None:
    if run:
        text = b" ".join(text for _, text in run).decode("utf-8", "replace")
        units.append(Unit(text, Span(run[0][0].start, run[-1][0].end)))
        run.clear()


def align(old: Sequence[str], new: Sequence[str]) -> Alignment:
    """Longest common runs first, as :mod:`difflib` finds them."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    same: dict[int, int] = {}
    changed: list[tuple[range, range]] = []
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag == "equal":
            same.update(zip(range(first, last), range(new_first, new_last), strict=True))
        else:
            changed.append((range(first, last), range(new_first, new_last)))
    return Alignment(same, tuple(changed))


_ALIKE = 0.6  # share of units; below that, functions of one kernel family resemble one another
_NEAR = 0.9  # share of units from which a function without a rival is taken for the old one
_LEAST = 5  # units of a function that a resemblance can rest on


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a function is now; ``where`` is its definition, None where nobody looked."""

    file: str
    function: str
    where: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resemblance:
    """A function of the new upstream that has ``share`` of the units of one that is gone."""

    share: float
    target: Target
    where: Location


def find_target(
    old: tuple[ScopeMap, Entity],
    files: Mapping[str, bytes],
    scopes: Callable[[str], ScopeMap],
    known: Callable[[str], frozenset[str] | None],
) -> Target | None:
    """The one function that ``old`` is now, or None when there is none or more than one.

    Args:
        old: the function as the old upstream has it.
        files: sources of the new upstream.
        scopes: the structure of one of them.
        known: the names that the functions of a file had in the old upstream, None when it had no such
            file. What was there before is not where the function went.
    """
    source, entity = old
    last = entity.name.rpartition("::")[2]
    named = [
        (path, found)
        for path, data in files.items()
        if last.encode() in data and entity.name not in (known(path) or ())
        for found in _functions(scopes(path))
        if found.name == entity.name
    ]
    if named:
        # The name alone is no proof: what edits rest on is the code.
        target = _only(named, scopes)
        return (
            target
            if target is not None and _share(old, (scopes(target.file), named[0][1])) >= _NEAR
            else None
        )
    digest = nameless_digest(source, entity)
    same = source.source.path
    # Everywhere else would mean to read every file; a function goes to a file of its kind or to a new one.
    for paths in ([same] if same in files else [], [path for path in files if known(path) is None]):
        alike = [
            (path, found)
            for path in paths
            for found in _functions(scopes(path))
            if found.name not in (known(path) or ()) and nameless_digest(scopes(path), found) == digest
        ]
        if alike:
            return _only(alike, scopes)
    return None


def find_resemblances(
    old: tuple[ScopeMap, Entity],
    new: Iterable[ScopeMap],
    known: Callable[[str], frozenset[str] | None],
) -> tuple[Resemblance, ...]:
    """The functions of ``new`` most like the old one, best first, at most three; ``known`` as above."""
    source, entity = old
    mine = list_units(source, entity.span).texts
    if len(mine) < _LEAST:
        return ()
    found: list[Resemblance] = []
    for scopes in new:
        for other in _functions(scopes):
            if other.name in (known(scopes.source.path) or ()):
                continue
            matcher = difflib.SequenceMatcher(
                None, mine, list_units(scopes, other.span).texts, autojunk=False
            )
            if matcher.real_quick_ratio() < _ALIKE or matcher.quick_ratio() < _ALIKE:
                continue
            share = matcher.ratio()
            if share >= _ALIKE:
                label = f"'{other.name}' has {share:.0%} of the code of '{entity.name}'"
                place = scopes.source.locate(other.span.start, label)
                target = Target(file=place.path, function=other.name, where=place)
                found.append(Resemblance(share=share, target=target, where=place))
    found.sort(key=lambda each: -each.share)
    return tuple(found[:3])


def near_target(found: Sequence[Resemblance]) -> Target | None:
    """The only resemblance there is, when it has nearly all of the code."""
    return found[0].target if len(found) == 1 and found[0].share >= _NEAR else None


def retarget_patch(patch: Patch, targets: Mapping[tuple[str, str], Target]) -> Patch:
    """The patch with its functions where they are now; ``targets`` by old file and function.

    An edit of a file as a whole (an include) follows when all functions of that file went to one other file.
    """
    moved: dict[str, set[str]] = {}
    for edit in patch.edits:
        if edit.function is not None:
            target = targets.get((edit.file, edit.function))
            moved.setdefault(edit.file, set()).add(target.file if target is not None else edit.file)

    def follow(one: _Placed) -> _Placed:
        target = targets.get((one.file, one.function or ""))
        if target is not None:
            return replace(one, file=target.file, function=target.function)
        files = moved.get(one.file, set())
        return one if one.function or len(files) != 1 else replace(one, file=next(iter(files)))

    return replace(patch, edits=tuple(map(follow, patch.edits)), aliases=tuple(map(follow, patch.aliases)))


def _share(old: tuple[ScopeMap, Entity], new: tuple[ScopeMap, Entity]) -> float:
    """Which part of the units of both functions they have in common, in order."""
    mine, other = (list_units(scopes, entity.span).texts for scopes, entity in (old, new))
    return difflib.SequenceMatcher(None, mine, other, autojunk=False).ratio()


def _functions(scopes: ScopeMap) -> Sequence[Entity]:
    return [entity for entity in scopes.entities if entity.kind == "function"]


def _only(found: Sequence[tuple[str, Entity]], scopes: Callable[[str], ScopeMap]) -> Target | None:
    if len(found) != 1:
        return None
    path, entity = found[0]
    return Target(file=path, function=entity.name, where=scopes(path).source.locate(entity.span.start))


def nameless_digest(scopes: ScopeMap, entity: Entity) -> str:
    """Digest of a function's units in which its own name reads as one fixed word."""
    last = entity.name.rpartition("::")[2]
    state = hashlib.sha256()
    for text in list_units(scopes, entity.span).texts:
        words = ("@" if word == last else word for word in text.split(" "))
        state.update(" ".join(words).encode() + b"\0")
    return state.hexdigest()

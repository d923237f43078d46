"""Find a function that upstream renamed or moved to another file, if it can be identified reliably."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from patchkit.base.errors import Location
from patchkit.base.source import SourceText
from patchkit.carry.candidate.renames import retarget_patch
from patchkit.carry.cpp.scopes import Entity, ScopeMap, parse_scopes
from patchkit.carry.judging.classes import Move
from patchkit.carry.judging.drift import Function, list_statements, nameless_digest
from patchkit.carry.judging.preconditions import defines
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.placing.resolve import EntityAmbiguous, EntityNotFound, find_entity
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selection import Selected

_ALIKE = 0.6  # share of common statements for a resemblance; kernels of one family reach lower ones
_NEAR = 0.9  # share from which a function of the same name in another file is taken for the old one
_RENAMED = 0.8  # share from which the only resemblance is taken for it, if the merge as text agrees
_LEAST = 5  # minimum statements of a function for a comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPlace:
    """Where a function is now, or may be. It has ``share`` of the statements of the old one.

    ``where`` is its definition; None if it was not located.
    """

    file: str
    function: str
    where: Location | None = None
    share: float = 1.0


def find_place(old: Function, before: UpstreamFiles, files: UpstreamFiles) -> FunctionPlace | None:
    """The function of ``files`` that ``old`` became; None if there is none or more than one.

    A function whose name already existed in ``before``, the old upstream, is not considered.
    """
    source, entity = old
    last = entity.name.rpartition("::")[2].encode()
    named = [
        (files.upstream_scopes(path), found)
        for path, data in files.base.items()
        if last in data and entity.name not in _names(before, path)
        for found in _functions(files.upstream_scopes(path))
        if found.name == entity.name
    ]
    if named:
        # The name alone proves nothing, because edits depend on the code.
        return _only(named) if _share(old, named[0]) >= _NEAR else None
    digest = nameless_digest(source, entity)
    same = source.source.path
    # Only the same file and new files: searching all others would mean parsing every file.
    new = [path for path in files.base if path not in before.base]
    for paths in ([same] if same in files.base else [], new):
        alike = [
            (scopes, found)
            for path in paths
            for scopes in [files.upstream_scopes(path)]
            for found in _functions(scopes)
            if found.name not in _names(before, path) and nameless_digest(scopes, found) == digest
        ]
        if alike:
            return _only(alike)
    return None


def find_resemblances(
    old: Function, before: UpstreamFiles, new: Iterable[ScopeMap]
) -> tuple[FunctionPlace, ...]:
    """The functions of ``new`` most similar to the old one, best first, at most three.

    ``before``: as in :func:`find_place`.
    """
    source, entity = old
    mine = list_statements(source, entity.span).texts
    if len(mine) < _LEAST:
        return ()
    found: list[FunctionPlace] = []
    for scopes in new:
        for other in _functions(scopes):
            if other.name in _names(before, scopes.source.path):
                continue
            matcher = difflib.SequenceMatcher(
                None, mine, list_statements(scopes, other.span).texts, autojunk=False
            )
            if matcher.real_quick_ratio() < _ALIKE or matcher.quick_ratio() < _ALIKE:
                continue
            share = matcher.ratio()
            if share >= _ALIKE:
                label = f"'{other.name}' has {share:.0%} of the code of '{entity.name}'"
                place = scopes.source.locate(other.span.start, label)
                found.append(FunctionPlace(file=place.path, function=other.name, where=place, share=share))
    found.sort(key=lambda each: -each.share)
    return tuple(found[:3])


def near_place(found: Sequence[FunctionPlace]) -> FunctionPlace | None:
    """The resemblance, if there is exactly one and it has nearly all of the code."""
    return found[0] if len(found) == 1 and found[0].share >= _RENAMED else None


def _names(files: UpstreamFiles, path: str) -> frozenset[str]:
    if path not in files.base:
        return frozenset()
    return frozenset(entity.name for entity in files.upstream_scopes(path).entities)


def _share(old: Function, new: Function) -> float:
    """The share of statements that two functions have in common, in order."""
    mine, other = (list_statements(scopes, entity.span).texts for scopes, entity in (old, new))
    return difflib.SequenceMatcher(None, mine, other, autojunk=False).ratio()


def _functions(scopes: ScopeMap) -> Sequence[Entity]:
    return [entity for entity in scopes.entities if entity.kind == "function"]


def _only(found: Sequence[Function]) -> FunctionPlace | None:
    if len(found) != 1:
        return None
    scopes, entity = found[0]
    return FunctionPlace(
        file=scopes.source.path, function=entity.name, where=scopes.source.locate(entity.span.start)
    )


def function_of(files: UpstreamFiles, edit: Edit) -> Function:
    """The function of an edit in upstream; raises EntityNotFound, EntityAmbiguous."""
    scopes = files.upstream_scopes(edit.file)
    return scopes, find_entity(scopes, edit.function or "", edit.parameters, edit.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedPatch:
    """A patch with the new names and files of its functions, and their moves.

    If not ``certain``, a function only resembles the old one, and the text merge must agree.
    """

    selected: Selected
    moves: tuple[Move, ...]
    certain: bool


def follow(last: Rendering, failed: Rendering) -> tuple[FollowedPatch | None, tuple[Location, ...]]:
    """The patch with its missing functions found again, if all were; and functions that resemble them."""
    old, files = last.upstream, failed.upstream
    targets: dict[tuple[str, str], tuple[str, str]] = {}
    moves: list[Move] = []
    near: list[Location] = []
    lost, certain = False, True
    names = {edit.id: edit for edit in last.patch.edits}
    for edit in {(edit.file, edit.function): edit for edit in failed.patch.edits}.values():
        was = names.get(edit.id)
        if edit.function is None or was is None or was.file not in old.base:
            continue
        if defines(files, edit.file, edit.function):
            continue
        try:
            before = function_of(old, was)
        except (EntityNotFound, EntityAmbiguous):
            # If an earlier patch of the series adds the function, upstream cannot have moved it.
            lost = lost or not _is_added_by_series(failed, edit)
            continue
        target, alike = _find_again(was, before, old, files)
        if alike is not None:
            near += [each.where for each in alike if each.where is not None]
            certain = False
        if target is None:
            lost = True
            continue
        targets[edit.file, edit.function] = (target.file, target.function)
        if target.where is not None:
            move = Move(
                edit=edit.id,
                how="renamed" if target.file == was.file else "another file",
                before=before[0].source.locate(before[1].span.start),
                after=target.where,
                detail=f"'{before[1].name}' is now '{target.function}' in {target.file}",
            )
            moves.append(move)
    if not targets or lost:
        return None, tuple(near)
    selected = replace(failed.selected, patch=retarget_patch(failed.patch, targets))
    return FollowedPatch(selected=selected, moves=tuple(moves), certain=certain), tuple(near)


def _is_added_by_series(failed: Rendering, edit: Edit) -> bool:
    """Whether an earlier patch of the series adds the function."""
    data = failed.before.get(edit.file)
    if data is None or edit.function is None:
        return False
    entities = parse_scopes(SourceText(edit.file, data)).entities
    return any(each.answers_to(edit.function) for each in entities if each.kind != "record")


def _find_again(
    was: Edit, before: Function, old: UpstreamFiles, files: UpstreamFiles
) -> tuple[FunctionPlace | None, tuple[FunctionPlace, ...] | None]:
    """Where the function of an edit is now; if that is not certain, also the functions that resemble it."""
    if was.function is not None and defines(files, was.file, was.function):
        # It was already followed on the previous upstream and is still there, so it did not move.
        return FunctionPlace(file=was.file, function=was.function), None
    target = find_place(before, old, files)
    if target is not None:
        return target, None
    name = before[1].name.rpartition("::")[2].encode()
    paths = [
        path
        for path, data in files.base.items()
        if path == was.file or path not in old.base or (name in data and name not in old.base[path])
    ]
    alike = find_resemblances(before, old, map(files.upstream_scopes, paths))
    return near_place(alike), alike

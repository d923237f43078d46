"""A placed patch held against its last rendering, and a patch that lost its function followed to it.

Vocabulary: see :mod:`patchkit.classify.model`. Drift is between the functions as both upstreams have
them; moves are between the files as the patch found them, with the patches before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from patchkit.anchors.resolve import EntityAmbiguous, EntityNotFound, find_entity, resolve_anchor
from patchkit.classify.drift import find_drift
from patchkit.classify.model import Agreement, Classified, Drift, Move, PatchClass
from patchkit.classify.moves import find_moves
from patchkit.classify.retarget import Target, find_resemblances, find_target, near_target, retarget_patch
from patchkit.classify.threeway import compare_derivations
from patchkit.config.manifest import Edit
from patchkit.cxx.scopes import Entity, ScopeMap
from patchkit.errors import AnchorError, Location
from patchkit.flow.rendering import Rendering, with_patch
from patchkit.flow.selection import Selected
from patchkit.flow.upstream import UpstreamFiles
from patchkit.report import Reporter
from patchkit.source import SourceText


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A patch whose functions have their new names and files, and how they came there.

    Unless ``certain``, a function only resembles the old one: the merge as text must agree.
    """

    selected: Selected
    moves: tuple[Move, ...]
    certain: bool


def compare_rendering(
    last: Rendering | None,
    rendering: Rendering,
    moves: tuple[Move, ...],
    reporter: Reporter,
) -> Classified:
    """The class of a patch that is placed: clean, moved, or a conflict between both derivations.

    ``moves`` are those already known, of its functions. Raises GitError and CacheError.
    """
    patch = rendering.patch
    drift: tuple[Drift, ...] = ()
    agreement = Agreement(verdict="no last rendering")
    if last is not None and last.placed is not None and rendering.placed is not None:
        drift = find_drifts(last, rendering)
        moves = (*moves, *_moves(last, rendering))
        agreement = compare_derivations(
            last.before, last.placed.changes, rendering.before, rendering.placed.changes, reporter
        )
    problems: tuple[AnchorError, ...] = ()
    patch_class: PatchClass = "moved" if moves else "clean"
    reason = _reason(agreement, moves, drift)
    if agreement.verdict == "differ":
        patch_class, reason = "conflict", "placing by structure and merging as text do not agree"
        problems = (_differ(rendering, agreement),)
    return Classified(
        id=patch.id,
        title=patch.title,
        intent=patch.why,
        patch_class=patch_class,
        reason=reason,
        proof=_proof(rendering, agreement),
        moves=moves,
        drift=drift,
        agreement=agreement,
        problems=problems,
    )


def _reason(agreement: Agreement, moves: tuple[Move, ...], drift: tuple[Drift, ...]) -> str:
    if agreement.verdict == "no last rendering":
        return "placed; there is no rendering on an earlier upstream to compare with"
    parts = []
    if moves:
        parts.append(f"{len(moves)} places moved ({', '.join(sorted({move.how for move in moves}))})")
    if drift:
        parts.append(f"changed upstream: {', '.join(each.entity for each in drift)}; gates needed again")
    return "; ".join(parts) or "every place where the last rendering had it, in functions that did not change"


def _proof(rendering: Rendering, agreement: Agreement) -> tuple[str, ...]:
    places = sum(len(edit.locations) for edit in rendering.placed.edits) if rendering.placed else 0
    by_structure = f"placed by structure at {places} places, each confirmed by parsing the result"
    told = {
        "agree": "the textual three-way of the last rendering gives the same tokens",
        "differ": "the textual three-way of the last rendering gives other tokens",
        "does not apply": "the textual three-way of the last rendering does not apply: one derivation only",
        "no last rendering": "one derivation only",
    }
    return (by_structure, told[agreement.verdict])


def _differ(rendering: Rendering, agreement: Agreement) -> AnchorError:
    return AnchorError(
        f"patch '{rendering.patch.id}' placed by structure is not what its text merges to",
        code="DERIVATIONS_DIFFER",
        where=[rendering.patch.where, *(Location(path=path) for path in rendering.before)],
        why="\n".join(agreement.lines),
        hint="look at both: a twin may have taken the text, or upstream's change may need another edit",
    )


def _pairs(last: Rendering, rendering: Rendering) -> Iterator[tuple[Edit, Edit]]:
    before = {edit.id: edit for edit in last.patch.edits}
    for edit in rendering.patch.edits:
        if edit.id in before and edit.function is not None and before[edit.id].function is not None:
            yield before[edit.id], edit


def find_drifts(last: Rendering, rendering: Rendering) -> tuple[Drift, ...]:
    """What changed in the functions that a patch edits, as far as both upstreams have them."""
    return tuple(dict.fromkeys(_drifts(last, rendering)))


def _drifts(last: Rendering, rendering: Rendering) -> Iterator[Drift]:
    old, files = last.upstream, rendering.upstream
    for was, now in _pairs(last, rendering):
        if was.file in old.base and now.file in files.base:
            try:
                drift = find_drift(_entity(old, was), _entity(files, now))
            except (EntityNotFound, EntityAmbiguous):
                continue  # of a patch that could not be placed: its problems say so
            if drift is not None:
                yield drift


def _entity(files: UpstreamFiles, edit: Edit) -> tuple[ScopeMap, Entity]:
    scopes = files.upstream_scopes(edit.file)
    return scopes, find_entity(scopes, edit.function or "", edit.parameters, edit.where)


def _moves(last: Rendering, rendering: Rendering) -> Iterator[Move]:
    old, files = last.upstream, rendering.upstream
    for was, now in _pairs(last, rendering):
        left = old.scopes(SourceText(was.file, last.before[was.file]))
        right = files.scopes(SourceText(now.file, rendering.before[now.file]))
        yield from find_moves((left, resolve_anchor(left, was)), (right, resolve_anchor(right, now)))


def follow(last: Rendering, failed: Rendering) -> tuple[Found | None, tuple[Location, ...]]:
    """The patch with its lost functions found again, if all of them are; and what resembles them."""
    old, files = last.upstream, failed.upstream
    targets: dict[tuple[str, str], Target] = {}
    moves: list[Move] = []
    near: list[Location] = []
    lost, certain = False, True
    names = {edit.id: edit for edit in last.patch.edits}

    def known(path: str) -> frozenset[str] | None:
        if path not in old.base:
            return None
        return frozenset(entity.name for entity in old.upstream_scopes(path).entities)

    for edit in {(edit.file, edit.function): edit for edit in failed.patch.edits}.values():
        was = names.get(edit.id)
        if edit.function is None or was is None or was.file not in old.base or _is_there(files, edit):
            continue
        before = _entity(old, was)
        target = _where_it_was(files, was) or find_target(before, files.base, files.upstream_scopes, known)
        if target is None:
            name = before[1].name.rpartition("::")[2].encode()
            paths = [
                path
                for path, data in files.base.items()
                if path == was.file or path not in old.base or (name in data and name not in old.base[path])
            ]
            alike = find_resemblances(before, map(files.upstream_scopes, paths), known)
            near += [each.where for each in alike]
            target = near_target(alike)
            certain = False
        if target is None:
            lost = True
            continue
        targets[edit.file, edit.function] = target
        if target.where is not None:
            moves.append(_move(edit.id, was, before, target))
    if not targets or lost:
        return None, tuple(near)
    patch = retarget_patch(failed.patch, targets)
    return Found(selected=with_patch(failed, patch), moves=tuple(moves), certain=certain), tuple(near)


def _move(edit: str, was: Edit, before: tuple[ScopeMap, Entity], target: Target) -> Move:
    place = before[0].source.locate(before[1].span.start)
    return Move(
        edit=edit,
        how="renamed" if target.file == was.file else "another file",
        before=place,
        after=target.where or place,
        detail=f"'{before[1].name}' is now '{target.function}' in {target.file}",
    )


def _where_it_was(files: UpstreamFiles, was: Edit) -> Target | None:
    """A function that was followed on the upstream before and has stayed there since: no move."""
    if was.function is None or not _is_there(files, was):
        return None
    return Target(file=was.file, function=was.function)


def _is_there(files: UpstreamFiles, edit: Edit) -> bool:
    if edit.file not in files.base or edit.function is None:
        return False
    entities = files.upstream_scopes(edit.file).entities
    return any(entity.answers_to(edit.function) for entity in entities if entity.kind != "record")

"""Every patch of a series on a new upstream, classified in one run, whatever happens to the others."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchkit.base.errors import AnchorError, Location, PatchkitError
from patchkit.base.reporter import Reporter
from patchkit.base.source import SourceText
from patchkit.bump.classes import GOOD, Agreement, Classified, Drift, Gone, Move, PatchClass
from patchkit.bump.derive import Step, bare, compare_derivations, same_tokens, take_out
from patchkit.bump.drift import find_drift, find_moves
from patchkit.candidate.following import Rendering, render_patch
from patchkit.candidate.retarget import (
    Resemblance,
    Target,
    find_resemblances,
    find_target,
    near_target,
    retarget_patch,
)
from patchkit.cpp.scopes import Entity, ScopeMap, parse_scopes
from patchkit.edits.context import make_guard
from patchkit.edits.pattern import find_runs, parse_pattern
from patchkit.edits.resolve import EntityAmbiguous, EntityNotFound, find_entity, resolve_anchor
from patchkit.edits.tree import UpstreamFiles
from patchkit.series.folder import SeriesDir
from patchkit.series.patch import Edit, Patch
from patchkit.series.selection import Selected


def find_gone(patch: Patch, files: UpstreamFiles) -> tuple[Gone, ...]:
    """What the patch rests on and these files of upstream no longer have; of which build does not matter."""
    return tuple(dict.fromkeys(_find_gone(patch, files)))


def asks_for(macro: str, source: bytes) -> bool:
    """Whether a source names ``macro`` anywhere but behind a ``//``: a comment may outlive the option."""
    for found in re.finditer(rb"\b" + re.escape(macro.encode()) + rb"\b", source):
        if b"//" not in source[source.rfind(b"\n", 0, found.start()) + 1 : found.start()]:
            return True
    return False


def _find_gone(patch: Patch, files: UpstreamFiles) -> Iterator[Gone]:
    for macro in patch.guard.macros:
        if not any(asks_for(macro, data) for data in files.base.values()):
            yield Gone(what="option", name=macro)
    names = files.names
    bases = {posixpath.basename(name) for name in names}
    wanted = [(edit.file, edit.function) for edit in patch.edits]
    wanted += [(alias.file, alias.function) for alias in patch.aliases]
    for path, function in wanted:
        if function is not None:
            last = function.rpartition("::")[2].encode()
            if any(last in data and _defines(files, name, function) for name, data in files.base.items()):
                continue
        if path not in names and posixpath.basename(path) not in bases:
            yield Gone(what="file", name=path)
        elif function is not None:
            yield Gone(what="function", name=f"{function} in {path}")


def _defines(files: UpstreamFiles, path: str, function: str | None) -> bool:
    """Whether upstream defines the function in that file."""
    if function is None or path not in files.base:
        return False
    entities = files.upstream_scopes(path).entities
    return any(entity.answers_to(function) for entity in entities if entity.kind != "record")


def find_replacement(patch: Patch, files: UpstreamFiles) -> tuple[Location, str] | None:
    """The place of the first declared replacement that upstream has, and why it is one."""
    for declared in patch.replaced_by:
        if declared.file not in files.base:
            continue
        found = files.upstream_scopes(declared.file)
        pattern = parse_pattern(declared.tokens)
        for entity in found.entities:
            if entity.kind == "record" or not entity.answers_to(declared.function):
                continue
            for first, _ in find_runs(found, pattern, found.code_in(entity.span)):
                return found.source.locate(found.code[first].span.start), declared.why
    return None


def compare_rendering(
    last: Rendering | None,
    rendering: Rendering,
    moves: tuple[Move, ...],
    reporter: Reporter,
) -> Classified:
    """The class of a patch that is placed: clean, moved, or a conflict between both derivations.

    ``moves`` are those already known, of its functions. Raises GitError and CacheError.
    """
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
        problem = AnchorError(
            f"patch '{rendering.patch.id}' placed by structure is not what its text merges to",
            code="DERIVATIONS_DIFFER",
            where=[rendering.patch.where, *(Location(path=path) for path in rendering.before)],
            why="\n".join(agreement.lines),
            hint="look at both: a twin may have taken the text, or upstream's change may need another edit",
        )
        problems = (problem,)
    return replace(
        _verdict(
            rendering.selected, patch_class, reason, proof=_proof(rendering, agreement), problems=problems
        ),
        moves=moves,
        drift=drift,
        agreement=agreement,
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
    for was, now in _pairs(last, rendering):
        left = parse_scopes(SourceText(was.file, last.before[was.file]))
        right = parse_scopes(SourceText(now.file, rendering.before[now.file]))
        yield from find_moves((left, resolve_anchor(left, was)), (right, resolve_anchor(right, now)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A patch whose functions have their new names and files, and how they came there.

    Unless ``certain``, a function only resembles the old one: the merge as text must agree.
    """

    selected: Selected
    moves: tuple[Move, ...]
    certain: bool


def follow(last: Rendering, failed: Rendering) -> tuple[Followed | None, tuple[Location, ...]]:
    """The patch with its lost functions found again, if all of them are; and what resembles them."""
    old, files = last.upstream, failed.upstream
    targets: dict[tuple[str, str], Target] = {}
    moves: list[Move] = []
    near: list[Location] = []
    lost, certain = False, True
    names = {edit.id: edit for edit in last.patch.edits}
    for edit in {(edit.file, edit.function): edit for edit in failed.patch.edits}.values():
        was = names.get(edit.id)
        if edit.function is None or was is None or was.file not in old.base:
            continue
        if _defines(files, edit.file, edit.function):
            continue
        before = _entity(old, was)
        target, alike = _find_again(was, before, old, files)
        if alike is not None:
            near += [each.where for each in alike]
            certain = False
        if target is None:
            lost = True
            continue
        targets[edit.file, edit.function] = target
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
    return Followed(selected=selected, moves=tuple(moves), certain=certain), tuple(near)


def _find_again(
    was: Edit, before: tuple[ScopeMap, Entity], old: UpstreamFiles, files: UpstreamFiles
) -> tuple[Target | None, tuple[Resemblance, ...] | None]:
    """Where the function of an edit is now; with what resembles it, where nothing is it for certain."""
    if was.function is not None and _defines(files, was.file, was.function):
        # It was followed on the upstream before and has stayed there since: no move.
        return Target(file=was.file, function=was.function), None

    def known(path: str) -> frozenset[str] | None:
        if path not in old.base:
            return None
        return frozenset(entity.name for entity in old.upstream_scopes(path).entities)

    target = find_target(before, files.base, files.upstream_scopes, known)
    if target is not None:
        return target, None
    name = before[1].name.rpartition("::")[2].encode()
    paths = [
        path
        for path, data in files.base.items()
        if path == was.file or path not in old.base or (name in data and name not in old.base[path])
    ]
    alike = find_resemblances(before, map(files.upstream_scopes, paths), known)
    return near_target(alike), alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared with what; ``last`` has the last rendering of each patch that has one."""

    series: SeriesDir
    build: int
    chosen: tuple[Selected, ...]
    files: UpstreamFiles
    last: Mapping[str, Rendering]
    reporter: Reporter


@dataclass(slots=True, kw_only=True)
class _Run:
    """One pass over the series; ``blocked`` are patches whose requirement was not met in the last pass.

    They are retired with a requirement that is retired, else a conflict.
    """

    comparison: Comparison
    upstreamed: Mapping[str, str]
    blocked: dict[str, Classified] = field(default_factory=dict)


def classify_series(comparison: Comparison) -> tuple[tuple[Classified, ...], tuple[Rendering, ...]]:
    """One :class:`Classified` per patch of the series, in order, and the renderings of those that are in.

    ``comparison.files`` holds the patched files afterwards. Raises GitError and CacheError when git or
    the disk refuse, never because of a patch.
    """
    run = _Run(comparison=comparison, upstreamed=_upstreamed(comparison))
    pristine = comparison.files
    while True:
        files = pristine.fresh()
        verdicts: list[Classified] = []
        renderings: list[Rendering] = []
        for selected in comparison.chosen:
            verdict, rendering = _classify(run, selected, files)
            verdicts.append(verdict)
            if rendering is not None and rendering.placed is not None:
                files.write(rendering.placed.changes)
                renderings.append(rendering)
        unmet = _unmet(run, verdicts, renderings)
        if not unmet:
            for rendering in renderings:
                if rendering.placed is not None:
                    pristine.write(rendering.placed.changes)
            return tuple(verdicts), tuple(renderings)
        run.blocked |= unmet


def _unmet(
    run: _Run, verdicts: Sequence[Classified], renderings: Sequence[Rendering]
) -> dict[str, Classified]:
    """Verdicts for patches that are in although one they require is not, and not upstream either."""
    known = {verdict.id: verdict for verdict in verdicts}
    placed = {rendering.patch.id for rendering in renderings}
    found: dict[str, Classified] = {}
    for rendering in renderings:
        for requirement in rendering.patch.requires:
            needed = known.get(requirement.patch)
            state = needed.patch_class if needed is not None else "off"
            if requirement.patch not in placed and state != "upstreamed":
                verdict = _verdict(
                    rendering.selected,
                    "retired" if state == "retired" else "conflict",
                    f"requires '{requirement.patch}', which is {state}: {requirement.why}",
                    gone=needed.gone if needed is not None and state == "retired" else (),
                )
                found.setdefault(rendering.patch.id, verdict)
    return {name: verdict for name, verdict in found.items() if name not in run.blocked}


def _classify(run: _Run, selected: Selected, files: UpstreamFiles) -> tuple[Classified, Rendering | None]:
    comparison = run.comparison
    gone = find_gone(selected.patch, comparison.files)
    known = _known_before_placing(run, selected, gone, files)
    if known is not None:
        return known, None
    comparison.reporter.step(f"placing {selected.patch.id}")
    rendering = render_patch(selected, files, comparison.series)
    last = comparison.last.get(selected.patch.id)
    if rendering.placed is not None:
        verdict = compare_rendering(last, rendering, (), comparison.reporter)
        return verdict, rendering if verdict.patch_class in GOOD else None
    resemblances: tuple[Location, ...] = ()
    if last is not None:
        found, resemblances = follow(last, rendering)
        if found is not None:
            again = render_patch(found.selected, files, comparison.series)
            if again.placed is not None:
                verdict = compare_rendering(last, again, found.moves, comparison.reporter)
                agrees = verdict.agreement is not None and verdict.agreement.verdict == "agree"
                if found.certain or agrees:
                    return verdict, again if verdict.patch_class in GOOD else None
    if gone and not resemblances:
        return _retired(selected, gone, rendering.errors), None
    conflict = _conflict(selected, rendering.errors, resemblances, gone)
    if last is not None:
        conflict = replace(conflict, drift=find_drifts(last, rendering))
    return conflict, None


def _known_before_placing(
    run: _Run, selected: Selected, gone: tuple[Gone, ...], files: UpstreamFiles
) -> Classified | None:
    patch, comparison = selected.patch, run.comparison
    if patch.id in run.upstreamed:
        proof = (run.upstreamed[patch.id],)
        return _verdict(selected, "upstreamed", "upstream has this change", proof=proof)
    if not selected.targets:
        return _not_chosen(comparison, selected, gone, files)
    blocked = run.blocked.get(patch.id)
    if blocked is not None:
        return replace(blocked, gone=tuple(dict.fromkeys([*gone, *blocked.gone])))
    superseded = _superseded(comparison, selected)
    if superseded is not None:
        return superseded
    if any(each.what == "option" for each in gone):
        # Its places may all be there still, and nobody would ever compile what stands under such a guard.
        return _retired(selected, gone, ())
    return None


def _superseded(comparison: Comparison, selected: Selected) -> Classified | None:
    replacement = find_replacement(selected.patch, comparison.files)
    if replacement is None:
        return None
    place, why = replacement
    return _verdict(selected, "superseded", why, proof=(f"{place} is what patch.toml names",))


def _conflict(
    selected: Selected,
    errors: tuple[PatchkitError, ...],
    resemblances: tuple[Location, ...],
    gone: tuple[Gone, ...],
) -> Classified:
    for error in errors:
        if isinstance(error, EntityNotFound):
            error.where = (*error.where, *resemblances)
    reason = f"{len(errors)} edits cannot be placed" if len(errors) > 1 else "an edit cannot be placed"
    return _verdict(selected, "conflict", reason, gone=gone, problems=errors)


def _not_chosen(
    comparison: Comparison, selected: Selected, gone: tuple[Gone, ...], files: UpstreamFiles
) -> Classified:
    """A patch that is not asked for here. That its range has ended is no proof; its premise is looked at."""
    builds = selected.patch.builds
    reason = selected.reason.removeprefix("out of era: ")
    ended = builds.last is not None and comparison.build > builds.last
    if builds.covers(comparison.build):
        era = _era_of_requirements(comparison, selected)
        if not era:
            return _verdict(selected, "off", selected.reason)
        ended, reason = comparison.build > builds.first, f"with {era}: {selected.reason}"
    superseded = _superseded(comparison, selected) if ended else None
    if superseded is not None:
        return superseded
    if ended and gone and not _is_elsewhere(comparison, selected, gone, files):
        return _retired(selected, gone, ())
    return _verdict(selected, "out of era", reason, gone=gone)


def _is_elsewhere(
    comparison: Comparison, selected: Selected, gone: tuple[Gone, ...], files: UpstreamFiles
) -> bool:
    """Whether a function that seems gone has only another name or file, or something resembles it."""
    last = comparison.last.get(selected.patch.id)
    if last is None or any(each.what == "option" for each in gone):
        return False
    rendering = render_patch(replace(last.selected, patch=selected.patch), files, comparison.series)
    if rendering.placed is not None:
        return True
    found, near = follow(last, rendering)
    return found is not None or bool(near)


def _era_of_requirements(comparison: Comparison, selected: Selected) -> str:
    """The requirements of a patch that are out of era themselves, if that is what keeps it out."""
    if "does not apply" not in selected.reason:
        return ""
    builds = {each.patch.id: each.patch.builds for each in comparison.chosen}
    out = [each.patch for each in selected.patch.requires if not builds[each.patch].covers(comparison.build)]
    return ", ".join(out)


def _retired(selected: Selected, gone: tuple[Gone, ...], problems: tuple[PatchkitError, ...]) -> Classified:
    builds = selected.patch.builds
    until = f"b{builds.last}" if builds.last is not None else "no known end"
    reason = (
        f"upstream no longer has {', '.join(map(str, gone))}; "
        f"the patch is for b{builds.first} to {until} ({builds.why})"
    )
    proof = ("looked for in every source of the folders that the series edits",)
    return _verdict(selected, "retired", reason, gone=gone, proof=proof, problems=problems)


def _verdict(
    selected: Selected,
    patch_class: PatchClass,
    reason: str,
    *,
    proof: tuple[str, ...] = (),
    gone: tuple[Gone, ...] = (),
    problems: tuple[PatchkitError, ...] = (),
) -> Classified:
    patch = selected.patch
    return Classified(
        id=patch.id,
        title=patch.title,
        intent=patch.why,
        patch_class=patch_class,
        reason=reason,
        proof=proof,
        gone=gone,
        problems=problems,
    )


def _upstreamed(comparison: Comparison) -> dict[str, str]:
    """Patches whose change upstream has, with the proof: all taken out together, all put in again."""
    steps = [_step(last) for last in comparison.last.values() if last.placed is not None]
    taken = take_out(steps, comparison.files.base, comparison.reporter)
    if not taken.found:
        return {}
    base = {path: data for path, data in comparison.files.base.items() if path not in taken.files}
    base |= {path: data for path, data in taken.files.items() if data is not None}
    gone = {path for path, data in taken.files.items() if data is None}
    files = UpstreamFiles(base, comparison.files.names - gone)
    forms = dict(taken.found)
    for name in forms:
        rendering = render_patch(comparison.last[name].selected, files, comparison.series)
        if rendering.placed is None:
            return {}
        files.write(rendering.placed.changes)
    conditions = frozenset(condition for step in steps for condition in step.conditions)
    for path in taken.files:
        made, has = files.read(path) or b"", comparison.files.base.get(path, b"")
        if "bare" in forms.values():
            made, has = bare(path, made, conditions), bare(path, has, conditions)
        if not same_tokens(path, made, has):
            return {}
    return {
        name: f"taken out of upstream with the whole series in reverse ({form}), and put in again by "
        "structure: the same tokens as upstream's in every file it touches"
        for name, form in taken.found
    }


def _step(last: Rendering) -> Step:
    guard = make_guard(last.patch.guard.macros, last.selected.targets)
    changes = last.placed.changes if last.placed is not None else {}
    return Step(
        id=last.patch.id,
        before=last.before,
        after=changes,
        conditions=(guard.device, guard.region),
    )

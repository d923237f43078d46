"""Classify every patch of a series on a new upstream in one run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchkit.base.errors import AnchorError, CacheError, GitError, Location, PatchkitError, members_of
from patchkit.base.source import SourceText
from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.judging.callees import with_declarations
from patchkit.carry.judging.changed import Versions
from patchkit.carry.judging.classes import GOOD, Agreement, Classified, Drift, Gone, Move, PatchClass
from patchkit.carry.judging.derive import (
    RevertedTree,
    Step,
    bare,
    compare_derivations,
    has_change,
    revert_steps,
    same_tokens,
)
from patchkit.carry.judging.drift import find_drift, find_moves
from patchkit.carry.judging.existing import add_existing
from patchkit.carry.judging.follow import follow, function_of
from patchkit.carry.judging.merge import has_two_insertions, merge_rendering, unmergeable_files
from patchkit.carry.judging.merged import follow_by_merge
from patchkit.carry.judging.moved_files import find_moved_files, in_renamed_files
from patchkit.carry.judging.preconditions import find_gone, find_replacement
from patchkit.carry.judging.rendering import Rendering, decided_files, only_in, render_patch
from patchkit.carry.judging.requirements import PatchStack
from patchkit.carry.judging.unaffected import Unaffected
from patchkit.carry.placing.context import make_guard
from patchkit.carry.placing.moved_lines import add_moved_lines
from patchkit.carry.placing.resolve import Anchor, EntityAmbiguous, EntityNotFound, resolve_anchor
from patchkit.carry.placing.tree import UpstreamFiles, header_folders
from patchkit.carry.series.patch import Edit, Patch
from patchkit.carry.series.selection import UNMET, Selected

_LABELS = ("patch", "old", "new")
"""Names of the three versions in conflict markers that are only counted, not shown."""


def _compare_rendering(
    last: Rendering | None,
    rendering: Rendering,
    moves: tuple[Move, ...],
    comparison: Comparison,
) -> Classified:
    """The class of a patch that was placed: clean, moved, or in conflict if both derivations differ.

    ``moves``: moves of its functions and files that are already known. Raises GitError and CacheError.
    """
    drift: tuple[Drift, ...] = ()
    agreement = Agreement(verdict="no last rendering")
    if last is not None and last.placed is not None and rendering.placed is not None:
        drift = _find_drifts(last, rendering)
        moves = (*moves, *_moves(last, rendering))
        before, after = (
            {comparison.path_of(path): data for path, data in files.items()}
            for files in (last.before, last.placed.changes)
        )
        agreement = compare_derivations(
            before,
            after,
            rendering.before,
            rendering.placed.changes,
            comparison.workspace.reporter,
            incomplete={edit.file for edit in rendering.skipped},
            decided=comparison.decided(last.patch, rendering.patch),
        )
    problems: tuple[AnchorError, ...] = ()
    patch_class: PatchClass = "moved" if moves else "clean"
    reason = _reason(agreement, moves, drift)
    if rendering.skipped:
        names = ", ".join(edit.id for edit in rendering.skipped)
        reason = f"without {counted(len(rendering.skipped), 'optional edit')} ({names}); {reason}"
    if agreement.verdict == "differ":
        patch_class, reason = "conflict", "placing by structure and merging as text give different code"
        problem = AnchorError(
            f"placing patch '{rendering.patch.id}' by structure gives other code than merging it as text",
            code="DERIVATIONS_DIFFER",
            where=[rendering.patch.where, *(Location(path=path) for path in agreement.differing)],
            why="\n".join(agreement.lines),
            hint="compare both: the text may have been merged into similar code elsewhere, or upstream's "
            f"change may need another edit, with first_build = {comparison.build}",
        )
        problems = (problem,)
    return replace(
        _verdict(
            rendering.selected, patch_class, reason, proof=_proof(rendering, agreement), problems=problems
        ),
        moves=moves,
        drift=drift,
        agreement=agreement,
        skipped=tuple(edit.id for edit in rendering.skipped),
    )


def _reason(agreement: Agreement, moves: tuple[Move, ...], drift: tuple[Drift, ...]) -> str:
    if agreement.verdict == "no last rendering":
        return "placed; there is no result on an earlier build to compare with"
    parts = []
    if moves:
        parts.append(
            f"{counted(len(moves), 'place')} moved ({', '.join(sorted({move.how for move in moves}))})"
        )
    if drift:
        parts.append(f"changed upstream: {', '.join(each.entity for each in drift)}; run the gates again")
    if agreement.verdict == "agree":
        parts += agreement.lines
    return "; ".join(parts) or "no place moved since the previous build, and no edited function changed"


def _proof(rendering: Rendering, agreement: Agreement) -> tuple[str, ...]:
    places = sum(len(edit.locations) for edit in rendering.placed.edits) if rendering.placed else 0
    by_structure = f"placed by structure at {counted(places, 'place')}"
    by_text = {
        "agree": "git's three-way merge of the patch gives the same tokens",
        "differ": "git's three-way merge of the patch gives other tokens",
        "does not apply": f"one derivation only: {'; '.join(agreement.lines)}",
        "no last rendering": "one derivation only",
    }
    return (by_structure, by_text[agreement.verdict])


def _pairs(last: Rendering, rendering: Rendering) -> Iterator[tuple[Edit, Edit]]:
    before = {edit.id: edit for edit in last.patch.edits}
    for edit in rendering.patch.edits:
        if edit.id in before and edit.function is not None and before[edit.id].function is not None:
            yield before[edit.id], edit


def _find_drifts(last: Rendering, rendering: Rendering) -> tuple[Drift, ...]:
    """What changed in the edited functions that both upstreams have."""
    return tuple(dict.fromkeys(_drifts(last, rendering)))


def _drifts(last: Rendering, rendering: Rendering) -> Iterator[Drift]:
    old, files = last.upstream, rendering.upstream
    for was, now in _pairs(last, rendering):
        if was.file in old.base and now.file in files.base:
            try:
                drift = find_drift(function_of(old, was), function_of(files, now))
            except (EntityNotFound, EntityAmbiguous):
                continue  # the patch could not be placed, and its problems report this function
            if drift is not None:
                yield drift


def _is_in_another_scope(old: Anchor, new: Anchor) -> bool:
    """Whether the function of this name is in another class or namespace: it moved, or is a different one."""
    names = [each.entity_name for each in (old, new)]
    return names[0] != names[1] and len({name.rpartition("::")[2] for name in names}) == 1


def _file_moves(last: Rendering, rendering: Rendering) -> Iterator[Move]:
    """One move for each file that upstream renamed, with the first edit in it."""
    was = {edit.id: edit.file for edit in last.patch.edits}
    first = {(was[edit.id], edit.file): edit for edit in reversed(rendering.patch.edits) if edit.id in was}
    for (old, new), edit in first.items():
        if old != new:
            yield Move(
                edit=edit.id,
                how="another file",
                before=Location(path=old),
                after=Location(path=new),
                detail=f"{old} is now {new}",
            )


def _moves(last: Rendering, rendering: Rendering) -> Iterator[Move]:
    # Edits of empty lines are skipped where they do not fit.
    placed = [{edit.id for edit in each.placed.edits} for each in (last, rendering) if each.placed]
    for was, now in _pairs(last, rendering):
        if not all(now.id in ids for ids in placed):
            continue
        left = parse_scopes(SourceText(was.file, last.before[was.file]))
        right = parse_scopes(SourceText(now.file, rendering.before[now.file]))
        old, new = resolve_anchor(left, was), resolve_anchor(right, now)
        if old.entity is not None and new.entity is not None and _is_in_another_scope(old, new):
            yield Move(
                edit=now.id,
                how="renamed",
                before=left.source.locate(old.entity.span.start),
                after=right.source.locate(new.entity.span.start),
                detail=f"'{old.entity_name}' is now '{new.entity_name}'",
            )
        yield from find_moves((left, old), (right, new))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The inputs of a classification. ``last``: the last rendering of each patch that has one.

    ``pulls``: for patches imported from a pull request, the files of that pull request as imported.
    ``is_pin``: whether the new upstream is exactly the build, and not a user's commit on top of it
    (``--onto``). ``renamed``: files that upstream renamed since, new path by old path.
    """

    workspace: Workspace
    build: int
    chosen: tuple[Selected, ...]
    files: UpstreamFiles
    last: Mapping[str, Rendering]
    is_pin: bool = True
    pulls: Mapping[str, tuple[Versions, ...]] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    def path_of(self, path: str) -> str:
        """The path that a file of an earlier build has on the new upstream."""
        return self.renamed.get(path, path)

    def decided(self, last: Patch, patch: Patch) -> frozenset[str]:
        """Files of the new upstream of which the patch has other edits there than its last rendering has."""
        return frozenset(self.path_of(path) for path in decided_files(last, patch))


def classify_series(comparison: Comparison) -> tuple[tuple[Classified, ...], tuple[Rendering, ...]]:
    """One :class:`Classified` per patch of the series, in order, and the renderings of those that are in.

    Raises GitError and CacheError for errors of git or the disk, never because of a patch.
    """
    files, renamed = find_moved_files(comparison.chosen, comparison.last, comparison.files)
    chosen = tuple(replace(one, patch=in_renamed_files(one.patch, renamed)) for one in comparison.chosen)
    comparison = replace(comparison, chosen=chosen, files=files, renamed=renamed)
    proofs = _merged(comparison) | _upstreamed(comparison)
    reason = "upstream has this change" if comparison.is_pin else "this commit has the change already"
    settled = {
        each.patch.id: _verdict(each, "upstreamed", reason, proof=(proofs[each.patch.id],))
        for each in comparison.chosen
        if each.patch.id in proofs
    }
    while True:
        files = comparison.files.fresh()
        verdicts: list[Classified] = []
        renderings: list[Rendering] = []
        steady = True
        for selected in comparison.chosen:
            verdict, rendering = settled.get(selected.patch.id), None
            if verdict is None:
                verdict, rendering = _classified(comparison, selected, files, steady=steady)
            steady = steady and _is_as_before(comparison, selected, rendering)
            verdicts.append(verdict)
            if rendering is not None and rendering.placed is not None:
                rendering.write(files)
                renderings.append(rendering)
        unmet = _unmet(comparison, verdicts, renderings)
        if not unmet:
            verdicts = with_declarations(
                verdicts,
                comparison.last,
                renderings,
                comparison.files,
                comparison.chosen,
                comparison.workspace.series,
            )
            return _with_requirements(comparison, verdicts, renderings), tuple(renderings)
        settled |= unmet


def _is_as_before(comparison: Comparison, selected: Selected, rendering: Rendering | None) -> bool:
    """Whether a patch makes the same changes as in its last rendering: none, or the same edits."""
    last = comparison.last.get(selected.patch.id)
    if last is None or rendering is None:
        return last is None and rendering is None
    return last.patch.edits == rendering.patch.edits


def _classified(
    comparison: Comparison, selected: Selected, files: UpstreamFiles, *, steady: bool
) -> tuple[Classified, Rendering | None]:
    """The class of one patch. An error makes this patch a conflict; the others are still classified.

    ``steady``: whether the patches before it make the same changes as in their last renderings.
    """
    try:
        verdict, rendering = _classify(comparison, selected, files, steady=steady)
    except (GitError, CacheError):
        raise  # not about this patch: git or the disk would fail for every other one too
    except PatchkitError as error:
        reason = f"cannot be classified: {error.message}"
        return _verdict(selected, "conflict", reason, problems=tuple(members_of(error))), None
    try:
        return _with_next_step(comparison, selected, files, verdict), rendering
    except (GitError, CacheError):
        raise
    except PatchkitError:
        return verdict, rendering


def _with_next_step(
    comparison: Comparison, selected: Selected, files: UpstreamFiles, verdict: Classified
) -> Classified:
    """Add the ``resolve`` command to a plain patch in conflict, and whether git can merge it."""
    last = comparison.last.get(selected.patch.id)
    if verdict.patch_class != "conflict" or not selected.patch.is_plain or not comparison.is_pin:
        return verdict
    if verdict.next_step:
        return verdict
    if last is None or last.placed is None or unmergeable_files(last):
        return verdict
    begun = {edit.where for edit in only_in(selected.patch, last.patch)}
    if any(place in begun for problem in verdict.problems for place in problem.where):
        return verdict  # an edit for this build only is not in git's merge, so it is corrected by hand
    merged = merge_rendering(last, files, _LABELS, comparison.workspace.reporter, comparison.path_of)
    decided = comparison.decided(last.patch, selected.patch)
    open_ones = [each for each in merged if each.doubt and each.path not in decided]
    there = any(each.code == "EDIT_THERE_ALREADY" for each in verdict.problems)
    differing = verdict.agreement.differing if verdict.agreement is not None else {}
    differs = there or bool(differing)
    outcome = "git can merge it without your help"
    if open_ones or differs:
        paths = dict.fromkeys([*(each.path for each in open_ones), *differing])
        outcome = f"needs your decision in {', '.join(paths or (each.path for each in merged))}"
    command = f"patchkit resolve {selected.patch.id} --to {build_name(comparison.build)}"
    if open_ones and not differs and all(has_two_insertions(each, _LABELS) for each in open_ones):
        places = ", ".join(each.path for each in open_ones)
        command += " --after"
        outcome = (
            f"puts the lines of the patch after those that upstream inserts at the same place in {places}, "
            "--before puts them first; no rule of patchkit shows that both orders are right"
        )
    return replace(verdict, next_step=f"{command}: {outcome}")


def _unmet(
    comparison: Comparison, verdicts: Sequence[Classified], renderings: Sequence[Rendering]
) -> dict[str, Classified]:
    """Verdicts for placed patches that require one which is neither placed nor upstreamed.

    They are retired if the required patch is retired, otherwise in conflict.
    """
    known = {verdict.id: verdict for verdict in verdicts}
    placed = {rendering.patch.id for rendering in renderings}
    found: dict[str, Classified] = {}
    for rendering in renderings:
        for requirement in rendering.patch.requires:
            needed = known.get(requirement.patch)
            state = needed.patch_class if needed is not None else "off"
            if requirement.patch not in placed and state != "upstreamed":
                is_retired = needed is not None and state == "retired"
                gone = _gone(comparison, rendering.patch)
                verdict = _verdict(
                    rendering.selected,
                    "retired" if is_retired else "conflict",
                    f"requires '{requirement.patch}', which is {_class_text(state)}: {requirement.why}",
                    gone=tuple(dict.fromkeys((*gone, *needed.gone))) if needed and is_retired else gone,
                )
                found.setdefault(rendering.patch.id, verdict)
    return found


def _class_text(name: str) -> str:
    return "in conflict" if name == "conflict" else name


def _with_requirements(
    comparison: Comparison, verdicts: Sequence[Classified], renderings: Sequence[Rendering]
) -> tuple[Classified, ...]:
    """If a patch in conflict requires another one in conflict, name that one as the first to resolve.

    It may require the other one without naming it in patch.toml: then it could only be placed with it before.
    """
    placed = {rendering.patch.id for rendering in renderings}
    patches = {each.patch.id: each.patch for each in comparison.chosen}
    stuck = {v.id: v for v in verdicts if v.patch_class == "conflict" and v.id not in placed}
    classes = {v.id: v.patch_class for v in verdicts}
    unnamed = {name: _unnamed(comparison, name, classes, placed) for name in stuck}
    needs = {
        name: {**{each.patch: each.why for each in patches[name].requires}, **unnamed[name]} for name in stuck
    }

    def with_requirement(verdict: Classified) -> Classified:
        if verdict.id not in stuck:
            return verdict
        found = _first_in_conflict(verdict.id, needs, stuck, {verdict.id})
        required = found[0] if found is not None else next(iter(unnamed[verdict.id]), None)
        if required is None:
            return verdict
        cause = f"requires '{required}', which is {_class_text(classes[required])}"
        if required in unnamed[verdict.id]:
            cause += f" (not named in patch.toml: {unnamed[verdict.id][required]})"
        reason = verdict.reason if verdict.reason.startswith(cause) else f"{cause}; {verdict.reason}"
        first = found[1] if found is not None else None
        is_named = first is not None and patches[first].is_plain and comparison.is_pin
        step = (
            f"patchkit resolve {first} --to {build_name(comparison.build)}: this patch must be resolved first"
        )
        waits_for = first if is_named else None
        return replace(verdict, reason=reason, next_step=step if is_named else "", waits_for=waits_for)

    return tuple(map(with_requirement, verdicts))


def _unnamed(
    comparison: Comparison, name: str, classes: Mapping[str, PatchClass], placed: Collection[str]
) -> dict[str, str]:
    """Patches that are not placed now, and without which a patch could not be placed before, with the reason.

    Only those that its patch.toml does not name as required.
    """
    mine = comparison.last.get(name)
    if mine is None or mine.placed is None:
        return {}
    order = [each.patch.id for each in comparison.chosen]
    known = (comparison.last.get(each) for each in order[: order.index(name)])
    # All of them have to be from the same older tree.
    below = [each for each in known if each is not None and each.upstream.base is mine.upstream.base]
    stack = PatchStack(
        base=mine.upstream, series=comparison.workspace.series, reporter=comparison.workspace.reporter
    )
    for each in below:
        stack.add(each, (one.patch for one in each.patch.requires))
    lost = [
        each.patch.id
        for each in below
        if each.patch.id not in placed and classes.get(each.patch.id) != "upstreamed"
    ]
    implied = stack.closure(each.patch for each in mine.patch.requires)
    found = {each: stack.reason(mine, each) for each in lost if each not in implied}
    return {each: found[each] for each in stack.least([each for each in found if found[each]])}


def _first_in_conflict(
    name: str, needs: Mapping[str, Iterable[str]], stuck: Mapping[str, Classified], seen: set[str]
) -> tuple[str, str] | None:
    """A required patch that is in conflict, and the first patch to resolve along its chain of requirements.

    None if that chain only leads back to this patch, as with two patches that require each other. ``needs``:
    what the patches in conflict require. ``seen`` collects the patches visited.
    """
    for required in needs[name]:
        if required not in stuck or required in seen:
            continue
        seen.add(required)
        further = _first_in_conflict(required, needs, stuck, seen)
        if further is not None:
            return required, further[1]
        if stuck[required].problems:
            return required, required
    return None


def _gone(comparison: Comparison, patch: Patch) -> tuple[Gone, ...]:
    """What upstream no longer has. What it never had is not gone: an earlier patch of the series adds it."""
    gone = find_gone(patch, comparison.files)
    last = comparison.last.get(patch.id)
    if not gone or last is None:
        return gone
    never = {each for each in find_gone(patch, last.upstream) if each.what != "option"}
    return tuple(each for each in gone if each not in never)


def _classify(
    comparison: Comparison, selected: Selected, files: UpstreamFiles, *, steady: bool
) -> tuple[Classified, Rendering | None]:
    gone = _gone(comparison, selected.patch)
    known = _known_before_placing(comparison, selected, gone, files)
    if known is not None:
        return known, None
    comparison.workspace.reporter.step(f"placing {selected.patch.id}")
    last = comparison.last.get(selected.patch.id)
    is_known = None
    if steady and last is not None and last.placed is not None and not last.placed.warnings:
        is_known = Unaffected(last.placed.edits, last.upstream, files)
    rendering = render_patch(selected, files, comparison.workspace.series, is_known)
    moved = tuple(_file_moves(last, rendering)) if last is not None else ()
    if rendering.placed is not None:
        if last is not None and rendering.skipped:
            followed = _placed_by_merge(comparison, files, (last, rendering), moved)
            if followed is not None:
                return followed
        verdict = _compare_rendering(last, rendering, moved, comparison)
        return verdict, rendering if verdict.patch_class in GOOD else None
    resemblances: tuple[Location, ...] = ()
    if last is not None:
        found, resemblances = _followed(comparison, files, (last, rendering), moved)
        if found is not None:
            return found
    if gone and not resemblances and _was_looked_for(selected, files):
        return _retired(selected, gone, rendering.errors), None
    placed = {edit.id: edit.text for edit in last.placed.edits} if last is not None and last.placed else {}
    before = last.before if last is not None else {}
    existing = add_moved_lines(rendering.errors, selected.patch, files, placed, before)
    has = add_existing(rendering.errors, last, rendering, comparison.build) if last is not None else {}
    conflict = _conflict(selected, rendering.errors, resemblances, gone, existing)
    conflict = _with_existing(comparison, conflict, rendering, has)
    if last is not None:
        conflict = replace(conflict, drift=_find_drifts(last, rendering))
    return conflict, None


def _followed(
    comparison: Comparison,
    files: UpstreamFiles,
    renderings: tuple[Rendering, Rendering],
    moves: tuple[Move, ...],
) -> tuple[tuple[Classified, Rendering | None] | None, tuple[Location, ...]]:
    """The class of a patch whose places were found again, or None; and functions that resemble lost ones.

    ``moves``: those of its files.
    """
    last, failed = renderings
    found, resemblances = follow(last, failed)
    if found is not None:
        again = render_patch(found.selected, files, comparison.workspace.series)
        if again.placed is not None:
            verdict = _compare_rendering(last, again, (*moves, *found.moves), comparison)
            agrees = verdict.agreement is not None and verdict.agreement.verdict == "agree"
            if found.certain or agrees:
                return (verdict, again if verdict.patch_class in GOOD else None), resemblances
        elif found.certain:
            failed, moves = again, (*moves, *found.moves)
    return _placed_by_merge(comparison, files, (last, failed), moves), resemblances


def _placed_by_merge(
    comparison: Comparison,
    files: UpstreamFiles,
    renderings: tuple[Rendering, Rendering],
    moves: tuple[Move, ...],
) -> tuple[Classified, Rendering] | None:
    """The class of a patch if git's merge shows the places of its edits; None if they are in doubt."""
    last, failed = renderings
    merged = follow_by_merge(last, failed, comparison.workspace.reporter)
    if merged is None:
        return None
    again = render_patch(merged.selected, files, comparison.workspace.series)
    if again.placed is None:
        return None
    verdict = _compare_rendering(last, again, (*moves, *merged.moves), comparison)
    return (verdict, again) if verdict.patch_class in GOOD else None


def _known_before_placing(
    comparison: Comparison, selected: Selected, gone: tuple[Gone, ...], files: UpstreamFiles
) -> Classified | None:
    if not selected.targets:
        return _not_chosen(comparison, selected, gone, files)
    superseded = _superseded(comparison, selected)
    if superseded is None and any(each.what == "option" for each in gone):
        # Its places may all still exist, but code under a guard of a removed option is never compiled.
        return _retired(selected, gone, ())
    return superseded


def _superseded(comparison: Comparison, selected: Selected) -> Classified | None:
    replacement = find_replacement(selected.patch, comparison.files)
    if replacement is None:
        return None
    place, why = replacement
    return _verdict(
        selected, "superseded", why, proof=(f"{place} has the replacement that patch.toml names",)
    )


def _conflict(
    selected: Selected,
    errors: tuple[PatchkitError, ...],
    resemblances: tuple[Location, ...],
    gone: tuple[Gone, ...],
    existing: tuple[Location, ...],
) -> Classified:
    for error in errors:
        if isinstance(error, EntityNotFound):
            error.where = (*error.where, *resemblances)
    reason = "an edit cannot be placed"
    if len(errors) > 1:
        many = counted(len(errors), "edit")
        edits = len(selected.patch.edits)
        reason = f"{f'{len(errors)} of {edits} edits' if edits > len(errors) else many} cannot be placed"
    if existing:
        reason += f"; upstream may have the change already: {', '.join(map(str, existing))}"
    return _verdict(selected, "conflict", reason, gone=gone, problems=errors)


def _with_existing(
    comparison: Comparison, conflict: Classified, rendering: Rendering, has: Mapping[str, Location]
) -> Classified:
    """The conflict with the places where upstream has the code of some edits, and the next step if of all."""
    if not has:
        return conflict
    edits = {edit.where: edit.id for edit in rendering.patch.edits}
    there = {
        edits[place]
        for error in rendering.errors
        if error.code == "EDIT_THERE_ALREADY"
        for place in error.where
        if place in edits
    }
    places = ", ".join(dict.fromkeys(f"{place.path}:{place.line}" for place in has.values()))
    is_all = {*has, *there} == {edit.id for edit in rendering.patch.edits} and not rendering.patch.files
    what = "it" if is_all else f"the code of {', '.join(has)}"
    reason = f"upstream has {what}, except for comments, #if lines or names: {places}"
    if not is_all:
        return replace(conflict, reason=f"{conflict.reason}; {reason}")
    last = comparison.build - 1
    step = f"compare both; if upstream's code is enough, end the patch: [builds] last = {last}"
    return replace(conflict, reason=reason, next_step=step)


def _not_chosen(
    comparison: Comparison, selected: Selected, gone: tuple[Gone, ...], files: UpstreamFiles
) -> Classified:
    """The class of a patch that was not selected here.

    The end of its build range does not prove that it is unnecessary, so its dependencies are looked up.
    """
    builds = selected.patch.builds
    reason = selected.reason.removeprefix("not for this build: ")
    ended = builds.last is not None and comparison.build > builds.last
    if builds.covers(comparison.build):
        required = _out_of_range_requirements(comparison, selected)
        if not required:
            return _verdict(selected, "off", selected.reason)
        ended, reason = comparison.build > builds.first, f"with {required}: {selected.reason}"
    superseded = _superseded(comparison, selected) if ended else None
    if superseded is not None:
        return superseded
    looked = _was_looked_for(selected, files)
    if ended and gone and looked and not _is_elsewhere(comparison, selected, gone, files):
        return _retired(selected, gone, ())
    return _verdict(selected, "out of range", reason, gone=gone)


def _was_looked_for(selected: Selected, files: UpstreamFiles) -> bool:
    """Whether every file was read to which removed code may have moved.

    All sources of ggml-cuda's folders are read. Code that a plain patch edits elsewhere may have moved to a
    file that was not read.
    """
    folders = {edit.file.rpartition("/")[0] for edit in selected.patch.edits}
    return folders <= set(header_folders(files.project))


def _is_elsewhere(
    comparison: Comparison, selected: Selected, gone: tuple[Gone, ...], files: UpstreamFiles
) -> bool:
    """Whether a function that seems gone was only renamed or moved, or another one resembles it."""
    last = comparison.last.get(selected.patch.id)
    if last is None or any(each.what == "option" for each in gone):
        return False
    rendering = render_patch(replace(last.selected, patch=selected.patch), files, comparison.workspace.series)
    if rendering.placed is not None:
        return True
    found, near = follow(last, rendering)
    return found is not None or bool(near)


def _out_of_range_requirements(comparison: Comparison, selected: Selected) -> str:
    """The required patches that are out of range, if that is what excludes this patch."""
    if UNMET not in selected.reason:
        return ""
    builds = {each.patch.id: each.patch.builds for each in comparison.chosen}
    out = [each.patch for each in selected.patch.requires if not builds[each.patch].covers(comparison.build)]
    return ", ".join(out)


def _retired(selected: Selected, gone: tuple[Gone, ...], problems: tuple[PatchkitError, ...]) -> Classified:
    builds = selected.patch.builds
    until = f"to {build_name(builds.last)}" if builds.last is not None else "and later"
    reason = (
        f"upstream no longer has {', '.join(map(str, gone))}; "
        f"the patch is for {build_name(builds.first)} {until} ({builds.why})"
    )
    proof = ("searched every source file in the folders that the series edits",)
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
        intent=patch.why or "",
        patch_class=patch_class,
        reason=reason,
        proof=proof,
        gone=gone,
        problems=problems,
    )


def _upstreamed(comparison: Comparison) -> dict[str, str]:
    """Patches whose change upstream has, with the proof.

    The proof: reverting all of them and placing them again gives upstream's own tokens.
    """
    steps, reverted = _reverted(comparison)
    if not reverted.found:
        return {}
    upstream = comparison.files
    files = upstream.with_others(reverted.files, reverted.modes)
    forms = dict(reverted.found)
    for name in forms:
        rendering = render_patch(comparison.last[name].selected, files, comparison.workspace.series)
        if rendering.placed is None:
            return {}
        files.write(rendering.placed.changes, rendering.placed.gone, rendering.placed.modes)
    conditions = frozenset(condition for step in steps for condition in step.conditions)
    if any(files.mode(path) != upstream.mode(path) for path in reverted.modes):
        return {}
    for path in reverted.files:
        again, has = files.read(path), upstream.base.get(path)
        if again is None or has is None:
            if again is not has:
                return {}
            continue
        if "bare" in forms.values():
            again, has = bare(path, again, conditions), bare(path, has, conditions)
        if not same_tokens(path, again, has):
            return {}
    return {
        name: f"reverted from upstream with the whole series in reverse order ({form}), and placed again by "
        "structure: the same tokens as upstream's in every file it touches"
        for name, form in reverted.found
    }


def _reverted(comparison: Comparison) -> tuple[tuple[Step, ...], RevertedTree]:
    """The patches that are compared with upstream, and upstream without those that it has.

    A patch that removes what an earlier one of the series adds is not compared: its change is "in" every
    upstream that has neither of them, also in the old one.
    """
    steps = {name: _step(last) for name, last in comparison.last.items() if last.placed is not None}
    upstream, reporter = comparison.files, comparison.workspace.reporter
    while True:
        reverted = revert_steps(tuple(steps.values()), upstream.base, reporter, upstream.mode)
        vacuous = [
            name
            for name, _ in reverted.found
            for old in [comparison.last[name].upstream]
            if revert_steps([steps[name]], old.base, reporter, old.mode).found
        ]
        if not vacuous:
            return tuple(steps.values()), reverted
        steps = {name: step for name, step in steps.items() if name not in vacuous}


def _merged(comparison: Comparison) -> dict[str, str]:
    """Patches whose pull request is in upstream as it was imported, with the proof.

    The pull request is used because a guarded patch has GPU checks that the pull request lacks, so the text
    of the patch itself is not found in upstream.
    """
    upstream, reporter = comparison.files.base, comparison.workspace.reporter
    names = [each.patch.id for each in comparison.chosen if each.targets]
    return {
        name: "the change of the pull request that it was imported from, reverted from upstream as text and "
        "applied again: the same tokens as upstream's in every file it touches"
        for name in names
        if comparison.pulls.get(name)
        and all(
            has_change(each.path, upstream.get(each.path), each.before, each.after, reporter)
            for each in comparison.pulls[name]
        )
    }


def _step(last: Rendering) -> Step:
    guard = make_guard(last.patch.guard, last.selected.targets)
    step = Step(id=last.patch.id, before=last.before, after={}, conditions=(guard.device, guard.region))
    placed = last.placed
    if placed is None:
        return step
    return replace(
        step,
        after=placed.changes,
        gone=placed.gone,
        renamed=placed.renamed,
        replaced=placed.replaced,
        modes=placed.modes,
    )

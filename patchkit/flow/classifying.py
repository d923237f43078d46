"""Every patch of a series on a new upstream, classified in one run, whatever happens to the others.

Vocabulary: see :mod:`patchkit.classify.model`. The *old* upstream is the one of the last rendering;
without one (a patch that is new on this upstream) a patch can be clean, but nothing was compared, and
the proof says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchkit.anchors.resolve import EntityNotFound
from patchkit.classify.model import GOOD, Classified, Gone, Move, PatchClass
from patchkit.classify.premise import find_gone
from patchkit.classify.reverse import Step, bare, take_out
from patchkit.classify.superseded import find_replacement
from patchkit.classify.threeway import same_tokens
from patchkit.errors import Location, PatchkitError
from patchkit.flow.comparing import compare_rendering, find_drifts, follow
from patchkit.flow.context import make_guard
from patchkit.flow.rendering import Rendering, render_patch
from patchkit.flow.selection import Selected
from patchkit.flow.upstream import UpstreamFiles
from patchkit.report import Reporter
from patchkit.series_dir import SeriesDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared with what; ``last`` has the last rendering of each patch that has one."""

    series: SeriesDir
    build: int
    chosen: tuple[Selected, ...]
    files: UpstreamFiles
    last: Mapping[str, Rendering]
    reporter: Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocked:
    """Why a patch cannot be in without another one, and what took that one away."""

    patch_class: PatchClass
    reason: str
    gone: tuple[Gone, ...]


@dataclass(slots=True, kw_only=True)
class _Run:
    """One pass over the series; ``blocked`` are patches whose requirement was not met in the last pass.

    They are retired with a requirement that is retired, else a conflict.
    """

    comparison: Comparison
    upstreamed: Mapping[str, str]
    blocked: dict[str, _Blocked] = field(default_factory=dict)


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


def _unmet(run: _Run, verdicts: Sequence[Classified], renderings: Sequence[Rendering]) -> dict[str, _Blocked]:
    """Patches that are in although one they require is not, and not upstream either."""
    known = {verdict.id: verdict for verdict in verdicts}
    placed = {rendering.patch.id for rendering in renderings}
    found: dict[str, _Blocked] = {}
    for rendering in renderings:
        for requirement in rendering.patch.requires:
            needed = known.get(requirement.patch)
            state = needed.patch_class if needed is not None else "off"
            if requirement.patch not in placed and state != "upstreamed":
                blocked = _Blocked(
                    patch_class="retired" if state == "retired" else "conflict",
                    reason=f"requires '{requirement.patch}', which is {state}: {requirement.why}",
                    gone=needed.gone if needed is not None and state == "retired" else (),
                )
                found.setdefault(rendering.patch.id, blocked)
    return {name: why for name, why in found.items() if name not in run.blocked}


def _classify(run: _Run, selected: Selected, files: UpstreamFiles) -> tuple[Classified, Rendering | None]:
    comparison = run.comparison
    gone = _gone(comparison, selected)
    known = _known_before_placing(run, selected, gone, files)
    if known is not None:
        return known, None
    comparison.reporter.step(f"placing {selected.patch.id}")
    rendering = render_patch(selected, files, comparison.series)
    last = comparison.last.get(selected.patch.id)
    if rendering.placed is not None:
        return _compared(comparison, last, rendering, ())
    resemblances: tuple[Location, ...] = ()
    if last is not None:
        found, resemblances = follow(last, rendering)
        if found is not None:
            again = render_patch(found.selected, files, comparison.series)
            if again.placed is not None:
                verdict, made = _compared(comparison, last, again, found.moves)
                agrees = verdict.agreement is not None and verdict.agreement.verdict == "agree"
                if found.certain or agrees:
                    return verdict, made
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
        everything = tuple(dict.fromkeys([*gone, *blocked.gone]))
        return _verdict(selected, blocked.patch_class, blocked.reason, gone=everything)
    superseded = _superseded(comparison, selected)
    if superseded is not None:
        return superseded
    if any(each.what == "option" for each in gone):
        # Its places may all be there still, and nobody would ever compile what stands under such a guard.
        return _retired(selected, gone, ())
    return None


def _superseded(comparison: Comparison, selected: Selected) -> Classified | None:
    files = comparison.files
    replacement = find_replacement(selected.patch, files.base, files.upstream_scopes)
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


def _compared(
    comparison: Comparison, last: Rendering | None, rendering: Rendering, moves: tuple[Move, ...]
) -> tuple[Classified, Rendering | None]:
    verdict = compare_rendering(last, rendering, moves, comparison.reporter)
    return verdict, rendering if verdict.patch_class in GOOD else None


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


def _gone(comparison: Comparison, selected: Selected) -> tuple[Gone, ...]:
    files = comparison.files

    def defines(path: str, name: str) -> bool:
        return any(
            entity.answers_to(name)
            for entity in files.upstream_scopes(path).entities
            if entity.kind != "record"
        )

    return find_gone(selected.patch, files.base, files.names, defines)


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
    guard = make_guard(last.patch.guard_macros, last.selected.targets)
    changes = last.placed.changes if last.placed is not None else {}
    return Step(
        id=last.patch.id,
        before=last.before,
        after=changes,
        conditions=(guard.device, guard.region),
    )

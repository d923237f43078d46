"""A patch that cannot be placed on a new upstream: collect what is known, and make its new edits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.arch import list_profiles
from patchkit.base.errors import AnchorError, PatchkitError, UsageError, members_of
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import PLAIN
from patchkit.base.source import SourceText
from patchkit.base.text import counted
from patchkit.base.toml import load_toml, parse_toml
from patchkit.base.workspace import Workspace
from patchkit.carry.bump.request import BumpRequest, Variant, find_variants
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.candidate.lock import holding_results, renew_inputs
from patchkit.carry.candidate.renames import followed_series
from patchkit.carry.judging.classes import GOOD, Classified
from patchkit.carry.judging.conflict_markers import (
    Labels,
    Order,
    interleave,
    list_conflicts,
    mark_differences,
)
from patchkit.carry.judging.judge import SeriesJudge
from patchkit.carry.judging.merge import (
    MergedFile,
    doubt_of,
    has_two_insertions,
    merge_rendering,
    unmergeable_files,
)
from patchkit.carry.judging.rendering import Rendering, decided_files, render_patch
from patchkit.carry.judging.requirements import PatchStack
from patchkit.carry.lifting.change import Changeset, FileChange
from patchkit.carry.lifting.kept import Remainder, split_change
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.lifting.trial import require_same
from patchkit.carry.lifting.write import NewEdit, read_text
from patchkit.carry.placing.place import place_patch, render_edits
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.resolving.builds import Succession, succeed, table_at
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import Lock, Pin, load_lock
from patchkit.carry.series.patch import Edit, Patch, path_of
from patchkit.carry.series.profile import load_profiles
from patchkit.carry.series.selection import Selected, opted_in, terms_of
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.pin import find_pinned, obtain
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The target: a pin, whose tree is that of the commit ``base`` in the cache."""

    pin: Pin
    base: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A patch that cannot be placed on the target, and everything that is known about it.

    ``patch`` has the edits of all builds, ``selected`` those of the target. ``last``: its rendering on
    ``old``, on ``old_files``. ``files``: the target with the earlier patches of the series. ``pending``: the
    earlier patches of the same files that are in conflict there too; both trees are without them.
    """

    patch: Patch
    selected: Selected
    old: Pin
    new: Destination
    last: Rendering
    old_files: UpstreamFiles
    files: UpstreamFiles
    verdict: Classified
    merged: tuple[MergedFile, ...]
    pending: tuple[str, ...] = ()

    @property
    def differing(self) -> Mapping[str, bytes]:
        """The files of which placing by structure gives other code than the merge, as it gives them."""
        return self.verdict.agreement.differing if self.verdict.agreement is not None else {}

    def labels(self, path: str) -> Labels:
        """Names of the three sides in the conflict markers of a file."""
        if path in self.differing:
            return _VERSIONS
        return case_labels(self.patch.id, self.old, self.new.pin)

    def changeset(self, files: Sequence[FileChange]) -> Changeset:
        """A changeset on the target."""
        pin = self.new.pin
        return Changeset(build=pin.build, base=self.new.base, name=pin.name, files=tuple(files))

    def doubts(self) -> dict[str, str]:
        """By path, why git's merge needs to be checked."""
        found = {each.path: each.doubt for each in self.merged if each.doubt}
        for problem in self.verdict.problems:
            if problem.code == "EDIT_THERE_ALREADY":  # git's merge would duplicate it
                path = next((place.path for place in problem.where[1:]), "")
                found.setdefault(path, f"{problem.message}, in line {problem.where[-1].line}")
        return found

    def has_only_insertions(self) -> bool:
        """Whether every file to be checked has only conflicts of two complete insertions at one place."""
        doubts = self.doubts()
        open_ones = [each for each in self.merged if each.path in doubts]
        return len(open_ones) == len(doubts) > 0 and all(
            each.path not in self.differing and has_two_insertions(each, self.labels(each.path))
            for each in open_ones
        )


_VERSIONS = ("git's merge", "in common: nothing", "the present edits")
"""Names of the two versions of a file that differ, in conflict markers."""


def case_labels(patch: str, old: Pin, new: Pin) -> Labels:
    """Names of the patch, the old and the new upstream in conflict markers."""
    return (f"{patch} on {old.name}", f"upstream {old.name}", f"upstream {new.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The result for a patch. ``edits``: new from ``build`` on; ``ended``: ids of those that end before it.

    ``kept``: ids of the edits that are for both builds.
    ``how``: ``placed`` (nothing to do), ``regenerated`` (merged by git), ``ordered`` (two insertions, in the
    order that the user chose) or ``resolved`` (edited by the user).
    ``renewed``: results of the lock whose file digests were updated. ``stale``: other results with the patch,
    which have to be recorded again.
    """

    json_keys: ClassVar = (
        "patch build old_build=old state=how edits places ended kept lock_renewed=renewed lock_stale=stale "
        "warnings"
    )

    patch: str
    build: int
    old: int | None
    how: str
    edits: tuple[NewEdit, ...] = ()
    places: Mapping[str, str] | None = None
    ended: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    renewed: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def with_order(case: Case, order: Order) -> Case:
    """The case with every conflict of two insertions merged in this order.

    Raises RESOLVE_BY_HAND if another conflict is left, or if the result would still have to be checked.
    """
    merged = tuple(
        file if file.path in case.differing else _ordered(file, case.labels(file.path), order)
        for file in case.merged
    )
    doubts = {file.path: file.doubt for file in merged if file.doubt}
    if doubts:
        raise AnchorError(
            f"--{order} cannot merge '{case.patch.id}' at {case.new.pin.title}",
            code="RESOLVE_BY_HAND",
            where=case.patch.where,
            why="; ".join(f"{path}: {doubt}" for path, doubt in doubts.items()),
            hint="it is for conflicts of two insertions only: run the command without it, and edit the files",
        )
    return replace(case, merged=merged)


def _ordered(file: MergedFile, labels: Labels, order: Order) -> MergedFile:
    if not file.conflicts:
        return file
    rows = file.merged.split(b"\n")
    result: list[bytes] = []
    at = left = 0
    for each in list_conflicts(rows, labels):
        both = interleave(each, order)
        result += [*rows[at : each.first], *(both if both is not None else rows[each.first : each.stop])]
        at, left = each.stop, left + (both is None)
    data = b"\n".join([*result, *rows[at:]])
    doubt = f"{counted(left, 'conflict')} of changed lines"
    if not left:
        doubt = doubt_of(
            SourceText(file.was, file.base or b""),
            SourceText(file.was, file.patched),
            SourceText(file.path, file.upstream or b""),
            SourceText(file.path, data),
        )
    return replace(file, merged=data, conflicts=left, doubt=doubt)


def find_variant(request: BumpRequest, lock: Lock, pin: Pin, workspace: Workspace, patch: str) -> Variant:
    """The variant of the lock with which a patch was placed last, found as in a bump.

    If the lock has no results: without GPUs for a plain patch, else for the first GPU that has the patch.
    """
    build = pin.build
    if any(result.build <= build for result in lock.results):
        variants, _ = find_variants(request, lock, pin, workspace.series)
        return next((each for each in variants if patch in (each.patches_before or ())), variants[0])
    folder = workspace.series.profiles
    series = load_series(workspace.series.patches)
    named = series.require(patch)
    known = request.archs or ((PLAIN,) if named.is_plain else list_profiles(folder))
    profiles = load_profiles(folder, known)
    first = next(
        (each for each in profiles if terms_of(series, named, each, build).default != "off"), profiles[0]
    )
    archs = request.archs or (first.arch,)
    with_ = tuple(dict.fromkeys((*request.with_, *opted_in(series, [first], [patch], build))))
    return Variant(archs=archs, with_=with_, without=(), pins=(), patches_before=None)


def find_case(
    name: str,
    target: Destination,
    variant: Variant,
    workspace: Workspace,
    cache: Cache,
    repository: Repository,
    pending: Collection[str] = (),
) -> Case | Classified:
    """What there is to resolve; only the verdict if the patch can be placed.

    ``pending``: earlier patches to leave out of both trees, even if they can be placed by now.

    Raises:
        UNKNOWN_PATCH: the series has no such patch.
        RESOLVE_NOT_NEEDED: upstream has the change, or the patch is not for the target.
        RESOLVE_EARLIER_FIRST: an earlier patch that it requires, or cannot be placed without, is in conflict.
        UsageError: it cannot be placed on any older pin that is available.
        PatchkitError: from obtaining, reading and placing.
    """
    folder, reporter = workspace.series, workspace.reporter
    series, lock = load_series(folder.patches), load_lock(folder.lock)
    patch = series.require(name)
    judge = SeriesJudge(workspace=workspace, repository=repository, series=series)
    wish = Wish(with_=variant.with_, without=variant.without)
    decision = judge.decide(target.pin, variant.archs, wish).up_to(name)
    selected = decision.selected[-1]
    if not selected.targets:
        raise UsageError(
            f"'{name}' is not selected on {target.pin.title}: {selected.reason}",
            code="RESOLVE_NOT_NEEDED",
            where=patch.where,
            hint="if you need it there, extend its [builds], or turn it on for the GPU",
        )
    last, old, old_base, old_files = _last(name, variant, target.pin, judge, cache, lock)
    files = judge.read(target.base)
    reporter.step(f"placing '{name}' on {target.pin.title}")
    judged = judge.judge(decision, files, last)
    verdicts = judged.verdicts
    verdict = verdicts[-1]
    if verdict.patch_class in GOOD:
        return verdict
    _check_state(patch, verdict, target.pin)
    below = PatchStack(base=old_files, series=folder, reporter=NullReporter())
    for each, rendering in last.items():
        if each != name:
            below.add(rendering, (one.patch for one in rendering.patch.requires))
    pending = _pending(last[name], verdicts, pending, below, target.pin)
    last = last | {name: _without(last[name], pending, below)}
    whole = unmergeable_files(last[name])
    if whole:
        raise UsageError(
            f"change '{name}' by hand: it renames, replaces or sets the mode of {', '.join(whole)}",
            code="RESOLVE_BY_HAND",
            where=patch.where,
            why="a merge is written as edits of lines, which cannot express changes to whole files",
            hint="docs/guide/patch.md shows how; to see what does not fit: "
            f"patchkit plan --upstream {target.pin.name}",
        )
    now = PatchStack(base=files, series=folder, reporter=NullReporter())
    for rendering in judged.renderings:
        now.add(rendering, (one.patch for one in rendering.patch.requires))
    files = now.tree([each for each in now.entries if each not in pending])
    before = below.tree([each for each in below.entries if each not in pending])
    mine = last[name]
    labels = case_labels(name, old, target.pin)
    renamed: dict[str, str] = {}
    if any(files.read(path) is None for path in mine.before):
        moves = repository.git.renames(f"{old_base}^{{tree}}", f"{target.base}^{{tree}}")
        renamed = {each.source: each.path for each in moves if each.source is not None}
    files = _with_files(files, renamed.values(), target, series, repository)
    merged = merge_rendering(mine, files, labels, reporter, lambda path: renamed.get(path, path))
    case = Case(
        patch=patch,
        selected=selected,
        old=old,
        new=target,
        last=mine,
        old_files=before,
        files=files,
        verdict=verdict,
        merged=merged,
        pending=pending,
    )
    return replace(case, merged=tuple(_merged_or_decided(case, each, workspace) for each in merged))


def _merged_or_decided(case: Case, file: MergedFile, workspace: Workspace) -> MergedFile:
    """A merged file. If it differs from what the edits give: both; if the target has own edits, theirs."""
    other = case.differing.get(file.path)
    if other is not None:
        both, conflicts = mark_differences(file.merged, other, _VERSIONS)
        why = "placing by structure gives other code than git's merge"
        return replace(file, merged=both, conflicts=conflicts, doubt=why)
    decided = file.was in decided_files(case.last.patch, case.selected.patch)
    placed = _placed(case, file.path, workspace) if decided else None
    return file if placed is None else replace(file, merged=placed, conflicts=0, doubt="")


def _with_files(
    files: UpstreamFiles, paths: Iterable[str], target: Destination, series: Series, repository: Repository
) -> UpstreamFiles:
    """The same upstream with additional files, which the series does not name yet."""
    more = [path for path in paths if files.read(path) is None]
    if not more:
        return files
    wider = read_upstream(repository, target.base, (*series.read, *more))
    wider.write({path: data for path in files.paths if (data := files.read(path)) is not None})
    return wider


def _last(
    name: str, variant: Variant, target: Pin, judge: SeriesJudge, cache: Cache, lock: Lock
) -> tuple[dict[str, Rendering], Pin, str, UpstreamFiles]:
    """The newest rendering of the patch on an older pin, with those of the patches before it."""
    reporter = judge.workspace.reporter
    wish = Wish(with_=variant.with_, without=variant.without)
    older = sorted((pin for pin in lock.pins if pin.build < target.build), key=lambda pin: -pin.build)
    known = [
        pin for pin in older if pin in variant.compared or find_pinned(judge.repository, pin) is not None
    ]
    known = known or older[:1]  # fetched below
    for pin in known:
        decision = judge.decide(pin, variant.archs, wish, as_recorded=True).up_to(name)
        commit = obtain(pin, cache=cache, reporter=reporter)
        if name not in decision.ids:
            continue
        files = judge.read(commit)
        reporter.step(f"placing '{name}' on {pin.title}")
        last = judge.render(decision, files.fresh())
        if name in last:
            return last, pin, commit, files
    tried = ", ".join(pin.name for pin in known)
    raise UsageError(
        f"'{name}' cannot be placed on any pin before {target.title}",
        where=judge.series.require(name).where,
        why=f"tried: {tried}" if tried else "the lock has no older pin",
        hint="the lock must have a pin on which it can be placed; patchkit apply --upstream bN fetches it",
    )


def _check_state(patch: Patch, verdict: Classified, pin: Pin) -> None:
    """Raise if there is nothing to merge."""
    if verdict.patch_class not in {"conflict", "retired"}:
        raise UsageError(
            f"'{patch.id}' is {verdict.patch_class} at {pin.title}: {verdict.reason}",
            code="RESOLVE_NOT_NEEDED",
            where=patch.where,
            hint=f"end its build range with [builds] last = {pin.build - 1}",
        )


def _pending(
    mine: Rendering, verdicts: Sequence[Classified], wanted: Collection[str], below: PatchStack, pin: Pin
) -> tuple[str, ...]:
    """The earlier patches of the same files that are left out: those in conflict, and the wanted ones.

    Raises RESOLVE_EARLIER_FIRST if the patch requires one of them, or cannot be placed without it.
    """
    patch, own = mine.patch, mine.changes.keys()
    required = below.closure(each.patch for each in patch.requires)
    found: list[str] = []
    for other in verdicts[:-1]:
        is_open = other.patch_class == "conflict" or other.id in wanted
        if not is_open or other.id not in below.entries:
            continue
        touches = bool(own & below.entries[other.id].rendering.changes.keys())
        why = f"'{patch.id}' requires it" if other.id in required else ""
        if not why and touches:
            why = below.reason(mine, other.id)
        if why:
            raise AnchorError(
                f"resolve '{other.id}' first: it is in conflict at {pin.title} as well",
                code="RESOLVE_EARLIER_FIRST",
                where=patch.where,
                why=why,
                hint=f"patchkit resolve {other.id} --to {pin.name}",
            )
        found += [other.id] if touches else []
    return tuple(found)


def _without(mine: Rendering, pending: Collection[str], below: PatchStack) -> Rendering:
    """The last rendering of the patch, on the old tree without the pending ones."""
    if not pending:
        return mine
    files = below.tree([each for each in below.entries if each not in pending])
    return render_patch(mine.selected, files, below.series)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """New edits that were tried on a copy of the series, and their places.

    ``kept``: ids of the old edits that are still for the target.
    """

    succession: Succession
    places: Mapping[str, str]
    kept: tuple[str, ...]
    warnings: tuple[str, ...]


def make_edits(case: Case, results: Mapping[str, bytes], text: str, pipeline: Pipeline) -> Proven:
    """The edits that turn the target into ``results`` (all files, by path), tried on a copy of the series.

    ``text``: the present patch.toml. Every old edit that still does its part of the result is kept.

    Raises:
        RESOLVE_NOTHING_LEFT: the results are upstream's own files.
        EDITS_DIFFER: the new edits give another result, or change the result on the old pin.
        IMPORT_NOT_LIFTED, UsageError, and the errors of placing.
    """
    pin = case.new.pin
    wanted = {each.path: results[each.path] for each in case.merged if results[each.path] != each.upstream}
    if not wanted:
        raise UsageError(
            f"nothing of '{case.patch.id}' is left at {pin.title}: the result is the same as upstream",
            code="RESOLVE_NOTHING_LEFT",
            where=case.patch.where,
            hint=f"end its build range with [builds] last = {pin.build - 1}",
        )
    # A file that differs gets new edits in any case: they record what the user decided.
    changed = [
        each
        for each in case.merged
        if each.path in case.differing or _placed(case, each.path, pipeline.workspace) != results[each.path]
    ]
    files = [
        FileChange(path=each.path, before=each.upstream, after=wanted[each.path])
        for each in changed
        if each.path in wanted
    ]
    left = Remainder(files=tuple(files))
    if not case.differing:
        left = _left_to_lift(case, files, pipeline.workspace)
    try:
        return _prove(case, changed, left, wanted, text, pipeline)
    except PatchkitError:
        if not left.kept:
            raise
    return _prove(case, changed, Remainder(files=tuple(files)), wanted, text, pipeline)


def _left_to_lift(case: Case, files: Sequence[FileChange], workspace: Workspace) -> Remainder:
    """What the old edits that still fit the target do not do of the result."""
    texts = render_edits(case.selected, case.files, workspace.series.patches, workspace.series.templates)
    try:
        return split_change(case.selected.patch.edits, texts, files, keep=True)
    except PatchkitError:  # edits that now overlap
        return Remainder(files=tuple(files))


def _prove(
    case: Case,
    changed: Sequence[MergedFile],
    left: Remainder,
    wanted: Mapping[str, bytes],
    text: str,
    pipeline: Pipeline,
) -> Proven:
    """The kept edits and new ones for the rest, placed on both builds from a copy of the series."""
    pin = case.new.pin
    rest = [each for each in left.files if each.before != each.after]
    lifted = pipeline.lift(case.changeset(rest), is_guarded=False)
    paths = (each.was for each in changed)
    succession = succeed(case.patch, text, pin.build, paths, lifted.body, left.kept)
    with pipeline.open_stage() as stage:
        stage.put(succession)
        series = load_series(stage.series.patches)
        there = replace(case.selected, patch=_at(series, case.patch.id, pin))
        placed = stage.place(there, case.files)
        before = replace(case.last.selected, patch=_at(series, case.patch.id, case.old))
        again = stage.place(before, case.old_files)
    require_same(placed.changes, wanted, f"the merge at {pin.title}")
    require_same(again.changes, case.last.changes, f"the patch before at {case.old.title}")
    edits = zip(succession.body.edits, lifted.texts, strict=True)
    places = {edit.id: each.draft.place for edit, each in edits}
    kept = tuple(edit.id for edit in there.patch.edits if edit.id not in places)
    return Proven(succession=succession, places=places, kept=kept, warnings=placed.warnings)


def _placed(case: Case, path: str, workspace: Workspace) -> bytes | None:
    """A file of the target with the existing edits of it; None if it has none, or if they do not fit."""
    patch = case.selected.patch
    parts = [each for each in patch.parts if path_of(each) == path]
    if not parts:
        return None
    try:
        selected = replace(case.selected, patch=patch.only(parts))
        placed = place_patch(selected, case.files, workspace.series.patches, workspace.series.templates)
    except PatchkitError:
        return None
    return placed.changes.get(path)


def _at(series: Series, name: str, pin: Pin) -> Patch:
    return followed_series(series, pin).require(name).for_build(pin.build)


def write_resolved(case: Case, proven: Proven, how: str, workspace: Workspace) -> Resolved:
    """Write the new edits into the series, and the new digests of the patch's files into the lock.

    Raises as :meth:`Succession.put`, for example PATCH_CHANGED.
    """
    succession = proven.succession
    path = workspace.series.patches / case.patch.folder / "patch.toml"
    lock = load_lock(workspace.series.lock)
    holding = holding_results(lock, case.patch.id, workspace.series)
    succession.put(workspace.series)
    table, now = parse_toml(str(path), succession.text.encode()).table, load_toml(path).table
    # If the tables for a build did not change, its tree did not either.
    build_of = {result.key: result.build for result in lock.results}
    same = [key for key in holding if table_at(table, build_of[key]) == table_at(now, build_of[key])]
    renewed = renew_inputs(same, workspace.series)
    having = [result for result in lock.results if case.patch.id in result.patches]
    return Resolved(
        patch=case.patch.id,
        build=case.new.pin.build,
        old=case.old.build,
        how=how,
        edits=succession.body.edits,
        places=proven.places,
        ended=tuple(dict.fromkeys(e.id if isinstance(e, Edit) else e.path for e in succession.ended)),
        kept=proven.kept,
        renewed=tuple(result.name for result in renewed),
        stale=tuple(result.name for result in having if result.key not in same),
        warnings=(*proven.warnings, *_pending_warning(case)),
    )


def _pending_warning(case: Case) -> Iterator[str]:
    if case.pending:
        names = ", ".join(case.pending)
        yield f"made for the build without {names}, in conflict there too; a bump places them together"


def regenerate(
    case: Case, pipeline: Pipeline, how: str = "regenerated"
) -> Resolved | tuple[PatchkitError, ...]:
    """Write git's merge as the patch's new edits; if that is not possible, return the errors.

    Only for a plain patch whose merge has no doubts.
    """
    text = read_text(pipeline.workspace.series.patches / case.patch.folder)
    try:
        proven = make_edits(case, {each.path: each.merged for each in case.merged}, text, pipeline)
    except PatchkitError as error:
        if error.code == "RESOLVE_NOTHING_LEFT":
            raise
        return tuple(members_of(error))
    return write_resolved(case, proven, how, pipeline.workspace)

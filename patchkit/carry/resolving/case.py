"""A plain patch that a new upstream does not take: what is known of it, and its edits made anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.arch import list_profiles
from patchkit.base.errors import AnchorError, ErrorGroup, PatchkitError, UsageError
from patchkit.base.series_folder import PLAIN
from patchkit.base.toml import load_toml, parse_toml
from patchkit.base.workspace import Workspace
from patchkit.carry.bump.request import BumpRequest, Variant, find_variants
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.candidate.lock import holding_results, renew_inputs
from patchkit.carry.candidate.renames import followed_series
from patchkit.carry.judging.classes import GOOD, Classified
from patchkit.carry.judging.judge import SeriesJudge
from patchkit.carry.judging.merge import MergedFile, merge_rendering, unmergeable_files
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.lifting.change import Changeset, FileChange
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.lifting.trial import require_same
from patchkit.carry.lifting.write import NewEdit, read_text
from patchkit.carry.placing.place import place_patch
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.resolving.builds import Succession, said_at, succeed
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import Lock, Pin, load_lock
from patchkit.carry.series.patch import Edit, NewFile, Patch
from patchkit.carry.series.profile import load_profiles
from patchkit.carry.series.selection import Selected, opted_in, terms_of
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.pin import find_pinned, obtain
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a patch is to go: a pin whose tree is the commit ``base`` of the cache."""

    pin: Pin
    base: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One patch that is not placed on the target, and everything that is known of it.

    ``patch`` has the edits of all builds, ``selected`` those of the target; ``last`` is how it was placed on
    ``old``, on ``old_files``. ``files`` is the target with the patches before it. ``differs``: placing by
    structure and merging give other code.
    """

    patch: Patch
    selected: Selected
    old: Pin
    old_base: str
    new: Destination
    last: Rendering
    old_files: UpstreamFiles
    files: UpstreamFiles
    verdict: Classified
    merged: tuple[MergedFile, ...]

    @property
    def differs(self) -> bool:
        """Whether placing gave a result, and another one than the merge."""
        agreement = self.verdict.agreement
        return agreement is not None and agreement.verdict == "differ"

    @property
    def labels(self) -> tuple[str, str, str]:
        """The three sides, as a person tells them apart."""
        return case_labels(self.patch.id, self.old, self.new.pin)

    def changeset(self, files: Sequence[FileChange]) -> Changeset:
        """What becomes of files of the target."""
        pin = self.new.pin
        return Changeset(build=pin.build, base=self.new.base, name=pin.name, files=tuple(files))

    def doubts(self) -> dict[str, str]:
        """Why git's merge is not taken as it is, by path."""
        found = {each.path: each.doubt for each in self.merged if each.doubt}
        if self.differs and not found:
            why = "placing by structure gives other code than git's merge"
            found = {each.path: why for each in self.merged if not each.is_new and each.is_left}
        for problem in self.verdict.problems:
            if problem.code == "EDIT_THERE_ALREADY":  # git's merge would put it there once more
                path = next((place.path for place in problem.where[1:]), "")
                found.setdefault(path, f"{problem.message}, in line {problem.where[-1].line}")
        return found


def case_labels(patch: str, old: Pin, new: Pin) -> tuple[str, str, str]:
    """Names of the patch, the old and the new upstream in the marks of a conflict."""
    return (f"{patch} on {old.name}", f"upstream {old.name}", f"upstream {new.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What became of a patch. ``edits`` are new at ``build``, ``ended`` the ids of those that end before it.

    ``how``: ``placed`` (nothing was to be done), ``regenerated`` (git's merge) or ``resolved`` (a person's).
    ``renewed`` are results of the lock whose files are recorded as they are now, ``stale`` others that were
    recorded of other files before.
    """

    json_keys: ClassVar = (
        "patch build old_build=old state=how edits places ended lock_renewed=renewed lock_stale=stale "
        "warnings"
    )

    patch: str
    build: int
    old: int | None
    how: str
    edits: tuple[NewEdit, ...] = ()
    places: Mapping[str, str] | None = None
    ended: tuple[str, ...] = ()
    renewed: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def find_variant(request: BumpRequest, lock: Lock, pin: Pin, workspace: Workspace, patch: str) -> Variant:
    """The candidate of the lock with which a patch was placed last, as a bump takes it.

    Where the lock records none, a plain patch for no GPU, another one for the first that has it.
    """
    build = pin.build
    if any(result.build <= build for result in lock.results):
        variants, _ = find_variants(request, lock, pin, workspace.series)
        return next((each for each in variants if patch in (each.had or ())), variants[0])
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
    return Variant(archs=archs, with_=with_, without=(), builds=(), had=None)


def find_case(
    name: str,
    target: Destination,
    variant: Variant,
    workspace: Workspace,
    cache: Cache,
    repository: Repository,
) -> Case | Classified:
    """What there is to resolve; the verdict alone where the patch is placed.

    Raises:
        UNKNOWN_PATCH: the series has no such patch.
        RESOLVE_NOT_NEEDED: upstream has it, or it is not for the target.
        RESOLVE_EARLIER_FIRST: a patch before it is in conflict in the same files, or one that it requires.
        RESOLVE_NO_BASE: it was never placed on an older pin that is at hand.
        PatchkitError: of obtaining, reading and placing.
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
            f"'{name}' is not for {target.pin.title}: {selected.reason}",
            code="RESOLVE_NOT_NEEDED",
            where=patch.where,
            hint="let its [builds] reach the build, or turn it on for the GPU, if it is to be there",
        )
    last, old, old_base, old_files = _last(name, variant, target.pin, judge, cache, lock)
    files = judge.read(target.base)
    reporter.step(f"placing '{name}' on {target.pin.title}")
    judged = judge.judge(decision, files, last)
    verdicts = judged.verdicts
    verdict = verdicts[-1]
    if verdict.patch_class in GOOD:
        return verdict
    _check_state(patch, verdicts, last, target.pin)
    whole = unmergeable_files(last[name])
    if whole:
        raise UsageError(
            f"'{name}' renames, replaces or sets the mode of {', '.join(whole)}: it is changed by hand",
            code="RESOLVE_BY_HAND",
            where=patch.where,
            why="what is merged becomes edits, and no edit says that of a file",
            hint=f"docs/guide/patch.md; patchkit plan --upstream {target.pin.name} shows what does not fit",
        )
    files = files.fresh()
    for rendering in judged.renderings:
        files.write(rendering.placed.changes if rendering.placed is not None else {})
    before = old_files.fresh()
    for each, rendering in last.items():
        if each != name:
            before.write(rendering.placed.changes if rendering.placed is not None else {})
    mine = last[name]
    labels = case_labels(name, old, target.pin)
    renamed = _renamed(old_base, target.base, repository) if _lost(mine, files) else {}
    files = _with_files(files, renamed.values(), target, series, repository)
    merged = merge_rendering(mine, files, labels, reporter, lambda path: renamed.get(path, path))
    return Case(
        patch=patch,
        selected=selected,
        old=old,
        old_base=old_base,
        new=target,
        last=mine,
        old_files=before,
        files=files,
        verdict=verdict,
        merged=merged,
    )


def _lost(last: Rendering, files: UpstreamFiles) -> list[str]:
    return [path for path in last.before if files.read(path) is None]


def _with_files(
    files: UpstreamFiles, paths: Iterable[str], target: Destination, series: Series, repository: Repository
) -> UpstreamFiles:
    """The same upstream with some files more, which the series does not name yet."""
    more = [path for path in paths if files.read(path) is None]
    if not more:
        return files
    wider = read_upstream(repository, target.base, (*series.read, *more))
    wider.write({path: data for path in files.paths if (data := files.read(path)) is not None})
    return wider


def _renamed(old: str, new: str, repository: Repository) -> dict[str, str]:
    """The files that have another path in the new upstream, as git finds them by their content."""
    fields = repository.git.run(
        "diff-tree",
        "-r",
        "-z",
        "-M",
        "--diff-filter=R",
        "--name-status",
        f"{old}^{{tree}}",
        f"{new}^{{tree}}",
    ).split(b"\0")
    rows = zip(fields[1::3], fields[2::3], strict=False)
    return {was.decode("utf-8", "replace"): now.decode("utf-8", "replace") for was, now in rows}


def _last(
    name: str, variant: Variant, target: Pin, judge: SeriesJudge, cache: Cache, lock: Lock
) -> tuple[dict[str, Rendering], Pin, str, UpstreamFiles]:
    """The newest rendering of the patch on an older pin, and of those before it there."""
    reporter = judge.workspace.reporter
    wish = Wish(with_=variant.with_, without=variant.without)
    older = sorted((pin for pin in lock.pins if pin.build < target.build), key=lambda pin: -pin.build)
    known = [
        pin
        for pin in older
        if pin.build in variant.compared or find_pinned(judge.repository, pin) is not None
    ]
    known = known or older[:1]  # it is fetched then
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
        f"'{name}' is placed on no pin before {target.title}",
        code="RESOLVE_NO_BASE",
        where=judge.series.require(name).where,
        why=f"tried: {tried}" if tried else "the lock has no older pin",
        hint="the pin on which it is placed must be in the lock: patchkit apply --upstream bN fetches it",
    )


def _check_state(
    patch: Patch, verdicts: Sequence[Classified], last: Mapping[str, Rendering], pin: Pin
) -> None:
    """Raise where there is nothing to be merged, or something else has to be merged first."""
    verdict = verdicts[-1]
    if verdict.patch_class not in {"conflict", "retired"}:
        raise UsageError(
            f"'{patch.id}' is {verdict.patch_class} at {pin.title}: {verdict.reason}",
            code="RESOLVE_NOT_NEEDED",
            where=patch.where,
            hint=f"end its range: [builds] last = {pin.build - 1}",
        )
    own = _paths(last, patch.id)
    required = {each.patch for each in patch.requires}
    for other in verdicts[:-1]:
        if other.patch_class == "conflict" and (other.id in required or own & _paths(last, other.id)):
            raise AnchorError(
                f"'{other.id}' comes first: it is in conflict at {pin.title}, too",
                code="RESOLVE_EARLIER_FIRST",
                where=patch.where,
                why=f"'{patch.id}' stands on what that makes of the same files, or requires it",
                hint=f"patchkit resolve {other.id} --to {pin.name}",
            )


def _paths(last: Mapping[str, Rendering], name: str) -> set[str]:
    placed = last[name].placed if name in last else None
    return set(placed.changes) if placed is not None else set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A succession that was tried on a copy of the series, and where its edits go."""

    succession: Succession
    places: Mapping[str, str]
    warnings: tuple[str, ...]


def make_edits(case: Case, results: Mapping[str, bytes], text: str, pipeline: Pipeline) -> Proven:
    """The edits that make ``results`` (by path, of all files) of the target, proven on a copy of the series.

    ``text`` is what the patch.toml has. The old edits of a file stay for the target, too, where they give its
    result.

    Raises:
        RESOLVE_NOTHING_LEFT: the results are upstream's own files.
        EDITS_DIFFER: what was made gives another result, or another one than before on the old pin.
        IMPORT_NOT_LIFTED, RESOLVE_BUILDS, and the errors of placing.
    """
    pin = case.new.pin
    wanted = {each.path: results[each.path] for each in case.merged if results[each.path] != each.upstream}
    if not wanted:
        raise UsageError(
            f"nothing of '{case.patch.id}' is left at {pin.title}: upstream's files are the result",
            code="RESOLVE_NOTHING_LEFT",
            where=case.patch.where,
            hint=f"end its range: [builds] last = {pin.build - 1}",
        )
    anew = [each for each in case.merged if not _is_kept(case, each, results[each.path], pipeline.workspace)]
    files = [
        FileChange(path=each.path, before=each.upstream, after=wanted[each.path])
        for each in anew
        if each.path in wanted
    ]
    lifted = pipeline.lift(case.changeset(files), is_guarded=False)
    succession = succeed(case.patch, text, pin.build, (each.was for each in anew), lifted.body)
    was = case.last.placed.changes if case.last.placed is not None else {}
    with pipeline.open_stage() as stage:
        stage.put(succession)
        series = load_series(stage.series.patches)
        there = replace(case.selected, patch=_at(series, case.patch.id, pin))
        placed = stage.place(there, case.files)
        before = replace(case.last.selected, patch=_at(series, case.patch.id, case.old))
        again = stage.place(before, case.old_files)
    require_same(placed.changes, wanted, f"the merge at {pin.title}")
    require_same(again.changes, was, f"before at {case.old.title}")
    edits = zip(succession.body.edits, lifted.texts, strict=True)
    places = {edit.id: each.draft.place for edit, each in edits}
    return Proven(succession=succession, places=places, warnings=placed.warnings)


def _is_kept(case: Case, file: MergedFile, result: bytes, workspace: Workspace) -> bool:
    """Whether the edits that there are give this result of the file at the target, by themselves."""
    patch = case.selected.patch
    edits = tuple(each for each in patch.edits if each.file == file.path)
    files = tuple(each for each in patch.files if each.path == file.path)
    if not edits and not files:
        return False
    rest: tuple[Edit | NewFile, ...] = (
        *(e for e in patch.edits if e not in edits),
        *(f for f in patch.files if f not in files),
    )
    part = replace(patch, edits=edits, files=files, of_other_builds=(*patch.of_other_builds, *rest))
    try:
        selected = replace(case.selected, patch=part)
        placed = place_patch(selected, case.files, workspace.series.patches, workspace.series.templates)
    except PatchkitError:
        return False
    return placed.changes.get(file.path) == result


def _at(series: Series, name: str, pin: Pin) -> Patch:
    return followed_series(series, pin).require(name).for_build(pin.build)


def write_resolved(case: Case, proven: Proven, how: str, workspace: Workspace) -> Resolved:
    """Put what was proven into the series, and the new digests of the patch's files into the lock.

    Raises as :meth:`Succession.put`: PATCH_CHANGED, for one.
    """
    succession = proven.succession
    path = workspace.series.patches / case.patch.folder / "patch.toml"
    lock = load_lock(workspace.series.lock)
    holding = holding_results(lock, case.patch.id, workspace.series)
    succession.put(workspace.series)
    table, now = parse_toml(str(path), succession.text.encode()).table, load_toml(path).table
    # A build for which it says what it said gives the tree that it gave: nothing else was touched.
    same = [key for key in holding if said_at(table, key[0]) == said_at(now, key[0])]
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
        renewed=tuple(result.name for result in renewed),
        stale=tuple(result.name for result in having if result.key not in same),
        warnings=proven.warnings,
    )


def regenerate(case: Case, pipeline: Pipeline) -> Resolved | tuple[PatchkitError, ...]:
    """Git's merge as the patch's new edits, written; the errors of making them where that cannot be.

    Only for a plain patch without doubts.
    """
    text = read_text(pipeline.workspace.series.patches / case.patch.folder)
    try:
        proven = make_edits(case, {each.path: each.merged for each in case.merged}, text, pipeline)
    except PatchkitError as error:
        if error.code == "RESOLVE_NOTHING_LEFT":
            raise
        return tuple(error.errors) if isinstance(error, ErrorGroup) else (error,)
    return write_resolved(case, proven, "regenerated", pipeline.workspace)

"""``patchkit import QUEUE``: patch files, mails or commits become patches of the series, in order.

git makes the tree of each change on those before it, in an index of its own. On that tree the change is
lifted, placed on what the patches before it made, and the two results are compared. What is refused leaves
the rest standing: later changes go on without it, where they can. The series is written at the end, all of it
or nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import ClassVar, Literal

from patchkit.base.errors import (
    AnchorError,
    ExitCode,
    InterruptNote,
    Location,
    PatchkitError,
    UsageError,
    members_of,
)
from patchkit.base.files import temporary_folder, write_whole
from patchkit.base.series_folder import refuse_installed
from patchkit.base.source import SourceText
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.staging import name_series
from patchkit.carry.importing.commits import check_changes, own_repository
from patchkit.carry.importing.diffs import is_mail, read_diff, split_mails
from patchkit.carry.importing.for_whom import Guards, parse_guards
from patchkit.carry.importing.ground import Ground, Grounds
from patchkit.carry.importing.queue_sources import (
    Paths,
    QueuedChange,
    Reading,
    folder_of,
    is_queue,
    is_range,
)
from patchkit.carry.importing.refusal import explain
from patchkit.carry.importing.run import ImportRequest, run_import
from patchkit.carry.importing.standing import Queue, Standing, Trees
from patchkit.carry.judging.derive import merge_file
from patchkit.carry.judging.merge import doubt_of
from patchkit.carry.lifting.change import Authorship, FileChange, MovedHunk
from patchkit.carry.lifting.pipeline import Wanted, Written, guard_profiles, open_pipeline
from patchkit.carry.lifting.trial import Drafted, Guarded, Stage, Trial
from patchkit.carry.lifting.write import NewFolder, folder_files, next_number, patch_id, put_all, short_title
from patchkit.carry.onto.pin import AsBuild
from patchkit.carry.placing.place import PlacedPatch
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import PinWanted
from patchkit.carry.series.profile import ArchProfile
from patchkit.carry.upstream.clone import open_clone
from patchkit.carry.upstream.git import Git

State = Literal["lifted", "text", "refused", "left out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest:
    """What is imported, and how. ``guards`` are the values of ``--guard``, ``wanted`` has the rest.

    ``squash``: all changes as one patch. ``dry_run``: nothing is written. ``strip`` and ``prefix`` as in
    :class:`patchkit.carry.importing.queue_sources.Paths`.
    """

    sources: tuple[str, ...]
    guards: tuple[str, ...]
    wanted: Wanted
    strip: int | None = None
    prefix: str | None = None
    pull: int | None = None
    url: str | None = None
    repo: Path | None = None
    upstream: PinWanted = None
    as_build: AsBuild = None
    squash: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedPatch:
    """What became of one change. ``patches`` are ids with their folders: two where a guard fits a part.

    ``hunks`` of its ``edits`` are told by lines of the file alone; ``whole`` is what becomes of whole files.
    ``moved`` are hunks of the diff that were not at their own lines.
    """

    json_keys: ClassVar = (
        "name state patches=folders edits hunks new_files whole_files=whole requires=needed "
        "moved_hunks=moved errors note seconds"
    )

    name: str
    state: State
    patches: tuple[tuple[str, str], ...] = ()
    edits: int = 0
    hunks: int = 0
    new_files: int = 0
    whole: tuple[str, ...] = ()
    requires: tuple[tuple[str, str], ...] = ()
    moved: tuple[MovedHunk, ...] = ()
    error: PatchkitError | None = None
    note: str = ""
    seconds: float = 0.0

    @property
    def folders(self) -> dict[str, str]:
        """The folder of each patch by id."""
        return dict(self.patches)

    @property
    def needed(self) -> dict[str, str]:
        """Why each required patch is."""
        return dict(self.requires)

    @property
    def errors(self) -> tuple[PatchkitError, ...]:
        """Why it was refused, each reason."""
        return tuple(members_of(self.error)) if self.error is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """The whole queue: ``base`` is what it was placed on, ``because`` why; ``newest`` as of one patch."""

    json_keys: ClassVar = "queue=patches counts base base_because=because newest not_on_newest written"

    patches: tuple[QueuedPatch, ...]
    base: str
    because: str
    build: int
    newest: str
    not_on_newest: tuple[str, ...]
    written: bool

    def count(self, state: State) -> int:
        """How many changes came to that."""
        return sum(each.state == state for each in self.patches)

    @property
    def exit_code(self) -> ExitCode:
        """Whether all that has a diff is in."""
        return ExitCode.FEWER_PATCHES if self.count("refused") else ExitCode.OK

    @property
    def counts(self) -> dict[State, int]:
        """How many patches of the queue are in each state."""
        states: tuple[State, ...] = ("lifted", "text", "refused", "left out")
        return {state: self.count(state) for state in states}


def import_changes(request: QueueRequest, workspace: Workspace) -> Written | QueueReport:
    """Make patches of what is named: one of a single diff, mail, commit or pull request, else a queue.

    Raises:
        IMPORT_ONE_ONLY: an option of one patch, for several.
        PatchkitError: of reading the queue, of the pin, and of one patch as :func:`run_import` raises it.

    Whatever is raised, the series is as it was. What is refused of a queue is not raised: the report has it.
    """
    guards = parse_guards(request.guards)
    single = ImportRequest(
        wanted=replace(request.wanted, guard=guards.rules[0][1]),
        source=request.sources[0] if request.sources else None,
        pull=request.pull,
        url=request.url,
        repo=request.repo,
        as_build=request.as_build,
    )
    plain_guard = guards.rules[0][0] == "*"
    if request.pull is not None or not request.sources:
        _refuse_options(request, "is for files and commits, not for a pull request", plain_guard=plain_guard)
        return run_import(single, workspace)
    if request.dry_run and request.squash:
        raise UsageError(
            "--dry-run shows what becomes of each change, and --squash makes one patch of all",
            code="IMPORT_ONE_ONLY",
            hint="leave one of them out",
        )
    commits = not is_queue(request.sources) and is_range(request.sources[0])
    if commits:
        _refuse_paths(request)
    if not plain_guard or request.dry_run or is_queue(request.sources):
        return _run(request, guards, workspace)
    is_one = request.squash or _is_one(request, workspace)
    if is_one and commits:
        return run_import(single, workspace)  # of commits git knows both trees
    return _run(replace(request, squash=is_one), guards, workspace)


def _is_one(request: QueueRequest, workspace: Workspace) -> bool:
    """Whether the one source that is named is one change, as a diff, a mail or a commit is."""
    (source,) = request.sources
    if is_range(source):
        clone = open_clone(request.repo or Path.cwd(), workspace.reporter)
        return clone.count("--no-merges", source) < 2  # noqa: PLR2004 - of none, run_import tells
    data = read_diff(Path(source))
    if not is_mail(data):
        return True
    with temporary_folder("mails") as folder:
        mails = split_mails(data, source, folder, Git(reporter=workspace.reporter))
        return sum(bool(diff) for diff, _ in mails) < 2  # noqa: PLR2004


def _refuse_several(request: QueueRequest) -> None:
    """Raise IMPORT_ONE_ONLY for an option of one patch."""
    given = {
        "--id": request.wanted.id,
        "--title": request.wanted.title,
        "--lift": request.wanted.lifts,
    }
    for option in (name for name, value in given.items() if value):
        raise UsageError(
            f"{option} is for one patch, and this is a queue of several",
            code="IMPORT_ONE_ONLY",
            hint="leave it out; or make one patch of all: --squash",
        )


def _refuse_options(request: QueueRequest, why: str, *, plain_guard: bool) -> None:
    """Raise IMPORT_ONE_ONLY for an option of files."""
    given = {
        "--dry-run": request.dry_run,
        "--squash": request.squash,
        "--guard with a pattern": not plain_guard,
        "several files": request.sources[1:],
    }
    for option in (name for name, value in given.items() if value):
        raise UsageError(f"{option} {why}", code="IMPORT_ONE_ONLY", hint="leave it out")
    _refuse_paths(request)


def _refuse_paths(request: QueueRequest) -> None:
    """Raise IMPORT_ONE_ONLY for options that say how the paths of a diff are meant."""
    given = {"-p": request.strip is not None, "--prefix": request.prefix}
    for option in (name for name, value in given.items() if value):
        raise UsageError(
            f"{option} is for patch files: commits have their paths from the repository",
            code="IMPORT_ONE_ONLY",
            hint="leave it out; or write the commits to files first: git format-patch",
        )


def _run(request: QueueRequest, guards: Guards, workspace: Workspace) -> Written | QueueReport:
    refuse_installed(workspace.series)
    profiles = {name: guard_profiles(name, workspace.series.profiles) for name in guards.names}
    with (
        InterruptNote("the series is as it was: a queue is written when all of it was tried"),
        open_pipeline(workspace) as pipeline,
        temporary_folder("queue") as folder,
    ):
        trees = Trees(own_repository(folder, pipeline.repository))
        grounds = Grounds(
            sources=request.sources,
            paths=Paths(strip=request.strip, folder=folder_of(request.prefix)),
            repo=request.repo,
            upstream=request.upstream,
            as_build=request.as_build,
            pipeline=pipeline,
            trees=trees,
        )
        reading, ground = grounds.read(folder)
        if request.squash:
            return _squashed(grounds, replace(request.wanted, guard=_only_guard(guards)), reading, ground)
        if len(reading.changes) > 1:
            _refuse_several(request)
        with pipeline.open_stage() as stage:
            taking = _Taking(
                wanted=request.wanted,
                grounds=grounds,
                guards=guards,
                profiles=profiles,
                series=load_series(workspace.series.patches),
                ground=ground,
                stage=stage,
                queue=Queue(trees=trees, base=ground.tree, reporter=workspace.reporter),
            )
            found = taking.take_all(reading.changes)
            newest, missing = taking.look_at_newest()
        if not request.dry_run:
            put_all(taking.new, workspace.series)
    left_out = [QueuedPatch(name=name, state="left out", note=why) for name, why in reading.left_out]
    return QueueReport(
        patches=(*found, *left_out),
        base=ground.name,
        because=ground.because,
        build=ground.build,
        newest=newest,
        not_on_newest=missing,
        written=bool(taking.new) and not request.dry_run,
    )


def _only_guard(guards: Guards) -> str:
    """The one guard of all paths; raises IMPORT_ONE_ONLY."""
    if guards.rules[0][0] == "*":
        return guards.rules[0][1]
    raise UsageError(
        "--squash makes one patch, and --guard by patterns makes several",
        code="IMPORT_ONE_ONLY",
        hint="one --guard for all paths, or no --squash",
    )


def _squashed(grounds: Grounds, wanted: Wanted, reading: Reading, ground: Ground) -> Written:
    """All changes as one patch."""
    tree = ground.tree
    moved: list[MovedHunk] = []
    for name, why in reading.left_out:
        grounds.pipeline.workspace.reporter.warn(f"{name} is left out: {why}")
    for change in reading.changes:
        try:
            placed = grounds.trees.place(tree, change)
        except PatchkitError as error:
            raise explain(error, change, tree, grounds, ground) from error
        tree = placed.tree
        moved += placed.moved
    name = reading.changes[0].where.path if len(reading.changes) == 1 else "the queue"
    files = check_changes(grounds.trees.git.renames(ground.tree, tree), name, grounds.trees.git)
    by = Authorship.joined([change.by for change in reading.changes])
    title = by.subject or reading.changes[0].words
    return grounds.pipeline.make(ground.changeset(files, by, moved), wanted, title)


@dataclass(slots=True, kw_only=True)
class _Taking:
    """The queue on its way in. ``tree`` is git's tree of what is in.

    ``whole`` are, by a change's place and name, the trees around it where all that apply are there.
    ``new`` are the patches that are in, in order.
    """

    wanted: Wanted
    grounds: Grounds
    guards: Guards
    profiles: Mapping[str, tuple[ArchProfile, ...] | None]
    series: Series
    ground: Ground
    stage: Stage
    queue: Queue
    tree: str = ""
    files: UpstreamFiles = field(default_factory=lambda: UpstreamFiles({}))
    below: Guarded = field(default_factory=Guarded)
    new: list[NewFolder] = field(default_factory=list)
    refused: list[QueuedChange] = field(default_factory=list)
    whole: dict[tuple[Location, str], tuple[str, str]] = field(default_factory=dict)
    placed: list[PlacedPatch] = field(default_factory=list)

    @property
    def trees(self) -> Trees:
        return self.queue.trees

    @property
    def workspace(self) -> Workspace:
        return self.grounds.pipeline.workspace

    def take_all(self, changes: Sequence[QueuedChange]) -> tuple[QueuedPatch, ...]:
        """Take each change in, or say why not."""
        reporter = self.workspace.reporter
        self.tree = self.ground.tree
        read = [*self.series.read, *sorted(self._look_over(changes))]
        self.files = read_upstream(self.grounds.pipeline.repository, self.ground.commit, read)
        found = []
        with reporter.progress("importing the queue", "patches") as advance:
            for number, change in enumerate(changes, 1):
                reporter.step(f"{number} of {len(changes)}: {change.name}")
                start = time.monotonic()
                try:
                    done = self._take(change)
                except PatchkitError as error:
                    self.refused.append(change)
                    name_series(error, stage=self.stage.series.root, series=self.workspace.series)
                    done = QueuedPatch(name=change.name, state="refused", error=error)
                found.append(replace(done, seconds=time.monotonic() - start))
                advance(number, len(changes))
        return tuple(found)

    def _look_over(self, changes: Sequence[QueuedChange]) -> frozenset[str]:
        """All paths that are touched; fills ``whole``."""
        tree = self.ground.tree
        for change in changes:
            try:
                made = self.trees.place(tree, change).tree
            except PatchkitError:
                continue
            self.whole[change.where, change.name], tree = (tree, made), made
        return frozenset(path for change in changes for path in self._touched(change))

    def _take(self, change: QueuedChange) -> QueuedPatch:
        """One change, whole: all of its parts are in, or none; raises what stands against it."""
        note = ""
        moved: tuple[MovedHunk, ...] = ()
        try:
            placed_change = self.trees.place(self.tree, change)
            change, after, moved = placed_change.change, placed_change.tree, placed_change.moved
        except PatchkitError as error:
            merged = self._without_refused(change)
            if merged is None:
                raise self._refusal(error, change) from error
            names = ", ".join(self._needed(change))
            note = f"made for a tree with {names}, refused; git's three-way merge puts it where that is not"
            change, after = merged
        files = check_changes(self.trees.git.renames(self.tree, after), change.name, self.trees.git)
        split = self.guards.split([each.path for each in files], change.name)
        scratch = self.files.fresh()
        for placed in self.placed:
            scratch.write(placed.changes, placed.gone, placed.modes)
        parts: list[_Part] = []
        try:
            for guard, paths in split:
                parts.append(self._part(change, [f for f in files if f.path in paths], guard, scratch, parts))
                placed = parts[-1].trial.placed
                scratch.write(placed.changes, placed.gone, placed.modes)
            for part in parts:
                part.requires = self._requires(change, part, parts, after)
        except BaseException:
            for part in parts:
                part.new.take_back(self.stage.series)
            raise
        for part in parts:
            self._keep(change, part, after)
        self.tree, self.files = after, scratch
        return self._report(change, parts, note, moved)

    def _part(
        self,
        change: QueuedChange,
        files: Sequence[FileChange],
        guard: str,
        scratch: UpstreamFiles,
        before: Sequence[_Part],
    ) -> _Part:
        """What one guard makes of a change, tried on what is there; gone from the stage if that fails."""
        name = self._free_id(change, guard if before else None)
        title = short_title(self.wanted.title or change.by.subject or change.words)
        drafted = self.grounds.pipeline.draft(
            self.ground.changeset(files, change.by), self.wanted, (name, title), self.profiles[guard]
        )
        number = next_number(self.series) + len(self.new) + len(before)
        new = NewFolder(patch=drafted.patch, number=number, source=drafted.change.source)
        try:
            trial = self.stage.try_on(scratch, self.stage.put(new), drafted, self.below)
        except BaseException:
            new.take_back(self.stage.series)
            raise
        return _Part(new, drafted, trial)

    def _requires(
        self, change: QueuedChange, part: _Part, parts: Sequence[_Part], after: str
    ) -> tuple[tuple[str, str], ...]:
        """What a part stands on; what is for some GPUs only stands on what is for everybody, too."""
        edits = {edit.id: edit for edit in part.trial.made.edits}
        places = [(edits[each.id], each.locations) for each in part.trial.placed.edits]
        found = self.queue.requirements(change, part.paths, self.tree, after, places)
        if part is parts[0] or parts[0].trial.guard is not None:
            return found
        return (*found, (parts[0].new.patch.id, "it is the part of the same change that every build gets"))

    def _keep(self, change: QueuedChange, part: _Part, after: str) -> None:
        """A part is in: what comes next stands on it."""
        patch = replace(part.new.patch, requires=part.requires)
        part.new = replace(part.new, patch=patch)
        path = self.stage.series.patches / part.new.name / "patch.toml"
        write_whole(path, folder_files(patch)["patch.toml"], "writing the patch")
        self.new.append(part.new)
        new = Standing(patch=patch.id, change=change, paths=part.paths, requires=part.requires)
        old = {each.source or each.path: each.before for each in part.files}
        self.queue.add(new, self.tree, after, old)
        trial = part.trial
        if trial.guard is not None:
            self.below.add(trial.placed, part.drafted.texts, trial.guard)
        self.placed.append(trial.placed)

    def _report(
        self, change: QueuedChange, parts: Sequence[_Part], note: str, moved: tuple[MovedHunk, ...]
    ) -> QueuedPatch:
        patches = [part.new.patch for part in parts]
        edits = sum(len(patch.body.edits) for patch in patches)
        hunks = sum(bool(text.draft.reason) for part in parts for text in part.drafted.texts)
        notes = [note, *(warning for part in parts for warning in part.trial.placed.warnings)]
        if len(parts) > 1:
            whole = ", ".join(parts[0].paths)
            whom = "everybody" if parts[0].trial.guard is None else " ".join(patches[0].archs or ())
            notes.append(f"split: {whole} for {whom} ('{patches[0].id}'), the rest by itself")
        own = {patch.id for patch in patches}
        folder = self.workspace.series.patches
        return QueuedPatch(
            name=change.name,
            state="text" if edits and hunks == edits else "lifted",
            patches=tuple((part.new.patch.id, str(folder / part.new.name)) for part in parts),
            edits=edits,
            hunks=hunks,
            new_files=sum(len(patch.body.files) for patch in patches),
            whole=tuple(line for patch in patches for line in patch.body.whole.describe()),
            requires=tuple(
                dict.fromkeys((name, why) for part in parts for name, why in part.requires if name not in own)
            ),
            moved=moved,
            note="; ".join(text for text in notes if text),
        )

    def _free_id(self, change: QueuedChange, guard: str | None) -> str:
        """The id that was asked for, or one made of the change's name that no other patch has.

        Raises PATCH_ID_TAKEN: the series has it; the same queue twice is hardly meant.
        """
        wanted = self.wanted.id
        name = patch_id(wanted, change.words, self.series)
        if guard is not None:
            name = patch_id(f"{name}-{re.sub('[^a-z0-9]+', '-', guard.casefold())}", name, self.series)
        taken = {each.patch.id for each in self.new}
        more = (f"{name}-{number}" for number in count(2))
        return next(each for each in chain((name,), more) if each not in taken)

    def _needed(self, change: QueuedChange) -> list[str]:
        """The refused changes that it may stand on: with all before it, it applies, and they share a file."""
        touched = self._touched(change)
        return [other.name for other in self.refused if self._touched(other) & touched]

    def _touched(self, change: QueuedChange) -> frozenset[str]:
        ends = self.whole.get((change.where, change.name))
        return (
            frozenset(each.path for each in self.trees.git.changes(*ends))
            if ends is not None
            else frozenset()
        )

    def _without_refused(self, change: QueuedChange) -> tuple[QueuedChange, str] | None:
        """The change where the refused ones before it are not, by git's merge, and the tree that it makes.

        None: it needs their text, or is not to be had with them either.
        """
        ends = self.whole.get((change.where, change.name))
        if ends is None or not self._needed(change):
            return None
        files: dict[str, bytes] = {}
        for each in self.trees.git.changes(*ends):
            ours, base, theirs = (self.trees.read(tree, each.path) for tree in (self.tree, *ends))
            if each.letter == "A" and ours is None and theirs is not None:
                files[each.path] = theirs
                continue
            if each.letter != "M" or ours is None or base is None or theirs is None:
                return None
            merged, conflicts = merge_file(ours, base, theirs, self.workspace.reporter)
            texts = [SourceText(each.path, data) for data in (base, theirs, ours, merged)]
            if conflicts or doubt_of(*texts):
                return None
            files[each.path] = merged
        after = self.trees.write(self.tree, files)
        return replace(change, data=self.trees.diff(self.tree, after), strip=1), after

    def _refusal(self, error: PatchkitError, change: QueuedChange) -> PatchkitError:
        """Why a change is not placed here, as far as can be told."""
        needed = self._needed(change)
        if needed and isinstance(error, AnchorError):
            return AnchorError(
                f"{change.name} stands on what was refused",
                code="IMPORT_NEEDS_REFUSED",
                where=change.where,
                why=f"with {', '.join(needed)} it applies, and without it does not",
                hint="bring that one in first: write it by hand (docs/guide/patch.md), or split it",
            )
        return explain(error, change, self.tree, self.grounds, self.ground)

    def look_at_newest(self) -> tuple[str, tuple[str, ...]]:
        """What is known of the queue on the newest cached pin, and ids that have no place there."""
        if not self.new:
            return "nothing to look at", ()
        self.workspace.reporter.step("looking at the newest cached build")
        try:
            newest = self.stage.look_at_newest([each.patch for each in self.new])
        except PatchkitError as error:
            return f"it cannot be told: {error.message}", ()
        if not newest.missing:
            return newest.summary, ()
        placed = len(self.new) - len(newest.missing)
        have = f"{placed} of {len(self.new)} patches have a place there"
        return f"{newest.summary.partition(':')[0]}: {have}", newest.missing


@dataclass(slots=True)
class _Part:
    """What one guard makes of a change."""

    new: NewFolder
    drafted: Drafted
    trial: Trial
    requires: tuple[tuple[str, str], ...] = ()

    @property
    def files(self) -> tuple[FileChange, ...]:
        return self.drafted.change.files

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for each in self.files for path in (each.path, each.source) if path is not None)

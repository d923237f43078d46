"""``patchkit import QUEUE``: turn patch files, mails or commits into patches of the series, in order.

git applies each change on top of the earlier ones, in a separate index. The difference of the trees is lifted
and placed on the result of the earlier patches, and the two results are compared. If a change is refused,
later ones are still imported if they do not need it. The series is written at the end, all or nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from patchkit.base.series_folder import PLAIN, refuse_installed
from patchkit.base.text import free_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.staging import name_series
from patchkit.carry.importing.commits import check_changes, own_repository
from patchkit.carry.importing.diffs import is_mail, read_diff, split_mails
from patchkit.carry.importing.guard_patterns import Guards, parse_guards
from patchkit.carry.importing.queue_base import BaseFinder, QueueBase
from patchkit.carry.importing.queue_sources import (
    Paths,
    QueueContents,
    QueuedChange,
    folder_of,
    is_queue,
    is_range,
)
from patchkit.carry.importing.rejection import explain_rejection
from patchkit.carry.importing.run import ImportRequest, run_import
from patchkit.carry.importing.trees import Trees
from patchkit.carry.judging.requirements import PatchStack
from patchkit.carry.lifting.applied_patches import applied_stack
from patchkit.carry.lifting.change import Authorship, FileChange, MovedHunk
from patchkit.carry.lifting.pipeline import PatchOptions, Written, guard_profiles, open_pipeline
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

State = Literal["lifted", "text", "refused", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest:
    """What to import, and how. ``guards``: the values of ``--guard``; ``wanted``: the other patch options.

    ``squash``: make one patch of all changes. ``dry_run``: write nothing. ``strip`` and ``prefix``: as in
    :class:`patchkit.carry.importing.queue_sources.Paths`.
    """

    sources: tuple[str, ...]
    guards: tuple[str, ...]
    wanted: PatchOptions
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
    """The result for one change. ``patches``: ids with their folders; several if guards split the change.

    ``hunks``: how many of its ``edits`` are placed by lines of the file alone. ``whole``: changes to whole
    files. ``moved``: hunks of the diff that were applied at other lines than their header's.
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
        """The reason for each required patch."""
        return dict(self.requires)

    @property
    def errors(self) -> tuple[PatchkitError, ...]:
        """Every reason why it was refused."""
        return tuple(members_of(self.error)) if self.error is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """The result for a queue. ``base``: the upstream it was placed on; ``because``: why that one.

    ``newest``: the result on the newest cached pin, as text.
    """

    json_keys: ClassVar = "queue=patches counts base base_because=because newest not_on_newest written"

    patches: tuple[QueuedPatch, ...]
    base: str
    because: str
    build: int
    newest: str
    not_on_newest: tuple[str, ...]
    written: bool

    def count(self, state: State) -> int:
        """The number of changes in that state."""
        return sum(each.state == state for each in self.patches)

    @property
    def exit_code(self) -> ExitCode:
        """OK if no change was refused."""
        return ExitCode.FEWER_PATCHES if self.count("refused") else ExitCode.OK

    @property
    def counts(self) -> dict[State, int]:
        """The number of changes in each state."""
        states: tuple[State, ...] = ("lifted", "text", "refused", "skipped")
        return {state: self.count(state) for state in states}


def import_changes(request: QueueRequest, workspace: Workspace) -> Written | QueueReport:
    """Import one patch (from a single diff, mail, commit or pull request) or a queue.

    Raises:
        IMPORT_OPTIONS: an option that is valid for a single patch only.
        PatchkitError: from reading the queue, from the pin, and for one patch as :func:`run_import`.

    After any exception the series is unchanged. Changes of a queue that are refused are in the report, not
    raised.
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
            "--dry-run cannot be combined with --squash",
            code="IMPORT_OPTIONS",
            why="--dry-run reports what each change would become, and --squash makes one patch of all",
        )
    commits = not is_queue(request.sources) and is_range(request.sources[0])
    if commits:
        _refuse_paths(request)
    if not plain_guard or request.dry_run or is_queue(request.sources):
        return _run(request, guards, workspace)
    is_one = request.squash or _is_one(request, workspace)
    if is_one and commits:
        return run_import(single, workspace)  # for commits git has both trees
    return _run(replace(request, squash=is_one), guards, workspace)


def _is_one(request: QueueRequest, workspace: Workspace) -> bool:
    """Whether the only source is a single change: one diff, one mail or one commit."""
    (source,) = request.sources
    if is_range(source):
        clone = open_clone(request.repo or Path.cwd(), workspace.reporter)
        return clone.count("--no-merges", source) < 2  # noqa: PLR2004 - for none, run_import raises
    data = read_diff(Path(source))
    if not is_mail(data):
        return True
    with temporary_folder("mails") as folder:
        mails = split_mails(data, source, folder, Git(reporter=workspace.reporter))
        return sum(bool(diff) for diff, _ in mails) < 2  # noqa: PLR2004


def _refuse_several(request: QueueRequest) -> None:
    """Raise IMPORT_OPTIONS for options that are valid for a single patch only."""
    given = {
        "--id": request.wanted.id,
        "--title": request.wanted.title,
        "--lift": request.wanted.lifts,
    }
    for option in (name for name, value in given.items() if value):
        raise UsageError(
            f"{option} is for a single patch, but this is a queue of several",
            code="IMPORT_OPTIONS",
            hint=f"run without {option}, or make one patch of all with --squash",
        )


def _refuse_options(request: QueueRequest, why: str, *, plain_guard: bool) -> None:
    """Raise IMPORT_OPTIONS for options that are valid for files only."""
    given = {
        "--dry-run": request.dry_run,
        "--squash": request.squash,
        "--guard with a pattern": not plain_guard,
        "several files": request.sources[1:],
    }
    for option in (name for name, value in given.items() if value):
        raise UsageError(f"{option} {why}", code="IMPORT_OPTIONS")
    _refuse_paths(request)


def _refuse_paths(request: QueueRequest) -> None:
    """Raise IMPORT_OPTIONS for options about the paths in a diff."""
    given = {"-p": request.strip is not None, "--prefix": request.prefix}
    for option in (name for name, value in given.items() if value):
        raise UsageError(
            f"{option} is for patch files; the paths of commits are those of the repository",
            code="IMPORT_OPTIONS",
            hint=f"run without {option}, or write the commits to files first with git format-patch",
        )


def _run(request: QueueRequest, guards: Guards, workspace: Workspace) -> Written | QueueReport:
    refuse_installed(workspace.series)
    profiles = {name: guard_profiles(name, workspace.series.profiles) for name in guards.names}
    with (
        InterruptNote("the series is unchanged: a queue is written only after all of it was tried"),
        open_pipeline(workspace) as pipeline,
        temporary_folder("queue") as folder,
    ):
        trees = Trees(own_repository(folder, pipeline.repository))
        finder = BaseFinder(
            sources=request.sources,
            paths=Paths(strip=request.strip, folder=folder_of(request.prefix)),
            repo=request.repo,
            upstream=request.upstream,
            as_build=request.as_build,
            pipeline=pipeline,
            trees=trees,
        )
        contents, queue_base = finder.read(folder)
        if request.squash:
            return _squashed(finder, replace(request.wanted, guard=_only_guard(guards)), contents, queue_base)
        if len(contents.changes) > 1:
            _refuse_several(request)
        with pipeline.open_stage() as stage:
            importer = _QueueImport(
                wanted=request.wanted,
                finder=finder,
                guards=guards,
                profiles=profiles,
                series=load_series(workspace.series.patches),
                queue_base=queue_base,
                stage=stage,
                trees=trees,
            )
            found = importer.import_all(contents.changes)
            newest, missing = importer.look_at_newest()
        if not request.dry_run:
            put_all(importer.new, workspace.series)
    skipped = [QueuedPatch(name=name, state="skipped", note=why) for name, why in contents.skipped]
    return QueueReport(
        patches=(*found, *skipped),
        base=queue_base.name,
        because=queue_base.because,
        build=queue_base.build,
        newest=newest,
        not_on_newest=missing,
        written=bool(importer.new) and not request.dry_run,
    )


def _only_guard(guards: Guards) -> str:
    """The one guard of all paths; raises IMPORT_OPTIONS."""
    if guards.rules[0][0] == "*":
        return guards.rules[0][1]
    raise UsageError(
        "--squash makes one patch, but --guard with patterns makes several",
        code="IMPORT_OPTIONS",
        hint="use one --guard for all paths, or run without --squash",
    )


def _squashed(
    finder: BaseFinder, wanted: PatchOptions, contents: QueueContents, queue_base: QueueBase
) -> Written:
    """Import all changes as one patch."""
    tree = queue_base.tree
    moved: list[MovedHunk] = []
    for name, why in contents.skipped:
        finder.pipeline.workspace.reporter.warn(f"skipped {name}: {why}")
    for change in contents.changes:
        try:
            placed = finder.trees.place(tree, change)
        except PatchkitError as error:
            raise explain_rejection(error, change, tree, finder, queue_base) from error
        tree = placed.tree
        moved += placed.moved
    name = contents.changes[0].where.path if len(contents.changes) == 1 else "the queue"
    files = check_changes(finder.trees.git.renames(queue_base.tree, tree), name, finder.trees.git)
    by = Authorship.joined([change.by for change in contents.changes])
    title = by.subject or contents.changes[0].words
    return finder.pipeline.make(queue_base.changeset(files, by, moved), wanted, title)


@dataclass(slots=True, kw_only=True)
class _QueueImport:
    """The import of a queue. ``tree``: git's tree with all imported changes.

    ``whole``: by a change's place and name, the trees before and after it if every change that applies is
    included. ``new``: the imported patches, in order.
    """

    wanted: PatchOptions
    finder: BaseFinder
    guards: Guards
    profiles: Mapping[str, tuple[ArchProfile, ...] | None]
    series: Series
    queue_base: QueueBase
    stage: Stage
    trees: Trees
    tree: str = ""
    files: UpstreamFiles = field(default_factory=lambda: UpstreamFiles({}))
    below: Guarded = field(default_factory=Guarded)
    new: list[NewFolder] = field(default_factory=list)
    refused: list[QueuedChange] = field(default_factory=list)
    whole: dict[tuple[Location, str], tuple[str, str]] = field(default_factory=dict)
    placed: list[PlacedPatch] = field(default_factory=list)

    @property
    def workspace(self) -> Workspace:
        return self.finder.pipeline.workspace

    def import_all(self, changes: Sequence[QueuedChange]) -> tuple[QueuedPatch, ...]:
        """Import each change, or record why it was refused."""
        reporter = self.workspace.reporter
        self.tree = self.queue_base.tree
        paths = self._look_over(changes)
        pipeline, base = self.finder.pipeline, self.queue_base
        self.files = read_upstream(pipeline.repository, base.commit, [*self.series.read, *sorted(paths)])
        # The templates of new patches are in the copy of the series.
        stage = self.stage.workspace
        stack = applied_stack(
            base.commit, base.build, paths, (PLAIN,), stage, pipeline.repository, pipeline.lock
        )
        found = []
        with reporter.progress("importing the queue", "patches") as advance:
            for number, change in enumerate(changes, 1):
                reporter.step(f"{number} of {len(changes)}: {change.name}")
                start = time.monotonic()
                try:
                    done = self._import_one(change, stack)
                except PatchkitError as error:
                    self.refused.append(change)
                    name_series(error, stage=self.stage.series.root, series=self.workspace.series)
                    done = QueuedPatch(name=change.name, state="refused", error=error)
                found.append(replace(done, seconds=time.monotonic() - start))
                advance(number, len(changes))
        return tuple(found)

    def _look_over(self, changes: Sequence[QueuedChange]) -> frozenset[str]:
        """All paths that the changes touch. Also fills ``whole``."""
        tree = self.queue_base.tree
        for change in changes:
            try:
                after = self.trees.place(tree, change).tree
            except PatchkitError:
                continue
            self.whole[change.where, change.name], tree = (tree, after), after
        return frozenset(path for change in changes for path in self._touched(change))

    def _import_one(self, change: QueuedChange, stack: PatchStack) -> QueuedPatch:
        """Import one change with all of its parts or none; raises the reason why it is refused."""
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
            note = f"made for a tree with {names} (refused); merged by git onto a tree without it"
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
                part.requires = _requires(part, parts, stack)
        except BaseException:
            for part in parts:
                part.new.take_back(self.stage.series)
            raise
        for part in parts:
            self._keep(part, stack)
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
        """The patch for the files of one guard, tried on the stage; removed from the stage if that fails."""
        name = self._free_id(change, guard if before else None)
        title = short_title(self.wanted.title or change.by.subject or change.words)
        drafted = self.finder.pipeline.draft(
            self.queue_base.changeset(files, change.by), self.wanted, (name, title), self.profiles[guard]
        )
        number = next_number(self.series) + len(self.new) + len(before)
        new = NewFolder(patch=drafted.patch, number=number, source=drafted.change.source)
        try:
            trial = self.stage.try_on(scratch, self.stage.put(new), drafted, self.below)
        except BaseException:
            new.take_back(self.stage.series)
            raise
        return _Part(new, drafted, trial)

    def _keep(self, part: _Part, stack: PatchStack) -> None:
        """Add a part to the imported patches, so that later ones can require it."""
        patch = replace(part.new.patch, requires=part.requires)
        part.new = replace(part.new, patch=patch)
        path = self.stage.series.patches / part.new.name / "patch.toml"
        write_whole(path, folder_files(patch)["patch.toml"], "writing the patch")
        self.new.append(part.new)
        stack.add(part.trial.rendering, (name for name, _ in part.requires))
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
            gpus = "all GPUs" if parts[0].trial.guard is None else " ".join(patches[0].archs or ())
            notes.append(f"split: {whole} for {gpus} ('{patches[0].id}'), the rest as separate patches")
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
        """The wanted id, or an unused one made from the change's name.

        Raises PATCH_ID_TAKEN if the series has it, because then the same queue was probably imported before.
        """
        wanted = self.wanted.id
        name = patch_id(wanted, change.words, self.series)
        if guard is not None:
            name = patch_id(f"{name}-{re.sub('[^a-z0-9]+', '-', guard.casefold())}", name, self.series)
        return free_name(name, {each.patch.id for each in self.new})

    def _needed(self, change: QueuedChange) -> list[str]:
        """The refused changes that it may need: it applies with all earlier ones, and they share a file."""
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
        """Merge the change with git onto a tree without the refused ones; the change, and the tree it gives.

        None if it needs their text, or does not apply with them either.
        """
        ends = self.whole.get((change.where, change.name))
        if ends is None or not self._needed(change):
            return None
        after = self.trees.carry_over(self.tree, *ends, self.workspace.reporter)
        if after is None:
            return None
        return replace(change, data=self.trees.git.diff(self.tree, after), strip=1), after

    def _refusal(self, error: PatchkitError, change: QueuedChange) -> PatchkitError:
        """The error for a change that cannot be placed, with as much explanation as is available."""
        needed = self._needed(change)
        if needed and isinstance(error, AnchorError):
            return AnchorError(
                f"{change.name} depends on a change that was refused",
                code="IMPORT_NEEDS_REFUSED",
                where=change.where,
                why=f"it applies with {', '.join(needed)}, and not without",
                hint="import that one first: write it by hand (docs/guide/patch.md), or split it",
            )
        return explain_rejection(error, change, self.tree, self.finder, self.queue_base)

    def look_at_newest(self) -> tuple[str, tuple[str, ...]]:
        """The result on the newest cached pin as text, and the ids that cannot be placed there."""
        if not self.new:
            return "not tried: no patch was imported", ()
        self.workspace.reporter.step("trying the newest cached build")
        try:
            newest = self.stage.look_at_newest([each.patch for each in self.new])
        except PatchkitError as error:
            return f"unknown: {error.message}", ()
        if not newest.missing:
            return newest.summary, ()
        placed = len(self.new) - len(newest.missing)
        result = f"{placed} of {len(self.new)} patches can be placed"
        return f"{newest.summary.partition(':')[0]}: {result}", newest.missing


@dataclass(slots=True)
class _Part:
    """The part of a change that has one guard."""

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


def _requires(part: _Part, parts: Sequence[_Part], stack: PatchStack) -> tuple[tuple[str, str], ...]:
    """The patches that a part requires; a guarded part also requires the unguarded part of its change."""
    found = stack.requirements(part.trial.rendering)
    if part is parts[0] or parts[0].trial.guard is not None:
        return found
    return (*found, (parts[0].new.patch.id, "it is the unguarded part of the same change"))

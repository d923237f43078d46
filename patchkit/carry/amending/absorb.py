"""``patchkit absorb``: put changes made to a branch with git into the series."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from patchkit.base.errors import AnchorError, InterruptNote, Location, PatchkitError, UsageError, raise_all
from patchkit.base.files import disk_errors, open_regular, write_whole
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import PLAIN, refuse_installed
from patchkit.base.text import visible
from patchkit.base.workspace import Workspace
from patchkit.carry.amending.check import broken_errors, compare_series, without
from patchkit.carry.amending.fold import run_fold
from patchkit.carry.amending.replace import Replaced, ReplaceRequest, run_replace
from patchkit.carry.amending.requiring import find_requirements, with_requirements
from patchkit.carry.amending.site import Site
from patchkit.carry.amending.staged import publish_series, read_series
from patchkit.carry.amending.uses import remove_patches, rename_faults, require_not_required
from patchkit.carry.candidate.commit import write_plan
from patchkit.carry.candidate.decision import Request, load_decision
from patchkit.carry.candidate.plan import make_plan
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.candidate.staging import copied_series
from patchkit.carry.candidate.trailers import cut_trailers
from patchkit.carry.importing.commits import commit_authorship
from patchkit.carry.importing.run import ImportRequest, run_import
from patchkit.carry.judging.requirements import Requirement
from patchkit.carry.lifting.pipeline import PatchOptions, open_pipeline
from patchkit.carry.lifting.tables import with_commit
from patchkit.carry.lifting.write import free_id, read_text, short_title
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.git_object import object_id
from patchkit.carry.series.lock import Lock, Pin, PinWanted, load_lock
from patchkit.carry.series.patch import Patch
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.clone import Clone, Commit, open_clone, read_commit
from patchkit.carry.upstream.pin import find_pinned, obtain

State = Literal["same", "replaced", "new", "combined"]

_DOING = "writing the series"
_ASIDE = "aside"
_MOST = 10_000  # above the number of any patch
# Names in the git folder while a command of git is not finished.
_UNFINISHED = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or git am",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "MERGE_HEAD": "a merge",
}
# Anywhere in the message, because git joins the messages of commits that it squashes.
_ID = re.compile(r"^Patchkit-Id: (\S+)[ \t\r]*$", re.MULTILINE)
# What differs in two diffs that change the same lines: blobs and places.
_PLACE = re.compile(rb"^(?:index |@@ ).*\n", re.MULTILINE)
_PROFILE = re.compile(r"^Patchkit-Profile: (\S+)", re.MULTILINE)
_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsorbRequest:
    """What to take back: the commits of ``revision`` in ``repo`` after the build ``upstream``.

    ``upstream`` None: the newest pin that the revision is based on. ``drop``: remove patches that have no
    commit there.
    """

    revision: str = "HEAD"
    repo: Path | None = None
    upstream: PinWanted = None
    drop: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsorbedPatch:
    """A commit of the branch and the patch that it became. ``combined``: patches that are now part of it.

    ``requires``: the patches that a new one requires, each with the reason. ``reworded``: it got the author,
    date or message of the commit.
    """

    json_keys: ClassVar = (
        "patch commit subject state combined changed added removed kept requires=needed reworded"
    )

    patch: str
    commit: str
    subject: str
    state: State
    combined: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    requires: tuple[Requirement, ...] = ()
    reworded: bool = False

    @property
    def needed(self) -> dict[str, str]:
        """The reason for each required patch."""
        return dict(self.requires)

    @property
    def is_changed(self) -> bool:
        """Whether the patch is another one now."""
        return self.reworded or self.state != "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Absorbed:
    """The result. ``missing``: patches without a commit, which stay in the series; ``dropped``: removed ones.

    ``moved``: new folders by old ones, for another order. ``stale``: results of the lock to record again.
    """

    json_keys: ClassVar = "base tip patches dropped missing moved lock_stale=stale warnings written"

    base: str
    tip: str
    patches: tuple[AbsorbedPatch, ...]
    dropped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    moved: Mapping[str, str]
    stale: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    written: bool = True

    @property
    def is_changed(self) -> bool:
        """Whether the series is another one now."""
        return bool(self.dropped or self.moved) or any(each.is_changed for each in self.patches)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BranchCommit:
    sha: str
    subject: str
    ids: tuple[str, ...]
    profiles: tuple[str, ...]

    @property
    def where(self) -> Location:
        return Location(path=self.sha)


def run_absorb(request: AbsorbRequest, workspace: Workspace) -> Absorbed:
    """Give the patches of the series the content of the commits of a branch that ``apply`` made.

    A commit belongs to the patch in its trailer ``Patchkit-Id``; one without is a new patch, unless its
    subject is that of a patch without a commit; one with several combines them. All of it happens in a copy
    of the series, which replaces the series only if its result on the build is exactly the tree of the
    branch.

    Raises:
        AMEND_REFUSED: the branch has no commits, merges, an unknown or repeated id, or a changed commit of
            a patch with a guard.
        AMEND_BREAKS: the patches do not give the tree of the branch.
        PatchkitError: from the clone, and as :func:`run_replace`, :func:`run_fold` and :func:`run_import`.

    After any exception the series is unchanged.
    """
    refuse_installed(workspace.series)
    clone = open_clone(request.repo or Path.cwd(), workspace.reporter)
    _refuse_unfinished(request, clone)
    tip = read_commit(clone, request.revision)
    cache = open_cache(workspace.cache_root)
    lock = load_lock(workspace.series.lock)
    pin, base = _base(request, clone, tip, workspace, lock)
    series = load_series(workspace.series.patches)
    commits = tuple(_without_combined(each, series) for each in _commits(clone, base, tip))
    _check_ids(commits, series)
    with (
        InterruptNote("the series is unchanged"),
        copied_series(workspace.series, cache, "absorb-", "copying the series") as copy,
    ):
        before = read_series(copy)
        work = _Work(
            clone=clone,
            pin=pin,
            lock=lock,
            archs=_archs(commits),
            commits=commits,
            old=series,
            whole=workspace,
            staged=replace(workspace, series=copy),
            quiet=replace(workspace, series=copy, reporter=NullReporter()),
        )
        done = work.named().absorb(tip, drop=request.drop)
        done = replace(done, warnings=(*_uncommitted(clone, tip), *done.warnings))
        if done.is_changed and not request.dry_run:
            publish_series(copy, before, workspace.series)
    return replace(done, written=done.is_changed and not request.dry_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The branch, the series (``old``, in ``whole``), and its copy to change, also quietly (``quiet``)."""

    clone: Clone
    pin: Pin
    lock: Lock
    archs: tuple[str, ...]
    commits: tuple[_BranchCommit, ...]
    old: Series
    whole: Workspace
    staged: Workspace
    quiet: Workspace

    @property
    def patches(self) -> Path:
        return self.staged.series.patches

    def named(self) -> _Work:
        """The same, with ids for commits that lost their trailer, or became a patch when absorbed before.

        Such a commit has the subject of a patch that no other commit is of.
        """
        left = [self.old.require(name) for name in self._missing(self.known)]
        commits = []
        for commit in self.commits:
            mine = next((each for each in left if not commit.ids and commit.subject in _subjects(each)), None)
            commits.append(commit if mine is None else replace(commit, ids=(mine.id,)))
            left = [each for each in left if each is not mine]
        return replace(self, commits=tuple(commits))

    @property
    def known(self) -> tuple[str, ...]:
        """The patches that have a commit."""
        return tuple(name for commit in self.commits for name in commit.ids)

    def absorb(self, tip: Commit, *, drop: bool) -> Absorbed:
        """Change the copy until it gives the tree of the branch."""
        known = self.known
        old = self.place(known)
        missing = self._missing(known)
        dropped = missing if drop else ()
        require_not_required(self.old, dropped)
        remove_patches(self.staged.series, dropped)
        warnings: list[str] = []
        for commit in self.commits:
            for name in commit.ids[1:]:
                lost = run_fold(commit.ids[0], name, self.quiet, dry_run=False).lost
                if lost:
                    warnings.append(f"not carried over from {name}: {', '.join(lost)}")
        order = [commit.ids[0] for commit in self.commits if commit.ids]
        moved = self._order(order)
        found: list[AbsorbedPatch] = []
        with self._aside(() if drop else missing):
            for number, commit in enumerate(self.commits, 1):
                self.staged.reporter.step(f"commit {number} of {len(self.commits)}: {commit.subject}")
                if commit.ids:
                    taken = self._take(commit, old, missing, warnings)
                    found.append(replace(taken, reworded=self._reword(commit, old[0])))
                else:
                    moves = self._add(found, commit)
                    moved = {was: moves.pop(now, now) for was, now in moved.items()} | moves
            self._require_tree([each.patch for each in found], tip)
        found = self._with_requirements(found)
        self._require_others({*dropped, *(name for commit in self.commits for name in commit.ids[1:])})
        changed = {
            *dropped,
            *(name for each in found if each.is_changed for name in (each.patch, *each.combined)),
        }
        is_new = any(each.state == "new" for each in found)
        renumbered = {folder.partition("-")[2] for folder in moved}
        stale = [
            each.name
            for each in self.lock.results
            if {*each.patches} & (changed | renumbered) or (is_new and each.build >= (self.pin.build or 0))
        ]
        return Absorbed(
            base=self.pin.name,
            tip=tip.sha,
            patches=tuple(found),
            dropped=dropped,
            missing=() if drop else missing,
            moved=moved,
            stale=tuple(stale),
            warnings=tuple(warnings),
        )

    def place(self, ids: Sequence[str]) -> tuple[Candidate, str]:
        """Commits of these patches of the copy on the build, in the cache, and the tree at their end."""
        request = Request(
            archs=self.archs, upstream=self.pin, only=tuple(ids), with_=tuple(ids), unlocked=True
        )
        cache = open_cache(self.quiet.cache_root)
        plan = make_plan(request, self.quiet, cache, self.lock)
        with cache.hold(self.quiet.reporter) as repository:
            return write_plan(plan, repository, unlocked=True)

    def _missing(self, known: Sequence[str]) -> tuple[str, ...]:
        """The patches of the series that are applied at the build and have no commit."""
        request = Request(archs=self.archs, upstream=self.pin, unlocked=True)
        plan = make_plan(request, self.quiet, open_cache(self.quiet.cache_root), self.lock)
        return tuple(name for name in plan.ids if name not in known)

    @contextmanager
    def _aside(self, names: Sequence[str]) -> Iterator[None]:
        """The copy without some patches, which are there again when the context ends."""
        series = load_series(self.patches)
        folders = [series.require(name).folder for name in names]
        rules = self.patches / "series.toml"
        aside = self.staged.series.root / _ASIDE
        with disk_errors(self.patches, _DOING):
            kept = rules.read_bytes()
            aside.mkdir()
            for folder in folders:
                (self.patches / folder).rename(aside / folder)
        for name in names:
            rename_faults(self.staged.series, name, None)
        yield
        with disk_errors(self.patches, _DOING):
            rules.write_bytes(kept)
            for folder in folders:
                (aside / folder).rename(self.patches / folder)

    def _order(self, order: Sequence[str]) -> dict[str, str]:
        """Renumber patches so that these are in this order; the others keep their predecessors."""
        series = load_series(self.patches)
        was = [patch.id for patch in series.patches]
        places = sorted(was.index(name) for name in order)
        ids = list(was)
        for place, name in zip(places, order, strict=True):
            ids[place] = name
        return self._renumber(ids)

    def _renumber(self, ids: Sequence[str], new: str | None = None) -> dict[str, str]:
        """Rename folders so that the patches are in this order; numbers change only where they have to.

        ``new`` may have any number.
        """
        series = load_series(self.patches)
        aside = self.staged.series.root / _ASIDE
        taken = {int(path.name[:4]) for path in aside.iterdir()} if aside.is_dir() else set()
        folders = {}
        last = -1
        for name in ids:
            patch = series.require(name)
            following = ids[ids.index(name) + 1 :]
            if name == new:  # after the patches without a commit that follow the one before it
                end = series.require(following[0]).number if following else _MOST
                last = max([last, *(number for number in taken if number < end)]) + 1
            else:
                last = max(last + 1, patch.number)
            while last in taken:
                last += 1
            folder = f"{last:04d}-{name}"
            if folder != patch.folder:
                folders[patch.folder] = folder
        with disk_errors(self.patches, _DOING):
            for old in folders:
                (self.patches / old).rename(self.patches / f".{old}")
            for old, folder in folders.items():
                (self.patches / f".{old}").rename(self.patches / folder)
        return folders

    def _take(
        self,
        commit: _BranchCommit,
        old: tuple[Candidate, str],
        missing: Sequence[str],
        warnings: list[str],
    ) -> AbsorbedPatch:
        """The new version of a patch, or the patch as it is if its commit is."""
        name, *combined = commit.ids
        done = AbsorbedPatch(
            patch=name, commit=commit.sha, subject=commit.subject, state="same", combined=tuple(combined)
        )
        patch = self.old.require(name)
        if not combined and self._is_unchanged(commit, old[0], is_exact=patch.is_plain):
            return done
        if not patch.is_plain:
            hint = f"make a diff of upstream's build without guards: patchkit import --replace {name} FILE"
            if missing:
                names = ", ".join(missing)
                hint = (
                    f"its text may depend on patches without a commit on the branch ({names}): make the "
                    f"branch again without them (patchkit apply --without ID); else {hint}"
                )
            raise UsageError(
                f"the commit of '{name}' was changed, and this patch has a guard",
                code="AMEND_REFUSED",
                where=(commit.where, patch.where),
                why="its code on the branch is inside generated #if lines, which cannot be taken back",
                hint=hint,
            )
        new = self._replace(commit, name)
        warnings += new.warnings
        state: State = "combined" if combined else "same" if new.state == "same" else "replaced"
        return replace(
            done, state=state, changed=new.changed, added=new.added, removed=new.removed, kept=new.kept
        )

    def _reword(self, commit: _BranchCommit, old: Candidate) -> bool:
        """Give an imported patch the author, date and message of its commit, if they are not its own."""
        patch = self.old.require(commit.ids[0])
        mine = next((each.commit for each in old.commits if each.id == patch.id), None)
        cache = open_cache(self.quiet.cache_root).peek(self.quiet.reporter)
        if patch.commit is None or mine is None or cache is None:
            return False
        (was,), (now,) = cache.git.objects([mine.encode()]), self.clone.git.objects([commit.sha.encode()])
        if was is None or now is None:
            return False
        before, after = (commit_authorship(_without_trailers(each.data)) for each in (was, now))
        # What the message has after the reason is made from other keys of patch.toml.
        rest = before.message.removeprefix(patch.why or "") if patch.why else before.message
        after = replace(after, message=after.message.removesuffix(rest).rstrip(), file=patch.commit.file)
        before = replace(before, message=before.message.removesuffix(rest).rstrip(), file=patch.commit.file)
        if before == replace(after, links=before.links):
            return False
        path = self.patches / load_series(self.patches).require(patch.id).folder
        text = with_commit(read_text(path), after, title=patch.title == short_title(before.subject))
        write_whole(path / "patch.toml", text, _DOING)
        return True

    def _replace(self, commit: _BranchCommit, name: str) -> Replaced:
        # Patches after it may not fit before they have their own new versions.
        request = ReplaceRequest(
            patch=name, source=commit.sha, repo=self.clone.top, upstream=self.pin, allow_broken=True
        )
        try:
            return run_replace(request, self.quiet)
        except PatchkitError as error:
            error.where = (*error.where, commit.where)
            raise

    def _is_unchanged(self, commit: _BranchCommit, old: Candidate, *, is_exact: bool) -> bool:
        """Whether the commit is the patch's own.

        ``is_exact``: the trees before and after are the same; else the lines that it adds and removes are.
        """
        mine = next((each.commit for each in old.commits if each.id == commit.ids[0]), None)
        if mine is None:
            return False
        cache = open_cache(self.quiet.cache_root).peek(self.quiet.reporter)
        if cache is None:
            return False
        theirs = self.clone.ask("rev-parse", f"{commit.sha}^^{{tree}}", f"{commit.sha}^{{tree}}")
        if tuple(cache.tree_of(each) for each in (f"{mine}^", mine)) == theirs:
            return True
        if is_exact:
            return False
        # Other commits may have changed other lines before it. The whole tree is compared at the end.
        options = (
            "diff-tree",
            "-p",
            "--unified=0",
            "--binary",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
        )
        diffs = [
            _PLACE.sub(b"", git.run(*options, f"{sha}^", sha))
            for git, sha in ((cache.git, mine), (self.clone.git, commit.sha))
        ]
        return diffs[0] == diffs[1]

    def _add(self, found: list[AbsorbedPatch], commit: _BranchCommit) -> dict[str, str]:
        """Make a patch of a commit, right after the last one that was found; new folders by old ones."""
        request = ImportRequest(
            wanted=PatchOptions(guard="none", id=free_id(commit.subject, load_series(self.patches))),
            source=f"{commit.sha}^..{commit.sha}",
            repo=self.clone.top,
            as_build=self.pin.build,
            archs=self.archs,
        )
        try:
            written = run_import(request, self.quiet)
        except PatchkitError as error:
            error.where = (*error.where, commit.where)
            raise
        name = written.patch.id
        ids = [patch.id for patch in load_series(self.patches).patches if patch.id != name]
        ids.insert(ids.index(found[-1].patch) + 1 if found else 0, name)
        moved = self._renumber(ids, new=name)
        found.append(
            AbsorbedPatch(
                patch=name,
                commit=commit.sha,
                subject=commit.subject,
                state="new",
                added=tuple(written.places),
                requires=written.requires,
            )
        )
        return {old: folder for old, folder in moved.items() if folder.partition("-")[2] != name}

    def _with_requirements(self, found: Sequence[AbsorbedPatch]) -> list[AbsorbedPatch]:
        """Let the patches after new ones require those of them that they need."""
        new = [each.patch for each in found if each.state == "new"]
        if not new:
            return list(found)
        users = {each.patch for each in found} - {*new}  # the new ones have theirs
        request = Request(archs=self.archs, upstream=self.pin, with_=tuple(new), unlocked=True)
        decision = load_decision(request, self.quiet, self.lock)
        cache = open_cache(self.quiet.cache_root)
        with cache.hold(self.quiet.reporter) as repository:
            base = obtain(self.pin, cache=cache, reporter=self.quiet.reporter)
            needed = find_requirements(decision, base, self.quiet, repository, new, users)
        series = load_series(self.patches)
        result = []
        for each in found:
            more = needed.get(each.patch, {})
            if more and with_requirements(self.staged.series, series.require(each.patch).folder, (), more):
                result.append(replace(each, requires=(*each.requires, *more.items())))
            else:
                result.append(each)
        return result

    def _require_others(self, gone: Collection[str]) -> None:
        """Require that no patch has become impossible to place, where the lock has results and at the build.

        A patch without a commit stays in the series, also if its change is now part of another patch.
        """
        with open_pipeline(replace(self.whole, reporter=NullReporter())) as pipeline:
            names = [patch.id for patch in self.old.patches]
            decision = load_decision(
                Request(archs=self.archs, upstream=self.pin), pipeline.workspace, self.lock
            )
            site = Site(
                pin=self.pin,
                base=obtain(self.pin, cache=pipeline.cache, reporter=NullReporter()),
                decision=decision,
            )
            checked = compare_series(self.quiet, pipeline, names, site, without(gone))
        raise_all(
            broken_errors(
                checked,
                "absorbing the branch",
                "if its change is part of another commit now, keep both lines Patchkit-Id in that commit's "
                "message, or remove the patch with --drop",
            )
        )

    def _require_tree(self, ids: Sequence[str], tip: Commit) -> None:
        _, tree = self.place(ids)
        if tree == tip.tree:
            return
        repository = open_cache(self.quiet.cache_root).peek(self.quiet.reporter)
        names: list[str] = []
        if repository is not None:
            git = repository.borrowing(self.clone.objects)
            out = git.run("diff-tree", "-r", "--name-only", tree, tip.tree)
            names = out.decode("utf-8", "replace").splitlines()
        raise AnchorError(
            f"the patches do not give the tree of {tip.sha[:12]}",
            code="AMEND_BREAKS",
            where=[Location(path=name) for name in names[:_SHOWN]],
            why="on this build some files would differ from those of the branch",
            hint="please report it with the branch; import --replace takes single commits",
        )


def _subjects(patch: Patch) -> tuple[str, ...]:
    """What the subject of a patch's commit may be."""
    own = patch.commit.subject if patch.commit is not None else None
    return (*([own] if own is not None else []), patch.title, f"{patch.id}: {patch.title}")


def _without_trailers(raw: bytes) -> bytes:
    head, _, message = raw.partition(b"\n\n")
    return head + b"\n\n" + cut_trailers(message)


def _refuse_unfinished(request: AbsorbRequest, clone: Clone) -> None:
    """Raise AMEND_REFUSED if HEAD is in the middle of a rebase, whose later commits are not there yet."""
    unfinished = [name for name in _UNFINISHED if (clone.git_dir / name).exists()]
    if unfinished and request.revision == "HEAD":
        raise UsageError(
            f"git is in the middle of {_UNFINISHED[unfinished[0]]} in {clone.top}",
            code="AMEND_REFUSED",
            where=Location(path=str(clone.git_dir / unfinished[0])),
            why="HEAD does not have all commits yet",
            hint=f"finish it (see {clone.command} status), or name the branch to absorb",
        )


def _uncommitted(clone: Clone, tip: Commit) -> Iterator[str]:
    """A warning if the branch is checked out and its files were changed since its last commit."""
    if clone.is_bare or clone.ask("rev-parse", "HEAD") != (tip.sha,):
        return
    git = replace(clone.git, work_tree=clone.top)
    # Neither command runs a filter of the clone's configuration, as git status may.
    staged = git.attempt("diff-index", "--cached", "--name-only", "-z", "HEAD", "--")
    touched = git.attempt("diff-files", "-z", "--ignore-submodules")
    if staged.status or touched.status:
        return
    names = {name.decode("utf-8", "surrogateescape") for name in staged.stdout.split(b"\0") if name}
    fields = touched.stdout.split(b"\0")
    for row, raw in zip(fields[::2], fields[1::2], strict=False):
        name = raw.decode("utf-8", "surrogateescape")
        if not _has_content(clone.top / name, row.split()[2].decode("ascii")):
            names.add(name)
    if names:
        shown = ", ".join(map(visible, sorted(names)[:_SHOWN]))
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"not absorbed, because it is not committed: {shown}{more}"


def _has_content(path: Path, blob: str) -> bool:
    """Whether a file that was touched has the content of a blob all the same."""
    try:
        with open_regular(path) as stream:
            return object_id("blob", stream.read()) == blob
    except OSError:
        return False


def _base(
    request: AbsorbRequest, clone: Clone, tip: Commit, workspace: Workspace, lock: Lock
) -> tuple[Pin, str]:
    """The pin below the branch, and its commit in the clone."""
    cache = open_cache(workspace.cache_root)
    pins = [lock.pin(request.upstream)] if request.upstream is not None else list(lock.pins)
    found: list[tuple[int, Pin, str]] = []
    for pin in pins:
        if request.upstream is not None:
            obtain(pin, cache=cache, reporter=workspace.reporter)
        repository = cache.peek(workspace.reporter)
        kept = find_pinned(repository, pin) if repository is not None else None
        for sha in dict.fromkeys(each for each in (pin.commit, kept) if each is not None):
            is_below = clone.git.attempt("merge-base", "--is-ancestor", sha, tip.sha).status == 0
            found += [(clone.count(f"{sha}..{tip.sha}"), pin, sha)] if is_below else []
    if not found:
        raise UsageError(
            f"{request.revision} is not based on a build of the series' lock",
            code="AMEND_REFUSED",
            where=Location(path=str(clone.top)),
            why=f"looked for {', '.join(pin.title for pin in pins)}",
            hint="fetch the branch that patchkit apply makes, with the commands that it prints",
        )
    _, pin, sha = min(found, key=lambda one: one[0])
    return pin, sha


def _commits(clone: Clone, base: str, tip: Commit) -> tuple[_BranchCommit, ...]:
    """The commits of the branch, oldest first. Raises AMEND_REFUSED."""
    out = clone.git.run(
        "log", "-z", "--reverse", "--topo-order", "--format=%H%n%P%n%s%n%B", f"{base}..{tip.sha}", "--"
    )
    found = []
    for entry in filter(None, out.decode("utf-8", "replace").split("\0")):
        sha, parents, subject, message = entry.split("\n", 3)
        commit = _BranchCommit(
            sha=sha,
            subject=subject,
            ids=tuple(dict.fromkeys(_ID.findall(message))),
            profiles=tuple(_PROFILE.findall(message)),
        )
        if len(parents.split()) != 1:
            raise UsageError(
                f"{sha[:12]} is a merge",
                code="AMEND_REFUSED",
                where=commit.where,
                hint="rebase the branch, so that it has one commit per patch",
            )
        found.append(commit)
    if not found:
        raise UsageError(
            f"the branch has no commits after {base[:12]}",
            code="AMEND_REFUSED",
            where=Location(path=str(clone.top)),
            hint="name the branch: patchkit absorb REV --repo DIR",
        )
    return tuple(found)


def _without_combined(commit: _BranchCommit, series: Series) -> _BranchCommit:
    """The commit without ids that the series has no more, if it has others: it was squashed and absorbed."""
    known = tuple(name for name in commit.ids if series.patch(name) is not None)
    return replace(commit, ids=known) if known else commit


def _check_ids(commits: Sequence[_BranchCommit], series: Series) -> None:
    counts = Counter(name for commit in commits for name in commit.ids)
    for name, count in counts.items():
        where = [commit.where for commit in commits if name in commit.ids]
        if series.patch(name) is None:
            raise UsageError(
                f"a commit has the trailer Patchkit-Id: {name}, and the series has no such patch",
                code="AMEND_REFUSED",
                where=where,
                hint="remove the trailer if the commit is a new patch",
            )
        if count > 1:
            raise UsageError(
                f"{count} commits have the trailer Patchkit-Id: {name}",
                code="AMEND_REFUSED",
                where=where,
                hint="keep it in one of them; a commit without it becomes a new patch",
            )


def _archs(commits: Sequence[_BranchCommit]) -> tuple[str, ...]:
    """The GPUs in the trailers; none if the branch has only plain patches."""
    named = sorted({profile for commit in commits for profile in commit.profiles})
    return tuple(named) or (PLAIN,)

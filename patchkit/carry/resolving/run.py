"""``patchkit resolve``: merge a plain patch that is in conflict with a new upstream, and make its new edits.

If git merges it without conflicts, and every change is still in the same function, the new edits are written
at once. Otherwise the merge becomes files for the user to edit. The result is processed in the same way:
lifted, placed from a copy of the series, compared, and only then written.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.digests import sha256
from patchkit.base.errors import (
    ErrorGroup,
    InterruptNote,
    Location,
    PatchkitError,
    UsageError,
    members_of,
    raise_all,
)
from patchkit.base.series_folder import refuse_installed
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.bump.history import with_commits
from patchkit.carry.bump.request import BumpRequest, Variant
from patchkit.carry.candidate.target import find_target_pin, known_pins, own_pin
from patchkit.carry.judging.classes import Classified
from patchkit.carry.judging.conflict_markers import Order
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.lifting.write import read_text
from patchkit.carry.resolving.case import (
    Case,
    Destination,
    Resolved,
    find_case,
    find_variant,
    make_edits,
    regenerate,
    with_order,
    write_resolved,
)
from patchkit.carry.resolving.conflict import (
    ConflictFile,
    FolderState,
    check_folder,
    check_state,
    read_result,
    read_state,
    remove_folder,
    write_folder,
)
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import GitSource, Lock, Pin, load_lock
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.pin import SourceWanted, obtain, pin_ref
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRequest:
    """The options of resolve. ``to``: the new upstream, as in a bump; ``archs`` and ``with_``: the candidate.

    ``into``: the conflict folder; None for ``PATCH.conflict`` in the current folder. ``order``: where the
    lines go that the patch inserts at the same place as upstream; None to ask.
    """

    patch: str
    to: str = "latest"
    archs: tuple[str, ...] = ()
    with_: tuple[str, ...] = ()
    source: SourceWanted = "auto"
    upstream_url: str | None = None
    into: Path | None = None
    order: Order | None = None

    @property
    def bump(self) -> BumpRequest:
        """The bump with the same candidate and the same source of the new upstream."""
        return BumpRequest(
            to=self.to,
            archs=self.archs,
            with_=self.with_,
            source=self.source,
            upstream_url=self.upstream_url,
        )

    @property
    def folder(self) -> Path:
        """The conflict folder."""
        return self.into if self.into is not None else Path(f"{self.patch}.conflict")

    def command(self, *options: str) -> str:
        """The command that continues, with these options."""
        into = ["--into", str(self.into)] if self.into is not None else []
        return shlex.join(["patchkit", "resolve", self.patch, *options, *into])


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicted:
    """A conflict for the user to resolve: the folder with its files.

    ``is_plain``: whether ``--continue`` can write the result. ``problems``: the errors of lifting a merge
    that had no conflicts.
    """

    json_keys: ClassVar = "patch build old_build=old state folder files is_plain problems"

    patch: str
    build: int
    old: int
    folder: Path
    files: tuple[ConflictFile, ...]
    is_plain: bool
    problems: tuple[PatchkitError, ...] = field(default=())

    state: ClassVar = "conflict"


def run_resolve(request: ResolveRequest, workspace: Workspace) -> Resolved | Conflicted:
    """Merge a patch onto a new upstream, and write its new edits or a conflict folder.

    Raises:
        RESOLVE_UNFINISHED: the folder already exists.
        RESOLVE_NOTHING_LEFT: upstream has all of the change.
        RESOLVE_BY_HAND: an order is given, and not all conflicts are of two insertions.
        PatchkitError: as :func:`patchkit.carry.resolving.case.find_case`, and from finding the target.

    After any exception, KeyboardInterrupt included, the series is unchanged.
    """
    refuse_installed(workspace.series)
    load_series(workspace.series.patches).require(request.patch)  # before anything is fetched
    lock = load_lock(workspace.series.lock)
    cache = open_cache(workspace.cache_root)
    found, pin = find_target(request.to, request.source, request.upstream_url, lock, workspace, cache)
    bump = request.bump
    with InterruptNote("the series is unchanged"), cache.hold(workspace.reporter) as repository:
        target = Destination(pin=pin, base=obtain_target(bump, pin, found, workspace, cache))
        variant = find_variant(bump, lock, pin, workspace, request.patch)
        case = find_case(request.patch, target, variant, workspace, cache, repository)
        if isinstance(case, Classified):
            return Resolved(patch=request.patch, build=pin.build, old=None, how="placed")
        pipeline = Pipeline(workspace=workspace, cache=cache, repository=repository, lock=lock)
        if request.order is not None and case.patch.is_plain:
            ordered = regenerate(with_order(case, request.order), pipeline, "ordered")
            if isinstance(ordered, Resolved):
                return ordered
            raise ErrorGroup(f"the edits of '{request.patch}' cannot be written in this order", ordered)
        done = regenerate_case(case, pipeline)
        if isinstance(done, Resolved):
            return done
    case = _with_commits(case, bump, found, workspace, cache)
    with cache.hold(workspace.reporter) as repository:
        pipeline = replace(pipeline, repository=repository)
        return write_conflict(request, case, done, variant, pipeline, request.command("--continue"))


def regenerate_case(case: Case, pipeline: Pipeline) -> Resolved | tuple[PatchkitError, ...]:
    """Write git's merge, or return the errors; none if the user has to check the merge anyway."""
    if not case.patch.is_plain or case.doubts():
        return ()
    return regenerate(case, pipeline)


def find_target(
    to: str,
    source: SourceWanted,
    upstream_url: str | None,
    lock: Lock,
    workspace: Workspace,
    cache: Cache,
) -> tuple[Pin, Pin]:
    """The target of a bump: the pin as found, and as the lock has it. Raises as finding it does."""
    found = find_target_pin(
        to,
        lock=lock,
        catalogue=workspace.series.catalogue,
        source=source,
        upstream_url=upstream_url,
        cache=cache,
        reporter=workspace.reporter,
    )
    return found, own_pin(lock, found)


def obtain_target(request: BumpRequest, pin: Pin, found: Pin, workspace: Workspace, cache: Cache) -> str:
    """The commit of the target in the cache. Raises the errors of fetching it."""
    return obtain(
        pin,
        cache=cache,
        source=request.source if pin is found else "auto",
        upstream_url=request.upstream_url if pin.commit is not None else None,
        fetched=found.commit,
        reporter=workspace.reporter,
    )


def _with_commits(case: Case, request: BumpRequest, found: Pin, workspace: Workspace, cache: Cache) -> Case:
    """The case with the upstream commits that changed its functions, if a git remote is available."""
    series = load_series(workspace.series.patches)
    (verdict,), _ = with_commits((case.verdict,), request, case.old, found, cache, series, workspace.reporter)
    return replace(case, verdict=verdict)


def write_conflict(
    request: ResolveRequest,
    case: Case,
    problems: Sequence[PatchkitError],
    variant: Variant,
    pipeline: Pipeline,
    command: str,
) -> Conflicted:
    """Write the conflict folder of a case. ``command``: the one that continues.

    Raises as :func:`patchkit.carry.resolving.conflict.write_folder`.
    """
    text = read_text(pipeline.workspace.series.patches / case.patch.folder)
    state = {
        "patch": case.patch.id,
        "build": case.new.pin.build,
        "tree": case.new.pin.tree,
        "archs": list(variant.archs),
        "with_": list(variant.with_),
        "patch_toml": sha256(text),
        "pending": list(case.pending),
    }
    known = [*problems, *case.verdict.problems]
    files = write_folder(case, case.doubts(), known, request.folder, state, pipeline, command)
    return Conflicted(
        patch=case.patch.id,
        build=case.new.pin.build,
        old=case.old.build,
        folder=request.folder,
        files=files,
        is_plain=case.patch.is_plain,
        problems=tuple(problems),
    )


def continue_resolve(request: ResolveRequest, workspace: Workspace) -> tuple[Resolved, tuple[str, ...]]:
    """Write the user's resolution of a conflict into the patch, then remove the folder but for other files.

    Raises:
        UsageError, RESOLVE_FILES_BAD: there is no such folder, or it is out of date.
        RESOLVE_FILES_BAD: the files are not finished.
        RESOLVE_BY_HAND: the patch has a guard.
        RESOLVE_NOTHING_LEFT: the result is the same as upstream.
        PatchkitError: from making and placing the edits.

    After any exception, KeyboardInterrupt included, patch and folder are unchanged.
    """
    refuse_installed(workspace.series)
    folder = request.folder
    state = read_state(folder, request.patch)
    lock = load_lock(workspace.series.lock)
    patch = load_series(workspace.series.patches).require(request.patch)
    if not patch.is_plain:
        raise UsageError(
            f"the edits of '{patch.id}' have to be changed by hand",
            code="RESOLVE_BY_HAND",
            where=patch.where,
            why="it has a guard, and guarded edits cannot be made from merged lines",
            hint=f"change them as shown in docs/guide/patch.md, then run {request.command('--abort')}",
        )
    check_folder(state, folder, read_text(workspace.series.patches / patch.folder))
    cache = open_cache(workspace.cache_root)
    with InterruptNote("the series is unchanged"), cache.hold(workspace.reporter) as repository:
        target = _known_target(state, lock, workspace, repository, folder)
        bump = BumpRequest(archs=tuple(state.archs), with_=tuple(state.with_))
        variant = find_variant(bump, lock, target.pin, workspace, patch.id)
        case = find_case(request.patch, target, variant, workspace, cache, repository, state.pending)
        text = read_text(workspace.series.patches / patch.folder)
        if isinstance(case, Classified):
            raise UsageError(
                f"'{patch.id}' can be placed at {target.pin.title} now",
                code="RESOLVE_NOT_NEEDED",
                where=patch.where,
                hint=request.command("--abort"),
            )
        files = check_state(case, state, folder, text)
        results = {each.path: each.merged for each in case.merged}
        errors: list[PatchkitError] = []
        for file, each in zip(files, state.files, strict=True):
            try:
                results[file.path] = read_result(file, folder / each.name, case.labels(file.path))
            except PatchkitError as error:
                errors.append(error)
        raise_all(errors, "several files are not finished")
        pipeline = Pipeline(workspace=workspace, cache=cache, repository=repository, lock=lock)
        try:
            edits = make_edits(case, results, text, pipeline)
        except PatchkitError as error:
            names = {file.path: folder / each.name for file, each in zip(files, state.files, strict=True)}
            _show_in_folder(error, results, names)
            raise
        done = write_resolved(case, edits, "resolved", workspace)
    return done, remove_folder(folder, state)


def _show_in_folder(error: PatchkitError, results: Mapping[str, bytes], names: Mapping[str, Path]) -> None:
    """Add the line of the user's file to an error about a line of the result that was made of it."""
    for each in members_of(error):
        place = each.where[0] if each.code == "PLAIN_UNBALANCED" else None  # its first one is in the result
        if place is None or place.line is None or place.path not in names:
            continue
        rows, own = (data.splitlines() for data in (results[place.path], names[place.path].read_bytes()))
        row = rows[place.line - 1] if place.line <= len(rows) else b""
        if own.count(row) == 1:
            mine = Location(path=str(names[place.path]), line=own.index(row) + 1, label=place.label)
            each.where = (mine, *each.where[1:])


def _known_target(
    state: FolderState, lock: Lock, workspace: Workspace, repository: Repository, folder: Path
) -> Destination:
    """The target pin of a folder: that of its build in the cache, if it has the recorded tree."""
    known = known_pins(lock, workspace.series.catalogue)
    pin = next((each for each in known if (each.build, each.tree) == (state.build, state.tree)), None)
    if pin is None:
        # A pin from a remote that is in no lock yet; the cache has its tree.
        pin = Pin(
            name=build_name(state.build),
            build=state.build,
            tree=state.tree,
            committed="",
            sources=(GitSource(url="-"),),
        )
    ref = pin_ref(pin)
    base, tree = repository.resolve(f"{ref}^{{commit}}", f"{ref}^{{tree}}")
    if base is None or tree != state.tree:
        raise UsageError(
            f"{folder} was made for {build_name(state.build)}, which is no longer in the cache",
            code="RESOLVE_FILES_BAD",
            where=Location(path=str(folder)),
            hint=f"fetch it with patchkit apply --upstream {build_name(state.build)}, or start again "
            "after --abort",
        )
    return Destination(pin=pin, base=base)


def abort_resolve(request: ResolveRequest) -> tuple[tuple[str, ...], int]:
    """Remove a conflict folder; return the names of other files, which are kept, and the folder's build."""
    state = read_state(request.folder, request.patch)
    return remove_folder(request.folder, state), state.build

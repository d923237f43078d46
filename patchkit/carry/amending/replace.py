"""``patchkit import --replace``: a new version of a patch that the series has already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.errors import InterruptNote, PatchkitError, UsageError, raise_all
from patchkit.base.files import temporary_folder
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import refuse_installed
from patchkit.base.text import visible
from patchkit.base.toml import load_toml, parse_toml
from patchkit.base.workspace import Workspace
from patchkit.carry.amending.attempt import make_revision
from patchkit.carry.amending.check import broken_errors, compare_series, renew_lock
from patchkit.carry.amending.revise import Revision, rows_for_other_builds
from patchkit.carry.amending.site import BaseTree, base_tree_before, base_tree_with, find_site
from patchkit.carry.amending.staged import Amendment, open_amendment
from patchkit.carry.candidate.decision import Request, required_by
from patchkit.carry.candidate.plan import make_plan
from patchkit.carry.candidate.staging import name_series
from patchkit.carry.importing.commits import check_changes, own_repository
from patchkit.carry.importing.queue_base import BaseFinder, QueueBase
from patchkit.carry.importing.queue_sources import (
    Paths,
    QueuedChange,
    folder_of,
    is_range,
    read_commits,
    read_files,
)
from patchkit.carry.importing.rejection import explain_rejection
from patchkit.carry.importing.trees import Trees
from patchkit.carry.lifting.change import Changeset, MovedHunk
from patchkit.carry.lifting.pipeline import Pipeline, open_pipeline
from patchkit.carry.resolving.builds import table_at
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import PinWanted, Result
from patchkit.carry.series.patch import Patch
from patchkit.carry.upstream.clone import open_clone

_FILES = (".patch", ".diff", ".mbox", ".eml")
"""Endings of files: such a name is never taken for a revision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceRequest:
    """The new version of a patch: ``source`` is a file with a diff, a commit or ``REV..REV``.

    ``upstream``: the build whose edits are replaced. ``allow_broken``: write the patch although a later one
    cannot be placed any more.
    """

    patch: str
    source: str
    strip: int | None = None
    prefix: str | None = None
    repo: Path | None = None
    upstream: PinWanted = None
    allow_broken: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A patch with its new version.

    ``kept``, ``changed``, ``added``, ``removed``: its edits and files, by id or path. ``places``: of the new
    edits, as file:line. ``other_builds``: edits for other builds that still have the old version.
    ``broken``: errors of patches that cannot be placed any more. ``unchecked``: results of the lock on builds
    that are not cached.
    """

    json_keys: ClassVar = (
        "patch build base state kept changed added removed places other_builds moved_hunks=moved "
        "lock_renewed=renewed lock_stale=stale unchecked broken warnings written"
    )

    patch: str
    build: int
    base: str
    kept: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    places: dict[str, str] = field(default_factory=dict)
    other_builds: tuple[str, ...] = ()
    moved: tuple[MovedHunk, ...] = ()
    renewed: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    broken: tuple[PatchkitError, ...] = ()
    warnings: tuple[str, ...] = ()
    written: bool = True

    @property
    def state(self) -> str:
        """``replaced``, or ``same`` if the new version does what the patch did before."""
        return "replaced" if self.changed or self.added or self.removed else "same"


def run_replace(request: ReplaceRequest, workspace: Workspace) -> Replaced:
    """Give a patch a new version, and check every patch after it.

    Id, folder, builds, ``why``, ``links`` and all other keys of the patch are kept, and so are the edits that
    did not change. Nothing is written if a later patch cannot be placed any more, unless ``allow_broken``.

    Raises:
        UNKNOWN_PATCH: the series has no such patch.
        AMEND_REFUSED: the patch is not for the build.
        IMPORT_NOTHING, IMPORT_NOT_APPLYING, IMPORT_AMBIGUOUS, ...: the new version cannot be placed.
        AMEND_BREAKS: a later patch cannot be placed after it.
        PatchkitError: as :func:`patchkit.carry.importing.run.run_import`.

    After any exception the series is unchanged.
    """
    refuse_installed(workspace.series)
    patch = load_series(workspace.series.patches).require(request.patch)
    with (
        InterruptNote("the series is unchanged"),
        open_pipeline(workspace) as pipeline,
        temporary_folder("replace") as folder,
    ):
        site = find_site([patch.id], request.upstream, pipeline)
        # A diff for a patch with a guard has no guards, so it is not for a tree that has those of others.
        base_tree = (
            base_tree_before(site, patch, pipeline)
            if patch.is_plain
            else base_tree_with(site, (), site.chosen(patch.id), pipeline)
        )
        trees = Trees(own_repository(folder, pipeline.repository))
        after, changes, moved = _place(request, base_tree, pipeline, trees, folder)
        name = changes[0].name if len(changes) == 1 else request.source
        files = check_changes(trees.git.renames(base_tree.tree, after), name, trees.git)
        pin = base_tree.pin
        change = Changeset(build=pin.build, base=base_tree.base, name=name, files=files, moved=moved)
        revised = make_revision(patch, base_tree, change, pipeline)
        return _write(request, patch, base_tree, change, revised, pipeline)


def _place(
    request: ReplaceRequest, base_tree: BaseTree, pipeline: Pipeline, trees: Trees, folder: Path
) -> tuple[str, tuple[QueuedChange, ...], tuple[MovedHunk, ...]]:
    """The tree with the new version, its changes, and the hunks that were applied at other lines."""
    paths = Paths(strip=request.strip, folder=folder_of(request.prefix))
    if not Path(request.source).exists() and not request.source.endswith(_FILES):
        clone = open_clone(request.repo or Path.cwd(), pipeline.workspace.reporter)
        revisions = request.source if is_range(request.source) else f"{request.source}^..{request.source}"
        contents = read_commits(clone, revisions, pipeline.repository)
    else:
        contents = read_files((request.source,), paths, folder, trees.git)
    if not contents.changes:
        raise UsageError(f"{visible(request.source)} changes nothing", code="IMPORT_NOTHING")
    tree = base_tree.tree
    moved: list[MovedHunk] = []
    for change in contents.changes:
        try:
            placed = trees.place(tree, change)
        except PatchkitError as error:
            merged = _merge(contents.changes, base_tree, pipeline, trees)
            if merged is not None:
                return merged, contents.changes, ()
            raise _explained(error, change, tree, request, base_tree, pipeline, trees) from error
        tree = placed.tree
        moved += placed.moved
    return tree, contents.changes, tuple(moved)


def _merge(
    changes: Sequence[QueuedChange], base_tree: BaseTree, pipeline: Pipeline, trees: Trees
) -> str | None:
    """The changes as made for the build without patches, merged by git with the patches before."""
    start = pipeline.repository.tree_of(base_tree.base)
    after = start
    try:
        for change in changes:
            after = trees.place(after, change).tree
    except PatchkitError:
        return None
    return trees.carry_over(base_tree.tree, start, after, pipeline.workspace.reporter)


def _explained(
    error: PatchkitError,
    change: QueuedChange,
    tree: str,
    request: ReplaceRequest,
    base_tree: BaseTree,
    pipeline: Pipeline,
    trees: Trees,
) -> PatchkitError:
    finder = BaseFinder(
        sources=(request.source,),
        paths=Paths(),
        repo=request.repo,
        upstream=request.upstream,
        as_build=None,
        pipeline=pipeline,
        trees=trees,
    )
    base = QueueBase(
        commit=base_tree.base,
        tree=base_tree.tree,
        build=base_tree.pin.build,
        name=base_tree.pin.name,
        because="",
    )
    error = explain_rejection(error, change, tree, finder, base)
    ids = base_tree.plan.ids
    if error.code == "IMPORT_NOT_APPLYING" and ids:
        error.why = f"{error.why or ''}\ntried on {base_tree.pin.name} with {', '.join(ids)}".strip()
    return error


def _write(
    request: ReplaceRequest,
    patch: Patch,
    base_tree: BaseTree,
    change: Changeset,
    revised: tuple[Revision, dict[str, str], tuple[str, ...]],
    pipeline: Pipeline,
) -> Replaced:
    revision, places, warnings = revised
    workspace = pipeline.workspace
    path = workspace.series.patches / patch.folder / "patch.toml"
    touched = {path for each in change.files for path in (each.path, each.source) if path is not None}
    is_new = revision.text != revision.before or bool(revision.files)
    done = Replaced(
        patch=patch.id,
        build=base_tree.pin.build,
        base=base_tree.pin.name,
        kept=revision.kept,
        changed=revision.changed,
        added=revision.added,
        removed=revision.removed,
        places=places,
        other_builds=rows_for_other_builds(patch, base_tree.pin.build, touched),
        moved=change.moved,
        warnings=warnings,
        written=is_new and not request.dry_run,
    )
    if not is_new:
        return done
    name = f"the new version of '{patch.id}'"
    with open_amendment(pipeline) as amendment:
        amendment.stage.put(revision)
        checked = compare_series(amendment.stage.workspace, pipeline, [patch.id], base_tree.site)
        broken = broken_errors(
            checked,
            name,
            "to write it anyway: --allow-broken; then give each of those patches its new version, with "
            "patchkit import --replace, or end its builds",
        )
        if not request.allow_broken:
            raise_all(broken)
        for error in broken:
            name_series(error, stage=amendment.series.root, series=workspace.series)
        then = parse_toml(str(path), revision.before.encode()).table
        now = load_toml(amendment.series.patches / patch.folder / "patch.toml").table

        def is_same(result: Result) -> bool:
            """Whether the patch has the same tables at the build of a result, which keeps its tree."""
            return table_at(then, result.build) == table_at(now, result.build)

        lacking = _lacking_requirement(patch, base_tree, amendment, pipeline)
        state = renew_lock(amendment, pipeline, [patch.id], is_same)
        if not request.dry_run:
            amendment.publish(workspace.series)
    return replace(
        done,
        renewed=state.renewed,
        stale=state.stale,
        unchecked=checked.unchecked,
        broken=tuple(broken),
        warnings=(*done.warnings, *lacking),
    )


def _lacking_requirement(
    patch: Patch, base_tree: BaseTree, amendment: Amendment, pipeline: Pipeline
) -> tuple[str, ...]:
    """A warning if the new version cannot be placed with only the patches that it requires.

    It names the last patch before it with which it can, as the lines to add to patch.toml.
    """
    series = load_series(amendment.series.patches)
    workspace = replace(amendment.stage.workspace, reporter=NullReporter())

    def fits(*more: str) -> bool:
        """Whether the patch can be placed with its requirements and another patch."""
        named = (*more, patch.id)
        ids = (*required_by(series, named), *named)
        request = Request(archs=base_tree.site.archs, upstream=base_tree.pin, only=ids, with_=ids)
        return not make_plan(request, workspace, pipeline.cache, pipeline.lock).errors

    if fits():
        return ()
    before = [
        each.id for each in series.patches if each.number < patch.number and each.id in base_tree.plan.ids
    ]
    for name in reversed(before):
        if fits(name):
            lines = f'[[requires]]\npatch = "{name}"\nwhy = "without it the patch cannot be placed"'
            return (f"the new version needs '{name}'; add to its patch.toml:\n{lines}",)
    return ("the new version needs several patches before it that it does not require",)

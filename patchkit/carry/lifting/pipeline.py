"""Turn a changeset into a patch of the series: lift it, try it on a copy of the series, then write it.

1. ``lift``: the change becomes edits, and templates of new files.
2. They become a patch: a new one (``draft``), or new edits of an existing one.
3. It is written into a copy of the series and placed from there, and the result is compared with the change.
4. It is written into the series in the same way.

import, new, import --update and resolve differ only in the changeset, in step 2 and in how the patch is
written (:class:`patchkit.carry.lifting.write.Writing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.arch import list_profiles, plain_series_error
from patchkit.base.errors import Location, UsageError
from patchkit.base.series_folder import PLAIN, is_plain
from patchkit.base.workspace import Workspace
from patchkit.carry.judging.requirements import Requirement
from patchkit.carry.lifting.applied_patches import applied_stack
from patchkit.carry.lifting.change import Authorship, Changeset
from patchkit.carry.lifting.lift import Lifted, lift
from patchkit.carry.lifting.numbers import lift_numbers
from patchkit.carry.lifting.trial import Drafted, OnNewest, Stage, Trial, open_stage
from patchkit.carry.lifting.write import NewFolder, NewPatch, Writing, next_number, patch_id, short_title
from patchkit.carry.placing.tree import read_upstream
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Lock, load_lock
from patchkit.carry.series.patch import BREAKS_MAIL
from patchkit.carry.series.profile import ArchProfile, load_profiles
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.pin import find_pinned
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchOptions:
    """The options for a new patch: ``guard`` is ``none``, a GPU or a family of GPUs.

    ``macros``: additional macros of the guard. ``lifts``: numbers, with the names of their values in the
    profiles.
    """

    guard: str
    id: str | None = None
    title: str | None = None
    macros: tuple[str, ...] = ()
    lifts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A written patch and the results of its trial. ``same``: how its result equals the change, as text.

    ``requires``: the patches below it that it requires, each with the reason.
    """

    json_keys: ClassVar = (
        "id=patch.id folder archs=patch.archs source=change.name source_because=change.because "
        "moved_hunks=change.moved authors=patch.authors edits=patch.body.edits places text_because=hunks "
        "new_files=patch.body.new_files replaced=patch.body.whole.replaced removed=patch.body.whole.removed "
        "renamed=patch.body.whole.renamed modes=patch.body.whole.executable same_as_diff=same "
        "newest=newest.summary newest_errors=newest.errors requires=needed"
    )

    drafted: Drafted
    folder: Path
    same: str
    newest: OnNewest
    requires: tuple[Requirement, ...] = ()

    @property
    def needed(self) -> dict[str, str]:
        """The reason for each required patch."""
        return dict(self.requires)

    @property
    def patch(self) -> NewPatch:
        """The patch."""
        return self.drafted.patch

    @property
    def change(self) -> Changeset:
        """The change that it was made from."""
        return self.drafted.change

    @property
    def hunks(self) -> dict[str, str]:
        """The edits that are placed by lines of the file, with the reason."""
        texts = zip(self.patch.body.edits, self.drafted.texts, strict=True)
        return {edit.id: text.draft.reason for edit, text in texts if text.draft.reason}

    @property
    def places(self) -> dict[str, str]:
        """The place of each edit, as file:line."""
        texts = zip(self.patch.body.edits, self.drafted.texts, strict=True)
        return {edit.id: text.draft.place for edit, text in texts}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The inputs of all steps: the series in use, the cache (held by the caller) and its repository."""

    workspace: Workspace
    cache: Cache
    repository: Repository
    lock: Lock

    def lift(self, change: Changeset, *, is_guarded: bool) -> Lifted:
        """The edits of a changeset; raises as :func:`patchkit.carry.lifting.lift.lift`."""

        def elsewhere(path: str) -> Iterator[bytes]:
            """The file on every cached pin except the change's own base."""
            for pin in self.lock.pins:
                commit = find_pinned(self.repository, pin)
                if commit is None or commit == change.base:
                    continue
                if path in self.repository.find_entries(commit, [path]):
                    yield self.repository.read_blobs(commit, [path])[path]

        return lift(change, elsewhere, self.workspace.reporter, is_guarded=is_guarded)

    def draft(
        self,
        change: Changeset,
        wanted: PatchOptions,
        named: tuple[str, str],
        profiles: Sequence[ArchProfile] | None,
    ) -> Drafted:
        """A new patch from a change, not yet tried; ``named``: its id and title.

        Raises IMPORT_NOT_LIFTED, IMPORT_UNSUPPORTED, LIFT_UNKNOWN.
        """
        lifted = self.lift(change, is_guarded=profiles is not None)
        patch = NewPatch(
            id=named[0],
            title=named[1],
            first_build=change.build,
            builds_why=f"{change.source}; other builds were not checked",
            archs=tuple(each.arch for each in profiles) if profiles is not None else None,
            body=lift_numbers(lifted.body, wanted.lifts, profiles or ()),
            why=_why(change.by),
            links=change.by.links,
            authors=change.by.authors,
            original=change.by.original,
            upstream_url=change.url,
            upstream_ends=change.ends,
            macros=wanted.macros,
        )
        return Drafted(patch=patch, texts=lifted.texts, change=change)

    def open_stage(self) -> AbstractContextManager[Stage]:
        """A copy of the series to try patches on."""
        return open_stage(self.workspace, self.cache, self.repository)

    def write(self, drafted: Drafted, writing: Writing, archs: Sequence[str] = (PLAIN,)) -> Written:
        """Try a patch on a copy of the series, on its base commit and on the newest pin; then write it.

        A new patch also gets its requirements, from the patches that its base commit has for ``archs``.

        Raises what placing raises, and EDITS_DIFFER if the result is not that of the change.
        """
        requires: tuple[Requirement, ...] = ()
        with self.open_stage() as stage:
            patch = stage.put(writing)
            read = load_series(stage.series.patches).read
            trial = stage.try_on(read_upstream(self.repository, drafted.change.base, read), patch, drafted)
            for warning in trial.placed.warnings:
                self.workspace.reporter.warn(warning)
            newest = stage.look_at_newest([drafted.patch])
            if isinstance(writing, NewFolder):
                requires = self._requirements(trial, drafted.change, archs, stage)
                writing = replace(writing, patch=replace(writing.patch, requires=requires))
        folder = writing.put(self.workspace.series)
        return Written(drafted=drafted, folder=folder, same=trial.same, newest=newest, requires=requires)

    def _requirements(
        self, trial: Trial, change: Changeset, archs: Sequence[str], stage: Stage
    ) -> tuple[Requirement, ...]:
        """The patches of the series that a new one requires, if its base has patches of the series."""
        named = (path for each in change.files for path in (each.path, each.source))
        paths = {path for path in named if path is not None}
        stack = applied_stack(
            change.base, change.build, paths, archs, stage.workspace, self.repository, self.lock
        )
        return stack.requirements(trial.rendering)

    def make(
        self, change: Changeset, wanted: PatchOptions, title: str, archs: Sequence[str] = (PLAIN,)
    ) -> Written:
        """Make a new patch from a change and write it; ``title`` is used if ``wanted`` has none.

        ``archs``: the GPUs of the candidate on which the change may be.

        Raises:
            IMPORT_NOT_LIFTED, EDITS_DIFFER: the patch has to be written by hand.
            IMPORT_OPTIONS, LIFT_UNKNOWN, PATCH_ID_TAKEN: the options are wrong.
            PatchkitError: from reading the series or placing the patch.
        """
        series = load_series(self.workspace.series.patches)
        profiles = guard_profiles(wanted.guard, self.workspace.series.profiles)
        title = short_title(wanted.title or title)
        drafted = self.draft(change, wanted, (patch_id(wanted.id, title, series), title), profiles)
        new = NewFolder(patch=drafted.patch, number=next_number(series), source=change.source)
        return self.write(drafted, new, archs)


@contextmanager
def open_pipeline(workspace: Workspace) -> Iterator[Pipeline]:
    """A pipeline that holds the cache while the context lasts."""
    lock = load_lock(workspace.series.lock)
    cache = open_cache(workspace.cache_root)
    with cache.hold(workspace.reporter) as repository:
        yield Pipeline(workspace=workspace, cache=cache, repository=repository, lock=lock)


def _why(by: Authorship) -> str:
    text = by.message.strip()
    return f"Imported. {text}" if BREAKS_MAIL.match(text) else text


def guard_profiles(guard: str, folder: Path) -> tuple[ArchProfile, ...] | None:
    """The profiles of the GPUs that a guard names; None for a plain patch. ``folder``: the profiles' folder.

    Raises IMPORT_OPTIONS, ARCH_IN_PLAIN_SERIES.
    """
    if guard == "none":
        return None
    if is_plain(folder):
        raise plain_series_error(folder, guard)
    every = load_profiles(folder, list_profiles(folder))
    found = tuple(each for each in every if each.arch == guard or guard in each.families[:1])
    if not found:
        families = sorted({each.families[0] for each in every if each.families})
        raise UsageError(
            f"'{guard}' is neither a GPU nor a family of GPUs",
            code="IMPORT_OPTIONS",
            where=Location(path=str(folder)),
            hint=f"use --guard none, a GPU ({', '.join(each.arch for each in every)}) or a family "
            f"({', '.join(families)})",
        )
    return found

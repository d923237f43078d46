"""``patchkit import --update``: update a patch to the newest head of the pull request it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from patchkit.base.arch import list_profiles
from patchkit.base.errors import ConfigError, PatchkitError, UsageError
from patchkit.base.workspace import Workspace
from patchkit.carry.importing.commits import compare_commits, read_pull
from patchkit.carry.judging.changed import Difference, Versions, compare_changes
from patchkit.carry.lifting.change import Changeset, FileChange
from patchkit.carry.lifting.numbers import lift_again
from patchkit.carry.lifting.pipeline import Written, open_pipeline
from patchkit.carry.lifting.trial import Drafted
from patchkit.carry.lifting.write import NewPatch, Rewritten, read_text
from patchkit.carry.remotes.pulls import NamedPull, named_pull
from patchkit.carry.series.body import is_as_imported, named_templates
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile, load_profiles
from patchkit.carry.series.selection import terms_of
from patchkit.carry.upstream.remote import fetch_commit
from patchkit.carry.upstream.repository import Repository

_HIP = "GGML_USE_HIP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """The result of an update. ``written`` is None if the pull request has nothing newer.

    ``differences``: of the pull request since the import; None if the imported head is no longer available or
    was not recorded.
    """

    json_keys: ClassVar = "id=patch updated before after differences notes patch=written"

    patch: str
    before: str | None
    after: str
    differences: tuple[Difference, ...] | None
    written: Written | None
    notes: tuple[str, ...] = ()

    @property
    def updated(self) -> bool:
        """Whether there was something new to import."""
        return self.written is not None

    def lines(self) -> Iterator[str]:
        """What changed, as text."""
        if self.written is None:
            yield f"{self.patch}: already at the newest head, {self.after[:12]}; nothing was written"
            return
        before = self.before[:12] if self.before is not None else "no recorded head"
        yield f"{self.patch}: from {before} to {self.after[:12]}"
        if self.differences is None:
            yield "  cannot show what changed: the imported head is not available, or was not recorded"
        elif not self.differences:
            yield "  no change in code: only the base or comments differ"
        for difference in self.differences or ():
            yield from (f"  {line}" for line in difference.lines())
        yield from (f"  {note}" for note in self.notes)


def run_update(name: str, workspace: Workspace, *, force: bool) -> Updated:
    """Update a patch to the newest head of its pull request. Guard, why, effect and all its rules are kept.

    Args:
        name: id of the patch.
        workspace: the workspace with its series.
        force: overwrite edits that were changed by hand, and make them again even if the head is the same.

    Raises:
        UNKNOWN_PATCH: the series has no such patch.
        IMPORT_NOTHING: it names no pull request, or the remote does not have it.
        IMPORT_CHANGED_BY_HAND: its edits are not those that import wrote, and ``force`` was not given.
        PatchkitError: as :meth:`patchkit.carry.lifting.pipeline.Pipeline.write`.

    After any exception the series is unchanged.
    """
    series = load_series(workspace.series.patches)
    patch = series.require(name)
    pull = named_pull(patch)
    if pull is None:
        raise UsageError(
            f"patch '{name}' does not name a pull request",
            code="IMPORT_NOTHING",
            where=patch.where,
            hint=f"for a new version from a file: patchkit import --replace {name} FILE; to follow a pull "
            'request, write status = "submitted" and, below [upstream], url = "REMOTE/pull/N"',
        )
    folder = workspace.series.patches / patch.folder
    text = read_text(folder)
    if not force and (patch.upstream is None or patch.upstream.digest is None):
        raise _by_hand(
            patch, "it has no record of the edits that import made, so they may be written by hand"
        )
    with open_pipeline(workspace) as pipeline:
        repository = pipeline.repository
        found = read_pull(pull.remote, pull.number, repository, workspace.cache_root)
        if pull.recorded is not None and pull.recorded[1] == found.head and not force:
            return Updated(patch=name, before=found.head, after=found.head, differences=(), written=None)
        if not force and not is_as_imported(patch, workspace.series.patches):
            raise _by_hand(patch, "its edits were changed after the import")
        source = f"pull request {pull.number}"
        change = Changeset(
            build=patch.builds.first,
            base=found.base,
            name=source,
            files=compare_commits(found.base, found.head, source, repository),
            by=found.by,
            url=patch.upstream.url if patch.upstream is not None else None,
            head=found.head,
        )
        profiles = offering_profiles(patch, workspace) if not patch.is_plain else None
        lifted = pipeline.lift(change, is_guarded=profiles is not None)
        texts = [*(each.text or "" for each in patch.edits), *named_templates(text, folder).values()]
        body, notes = lift_again(lifted.body, texts, profiles or ())
        new = NewPatch(
            id=patch.id,
            title=patch.title,
            first_build=patch.builds.first,
            builds_why=patch.builds.why,
            archs=tuple(each.arch for each in profiles) if profiles is not None else None,
            body=body,
            links=tuple(dict.fromkeys((*patch.links, *found.by.links))),
            authors=tuple(dict.fromkeys((*patch.authors, *found.by.authors))),
            upstream_url=change.url,
            upstream_ends=change.ends,
            macros=tuple(each for each in patch.macros if each != _HIP),
        )
        differences = _differences(pull, change.files, repository)
        written = pipeline.write(
            Drafted(patch=new, texts=lifted.texts, change=change),
            Rewritten(patch=new, folder=patch.folder, text=text),
        )
    return Updated(
        patch=name,
        before=pull.recorded[1] if pull.recorded is not None else None,
        after=found.head,
        differences=differences,
        written=written,
        notes=notes,
    )


def _by_hand(patch: Patch, why: str) -> ConfigError:
    return ConfigError(
        f"an update would overwrite edits of '{patch.id}'",
        code="IMPORT_CHANGED_BY_HAND",
        where=patch.where,
        why=f"{why}; an update replaces all of them",
        hint=f"commit or copy the patch, then run: patchkit import --update {patch.id} --force",
    )


def offering_profiles(patch: Patch, workspace: Workspace) -> tuple[ArchProfile, ...]:
    """The profiles of the GPUs that are offered a patch with a guard; raises IMPORT_OPTIONS."""
    folder = workspace.series.profiles
    series = load_series(workspace.series.patches)
    profiles = load_profiles(folder, list_profiles(folder))
    found = tuple(each for each in profiles if terms_of(series, patch, each, None).is_offered)
    if not found:
        raise UsageError(
            f"no GPU profile offers '{patch.id}'",
            code="IMPORT_OPTIONS",
            where=patch.where,
            hint=f"add a line for it below [patches] of a profile in {folder}",
        )
    return found


def _differences(
    pull: NamedPull, files: Sequence[FileChange], repository: Repository
) -> tuple[Difference, ...] | None:
    if pull.recorded is None:
        return None
    try:
        for commit in pull.recorded:
            if not repository.has_object(f"{commit}^{{tree}}"):
                fetch_commit(repository, pull.remote, commit)
        old = compare_commits(*pull.recorded, pull.patch, repository)
    except PatchkitError:
        return None  # after a force-push the old head may no longer exist
    return compare_changes(_versions(old), _versions(files))


def _versions(files: Sequence[FileChange]) -> list[Versions]:
    return [Versions(each.path, each.before, each.after) for each in files]

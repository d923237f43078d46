"""``patchkit import``: from a diff, commits or a pull request to a patch of the series, or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.arch import list_profiles, refuse_gpu
from patchkit.base.errors import AnchorError, ErrorGroup, Location, PatchkitError, UsageError
from patchkit.base.plain import plain
from patchkit.base.series_folder import is_plain, refuse_installed
from patchkit.base.source import SourceText
from patchkit.base.upstreams import llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.target import catalogue_pins
from patchkit.carry.cpp.scopes import is_code
from patchkit.carry.importing.commits import compare_commits, read_pull, read_range
from patchkit.carry.importing.hunks import MovedHunk
from patchkit.carry.lifting.change import Authorship, FileChange
from patchkit.carry.lifting.draft import Draft, NotLifted, named_place
from patchkit.carry.lifting.guarded import NewText, escape_template, guard_draft
from patchkit.carry.lifting.lines import lift_lines
from patchkit.carry.lifting.tokens import lift_tokens
from patchkit.carry.lifting.trial import Proof, prove
from patchkit.carry.lifting.whole import edited_texts, new_texts, refuse_guarded, whole_files
from patchkit.carry.lifting.write import (
    NewEdit,
    NewPatch,
    next_number,
    patch_id,
    short_title,
    write_patch,
)
from patchkit.carry.onto.pin import AsBuild, as_build_number, find_build, ggml_version
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Lock, load_lock
from patchkit.carry.series.patch import BREAKS_MAIL
from patchkit.carry.series.profile import ArchProfile, load_profiles
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.clone import Clone, Commit, open_clone
from patchkit.carry.upstream.pin import find_pinned
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The patch that is asked for: ``guard`` is ``none``, a GPU or a family of them.

    ``macros`` must be defined, too; ``lifts`` are numbers, and the names that the profiles have for them.
    """

    guard: str
    id: str | None = None
    title: str | None = None
    macros: tuple[str, ...] = ()
    lifts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What is imported, by its commits: one of ``source`` (``REV..REV``) and ``pull`` is given."""

    wanted: Wanted
    source: str | None = None
    pull: int | None = None
    url: str | None = None
    repo: Path | None = None
    as_build: AsBuild = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The patch as it was written, and what was proven of it. ``hunks`` are edits that stayed text.

    ``because``: why it was placed on ``source``. ``moved``: hunks of the diff not at their own lines.
    """

    patch: NewPatch
    folder: Path
    source: str
    proof: Proof
    hunks: Mapping[str, str]
    places: Mapping[str, str]
    because: str = ""
    moved: tuple[MovedHunk, ...] = ()

    @classmethod
    def of(
        cls, patch: NewPatch, folder: Path, source: str, proof: Proof, texts: Sequence[NewText]
    ) -> Imported:
        """The patch with what its edits were made from, in their order."""
        drafts = dict(zip((edit.id for edit in patch.edits), (each.draft for each in texts), strict=True))
        return cls(
            patch=patch,
            folder=folder,
            source=source,
            proof=proof,
            hunks={name: draft.reason for name, draft in drafts.items() if draft.reason},
            places={name: f"{draft.file}:{draft.line}" for name, draft in drafts.items()},
        )

    def as_json(self) -> dict[str, object]:
        """As ``import`` shows it."""
        return {
            "id": self.patch.id,
            "folder": str(self.folder),
            "archs": list(self.patch.archs) if self.patch.archs is not None else None,
            "source": self.source,
            "source_because": self.because,
            "moved_hunks": plain(self.moved),
            "authors": list(self.patch.authors),
            "edits": [
                {
                    "id": edit.id,
                    "file": edit.file,
                    "function": edit.function,
                    "side": edit.side,
                    "place": self.places[edit.id],
                    "text_because": self.hunks.get(edit.id),
                }
                for edit in self.patch.edits
            ],
            "new_files": [
                *self.patch.files,
                *(blob.path for blob in self.patch.whole.blobs if blob.replaces is None),
            ],
            **self.patch.whole.as_json(),
            "same_as_diff": self.proof.same,
            "newest": self.proof.newest,
            "newest_errors": [{"code": e.code, "message": e.message} for e in self.proof.newest_errors],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundChange:
    """A change to the commit ``base`` of the cache; ``name`` is what that is called.

    ``url`` and ``head`` are those of a pull request.
    """

    build: int
    base: str
    name: str
    files: tuple[FileChange, ...]
    by: Authorship
    url: str | None = None
    head: str | None = None
    how: str = "imported from"


def run_import(request: ImportRequest, workspace: Workspace) -> Imported:
    """Make a patch of commits or a pull request and put it into the series.

    Raises:
        IMPORT_NO_RANGE, IMPORT_NO_PULL, IMPORT_UNSUPPORTED, IMPORT_EMPTY: what was named.
        PatchkitError: of the clone, the remote or the cache, and as :func:`make_patch`.

    Whatever is raised, the series is as it was.
    """
    refuse_installed(workspace.series)
    lock = load_lock(workspace.series.lock)
    target_profiles(request.wanted.guard, workspace)  # a misspelt name is told before anything is fetched
    cache = open_cache(workspace.cache_root)
    with cache.hold(workspace.reporter) as repository:
        found = _find(request, workspace, lock, repository)
        fallback = found.by.subject or Path(request.source or "imported").stem
        return make_patch(found, request.wanted, fallback, workspace, cache, repository)


def make_patch(
    found: FoundChange,
    wanted: Wanted,
    title: str,
    workspace: Workspace,
    cache: Cache,
    repository: Repository,
) -> Imported:
    """The patch of a change, proven on a copy of the series and written; ``title`` if none is asked for.

    Raises:
        IMPORT_NOT_LIFTED, IMPORT_DIFFERS: a person has to write it.
        IMPORT_GUARD_UNKNOWN, LIFT_UNKNOWN, PATCH_ID_TAKEN, PATCH_ID_BAD: what was asked for.
        PatchkitError: of the series, and of placing what was made.
    """
    series = load_series(workspace.series.patches)
    lock = load_lock(workspace.series.lock)
    profiles = target_profiles(wanted.guard, workspace)
    title = short_title(wanted.title or title)
    name = patch_id(wanted.id, title, series)
    patch, texts = draft_patch(found, wanted, (name, title), profiles, lock, repository, workspace)
    proof = prove(
        patch,
        workspace,
        base=found.base,
        expected=found.files,
        guarded=texts,
        repository=repository,
        cache=cache,
    )
    folder = write_patch(
        patch,
        workspace.series,
        number=next_number(series),
        profiles=profiles or (),
        source=f"{found.how} {found.name}",
    )
    return Imported.of(patch, folder, found.name, proof, texts)


def draft_patch(
    found: FoundChange,
    wanted: Wanted,
    named: tuple[str, str],
    profiles: tuple[ArchProfile, ...] | None,
    lock: Lock,
    repository: Repository,
    workspace: Workspace,
) -> tuple[NewPatch, tuple[NewText, ...]]:
    """The patch of a change, not tried yet, and what its edits are made from; ``named`` are id and title.

    Raises IMPORT_NOT_LIFTED, LIFT_UNKNOWN.
    """
    texts, edits, files = lift_change(found, profiles, lock, repository, workspace)
    patch = NewPatch(
        id=named[0],
        title=named[1],
        first_build=found.build,
        builds_why=f"{found.how} {found.name}; no other build was looked at",
        archs=tuple(each.arch for each in profiles) if profiles is not None else None,
        edits=edits,
        why=_why(found.by),
        links=found.by.links,
        authors=found.by.authors,
        files=files,
        upstream_url=found.url,
        upstream_ends=(found.base, found.head) if found.head is not None else None,
        macros=wanted.macros,
        whole=whole_files(found.files),
    )
    return lift_numbers(patch, wanted.lifts, profiles or ()), texts


def target_profiles(guard: str, workspace: Workspace) -> tuple[ArchProfile, ...] | None:
    """The GPUs that a guard names, None for a plain patch.

    Raises IMPORT_GUARD_UNKNOWN, ARCH_IN_PLAIN_SERIES.
    """
    if guard == "none":
        return None
    folder = workspace.series.profiles
    if is_plain(folder):
        raise refuse_gpu(folder, guard)
    every = load_profiles(folder, list_profiles(folder))
    found = tuple(each for each in every if each.arch == guard or guard in each.families[:1])
    if not found:
        families = sorted({each.families[0] for each in every if each.families})
        raise UsageError(
            f"'{guard}' is no GPU and no family of GPUs",
            code="IMPORT_GUARD_UNKNOWN",
            where=Location(path=str(folder)),
            hint=f"--guard none; a GPU: {', '.join(each.arch for each in every)}; or a family: "
            f"{', '.join(families)}",
        )
    return found


def _find(request: ImportRequest, workspace: Workspace, lock: Lock, repository: Repository) -> FoundChange:
    if request.pull is not None:
        return _of_pull(request, workspace, repository)
    if request.source is None:
        raise UsageError(
            "nothing to import was named",
            code="IMPORT_NOTHING_NAMED",
            hint="patchkit import FILE.patch, patchkit import REV..REV, or --pr N --url REMOTE",
        )
    return _of_range(request, request.source, workspace, lock, repository)


def _of_range(
    request: ImportRequest, revisions: str, workspace: Workspace, lock: Lock, repository: Repository
) -> FoundChange:
    clone = open_clone(request.repo or Path.cwd(), workspace.reporter)
    base, tip, by = read_range(clone, revisions, repository)
    files = compare_commits(base.sha, tip.sha, revisions, repository)
    build = build_below(request.as_build, clone, base, lock, workspace)
    name = f"{base.sha[:12]} of {clone.top.name}"
    return FoundChange(build=known_build(build, name), base=base.sha, name=name, files=files, by=by)


def build_below(
    as_build: AsBuild, clone: Clone, base: Commit, lock: Lock, workspace: Workspace
) -> int | None:
    """The newest upstream build in a commit of a clone: what is said, else what its history or tree tells."""
    pins = (*lock.pins, *catalogue_pins(workspace.series.patches / "upstreams.toml"))
    said = as_build_number(as_build, clone, pins)
    if said is not None:
        return said
    version = ggml_version(clone, base)
    known = find_build(clone, base, version, pins)
    return known.low if known is not None else None


def _of_pull(request: ImportRequest, workspace: Workspace, repository: Repository) -> FoundChange:
    if request.url is None or request.pull is None:
        raise UsageError(
            "--pr needs --url, the remote that has the pull request",
            code="IMPORT_NO_PULL",
            hint=f"--pr {request.pull} --url {llama_cpp().url}",
        )
    said = as_build_number(request.as_build, None, load_lock(workspace.series.lock).pins)
    pull = read_pull(request.url, request.pull, repository, workspace.cache_root)
    name = f"pull request {request.pull}"
    url = re.sub(r"(\.git)?/*$", "", request.url) + f"/pull/{request.pull}"
    return FoundChange(
        build=known_build(said or pull.build, name),
        base=pull.base,
        name=name,
        files=compare_commits(pull.base, pull.head, name, repository),
        by=replace(pull.by, links=tuple(dict.fromkeys((url, *pull.by.links)))),
        url=url,
        head=pull.head,
    )


def known_build(build: int | None, name: str) -> int:
    """The build; raises ONTO_BUILD_UNKNOWN where there is none."""
    if build is None:
        raise UsageError(
            f"which upstream build is {name} made from?",
            code="ONTO_BUILD_UNKNOWN",
            why="no tag b<number> lies below it",
            hint="say the newest upstream build that is in it: --as-build bNUMBER",
        )
    return build


def lift_change(
    found: FoundChange,
    profiles: Sequence[ArchProfile] | None,
    lock: Lock,
    repository: Repository,
    workspace: Workspace,
) -> tuple[tuple[NewText, ...], tuple[NewEdit, ...], dict[str, str]]:
    """The edits of a change with their drafts, and the templates of its new files.

    Raises one ErrorGroup of IMPORT_NOT_LIFTED for all that a person has to write.
    """
    guarded: list[NewText] = []
    errors: list[PatchkitError] = []
    if profiles is not None:
        refuse_guarded(found.files, found.name)
    files = {path: escape_template(data.decode("utf-8")) for path, data in new_texts(found.files).items()}
    for change in edited_texts(found.files):
        workspace.reporter.step(f"reading {change.path}")
        try:
            if profiles is None or not is_code(change.path):
                drafts = lift_lines(change.path, change.before, change.after)
            else:
                others = list(_elsewhere(change.path, found.base, lock, repository))
                drafts = lift_tokens(change.path, change.before, change.after, others)
        except NotLifted as error:
            errors.append(_not_lifted(str(error), None))
            continue
        for draft in drafts:
            try:
                guarded += _for_whom(change.before, draft, profiles)
            except NotLifted as error:
                errors.append(_not_lifted(str(error), profiles))
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup("a person has to write a part of this", errors)
    return tuple(guarded), tuple(_named(guarded)), files


def _for_whom(before: bytes, draft: Draft, profiles: Sequence[ArchProfile] | None) -> tuple[NewText, ...]:
    if profiles is None:
        return (NewText(draft=draft, side=None, text=_template(draft), plain=draft.text, verb=draft.verb),)
    return guard_draft(SourceText(draft.file, before), draft)


def _template(draft: Draft) -> str:
    return escape_template((draft.rows or b"").decode("utf-8").replace("\r\n", "\n"))


def _not_lifted(why: str, profiles: Sequence[ArchProfile] | None) -> AnchorError:
    place, _, reason = why.partition(": ")
    path, _, line = place.partition(":")
    return AnchorError(
        f"{place} cannot become an edit: {reason}",
        code="IMPORT_NOT_LIFTED",
        where=Location(path=path, line=int(line) if line.isdigit() else None),
        hint="docs/guide/patch.md shows how to write it"
        + ("; or, for code that is for everybody: --guard none" if profiles is not None else ""),
    )


def _elsewhere(path: str, base: str, lock: Lock, repository: Repository) -> Iterator[bytes]:
    """The file on every cached pin but the one the change is made to."""
    for pin in lock.pins:
        commit = find_pinned(repository, pin)
        if commit is not None and commit != base and path in repository.find_entries(commit, [path]):
            yield repository.read_blobs(commit, [path])[path]


def _named(guarded: Sequence[NewText]) -> Iterator[NewEdit]:
    """Edits with ids made of what they are in: ``should-use-mmq``, ``should-use-mmq-2``."""
    taken: dict[str, int] = {}
    for each in guarded:
        draft = each.draft
        word = named_place(draft.selector, draft.function) or draft.file.rpartition("/")[2]
        slug = re.sub(r"[^a-z0-9]+", "-", word.casefold()).strip("-") or "edit"
        taken[slug] = taken.get(slug, 0) + 1
        name = slug if taken[slug] == 1 else f"{slug}-{taken[slug]}"
        is_include = each.header is not None
        yield NewEdit(
            id=name,
            file=draft.file,
            function=draft.function,
            parameters=draft.parameters,
            selector=None if is_include else draft.selector,
            verb="add_include" if is_include else each.verb,
            side=each.side,
            text=None if is_include or each.verb == "remove" else each.text,
            header=each.header,
            note=f"{draft.reason}." if draft.reason else "",
        )


def _why(by: Authorship) -> str:
    text = by.message.strip()
    return f"Imported. {text}" if BREAKS_MAIL.match(text) else text


def lift_numbers(
    patch: NewPatch, lifts: Sequence[tuple[str, str]], profiles: Sequence[ArchProfile]
) -> NewPatch:
    """The patch with each number, wherever it stands in a text, as the profile's value of that name.

    Raises LIFT_UNKNOWN: a profile has no such value, or another one; or no text has the number.
    """
    for number, name in lifts:
        row = f'[[tuning.value]]\nname = "{name}"\nvalue = {number}\nsource = "..."\nmeasured_on = "..."'
        for profile in profiles:
            known = {each.name: each.value for each in profile.tuning.value}
            if str(known.get(name)) != number:
                has = f"has {known[name]}" if name in known else "has no such value"
                raise UsageError(
                    f"--lift {number}={name}: the profile of {profile.arch} {has}",
                    code="LIFT_UNKNOWN",
                    where=profile.where,
                    hint=f"add to it:\n{row}",
                )
        pattern = re.compile(rf"(?<![\w.]){re.escape(number)}(?![\w.])")
        wanted = f"@{{ values['{name}'] }}@"  # no backslash: as a replacement it stands for itself
        edits = tuple(
            replace(edit, text=pattern.sub(wanted, edit.text)) if edit.text is not None else edit
            for edit in patch.edits
        )
        files = {path: pattern.sub(wanted, text) for path, text in patch.files.items()}
        if edits == patch.edits and files == patch.files:
            raise UsageError(
                f"--lift {number}={name}: no new text has the number {number}", code="LIFT_UNKNOWN"
            )
        patch = replace(patch, edits=edits, files=files)
    if lifts and not profiles:
        raise UsageError(
            "--lift needs a GPU: a plain patch is for all of them",
            code="LIFT_UNKNOWN",
            hint="--guard gfx1151, for example",
        )
    return patch

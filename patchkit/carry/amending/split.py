"""``patchkit series split``: move some edits of a patch into a new patch right after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import tomlkit

from patchkit.base.errors import InterruptNote, UsageError
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.series_folder import SeriesDir, refuse_installed
from patchkit.base.workspace import Workspace
from patchkit.carry.amending.check import compare_series, require_equal
from patchkit.carry.amending.drop import site_of
from patchkit.carry.amending.requiring import Reasons, find_requirements, with_requirements
from patchkit.carry.amending.revise import Texts, key_of, named_in, used_context, with_context
from patchkit.carry.amending.site import Site
from patchkit.carry.amending.staged import open_amendment
from patchkit.carry.amending.uses import copy_in_profiles
from patchkit.carry.candidate.decision import Request, load_decision
from patchkit.carry.lifting.pipeline import Pipeline, open_pipeline
from patchkit.carry.lifting.tables import Part, join_text, split_text
from patchkit.carry.lifting.write import patch_id, short_title
from patchkit.carry.series.body import BODY_TABLES
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import load_lock, write_lock
from patchkit.carry.series.patch import Patch

_COPIED = ("builds", "guard", "requires", "expected", "commit")
"""The tables that the new patch gets too. Its status upstream and its gates are not known."""
_LAST = 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A patch whose ``edits`` (ids, or paths of files) are now those of ``new``.

    ``folders``: the new folder of every renumbered patch, by the old one. ``requires``: which of the two each
    patch requires now whose requirements changed.
    """

    json_keys: ClassVar = (
        "patch new folder edits folders requires profiles checked lock_stale=stale unchecked written"
    )

    patch: str
    new: str
    folder: str
    edits: tuple[str, ...]
    folders: dict[str, str]
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    profiles: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    written: bool = True


def run_split(
    name: str, new: str, edits: Sequence[str], workspace: Workspace, *, title: str | None, dry_run: bool
) -> Split:
    """Move edits and files, by id and path, into a new patch; the result of the series has to stay the same.

    Raises:
        UNKNOWN_PATCH, PATCH_ID_TAKEN: the series has no such patch, or has the new one.
        AMEND_REFUSED: the patch has no such edit, or none would be left.
        AMEND_BREAKS: the new patch cannot be placed after the old one, or the result is another one.
        PatchkitError: as :func:`patchkit.carry.lifting.pipeline.open_pipeline`.

    After any exception the series is unchanged.
    """
    refuse_installed(workspace.series)
    series = load_series(workspace.series.patches)
    patch = series.require(name)
    new = patch_id(new, new, series)
    texts = Texts.load(workspace.series, patch)
    moved = _choose(patch, texts, edits)
    number, folders = _make_room(patch, series)
    folder = f"{number:04d}-{new}"

    def ids(given: tuple[str, ...]) -> tuple[str, ...]:
        """The ids in the series with both patches."""
        return (*given, new) if name in given else given

    with InterruptNote("the series is unchanged"), open_pipeline(workspace) as pipeline:
        site = site_of((name,), pipeline)
        with open_amendment(pipeline) as amendment:
            _write(amendment.series, patch, texts, moved, folder, title or new.replace("-", " "), folders)
            profiles = copy_in_profiles(amendment.series, name, new)
            lock = pipeline.lock.with_edits_moved({id_: id_ for _, id_ in map(key_of, moved)}, name, new)
            if lock != pipeline.lock:
                write_lock(amendment.series.lock, lock)
            requires = _require_again(series, patch, new, site, amendment.stage.workspace, pipeline)
            checked = compare_series(amendment.stage.workspace, pipeline, [name], site, ids)
            require_equal(
                checked,
                f"splitting '{name}'",
                "choose other edits: those that change neighbouring lines have to stay together",
            )
            if not dry_run:
                amendment.publish(workspace.series, profiles_first=True)
    touched = {name, *requires, *(each.id for each in series.patches if each.folder in folders)}
    stale = [result.name for result in pipeline.lock.results if touched & {*result.patches}]
    return Split(
        patch=name,
        new=new,
        folder=folder,
        edits=tuple(dict.fromkeys(key_of(part)[1] for part in moved)),
        folders=folders,
        requires=requires,
        profiles=profiles,
        checked=tuple(each.name for each in checked.compared),
        stale=tuple(stale),
        unchecked=checked.unchecked,
        written=not dry_run,
    )


def _require_again(
    series: Series, patch: Patch, new: str, site: Site | None, changed: Workspace, pipeline: Pipeline
) -> dict[str, tuple[str, ...]]:
    """Let the patches after the two require those of them that they need; also the new one the old one.

    A patch that is not placed at the site requires both, if it required the one that was split. ``series``:
    the one before; ``changed``: the workspace of the copy.
    """
    both = (patch.id, new)
    users = {new, *_users(series, patch.id)}
    found: dict[str, Reasons] = {}
    if site is not None:
        request = Request(archs=site.archs, upstream=site.pin, with_=both)
        decision = load_decision(request, changed, load_lock(changed.series.lock))
        found = find_requirements(decision, site.base, changed, pipeline.repository, both, users)
    result = {}
    for each in load_series(changed.series.patches).patches:
        own = {one.patch: one.why for one in each.requires if one.patch == patch.id}
        reasons = found.get(each.id, dict.fromkeys(both, own.get(patch.id, "")) if own else {})
        if each.id not in users or not reasons:
            continue  # or it requires the old one for a reason that placing does not show
        gone = own.keys() - reasons.keys()
        if with_requirements(changed.series, each.folder, gone, reasons):
            result[each.id] = tuple(reasons)
    return result


def _users(series: Series, name: str) -> set[str]:
    """The patches that require one, directly or through others."""
    found = {name}
    for patch in series.patches:
        if any(each.patch in found for each in patch.requires):
            found.add(patch.id)
    return found - {name}


def _choose(patch: Patch, texts: Texts, edits: Sequence[str]) -> tuple[Part, ...]:
    """The tables of the named edits and files, for all builds. Raises AMEND_REFUSED."""
    parts = texts.text.of(*BODY_TABLES)
    known = dict.fromkeys(key_of(part)[1] for part in parts)
    unknown = [name for name in edits if name not in known]
    if unknown or {*edits} == {*known}:
        raise UsageError(
            f"'{patch.id}' has no edit '{unknown[0]}'"
            if unknown
            else f"no edit of '{patch.id}' would be left",
            code="AMEND_REFUSED",
            where=patch.where,
            hint=f"its edits and files: {', '.join(known)}",
        )
    return tuple(part for part in parts if key_of(part)[1] in edits)


def _make_room(patch: Patch, series: Series) -> tuple[int, dict[str, str]]:
    """A number right after a patch, and the patches that move by one for it. Raises AMEND_REFUSED."""
    taken = {each.number: each for each in series.patches}
    free = next(number for number in range(patch.number + 1, _LAST + 2) if number not in taken)
    if free > _LAST:
        raise UsageError(
            f"no number up to {_LAST} is free after '{patch.id}'",
            code="AMEND_REFUSED",
            where=patch.where,
            hint="renumber the folders of the series",
        )
    later = [taken[number] for number in range(patch.number + 1, free)]
    return patch.number + 1, {each.folder: f"{each.number + 1:04d}-{each.id}" for each in later}


def _write(
    series: SeriesDir,
    patch: Patch,
    texts: Texts,
    moved: Sequence[Part],
    folder: str,
    title: str,
    folders: dict[str, str],
) -> None:
    text = texts.text
    left = [part for part in text.parts if part not in moved]
    copied = [part.moved() for part in text.of(*_COPIED)]
    for key in ("subject", "file"):  # those of the patch that was split
        copied = [part.with_value(key, None) if part.key == "commit" else part for part in copied]
    head = with_context(text.head, patch.context, used_context(patch.context, left, texts.files))
    old = join_text(text, head, left)
    document = tomlkit.parse(text.head)
    document["id"] = folder[5:]
    document["title"] = short_title(title)
    document.pop("status", None)
    head = f"{tomlkit.dumps(document).rstrip()}\n\n"
    head = with_context(head, patch.context, used_context(patch.context, moved, texts.files))
    new = join_text(split_text(text.path, head), head, [*copied, *(part.moved() for part in moved)])
    with disk_errors(series.patches, "writing the series"):
        for was, now in folders.items():
            (series.patches / was).rename(series.patches / now)
        (series.patches / folder).mkdir()
        write_whole(series.patches / folder / "patch.toml", new, "writing the patch")
        write_whole(series.patches / patch.folder / "patch.toml", old, "writing the patch")
        for name in named_in(moved) & texts.files.keys():
            write_whole(series.patches / folder / name, texts.files[name], "writing the patch")
            if name not in named_in(left):
                (series.patches / patch.folder / name).unlink()

"""``patchkit series fold``: make the edits of one patch a part of another.

First the tables of the second patch are added to those of the first as they are. That is enough if the two
change different lines. Otherwise the change of both together is lifted into new edits, like a new version of
the first patch. In both cases the result of the series has to stay the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import tomlkit

from patchkit.base.errors import InterruptNote, PatchkitError, UsageError, raise_all
from patchkit.base.files import disk_errors, temporary_folder, write_whole
from patchkit.base.series_folder import EVIDENCE, SeriesDir, refuse_installed
from patchkit.base.toml import parse_toml
from patchkit.base.workspace import Workspace
from patchkit.carry.amending.attempt import make_revision
from patchkit.carry.amending.check import Checked, compare_series, require_equal
from patchkit.carry.amending.requiring import requirement_part
from patchkit.carry.amending.revise import Texts
from patchkit.carry.amending.site import Site, base_tree_with, find_site
from patchkit.carry.amending.staged import open_amendment
from patchkit.carry.amending.uses import (
    profile_choices,
    remove_from_profiles,
    rename_faults,
    rename_requirements,
)
from patchkit.carry.candidate.renames import followed_series
from patchkit.carry.importing.commits import check_changes, own_repository
from patchkit.carry.lifting.change import Changeset
from patchkit.carry.lifting.pipeline import Pipeline, open_pipeline
from patchkit.carry.lifting.tables import Part, PatchText, join_text, split_text
from patchkit.carry.lifting.write import read_text
from patchkit.carry.series.body import BODY_TABLES
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import Lock, write_lock
from patchkit.carry.series.patch import Edit, NewFile, Patch, Requirement

_TABLES = (*BODY_TABLES, "alias", "replaced_by")
"""The tables that the first patch gets from the second."""
_JOINED = frozenset(
    {"id", "title", "why", "links", "authors", "commit", "context", "builds", "guard", "requires", *_TABLES}
)
_LOST = ("status", "upstream", "without", "expected", "expires")
"""Keys of the second patch that are not carried over; the first patch has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Two patches that became one. ``how``: ``joined`` (all tables as they were) or ``lifted`` (new edits).

    ``renamed``: new ids of edits of the second patch, by the old ones. ``lost``: its keys and files that the
    patch does not have now. ``requires``: patches that required the second one, and now the first.
    """

    json_keys: ClassVar = (
        "into patch how edits renamed lost requires faults profiles checked lock_stale=stale unchecked "
        "written"
    )

    into: str
    patch: str
    how: str
    edits: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    written: bool = True


def run_fold(into: str, name: str, workspace: Workspace, *, dry_run: bool) -> Folded:
    """Make the patch ``name`` a part of ``into``, which keeps its id, number, title and gates.

    Raises:
        UNKNOWN_PATCH: the series has no such patch.
        AMEND_REFUSED: their guards, builds, defaults or gates differ, or the order does not allow it.
        AMEND_BREAKS: a patch cannot be placed afterwards, or the result of the series is another one.
        PatchkitError: from placing and lifting, and as :func:`patchkit.carry.lifting.pipeline.open_pipeline`.

    After any exception the series is unchanged.
    """
    refuse_installed(workspace.series)
    series = load_series(workspace.series.patches)
    pair = _Pair(series=series, first=series.require(into), second=series.require(name), dir=workspace.series)
    pair.refuse()
    with InterruptNote("the series is unchanged"), open_pipeline(workspace) as pipeline:
        site = find_site((into, name), None, pipeline)
        try:
            return _fold(pair, _joined(pair), "joined", site, pipeline, dry_run=dry_run)
        except PatchkitError as error:
            if not pair.can_be_lifted:
                raise
            pair.refuse_followed(pipeline.lock, error)
            joined = error
        try:
            return _fold(pair, _lifted(pair, site, pipeline), "lifted", site, pipeline, dry_run=dry_run)
        except PatchkitError as error:
            raise error from joined


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The two patches: ``second`` becomes a part of ``first``."""

    series: Series
    first: Patch
    second: Patch
    dir: SeriesDir

    @property
    def names(self) -> tuple[str, str]:
        return self.first.id, self.second.id

    @property
    def can_be_lifted(self) -> bool:
        """Whether new edits can be made of both: not for guards, nor for edits of some builds only."""
        parts: list[Edit | NewFile] = []
        for patch in (self.first, self.second):
            parts += patch.parts
        limited = any(part.first_build is not None or part.last_build is not None for part in parts)
        return self.first.is_plain and not limited

    def refuse_followed(self, lock: Lock, joined: PatchkitError) -> None:
        """Raise AMEND_REFUSED if an edit has another place on a pin: new edits would have only one place."""
        for pin in lock.pins:
            patches = {each.id: each for each in followed_series(self.series, pin).patches}
            for patch in (self.first, self.second):
                for edit, there in zip(patch.edits, patches[patch.id].edits, strict=True):
                    if edit != there:
                        why = f"edit '{edit.id}' has another place at {pin.title} than on other builds"
                        raise UsageError(
                            f"cannot fold '{self.second.id}' into '{self.first.id}' for all builds",
                            code="AMEND_REFUSED",
                            where=edit.where,
                            why=f"they change the same lines, and {why}\n{joined.message}",
                            hint="leave them as two patches",
                        ) from joined

    @property
    def requires(self) -> list[Requirement]:
        """The requirements of the second patch that the first one needs as well."""
        known = {*self.names, *(each.patch for each in self.first.requires)}
        return [each for each in self.second.requires if each.patch not in known]

    def refuse(self) -> None:
        """Raise AMEND_REFUSED with every reason why the two cannot be one patch."""
        first, second = self.first, self.second
        if first is second:
            raise UsageError(
                f"'{first.id}' cannot be folded into itself", code="AMEND_REFUSED", where=first.where
            )
        errors = [
            UsageError(
                f"cannot fold '{second.id}' into '{first.id}': {why}",
                code="AMEND_REFUSED",
                where=[second.where, first.where],
                hint=hint,
            )
            for why, hint in self._reasons()
        ]
        raise_all(errors)
        late = [
            (patch, each)
            for number, patch in enumerate(self.series.patches)
            for each in self._requires_of(patch)
            if each.patch in {later.id for later in self.series.patches[number + 1 :]}
            and each not in patch.requires
        ]
        if late:
            patch, each = late[0]
            raise UsageError(
                f"folding '{second.id}' into '{first.id}' would place '{patch.id}' before '{each.patch}', "
                "which it requires",
                code="AMEND_REFUSED",
                where=[each.where, patch.where],
                why=each.why,
                hint=f"move '{each.patch}' to another position first: patchkit series move",
            )

    def _requires_of(self, patch: Patch) -> tuple[Requirement, ...]:
        if patch is self.second:
            return ()
        if patch is self.first:
            return (*(each for each in patch.requires if each.patch != self.second.id), *self.requires)
        return tuple(
            replace(each, patch=self.first.id) if each.patch == self.second.id else each
            for each in patch.requires
        )

    def _reasons(self) -> Iterator[tuple[str, str]]:
        first, second = self.first, self.second
        if first.guard != second.guard:
            yield "they have different guards", "only patches for the same GPUs can be one patch"
        if (first.builds.first, first.builds.last) != (second.builds.first, second.builds.last):
            yield "they are for different builds", "give both the same first and last in [builds] first"
        choices = [dict(profile_choices(self.dir, name)) for name in self.names]
        for path in sorted({*choices[0], *choices[1]}):
            one, other = (each.get(path, "not named") for each in choices)
            if one != other:
                yield f"{path.name} has them {one} and {other}", "give both the same default there first"
        table = parse_toml("", read_text(self.dir.patches / second.folder).encode()).table
        own = sorted(table.keys() - _JOINED - {*_LOST})
        if own:
            keys = ", ".join(own)
            yield f"it has {keys}, which cannot be combined", f"move {keys} into the other patch.toml first"
        twice = {alias.name for alias in first.aliases} & {alias.name for alias in second.aliases}
        twice |= {pair for e in first.edits for pair in e.pairs} & {p for e in second.edits for p in e.pairs}
        if twice:
            yield f"both define {', '.join(sorted(twice))}", "rename the alias or pair in one of them first"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """New content of the first patch's folder: its patch.toml, other files to write, and files to remove."""

    text: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    gone: Collection[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


def _joined(pair: _Pair) -> _Content:
    """The tables of both patches, with other names for edits and templates that both have."""
    first, second = Texts.load(pair.dir, pair.first), Texts.load(pair.dir, pair.second)
    used = {each.id for each in pair.first.edits} | {alias.name for alias in pair.first.aliases}
    used |= {file.path for file in pair.first.files}
    names: dict[str, str] = {}
    for edit in pair.second.edits:
        name, count = edit.id, 1
        while edit.id not in names and name in {*used, *names.values()}:
            count += 1
            name = f"{edit.id}-{count}"
        names.setdefault(edit.id, name)
    files: dict[str, str | bytes] = {}
    moved: dict[str, str] = {}
    for name, data in second.files.items():
        new = name
        while first.files.get(new, data) != data:
            new = f"_{new}"
        moved[name] = new
        files[new] = data
    parts = []
    for part in second.text.of(*_TABLES):
        new_part = part
        if part.key == "edit" and names[part.table["id"]] != part.table["id"]:
            new_part = new_part.with_value("id", names[part.table["id"]])
        for key in ("template", "blob"):
            if key in part.table and moved.get(part.table[key], part.table[key]) != part.table[key]:
                new_part = new_part.with_value(key, moved[part.table[key]])
        parts.append(new_part.moved())
    text = _with_parts(pair, first.text, first.text.parts, parts)
    renamed = {old: new for old, new in names.items() if old != new}
    return _Content(text=text, files=files, renamed=renamed)


def _lifted(pair: _Pair, site: Site, pipeline: Pipeline) -> _Content:
    """New edits for the change of both patches, one right after the other, at the place of the first."""
    first, second = pair.first, pair.second
    both = [site.chosen(each.id) for each in pair.series.patches if each in (first, second)]
    chosen = site.decision.selected
    at = next(number for number, each in enumerate(chosen) if each.patch.id == first.id)
    below = [each for each in chosen[:at] if each.patch.id != second.id]
    base_tree = base_tree_with(site, below, site.chosen(first.id), pipeline)
    try:
        after = base_tree_with(site, [*below, *both], site.chosen(first.id), pipeline)
    except PatchkitError as error:
        raise UsageError(
            f"'{second.id}' cannot be placed right after '{first.id}'",
            code="AMEND_REFUSED",
            where=[second.where, first.where],
            why=getattr(error, "errors", (error,))[0].message,
            hint="it needs a patch between the two: move that one first, or fold it as well",
        ) from error
    with temporary_folder("fold") as folder:
        git = own_repository(folder, pipeline.repository)
        files = check_changes(git.renames(base_tree.tree, after.tree), f"{first.id} and {second.id}", git)
    change = Changeset(build=site.pin.build, base=site.base, name=" and ".join(pair.names), files=files)
    revision, _, _ = make_revision(first, base_tree, change, pipeline)
    text = split_text(str(pair.dir.patches / first.folder / "patch.toml"), revision.text)
    extra = [part.moved() for part in Texts.load(pair.dir, second).text.of("replaced_by")]
    return _Content(text=_with_parts(pair, text, text.parts, extra), files=revision.files, gone=revision.gone)


def _with_parts(pair: _Pair, text: PatchText, parts: Sequence[Part], new: Sequence[Part]) -> str:
    """The patch.toml of the first patch with more tables, and what it needs of the second one's keys."""
    kept = [part for part in parts if part.key != "requires" or part.table.get("patch") != pair.second.id]
    needed = [requirement_part(each.patch, each.why) for each in pair.requires]
    tables = [number for number, part in enumerate(kept) if part.key in BODY_TABLES]
    start = tables[0] if tables else len(kept)
    end = tables[-1] + 1 if tables else len(kept)
    every = [*kept[:start], *needed, *kept[start:end], *new, *kept[end:]]
    return join_text(text, _head(pair, text.head), every)


def _head(pair: _Pair, head: str) -> str:
    """The keys above the first table, with the texts, links and authors of the second patch added."""
    first, second = pair.first, pair.second
    document = tomlkit.parse(head)
    changes: dict[str, Any] = {}
    for key in ("links", "authors", "context"):
        one, other = getattr(first, key), getattr(second, key)
        if not {*other} <= {*one}:
            changes[key] = list(dict.fromkeys((*one, *other)))
    if second.why and second.why.strip() not in (first.why or ""):
        why = "\n\n".join(filter(None, ((first.why or "").strip(), second.why.strip())))
        changes["why"] = tomlkit.string(f"{why}\n", multiline=True) if "\n" in why else why
    if not changes:
        return head
    for key, value in changes.items():
        document[key] = value
    text = tomlkit.dumps(document)
    return text.rstrip("\n") + "\n\n"


def _fold(
    pair: _Pair, content: _Content, how: str, site: Site, pipeline: Pipeline, *, dry_run: bool
) -> Folded:
    first, second = pair.first, pair.second
    workspace = pipeline.workspace

    def ids(given: tuple[str, ...]) -> tuple[str, ...]:
        """The ids in the series in which the second patch is a part of the first."""
        return tuple(dict.fromkeys(first.id if name == second.id else name for name in given))

    with open_amendment(pipeline) as amendment:
        series = amendment.series
        folder = series.patches / first.folder
        with disk_errors(folder, "writing the patch"):
            for name in content.gone:
                (folder / name).unlink(missing_ok=True)
            for name, data in content.files.items():
                write_whole(folder / name, data, "writing the patch")
            write_whole(folder / "patch.toml", content.text, "writing the patch")
            lost = tuple(_lost(pair))
            shutil.rmtree(series.patches / second.folder)
        lock = pipeline.lock
        if how == "joined":
            names = {edit.id: content.renamed.get(edit.id, edit.id) for edit in second.edits}
            lock = lock.with_edits_moved(names, second.id, first.id)
        lock = lock.without_patches((second.id,))
        if lock != pipeline.lock:
            write_lock(series.lock, lock)
        others = [each.folder for each in pair.series.patches if each not in (first, second)]
        required = rename_requirements(series, others, second.id, first.id)
        faults = rename_faults(series, second.id, first.id)
        profiles = remove_from_profiles(series, second.id)
        checked: Checked = compare_series(amendment.stage.workspace, pipeline, pair.names, site, ids)
        require_equal(
            checked,
            f"folding '{second.id}' into '{first.id}'",
            "leave them as two patches, or fold them by hand",
        )
        edits = tuple(edit.id for edit in load_series(series.patches).require(first.id).edits)
        if not dry_run:
            amendment.publish(workspace.series)
    stale = [result.name for result in pipeline.lock.results if {*pair.names} & {*result.patches}]
    return Folded(
        into=first.id,
        patch=second.id,
        how=how,
        edits=edits,
        renamed=content.renamed,
        lost=lost,
        requires=tuple(name[5:] for name in required),
        faults=faults,
        profiles=profiles,
        checked=tuple(each.name for each in checked.compared),
        stale=tuple(stale),
        unchecked=checked.unchecked,
        written=not dry_run,
    )


def _lost(pair: _Pair) -> Iterator[str]:
    """The keys of the second patch that the result does not have."""
    path = pair.dir.patches / pair.second.folder
    table = parse_toml(str(path), read_text(path).encode()).table
    yield from (key for key in _LOST if key in table and table[key] != "not-submitted")
    if (path / EVIDENCE).exists():
        yield EVIDENCE

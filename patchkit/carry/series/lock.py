"""The lock file, patches/upstream.lock: the pins, and the results that the series must give on them."""

from __future__ import annotations

import base64
import datetime as dt
import glob
import os
import re
import shlex
import tempfile
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tomlkit
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints
from tomlkit.items import KeyType, SingleKey

from patchkit.base.digests import sha256
from patchkit.base.errors import ConfigError, ErrorGroup, Location, UsageError
from patchkit.base.files import disk_errors
from patchkit.base.locks import locked
from patchkit.base.toml import (
    Document,
    KeyPath,
    NotInFile,
    Several,
    TomlTable,
    Words,
    load_toml,
    parse_toml,
    validate,
)
from patchkit.base.upstreams import Upstream, build_name, llama_cpp, load_upstreams
from patchkit.carry.series.git_object import commit_date, object_id
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selector import Selector

ObjectId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_PART = r"\.?[A-Za-z0-9_+-][A-Za-z0-9_.+-]*"  # neither . nor ..
TreePath = Annotated[str, StringConstraints(pattern=rf"^{_PART}(/{_PART})*$")]


def _release(name: str) -> str:
    if not llama_cpp().tags.is_release(name):
        raise ValueError("must be the tag of a release, for example v0.5.0")
    return name


Release = Annotated[str, AfterValidator(_release)]
"""The tag of a release, ``v0.5.0``; no suffix is allowed, as in upstream's own scripts."""


def _tag(name: str) -> str:
    if not any(each.tags.is_tag(name) for each in load_upstreams()):
        raise ValueError("must be the tag of a build or release, for example b11549 or v0.5.0")
    return name


PinName = Annotated[str, AfterValidator(_tag)]
"""The name of a pin: the tag of a build or a release, in the form that a project's description gives."""


def name_pin(name: str, releases: Sequence[str]) -> str:
    """The name to show to the user: ``v0.5.0 (b11549)``, or ``b11549`` if it is not a release."""
    return f"{', '.join(releases)} ({name})" if releases else name


def _no_truth(value: object) -> object:
    """Reject ``true``, which Python takes for 1."""
    if isinstance(value, bool):
        raise ValueError("must be the number 2")  # noqa: TRY004  # pydantic wants this one
    return value


Version = Annotated[Literal[2], BeforeValidator(_no_truth)]


def _decode(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)


def _decode_object(text: object) -> object:
    """The commit object from its base64 lines; empty if invalid, which is reported by a later check."""
    try:
        return _decode(text) if isinstance(text, str) else text
    except ValueError:
        return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource(TomlTable):
    """A git repository that serves the pinned commit."""

    kind: Literal["git"] = "git"
    url: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class SdistSource(TomlTable):
    """A source distribution that contains the tree in ``subdir``, except for the ``omit`` paths.

    ``sha256`` is that of the archive; ``omit`` is relative to ``subdir``.
    """

    kind: Literal["sdist"] = "sdist"
    package: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
    version: Words
    sha256: Sha256
    subdir: TreePath
    omit: Several[TreePath] = ()


Source = GitSource | SdistSource


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Followed(TomlTable):
    """A function that patches name, and where it is on one pin, as found and verified by a bump.

    Without ``function``, it is the code outside functions of a file that upstream renamed.
    """

    file: TreePath
    function: Words | None = None
    now_file: TreePath
    now_function: Words | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What distinguishes it from the others of a pin."""
        return self.file, self.function or "", -1

    def __str__(self) -> str:
        if self.function is None:
            return f"{self.file} is now {self.now_file}"
        return f"'{self.function}' of {self.file} is now '{self.now_function}' in {self.now_file}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedEdit(TomlTable):
    """The lines that select the place of an edit on one pin, as found by git's merge in a bump.

    ``digest`` is that of the place as patch.toml has it; if that changes, the recorded lines no longer count.
    ``first_build`` is that of the edit, 0 for none. ``parameters``: those that its function has on the pin,
    if patch.toml names other ones.
    """

    json_keys: ClassVar = "patch edit first_build at=selector parameters"
    patch: Words
    edit: Words
    first_build: Annotated[int, Field(ge=0)] = 0
    at: Selector
    digest: Sha256
    parameters: Words | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What distinguishes it from the others of a pin."""
        return self.patch, self.edit, self.first_build

    @property
    def selector(self) -> str:
        """``at`` as written in patch.toml."""
        return str(self.at)

    def __str__(self) -> str:
        return f"edit '{self.edit}' of {self.patch} is now at {self.at}"


def digest_of_place(edit: Edit) -> str:
    """Digest of the place that patch.toml gives an edit."""
    return sha256(f"{edit.file}\0{edit.function}\0{edit.parameters}\0{edit.verb}\0{edit.at}")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DroppedPatch(TomlTable):
    """A patch that ``bump --drop-conflicts`` dropped on one pin for these GPUs, because it did not fit.

    ``archs`` is sorted. ``digest`` is that of the patch's files; when they change, the patch is tried again.
    """

    named_by: ClassVar[str] = "patch"
    json_keys: ClassVar = "patch archs why"
    patch: Words
    archs: Annotated[Several[Words], Field(min_length=1)]
    digest: Sha256
    why: Words


_SHORTEST_PREFIX = 4  # hex digits; git's own minimum


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin(TomlTable):
    """One upstream commit. ``committed`` is RFC 3339 with its zone; patchkit's commits get this date.

    ``name`` identifies it. ``build`` is its position in llama.cpp's history, as in the build ranges of
    patches; the file has it only if the name does not contain it. ``releases`` are the other names that
    upstream tagged it with. ``ggml`` is the version in ggml's CMake file, if it has one: it gives the
    approximate build of a tree without history. ``unproven``: the bump that recorded it ran no gates
    (``--accept-not-run``), so the names of its candidates say so.
    """

    named_by: ClassVar[str] = "name"
    json_keys: ClassVar = "name build releases commit tree"
    name: PinName
    build: Annotated[int, Field(gt=0)] = 0
    releases: Several[Release] = ()
    commit: ObjectId | None = None
    tree: ObjectId
    committed: str
    commit_object: Annotated[bytes | None, BeforeValidator(_decode_object, json_schema_input_type=str)] = None
    sources: Annotated[
        Several[Annotated[Source, Field(discriminator="kind")]], Field(alias="source", min_length=1)
    ]
    unproven: bool = False
    followed: Several[Followed | FollowedEdit] = ()
    dropped: Several[DroppedPatch] = ()
    ggml: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6}){2}$")] | None = None
    # Set for --onto: the user's repository, which has the commit. No source serves it, ``name`` is ``onto-``
    # and the commit, and ``build`` is that of the upstream commit below it.
    clone: NotInFile[Path | None] = None
    # Also set for --onto: the project whose tree it is, and the known faults that its code has. None:
    # llama.cpp, and the faults of its build.
    project: NotInFile[Upstream | None] = None
    faults: NotInFile[tuple[str, ...] | None] = None
    where: NotInFile[Location | None] = field(default=None, compare=False)

    @property
    def title(self) -> str:
        """The name to show to the user; see :func:`name_pin`."""
        return name_pin(self.name, self.releases)

    @property
    def title_with_id(self) -> str:
        """The title with the abbreviated commit, or the abbreviated tree if the commit is unknown."""
        sha = (self.commit or self.tree)[:12]
        return f"{self.title[:-1]}, {sha})" if self.releases else f"{self.title} ({sha})"

    def is_called(self, name: str) -> bool:
        """Whether ``name`` is one of its names: ``b6900``, ``6900``, a release tag or the full commit."""
        return self.name == build_name(name) or name in (self.name, self.commit, *self.releases)

    @property
    def option(self) -> str:
        """The command-line options that select this pin: ``--upstream``, or ``--onto`` with ``--repo``."""
        if self.clone is None:
            return f"--upstream {self.name}"
        return f"--onto {self.name.removeprefix('onto-')} --repo {shlex.quote(str(self.clone))}"


def _is_target(name: str) -> bool:
    """Whether ``name`` has the form of a build or release, so that a bump could target it."""
    return llama_cpp().tags.is_tag(name)


PinWanted = str | Pin | None
"""A requested pin: its name, the pin itself (``--onto``), or None for the lock's default."""


ResultKey = tuple[str, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(TomlTable):
    """The result of applying patches to a pin. ``archs`` is sorted, ``patches`` in order of application.

    ``pin`` is the pin's name, ``build`` its build, which is not in the file.
    ``inputs``: sha256 by path of every profile, patch.toml and template; ``rendered``: sha256 by
    ``patch-id/edit-id``; ``entities``: token digest by ``file::entity``.
    """

    named_by: ClassVar[str] = "pin"
    pin: Words
    archs: Annotated[Several[Words], Field(min_length=1)]
    patches: Several[Words]
    tree: ObjectId
    commit: ObjectId
    inputs: Mapping[str, Sha256]
    rendered: Mapping[str, Sha256]
    entities: Mapping[str, str]
    build: NotInFile[int] = 0
    where: NotInFile[Location | None] = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """``b6900 gfx1151``, to show to the user."""
        return f"{self.pin} {'+'.join(self.archs)}"

    @property
    def key(self) -> ResultKey:
        """The identity of the result: pin, archs, patches."""
        return (self.pin, self.archs, self.patches)

    @property
    def order(self) -> tuple[int, ResultKey]:
        """The position of the result in the file: by build, then by the rest of its identity."""
        return (self.build, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock(TomlTable):
    """The whole file; ``default`` is the name of the pin that is used when none is requested."""

    version: Version
    default: Words
    pins: Annotated[Several[Pin], Field(alias="pin", min_length=1)]
    results: Annotated[Several[Result], Field(alias="result")] = ()
    path: NotInFile[str] = ""

    def pin(self, wanted: PinWanted = None) -> Pin:
        """The pin of a build (``b6900``), release or commit prefix, or the default; a Pin is returned as is.

        Raises:
            PIN_UNKNOWN: none matches.
            PIN_UNKNOWN: a commit prefix matches several.
        """
        if isinstance(wanted, Pin):
            return wanted
        name = (self.default if wanted is None else wanted).strip().lower()
        exact = [pin for pin in self.pins if pin.is_called(name)]
        if exact:
            return exact[0]
        near = [
            pin for pin in self.pins if len(name) >= _SHORTEST_PREFIX and (pin.commit or "").startswith(name)
        ]
        if len(near) == 1:
            return near[0]
        known = ", ".join(pin.title for pin in self.pins)
        where = Location(path=self.path)
        if near:
            raise UsageError(
                f"'{wanted}' matches several pins: {', '.join(pin.title for pin in near)}",
                code="PIN_UNKNOWN",
                where=where,
                hint="give more digits of the commit, or the build number",
            )
        raise UsageError(
            f"the lock has no pin '{wanted}'",
            code="PIN_UNKNOWN",
            where=where,
            hint=f"use one of the existing pins: {known}"
            + (f"; or add it: patchkit bump --to {name}" if _is_target(name) else ""),
        )

    def result(self, pin: str, archs: Sequence[str], patches: Sequence[str]) -> Result | None:
        """The recorded result for exactly these archs (any order) and patches (this order) on a pin."""
        key = (pin, tuple(sorted(archs)), tuple(patches))
        return next((result for result in self.results if result.key == key), None)

    def with_pin(self, pin: Pin) -> Lock:
        """This lock with ``pin`` added, or in place of the pin of the same name."""
        if all(each.name != pin.name for each in self.pins):
            return replace(self, pins=(*self.pins, pin))
        return replace(self, pins=tuple(pin if each.name == pin.name else each for each in self.pins))

    def with_followed(self, name: str, followed: Sequence[Followed | FollowedEdit]) -> Lock:
        """This lock with ``followed`` merged into the places already recorded for a pin."""
        pins = []
        for pin in self.pins:
            if pin.name == name:
                merged = {each.key: each for each in (*pin.followed, *followed)}
                ordered = tuple(merged[key] for key in sorted(merged))
                pins.append(replace(pin, followed=ordered))
            else:
                pins.append(pin)
        return replace(self, pins=tuple(pins))

    def with_edits_moved(self, edits: Mapping[str, str], patch: str, new: str) -> Lock:
        """This lock with the recorded places of some edits of ``patch`` as those of the patch ``new``.

        ``edits``: their ids there, by the ids in ``patch``.
        """

        def move(each: Followed | FollowedEdit) -> Followed | FollowedEdit:
            if not isinstance(each, FollowedEdit) or each.patch != patch or each.edit not in edits:
                return each
            return replace(each, patch=new, edit=edits[each.edit])

        return replace(
            self,
            pins=tuple(
                replace(pin, followed=tuple(sorted(map(move, pin.followed), key=lambda each: each.key)))
                for pin in self.pins
            ),
        )

    def without_patches(self, names: Collection[str]) -> Lock:
        """This lock as if some patches of the series had never been in its results.

        Each result keeps its tree and files, so that it is out of date until it is recorded again. Of results
        that become equal in what identifies them, the first is kept.
        """
        results: dict[ResultKey, Result] = {}
        for result in self.results:
            left = tuple(name for name in result.patches if name not in names)
            new = replace(result, patches=left)
            results.setdefault(new.key, new)
        pins = (
            replace(
                pin,
                followed=tuple(
                    each for each in pin.followed if isinstance(each, Followed) or each.patch not in names
                ),
                dropped=tuple(each for each in pin.dropped if each.patch not in names),
            )
            for pin in self.pins
        )
        return replace(self, pins=tuple(pins), results=tuple(results.values()))

    def with_dropped(self, name: str, archs: Sequence[str], dropped: Sequence[DroppedPatch]) -> Lock:
        """This lock with ``dropped`` as the complete list of patches dropped on a pin for these GPUs."""
        pins = []
        for pin in self.pins:
            if pin.name == name:
                others = (each for each in pin.dropped if each.archs != tuple(sorted(archs)))
                pins.append(replace(pin, dropped=tuple(sorted((*others, *dropped)))))
            else:
                pins.append(pin)
        return replace(self, pins=tuple(pins))

    def with_result(self, result: Result) -> Lock:
        """This lock with ``result`` replacing that of the same key; its patches are no longer dropped."""
        kept = (other for other in self.results if other.key != result.key)
        lock = replace(self, results=tuple(sorted((*kept, result), key=lambda each: each.order)))
        before = [each for pin in self.pins if pin.name == result.pin for each in pin.dropped]
        still = [each for each in before if each.archs == result.archs and each.patch not in result.patches]
        return lock.with_dropped(result.pin, result.archs, still) if before else lock


def _of_pins(lock: Lock, document: Document) -> Iterator[ConfigError]:
    names: dict[str, Location] = {}
    releases: dict[str, Location] = {}
    for number, pin in enumerate(lock.pins):
        at = ("pin", number)
        here = document.locate((*at, "name"))
        if pin.name in names:
            yield ConfigError(
                f"lock: a second pin {pin.name}",
                code="LOCK_BAD",
                where=(here, names[pin.name]),
            )
        names.setdefault(pin.name, here)
        named = llama_cpp().tags.build_number(pin.name)
        if named is not None and named != pin.build:
            yield ConfigError(
                f"lock: pin {pin.name} has build = {pin.build}",
                code="LOCK_BAD",
                where=document.locate((*at, "build")),
                why="its name contains another build",
            )
        if not pin.build:
            yield ConfigError(
                f"lock: pin {pin.name} has no build",
                code="LOCK_BAD",
                where=here,
                why="patches are for ranges of llama.cpp builds, and its name does not contain one",
            )
        for release in pin.releases:
            place = document.locate((*at, "releases"))
            if release in releases:
                yield ConfigError(
                    f"lock: release {release} is named twice",
                    code="LOCK_BAD",
                    where=(place, releases[release]),
                    why="a release is exactly one commit",
                )
            releases.setdefault(release, place)
        yield from _of_identity(pin, at, document)
        if pin.commit is None and any(isinstance(source, GitSource) for source in pin.sources):
            yield ConfigError(
                f"lock: pin {pin.name} has a git source, but no commit",
                code="LOCK_BAD",
                where=document.locate((*at, "source")),
                why="git can fetch a commit, but not a tree",
            )
        yield from _of_followed(pin, at, document)
        yield from _of_dropped(pin, at, document)
    if lock.default not in names:
        yield ConfigError(
            f"lock: default = '{lock.default}' is not the name of a pin",
            code="LOCK_BAD",
            where=document.locate(("default",)),
        )


def _twice(keys: Iterable[object]) -> Iterator[tuple[int, int]]:
    """The positions of repeated keys: the repetition, and the first occurrence."""
    first: dict[object, int] = {}
    for number, key in enumerate(keys):
        if first.setdefault(key, number) != number:
            yield number, first[key]


def _of_followed(pin: Pin, at: KeyPath, document: Document) -> Iterator[ConfigError]:
    for places in _twice(each.key for each in pin.followed):
        one, other, _ = pin.followed[places[0]].key
        yield ConfigError(
            f"lock: two places recorded on {pin.name} for '{other}' of {one}",
            code="LOCK_BAD",
            where=[document.locate((*at, "followed", number)) for number in places],
        )


def _of_dropped(pin: Pin, at: KeyPath, document: Document) -> Iterator[ConfigError]:
    for places in _twice((each.patch, each.archs) for each in pin.dropped):
        each = pin.dropped[places[0]]
        yield ConfigError(
            f"lock: '{each.patch}' is excluded twice on {pin.name} for {'+'.join(each.archs)}",
            code="LOCK_BAD",
            where=[document.locate((*at, "dropped", number, "patch")) for number in places],
        )


def _of_identity(pin: Pin, at: KeyPath, document: Document) -> Iterator[ConfigError]:
    moment = _moment(pin.committed)
    if moment is None:
        yield ConfigError(
            f"lock: committed = '{pin.committed}' is not a date with a time zone",
            code="LOCK_BAD",
            where=document.locate((*at, "committed")),
            why="the expected format is 2025-10-31T10:54:19+02:00",
        )
    if pin.commit_object is None:
        return
    where = document.locate((*at, "commit_object"))
    raw = pin.commit_object
    try:
        _decode(document.table["pin"][at[1]]["commit_object"])
    except ValueError as error:
        yield ConfigError(
            f"lock: commit_object of {pin.name} is not base64",
            code="LOCK_BAD",
            where=where,
            why=str(error),
        )
        return
    date = commit_date(raw)
    if not re.match(rb"tree [0-9a-f]{40}\n", raw) or date is None:
        yield ConfigError(
            f"lock: commit_object of {pin.name} is not a commit",
            code="LOCK_BAD",
            where=where,
        )
        return
    sha = object_id("commit", raw)
    if sha != pin.commit:
        yield ConfigError(
            f"lock: the commit stored in commit_object is {sha}, but this pin says commit = '{pin.commit}'",
            code="LOCK_BAD",
            where=where,
            hint=_RESTORE,
        )
    if raw[5:45].decode() != pin.tree:
        yield ConfigError(
            f"lock: the commit stored in commit_object has tree {raw[5:45].decode()}, but this pin says "
            f"tree = '{pin.tree}'",
            code="LOCK_BAD",
            where=where,
            hint=_RESTORE,
        )
    if moment is not None and moment != _moment(date):
        yield ConfigError(
            f"lock: committed = '{pin.committed}', but the commit stored in commit_object is of {date}",
            code="LOCK_BAD",
            where=document.locate((*at, "committed")),
            hint=_RESTORE,
        )


def _of_results(lock: Lock, document: Document) -> Iterator[ConfigError]:
    pins = {pin.name for pin in lock.pins}
    seen: dict[ResultKey, Location] = {}
    for number, result in enumerate(lock.results):
        here = document.locate(("result", number, "pin"))
        if result.key in seen:
            yield ConfigError(
                f"lock: two results for {result.name} with the same patches",
                code="LOCK_BAD",
                where=(here, seen[result.key]),
            )
        seen.setdefault(result.key, here)
        if result.pin not in pins:
            yield ConfigError(
                f"lock: a result for {result.pin}, which is not a pin",
                code="LOCK_BAD",
                where=here,
            )
        if list(result.archs) != sorted(set(result.archs)):
            yield ConfigError(
                f"lock: archs {list(result.archs)} are not sorted and unique",
                code="LOCK_BAD",
                where=document.locate(("result", number, "archs")),
            )


def _moment(text: str) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.utcoffset() is not None else None


def load_lock(path: Path) -> Lock:
    """Read and check a lock file; raises the errors of :func:`parse_lock` and of reading a file."""
    return parse_lock(load_toml(path))


def parse_lock(document: Document) -> Lock:
    """The lock in a document.

    Raises:
        ErrorGroup: one ConfigError with its line per wrong field. Inconsistencies between fields are
            checked only if all types and formats are right.
    """
    document = _current(document)
    lock = replace(_with_builds(validate(document, Lock, what="lock")), path=document.path)
    problems = [*_of_pins(lock, document), *_of_results(lock, document)]
    for problem in problems:
        problem.hint = f"patchkit lock writes this file; to restore it: git checkout -- {document.path}"
    if problems:
        raise ErrorGroup(f"{document.path} is not a valid lock", problems)
    return lock


def _with_builds(lock: Lock) -> Lock:
    """The lock with the builds that the file leaves to names: a pin's own, and that of a result's pin."""
    number = llama_cpp().tags.build_number
    pins = tuple(pin if pin.build else replace(pin, build=number(pin.name) or 0) for pin in lock.pins)
    builds = {pin.name: pin.build for pin in pins}
    results = tuple(replace(each, build=builds.get(each.pin, 0)) for each in lock.results)
    return replace(lock, pins=pins, results=results)


def _current(document: Document) -> Document:
    """The document in version 2. Version 1 had build numbers and earlier names of keys; no line moves."""
    if type(document.table.get("version")) is not int or document.table["version"] != 1:
        return document
    data = document.data
    for pattern, new in _RENAMED:
        data = re.sub(rb"(?m)" + pattern, new, data)
    return parse_toml(document.path, data)


_RENAMED = (
    (rb"^version = 1$", rb"version = 2"),
    (rb"^default = ([0-9]+)$", rb'default = "b\1"'),
    (rb"^\[\[pin\.left_out\]\]$", rb"[[pin.dropped]]"),
    (rb"^\[\[pin\]\]\nbuild = ([0-9]+)$", rb'[[pin]]\nname = "b\1"'),
    (rb"^\[\[result\]\]\nbuild = ([0-9]+)$", rb'[[result]]\npin = "b\1"'),
)
_RESTORE = "restore the lock with git; patchkit writes it, do not edit it by hand"
_HEADER = "# Written by patchkit, not by hand: every line below is checked against the bytes it names.\n"
_WIDTH = 76  # of base64 lines
_DRAFT = ".patchkit-partial"
_DOING = "writing the lock"
_ELSEWHERE = "copy the series to another disk and name it with --series-dir"
_LONG = 100  # characters; a longer array gets one line per item


def format_lock(lock: Lock) -> str:
    """The text of a lock file: pins by build, results by build, archs and patches."""
    number = llama_cpp().tags.build_number
    tables = [_format_table("", {"version": 2, "default": lock.default})]
    for pin in sorted(lock.pins, key=lambda each: (each.build, each.name)):
        build = pin.build if number(pin.name) is None else None
        own: dict[str, object] = {"name": pin.name, "build": build, "releases": pin.releases or None}
        own |= {name: getattr(pin, name) for name in ("commit", "tree", "committed", "ggml")}
        own |= {"unproven": pin.unproven or None, "commit_object": pin.commit_object}
        tables.append(_format_table("[[pin]]\n", own))
        tables += [_format_table("[[pin.source]]\n", asdict(source)) for source in pin.sources]
        for each in sorted(pin.followed, key=lambda each: each.key):
            values = {one.name: getattr(each, one.name) for one in fields(each)}
            values |= {"first_build": values.get("first_build") or None}
            tables.append(_format_table("[[pin.followed]]\n", values))
        tables += [_format_table("[[pin.dropped]]\n", asdict(each)) for each in sorted(pin.dropped)]
    for result in sorted(lock.results, key=lambda each: each.order):
        own = {name: getattr(result, name) for name in ("pin", "archs", "patches", "tree", "commit")}
        tables.append(_format_table("[[result]]\n", own))
        for name in ("inputs", "rendered", "entities"):
            tables.append(_format_table(f"[result.{name}]\n", getattr(result, name), is_free=True))
    return _HEADER + "\n".join(tables)


def _format_table(header: str, values: Mapping[str, object], *, is_free: bool = False) -> str:
    """One table; with ``is_free``, the keys are sorted and quoted."""
    table = tomlkit.table()
    for key, value in sorted(values.items()) if is_free else values.items():
        name = SingleKey(key, KeyType.Basic) if is_free else key
        match value:
            case None:
                continue
            case bytes():
                lines = textwrap.wrap(base64.b64encode(value).decode("ascii"), _WIDTH)
                table.add(name, tomlkit.value("\n".join(["'''", *lines, "'''"])))
            case tuple():
                array = tomlkit.item(list(value))
                table.add(name, array.multiline(len(array.as_string()) > _LONG))
            case Selector():
                table.add(name, tomlkit.parse(f"at = {value}")["at"])
            case _:
                table.add(name, value)
    return header + table.as_string()


def write_lock(path: Path, lock: Lock) -> None:
    """Replace the file at ``path`` by the text of ``lock``, atomically.

    Raises:
        CacheError: the disk reported an error.
    """
    path = path.resolve()
    with disk_errors(path, _DOING, _ELSEWHERE):
        # A unique name, because another run may be writing at the same time.
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_DRAFT, dir=path.parent)
        draft = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
                os.fchmod(descriptor, path.stat().st_mode & 0o777 if path.exists() else 0o644)
                stream.write(format_lock(lock))
                stream.flush()
                os.fsync(descriptor)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def record_result(path: Path, pin: Pin, result: Result) -> bool:
    """Put a result into the current lock file; return False if the file has it already.

    Runs that record at the same time wait for each other, so no result is lost.

    Raises:
        LOCK_CHANGED: the pin differs from the one that the result was made on.
        CacheError: the disk reported an error.
        ConfigError, ErrorGroup: as :func:`patchkit.carry.series.lock.load_lock`.
    """
    path = path.resolve()
    with locked(path, creates=False, doing=_DOING, elsewhere=_ELSEWHERE):
        lock = load_lock(path)
        if pin not in lock.pins:
            raise ConfigError(
                f"the pin {pin.name} in {path.name} was changed while the command ran",
                code="LOCK_CHANGED",
                where=Location(path=str(path)),
                hint="run the command again",
            )
        if lock.result(*result.key) == result:
            return False
        _write_held(path, lock.with_result(result))
        return True


def replace_results(path: Path, before: bytes, results: Sequence[Result]) -> None:
    """Replace all results in the lock file; ``before`` is the file content that ``results`` are based on.

    Raises:
        LOCK_CHANGED: the file is no longer ``before``.
        CacheError: the disk reported an error.
        ConfigError, ErrorGroup: as :func:`patchkit.carry.series.lock.load_lock`.
    """
    path = path.resolve()
    with locked(path, creates=False, doing=_DOING, elsewhere=_ELSEWHERE):
        if path.read_bytes() != before:
            raise ConfigError(
                f"{path.name} was changed while the command ran",
                code="LOCK_CHANGED",
                where=Location(path=str(path)),
                hint="run the command again",
            )
        lock = replace(load_lock(path), results=())
        for result in results:
            lock = lock.with_result(result)
        _write_held(path, lock)


def _write_held(path: Path, lock: Lock) -> None:
    for remains in path.parent.glob(f".{glob.escape(path.name)}.*{_DRAFT}"):
        remains.unlink(missing_ok=True)  # left by a killed run; writers hold the file lock, so none is in use
    write_lock(path, lock)

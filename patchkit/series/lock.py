"""Writing a lock file: the same lock gives the same bytes, and the file changes in one step."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import fcntl
import glob
import hashlib
import json
import os
import re
import shlex
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from patchkit.base.errors import CacheError, ConfigError, ErrorGroup, Location, UsageError
from patchkit.series.toml import Document, KeyPath, TomlModel, load_toml, validate

ObjectId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Words = Annotated[str, StringConstraints(min_length=1)]
_PART = r"\.?[A-Za-z0-9_+-][A-Za-z0-9_.+-]*"  # neither . nor ..
TreePath = Annotated[str, StringConstraints(pattern=rf"^{_PART}(/{_PART})*$")]


def _no_truth(value: object) -> object:
    """Python takes true for 1."""
    if isinstance(value, bool):
        raise ValueError("it must be the number 1")  # noqa: TRY004  # pydantic wants this one
    return value


Version = Annotated[Literal[1], BeforeValidator(_no_truth)]


class GitModel(TomlModel):
    """[[pin.source]] with kind = "git"."""

    kind: Literal["git"]
    url: Words


class SdistModel(TomlModel):
    """[[pin.source]] with kind = "sdist"."""

    kind: Literal["sdist"]
    package: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
    version: Words
    sha256: Sha256
    subdir: TreePath
    omit: tuple[TreePath, ...] = Field(default=(), strict=False)


class FollowedModel(TomlModel):
    """[[pin.followed]]."""

    file: TreePath
    function: Words
    now_file: TreePath
    now_function: Words


class PinModel(TomlModel):
    """[[pin]]."""

    build: int = Field(gt=0)
    commit: ObjectId | None = None
    tree: ObjectId
    committed: str
    commit_object: str | None = None
    source: tuple[Annotated[GitModel | SdistModel, Field(discriminator="kind")], ...] = Field(
        min_length=1, strict=False
    )
    followed: tuple[FollowedModel, ...] = Field(default=(), strict=False)
    ggml: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6}){2}$")] | None = None


class ResultModel(TomlModel):
    """[[result]]."""

    build: int = Field(gt=0)
    archs: tuple[Words, ...] = Field(min_length=1, strict=False)
    patches: tuple[Words, ...] = Field(strict=False)
    tree: ObjectId
    commit: ObjectId
    inputs: dict[str, Sha256]
    rendered: dict[str, Sha256]
    entities: dict[str, str]


class LockModel(TomlModel):
    """The whole file."""

    version: Version
    default: int = Field(gt=0)
    pin: tuple[PinModel, ...] = Field(min_length=1, strict=False)
    result: tuple[ResultModel, ...] = Field(default=(), strict=False)


def decode_object(text: str | None) -> bytes | None:
    """The bytes of a commit object written as base64 in lines.

    Raises:
        ValueError: it is not base64.
    """
    return None if text is None else base64.b64decode("".join(text.split()), validate=True)


_Locate = Callable[[KeyPath], Location]

_COMMITTER = re.compile(rb"^committer .* (\d+) ([+-])(\d\d)(\d\d)$", re.MULTILINE)


class LockBuildTwice(ConfigError):
    """Two pins have the same build number."""

    code = "LOCK_BUILD_TWICE"


class LockDefaultUnknown(ConfigError):
    """``default`` names no pin."""

    code = "LOCK_DEFAULT_UNKNOWN"


class LockDateBad(ConfigError):
    """``committed`` is no date with a zone, or not the date in the commit object."""

    code = "LOCK_DATE_BAD"


class LockObjectBad(ConfigError):
    """``commit_object`` is not base64 of a commit."""

    code = "LOCK_OBJECT_BAD"


class LockCommitUnproven(ConfigError):
    """``commit_object`` is another commit than ``commit``, or has another tree than ``tree``."""

    code = "LOCK_COMMIT_UNPROVEN"


class LockGitWithoutCommit(ConfigError):
    """A git source cannot serve a pin whose commit is not known."""

    code = "LOCK_GIT_WITHOUT_COMMIT"


class LockResultOrphan(ConfigError):
    """A result is of a build that no pin has."""

    code = "LOCK_RESULT_ORPHAN"


class LockArchsUnsorted(ConfigError):
    """The archs of a result are not sorted, or name one twice."""

    code = "LOCK_ARCHS_UNSORTED"


_REWRITE = "patchkit lock writes this file; restore it with: git checkout -- {path}"


def find_problems(model: LockModel, locate: _Locate) -> tuple[ConfigError, ...]:
    """Everything that does not fit together, in the order of the file."""
    problems = [*_of_pins(model, locate), *_of_results(model, locate)]
    for problem in problems:
        problem.hint = _REWRITE.format(path=problem.where[0].path)
    return tuple(problems)


def _of_pins(model: LockModel, locate: _Locate) -> Iterator[ConfigError]:
    builds: dict[int, Location] = {}
    for number, pin in enumerate(model.pin):
        at = ("pin", number)
        here = locate((*at, "build"))
        if pin.build in builds:
            yield LockBuildTwice(f"lock: a second pin for build {pin.build}", where=(here, builds[pin.build]))
        builds.setdefault(pin.build, here)
        yield from _of_identity(pin, at, locate)
        if pin.commit is None and any(isinstance(source, GitModel) for source in pin.source):
            yield LockGitWithoutCommit(
                f"lock: pin b{pin.build} has a git source, but no commit",
                where=locate((*at, "source")),
                why="a git remote is asked for a commit, not for a tree",
            )
        yield from _of_followed(pin, at, locate)
    if model.default not in builds:
        yield LockDefaultUnknown(
            f"lock: default = {model.default} is no build of a pin", where=locate(("default",))
        )


def _of_followed(pin: PinModel, at: KeyPath, locate: _Locate) -> Iterator[ConfigError]:
    seen: dict[tuple[str, str], Location] = {}
    for number, each in enumerate(pin.followed):
        here = locate((*at, "followed", number, "function"))
        key = (each.file, each.function)
        if key in seen:
            yield ConfigError(
                f"lock: b{pin.build} says twice where '{each.function}' of {each.file} is now",
                code="LOCK_FOLLOWED_TWICE",
                where=(here, seen[key]),
            )
        seen.setdefault(key, here)


def _of_identity(pin: PinModel, at: KeyPath, locate: _Locate) -> Iterator[ConfigError]:
    moment = _moment(pin.committed)
    if moment is None:
        yield LockDateBad(
            f"lock: committed = '{pin.committed}' is no date with a time zone",
            where=locate((*at, "committed")),
            why="the form is 2025-10-31T10:54:19+02:00",
        )
    if pin.commit_object is None:
        return
    where = locate((*at, "commit_object"))
    try:
        raw = decode_object(pin.commit_object) or b""
    except ValueError as error:
        yield LockObjectBad(f"lock: commit_object of b{pin.build} is not base64", where=where, why=str(error))
        return
    date = _COMMITTER.search(raw)
    if not re.match(rb"tree [0-9a-f]{40}\n", raw) or date is None:
        yield LockObjectBad(f"lock: commit_object of b{pin.build} is not a commit", where=where)
        return
    # Git's own name for the object; nothing rests on SHA-1 being hard to forge but what rests on git.
    sha = hashlib.sha1(b"commit %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest()
    if sha != pin.commit:
        yield LockCommitUnproven(
            f"lock: commit_object is commit {sha}, the pin says {pin.commit}", where=where
        )
    if raw[5:45].decode() != pin.tree:
        yield LockCommitUnproven(
            f"lock: commit_object has tree {raw[5:45].decode()}, the pin says {pin.tree}", where=where
        )
    if moment is not None and moment != _commit_moment(date):
        yield LockDateBad(
            f"lock: committed = '{pin.committed}', but the commit says {_commit_moment(date).isoformat()}",
            where=locate((*at, "committed")),
        )


def _of_results(model: LockModel, locate: _Locate) -> Iterator[ConfigError]:
    builds = {pin.build for pin in model.pin}
    seen: dict[tuple[int, tuple[str, ...], tuple[str, ...]], Location] = {}
    for number, result in enumerate(model.result):
        here = locate(("result", number, "build"))
        key = (result.build, result.archs, result.patches)
        if key in seen:
            yield ConfigError(
                f"lock: a second result for b{result.build}, {'+'.join(result.archs)}, the same patches",
                code="LOCK_RESULT_TWICE",
                where=(here, seen[key]),
            )
        seen.setdefault(key, here)
        if result.build not in builds:
            yield LockResultOrphan(f"lock: a result for build {result.build}, which is no pin", where=here)
        if list(result.archs) != sorted(set(result.archs)):
            yield LockArchsUnsorted(
                f"lock: archs {list(result.archs)} are not sorted, each once",
                where=locate(("result", number, "archs")),
            )


def _moment(text: str) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.utcoffset() is not None else None


def _commit_moment(found: re.Match[bytes]) -> dt.datetime:
    minutes = int(found[3]) * 60 + int(found[4])
    zone = dt.timezone(dt.timedelta(minutes=-minutes if found[2] == b"-" else minutes))
    return dt.datetime.fromtimestamp(int(found[1]), tz=zone)


_SHORTEST_PREFIX = 4  # hex digits; git itself takes no fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    """A git repository that serves the pinned commit."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SdistSource:
    """A source distribution that carries the tree in ``subdir``, but for the ``omit`` paths.

    ``sha256`` is that of the archive; ``omit`` is relative to ``subdir``.
    """

    package: str
    version: str
    sha256: str
    subdir: str
    omit: tuple[str, ...]


Source = GitSource | SdistSource


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Followed:
    """A function that patches name, and its place on one pin; found and proven by a bump."""

    file: str
    function: str
    now_file: str
    now_function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One upstream commit. ``committed`` is RFC 3339 with its zone; it dates patchkit's commits.

    ``ggml`` is the version in ggml's CMake file, where it is written down: it tells about which build a tree
    without history is. A pin with a ``clone`` (``--onto``) is a commit of the user's repository there and no
    source has it; its ``build`` is that of upstream below it.
    """

    build: int
    commit: str | None
    tree: str
    committed: str
    commit_object: bytes | None
    sources: tuple[Source, ...]
    followed: tuple[Followed, ...] = ()
    ggml: str | None = None
    clone: Path | None = None
    where: Location | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """``b`` and the build number, as upstream names its releases; of a clone ``onto-`` and the commit."""
        return f"b{self.build}" if self.clone is None else f"onto-{(self.commit or self.tree)[:12]}"

    @property
    def option(self) -> str:
        """What names this pin on the command line: ``--upstream b6900``, or ``--onto`` with the clone."""
        if self.clone is None:
            return f"--upstream {self.name}"
        return f"--onto {self.name.removeprefix('onto-')} --repo {shlex.quote(str(self.clone))}"


PinWanted = str | Pin | None
"""A pin as the command line names it: by name, the lock's default, or the pin itself (``--onto``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What patches gave on a pin. ``archs`` is sorted, ``patches`` in order of application.

    ``inputs``: sha256 by path of every profile, patch.toml and template; ``rendered``: sha256 by
    ``patch-id/edit-id``; ``entities``: token digest by ``file::entity``.
    """

    build: int
    archs: tuple[str, ...]
    patches: tuple[str, ...]
    tree: str
    commit: str
    inputs: Mapping[str, str]
    rendered: Mapping[str, str]
    entities: Mapping[str, str]
    where: Location | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """``b6900 gfx1151``, as a person tells results apart."""
        return f"b{self.build} {'+'.join(self.archs)}"

    @property
    def key(self) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        """What tells results apart: build, archs, patches."""
        return (self.build, self.archs, self.patches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The whole file; ``default`` is the build used when none is asked for."""

    path: str
    default: int
    pins: tuple[Pin, ...]
    results: tuple[Result, ...]

    def pin(self, wanted: PinWanted | int = None) -> Pin:
        """The pin of a build (``6900``, ``b6900``), of a commit prefix, or the default; a pin is itself.

        Raises:
            PIN_UNKNOWN: none fits.
            PIN_AMBIGUOUS: a commit prefix fits several.
        """
        if isinstance(wanted, Pin):
            return wanted
        name = str(self.default if wanted is None else wanted).strip().lower()
        exact = [pin for pin in self.pins if name in (pin.name, str(pin.build), pin.commit)]
        if exact:
            return exact[0]
        near = [pin for pin in self.pins if len(name) >= _SHORTEST_PREFIX and _starts(pin, name)]
        if len(near) == 1:
            return near[0]
        known = ", ".join(pin.name for pin in self.pins)
        where = Location(path=self.path)
        if near:
            raise UsageError(
                f"'{wanted}' fits several pins: {', '.join(pin.name for pin in near)}",
                code="PIN_AMBIGUOUS",
                where=where,
                hint="give more digits of the commit, or the build number",
            )
        raise UsageError(
            f"the lock has no pin '{wanted}'",
            code="PIN_UNKNOWN",
            where=where,
            hint=f"use one of the pins it has: {known}",
        )

    def result(self, build: int, archs: Sequence[str], patches: Sequence[str]) -> Result | None:
        """The recorded result for exactly these archs (any order) and patches (this order)."""
        key = (build, tuple(sorted(archs)), tuple(patches))
        return next((result for result in self.results if result.key == key), None)

    def with_followed(self, build: int, followed: Sequence[Followed]) -> Lock:
        """This lock with what was found on a pin added to what it says of it already."""
        pins = []
        for pin in self.pins:
            if pin.build == build:
                said = {(each.file, each.function): each for each in (*pin.followed, *followed)}
                pins.append(replace(pin, followed=tuple(sorted(said.values()))))
            else:
                pins.append(pin)
        return replace(self, pins=tuple(pins))

    def with_result(self, result: Result) -> Lock:
        """This lock with ``result`` in the place of the one with the same key, if any."""
        kept = (other for other in self.results if other.key != result.key)
        return Lock(
            path=self.path,
            default=self.default,
            pins=self.pins,
            results=tuple(sorted((*kept, result), key=lambda each: each.key)),
        )


def load_lock(path: Path) -> Lock:
    """Read and check a lock file; raises as :func:`parse_lock`, and the errors of reading a file."""
    return parse_lock(load_toml(path))


def parse_lock(document: Document) -> Lock:
    """The lock in a document.

    Raises:
        ErrorGroup: one ConfigError per wrong field, with its line: types and forms first; when those
            are right, what does not fit together.
    """
    model = validate(document, LockModel, what="lock")
    problems: tuple[ConfigError, ...] = find_problems(model, document.locate)
    if problems:
        count = len(problems)
        raise ErrorGroup(f"{document.path} is not a valid lock: {count} problem{'s'[: count > 1]}", problems)
    at: Callable[[tuple[str | int, ...]], Location] = document.locate
    return Lock(
        path=document.path,
        default=model.default,
        pins=tuple(_pin(row, at(("pin", i, "build"))) for i, row in enumerate(model.pin)),
        results=tuple(_result(row, at(("result", i, "build"))) for i, row in enumerate(model.result)),
    )


def _pin(row: PinModel, where: Location) -> Pin:
    return Pin(
        build=row.build,
        commit=row.commit,
        tree=row.tree,
        committed=row.committed,
        commit_object=decode_object(row.commit_object),
        sources=tuple(
            GitSource(url=source.url)
            if isinstance(source, GitModel)
            else SdistSource(
                package=source.package,
                version=source.version,
                sha256=source.sha256,
                subdir=source.subdir,
                omit=source.omit,
            )
            for source in row.source
        ),
        followed=tuple(
            Followed(
                file=each.file,
                function=each.function,
                now_file=each.now_file,
                now_function=each.now_function,
            )
            for each in row.followed
        ),
        ggml=row.ggml,
        where=where,
    )


def _result(row: ResultModel, where: Location) -> Result:
    return Result(
        build=row.build,
        archs=row.archs,
        patches=row.patches,
        tree=row.tree,
        commit=row.commit,
        inputs=row.inputs,
        rendered=row.rendered,
        entities=row.entities,
        where=where,
    )


def _starts(pin: Pin, prefix: str) -> bool:
    return pin.commit is not None and pin.commit.startswith(prefix)


_HEADER = "# Written by patchkit, not by hand: every line below is checked against the bytes it names.\n"
_WIDTH = 76  # of base64 lines
_DRAFT = ".patchkit-partial"
_LONG = 100  # an array of more characters gets one line per item


def format_lock(lock: Lock) -> str:
    """The text of a lock file: pins by build, results by build, archs and patches."""
    parts = [f"{_HEADER}version = 1\ndefault = {lock.default}\n"]
    parts += ["\n".join(_pin_lines(pin)) for pin in sorted(lock.pins, key=lambda pin: pin.build)]
    parts += ["\n".join(_result_lines(result)) for result in sorted(lock.results, key=lambda each: each.key)]
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


def write_lock(path: Path, lock: Lock) -> None:
    """Replace the file at ``path`` by the text of ``lock``; a reader sees the old or the new one.

    Raises:
        LOCK_NOT_WRITTEN: the disk refused.
    """
    path = path.resolve()
    draft: Path | None = None
    try:
        # A name of its own: another run may be writing, too.
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_DRAFT, dir=path.parent)
        draft = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            os.fchmod(descriptor, path.stat().st_mode & 0o777 if path.exists() else 0o644)
            stream.write(format_lock(lock))
            stream.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


def record_result(path: Path, pin: Pin, result: Result) -> bool:
    """Put a result into the lock file as it is now; false when the file says the same already.

    Runs that record at the same moment wait for each other, so that none loses what another wrote.

    Raises:
        LOCK_CHANGED: the pin is not the one the result was made on.
        LOCK_NOT_WRITTEN: the disk refused.
        ConfigError, ErrorGroup: as :func:`patchkit.series.lock.load_lock`.
    """
    path = path.resolve()
    with _locked(path):
        lock = load_lock(path)
        if pin not in lock.pins:
            raise ConfigError(
                f"the pin {pin.name} was changed in {path.name} in the meantime",
                code="LOCK_CHANGED",
                where=Location(path=str(path)),
                hint="run the command again",
            )
        if lock.result(*result.key) == result:
            return False
        _write_held(path, lock.with_result(result))
        return True


def replace_results(path: Path, before: bytes, results: Sequence[Result]) -> None:
    """Put ``results`` in the place of all that the lock file has; ``before`` is what they were made from.

    Raises:
        LOCK_CHANGED: the file holds something else than ``before``.
        LOCK_NOT_WRITTEN: the disk refused.
        ConfigError, ErrorGroup: as :func:`patchkit.series.lock.load_lock`.
    """
    path = path.resolve()
    with _locked(path):
        if path.read_bytes() != before:
            raise ConfigError(
                f"{path.name} was changed in the meantime",
                code="LOCK_CHANGED",
                where=Location(path=str(path)),
                hint="run the command again",
            )
        _write_held(path, replace(load_lock(path), results=tuple(results)))


def _write_held(path: Path, lock: Lock) -> None:
    for remains in path.parent.glob(f".{glob.escape(path.name)}.*{_DRAFT}"):
        remains.unlink(missing_ok=True)  # of a run that was killed: writers hold the lock
    write_lock(path, lock)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file at ``path`` itself: no other file has to lie beside it."""
    try:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                break
            os.close(descriptor)  # who held it before put another file in its place
    except OSError as error:
        raise _refused(path, error) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _refused(path: Path, error: OSError) -> CacheError:
    return CacheError(
        f"the lock could not be written: {error.strerror}",
        code="LOCK_NOT_WRITTEN",
        where=Location(path=str(path)),
        hint=f"check with: ls -ld {path.parent}; df {path.parent}",
    )


def _pin_lines(pin: Pin) -> Iterator[str]:
    yield "[[pin]]"
    yield f"build = {pin.build}"
    if pin.commit is not None:
        yield f"commit = {_string(pin.commit)}"
    yield f"tree = {_string(pin.tree)}"
    yield f"committed = {_string(pin.committed)}"
    if pin.ggml is not None:
        yield f"ggml = {_string(pin.ggml)}"
    if pin.commit_object is not None:
        yield "commit_object = '''"
        yield from textwrap.wrap(base64.b64encode(pin.commit_object).decode("ascii"), _WIDTH)
        yield "'''"
    for source in pin.sources:
        yield ""
        yield from _source_lines(source)
    for each in sorted(pin.followed):
        yield ""
        yield "[[pin.followed]]"
        yield f"file = {_string(each.file)}"
        yield f"function = {_string(each.function)}"
        yield f"now_file = {_string(each.now_file)}"
        yield f"now_function = {_string(each.now_function)}"


def _source_lines(source: Source) -> Iterator[str]:
    yield "[[pin.source]]"
    if isinstance(source, GitSource):
        yield 'kind = "git"'
        yield f"url = {_string(source.url)}"
        return
    yield 'kind = "sdist"'
    yield f"package = {_string(source.package)}"
    yield f"version = {_string(source.version)}"
    yield f"sha256 = {_string(source.sha256)}"
    yield f"subdir = {_string(source.subdir)}"
    yield f"omit = {_array(source.omit)}"


def _result_lines(result: Result) -> Iterator[str]:
    yield "[[result]]"
    yield f"build = {result.build}"
    yield f"archs = {_array(result.archs)}"
    yield f"patches = {_array(result.patches)}"
    yield f"tree = {_string(result.tree)}"
    yield f"commit = {_string(result.commit)}"
    for name, table in (
        ("inputs", result.inputs),
        ("rendered", result.rendered),
        ("entities", result.entities),
    ):
        yield ""
        yield f"[result.{name}]"
        yield from _table_lines(table)


def _table_lines(table: Mapping[str, str]) -> Iterator[str]:
    for key, value in sorted(table.items()):
        yield f"{_string(key)} = {_string(value)}"


def _array(items: Sequence[str]) -> str:
    line = f"[{', '.join(_string(item) for item in items)}]"
    if len(line) <= _LONG:
        return line
    return "[\n" + "".join(f"    {_string(item)},\n" for item in items) + "]"


def _string(text: str) -> str:
    # A JSON string is a TOML string but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

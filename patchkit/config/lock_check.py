"""What must fit together in a lock. Vocabulary: see :mod:`patchkit.config.lock`."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Iterator

from patchkit.config.lock_model import GitModel, LockModel, PinModel, decode_object
from patchkit.config.places import KeyPath
from patchkit.errors import ConfigError, Location

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

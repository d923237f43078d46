"""The pin that a bump goes to: a build, a commit or the latest, from the lock or asked of a remote."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.reporter import Reporter
from patchkit.carry.candidate.handover import upstream_url
from patchkit.carry.series.lock import Lock, Pin, load_lock
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.git import redacted
from patchkit.carry.upstream.pin import SourceWanted
from patchkit.carry.upstream.remote import list_builds, read_pin

_BUILD = re.compile(r"b?([1-9][0-9]*)")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


def own_pin(lock: Lock, pin: Pin) -> Pin:
    """The lock's own pin of that build, if it has one: results rest on what the lock says, to the last byte.

    So a pin whose commit the lock does not know stays so, even where a git remote tells the commit.

    Raises PIN_DIFFERS.
    """
    known = next((each for each in lock.pins if each.build == pin.build), None)
    if known is None:
        return pin
    both = None not in (known.commit, pin.commit)
    if known.tree != pin.tree or (both and known.commit != pin.commit):
        raise ConfigError(
            f"the lock pins {known.name} as {_spelled(known)}, here it is {_spelled(pin)}",
            code="PIN_DIFFERS",
            where=[place for place in (known.where, pin.where) if place is not None],
            why="a build has one commit and one tree; one of both is not upstream's",
            hint="look at both; to take the other one, remove the pin from the lock",
        )
    return known


def _spelled(pin: Pin) -> str:
    return f"tree {pin.tree}" + (f", commit {pin.commit}" if pin.commit is not None else "")


def catalogue_pins(path: Path) -> tuple[Pin, ...]:
    """The pins of the catalogue; none when there is no such file. Raises the errors of reading one."""
    return load_lock(path).pins if path.is_file() else ()


def remote_url(lock: Lock, wanted: str | None) -> str:
    """The git remote to ask: the named one, else that of the newest pin that has one.

    Raises BUMP_REMOTE_UNKNOWN.
    """
    if wanted is not None:
        return wanted
    for pin in sorted(lock.pins, key=lambda pin: -pin.build):
        url = upstream_url(pin)
        if url is not None:
            return url
    raise UsageError(
        "no git remote is known",
        code="BUMP_REMOTE_UNKNOWN",
        where=Location(path=lock.path),
        hint="name one with --upstream-url, or take a build of patches/upstreams.toml",
    )


def find_target_pin(
    wanted: str,
    *,
    lock: Lock,
    catalogue: Path,
    source: SourceWanted,
    upstream_url: str | None,
    cache: Cache,
    reporter: Reporter,
) -> Pin:
    """The pin that ``wanted`` names: ``b11549``, ``11549``, a commit (seven digits or more) or ``latest``.

    Raises:
        UPSTREAM_URL_UNUSED: a git remote and source packages alone, both.
        BUMP_TARGET_UNKNOWN: nobody knows it.
        BUMP_REMOTE_UNKNOWN, REMOTE_HAS_NO_BUILDS: the remote would have to be asked, and cannot be.
        SourceError, GitError, CacheError: fetching the commit failed.
    """
    if source == "sdist" and upstream_url is not None:
        raise UsageError(
            f"the remote {redacted(upstream_url)} is not asked when only source packages are",
            code="UPSTREAM_URL_UNUSED",
            hint="leave out --upstream-url or --source sdist",
        )
    name = wanted.strip().lower()
    known = () if source == "git" or upstream_url is not None else (*lock.pins, *catalogue_pins(catalogue))
    for pin in known:
        if _is_named(pin, name):
            return pin
    if source == "sdist":
        raise _unknown(wanted, [pin.build for pin in known], str(catalogue))
    url = remote_url(lock, upstream_url)
    builds = list_builds(url, reporter)
    build = _choose(name, builds)
    if build is None:
        raise _unknown(wanted, builds, redacted(url))
    in_lock = next((pin for pin in lock.pins if (pin.build, pin.commit) == (build, builds[build])), None)
    if in_lock is not None:
        return in_lock
    with cache.hold(reporter) as repository:
        return read_pin(repository, url, build, builds[build])


def _is_named(pin: Pin, name: str) -> bool:
    if name in (pin.name, str(pin.build)):
        return True
    return _COMMIT.fullmatch(name) is not None and pin.commit is not None and pin.commit.startswith(name)


def _choose(name: str, builds: Mapping[int, str]) -> int | None:
    if name == "latest":
        return max(builds)
    number = _BUILD.fullmatch(name)
    if number is not None and int(number[1]) in builds:
        return int(number[1])
    if _COMMIT.fullmatch(name) is None:
        return None
    found = [build for build, commit in builds.items() if commit.startswith(name)]
    return found[0] if len(found) == 1 else None


def tell_nearest(builds: Iterable[int], wanted: int) -> str | None:
    """The builds next to the wanted one, for a person; None without any."""
    near = sorted(builds, key=lambda build: abs(build - wanted))[:3]
    return f"nearest: {', '.join(f'b{build}' for build in sorted(near))}" if near else None


def _unknown(wanted: str, builds: Collection[int], where: str) -> UsageError:
    number = _BUILD.fullmatch(wanted.strip().lower())
    return UsageError(
        f"'{wanted}' is no build, commit or tag that is known",
        code="BUMP_TARGET_UNKNOWN",
        where=Location(path=where),
        why=tell_nearest(builds, int(number[1]) if number is not None else max(builds, default=0)),
        hint="a build like b11549, the commit of one (seven digits or more), or latest; "
        "--source git asks the git remote",
    )

"""The pin that a bump goes to, from the lock or asked of a remote: build, release, commit or the latest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.base.errors import ConfigError, Location, PatchkitError, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.text import visible
from patchkit.base.upstreams import build_name, llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.series.lock import Lock, Pin, load_lock
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.git import redacted
from patchkit.carry.upstream.pin import SourceWanted
from patchkit.carry.upstream.remote import read_pin, remote_url
from patchkit.carry.upstream.tags import find_tagged, list_tags, sorted_releases

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_SHOWN = 3


def with_target(request: Request, workspace: Workspace) -> Request:
    """The request with a pin that the lock does not have yet, found as a bump finds it.

    So what a bump could not do at a build is looked at there. Raises PIN_UNKNOWN, with what a bump would say.
    """
    lock = load_lock(workspace.series.lock)
    try:
        lock.pin(request.upstream)
    except UsageError as unknown:
        if unknown.code != "PIN_UNKNOWN":
            raise
        try:
            told = find_target_pin(
                str(request.upstream),
                lock=lock,
                catalogue=workspace.series.catalogue,
                source=request.source,
                upstream_url=request.upstream_url,
                cache=open_cache(workspace.cache_root),
                reporter=workspace.reporter,
            )
        except PatchkitError as error:
            unknown.why = error.message
            raise unknown from error
        return replace(request, upstream=own_pin(lock, told))
    return request


def own_pin(lock: Lock, pin: Pin) -> Pin:
    """The lock's own pin of that build, if it has one: results rest on what the lock says, to the last byte.

    So a pin whose commit the lock does not know stays so, even where a git remote tells the commit. Only
    releases that it is not yet known by come to it.

    Raises PIN_DIFFERS.
    """
    known = next((each for each in lock.pins if each.build == pin.build), None)
    for other in lock.pins:
        moved = [name for name in pin.releases if name in other.releases]
        if other.build != pin.build and moved:
            raise ConfigError(
                f"the lock says that {moved[0]} is {other.name}, here it is {pin.name}",
                code="PIN_DIFFERS",
                where=[place for place in (other.where, pin.where) if place is not None],
                why="a release is one commit; its tag was moved, or one of both is not upstream's",
                hint="look at both; to take the other one, remove the name from the lock's pin",
            )
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
    releases = sorted_releases({*known.releases, *pin.releases})
    return known if releases == known.releases else replace(known, releases=releases)


def _spelled(pin: Pin) -> str:
    return f"tree {pin.tree}" + (f", commit {pin.commit}" if pin.commit is not None else "")


def catalogue_pins(path: Path) -> tuple[Pin, ...]:
    """The pins of the catalogue; none when there is no such file. Raises the errors of reading one."""
    return load_lock(path).pins if path.is_file() else ()


def known_pins(lock: Lock, catalogue: Path) -> tuple[Pin, ...]:
    """The pins of a lock, then those of the catalogue. Raises as :func:`catalogue_pins`."""
    return (*lock.pins, *catalogue_pins(catalogue))


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
    """The pin that ``wanted`` names.

    ``b11549``, ``11549``, ``v0.5.0``, a commit (seven digits or more), ``latest`` (the newest build), or
    ``latest-release``.

    Raises:
        UPSTREAM_URL_UNUSED: a git remote and source packages alone, both.
        BUMP_TARGET_UNKNOWN: nobody knows it.
        BUMP_REMOTE_UNKNOWN, REMOTE_HAS_NO_BUILDS: the remote would have to be asked, and cannot be.
        RELEASE_UNNUMBERED, RELEASE_OFF_MAIN_LINE: which build a release is cannot be told, or it is none.
        SourceError, GitError, CacheError: fetching the commit failed.
    """
    if source == "sdist" and upstream_url is not None:
        raise UsageError(
            f"the remote {redacted(upstream_url)} is not asked when only source packages are",
            code="UPSTREAM_URL_UNUSED",
            hint="leave out --upstream-url or --source sdist",
        )
    name = wanted.strip().lower()
    known = () if source == "git" or upstream_url is not None else known_pins(lock, catalogue)
    for pin in known:
        if _is_named(pin, name):
            return pin
    if source == "sdist":
        releases = sorted_releases(name for pin in known for name in pin.releases)
        raise _unknown(wanted, [pin.build for pin in known], str(catalogue), releases)
    url = remote_url(lock, upstream_url)
    tags = list_tags(url, reporter)
    found = find_tagged(name, tags, cache.root, reporter)
    if found is None:
        raise _unknown(wanted, tags.builds, redacted(url), sorted_releases(tags.releases))
    build, commit = found
    releases = tags.releases_of(commit)
    in_lock = next((pin for pin in lock.pins if (pin.build, pin.commit) == (build, commit)), None)
    if in_lock is not None:
        return replace(in_lock, releases=sorted_releases({*in_lock.releases, *releases}))
    with cache.hold(reporter) as repository:
        return read_pin(repository, url, build, commit, releases)


def _is_named(pin: Pin, name: str) -> bool:
    if pin.is_called(name):
        return True
    return _COMMIT.fullmatch(name) is not None and pin.commit is not None and pin.commit.startswith(name)


def tell_nearest(builds: Iterable[int], wanted: int) -> str | None:
    """The builds next to the wanted one, for a person; None without any."""
    near = sorted(builds, key=lambda build: abs(build - wanted))[:3]
    return f"nearest: {', '.join(build_name(build) for build in sorted(near))}" if near else None


def _unknown(wanted: str, builds: Collection[int], where: str, releases: Sequence[str] = ()) -> UsageError:
    name = wanted.strip().lower()
    tags = llama_cpp().tags
    why = tell_nearest(builds, tags.parse_build(name) or max(builds, default=0))
    if name.startswith(tags.release) or name == "latest-release" or not builds:
        why = f"releases it has: {', '.join(releases[-_SHOWN:])}" if releases else "it has no release"
    return UsageError(
        f"'{visible(wanted)}' is no build, release or commit that is known",
        code="BUMP_TARGET_UNKNOWN",
        where=Location(path=where),
        why=why,
        hint="a build like b11549, a release like v0.5.0, the commit of one (seven digits or more), latest "
        "or latest-release; --source git asks the git remote",
    )

"""Find the pin that a bump targets, in the lock or on a remote: a build, release, commit or the latest."""

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
from patchkit.carry.upstream.pin import SourceWanted, obtain
from patchkit.carry.upstream.remote import read_pin, remote_url
from patchkit.carry.upstream.repository import Repository
from patchkit.carry.upstream.tags import Tags, find_tagged, list_tags, sorted_releases

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_SHOWN = 3

_OTHER = "the remote or the list of known builds"  # the other sources of pins


def with_target(request: Request, workspace: Workspace) -> Request:
    """The request, with a pin found as a bump finds it if the lock does not have it yet.

    This lets you examine a build that a bump could not handle. Raises PIN_UNKNOWN, with the bump's message as
    the reason.
    """
    lock = load_lock(workspace.series.lock)
    try:
        lock.pin(request.upstream)
    except UsageError as unknown:
        if unknown.code != "PIN_UNKNOWN":
            raise
        try:
            pin = find_target_pin(
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
        return replace(request, upstream=replace(own_pin(lock, pin), unproven=True))
    return request


def own_pin(lock: Lock, pin: Pin) -> Pin:
    """The lock's own pin of that build, if it has one, because results depend on its exact content.

    If the lock's pin has no commit, it stays so, even if a git remote provides one. Only missing release
    names are added.

    Raises PIN_DIFFERS.
    """
    known = next((each for each in lock.pins if each.name == pin.name), None)
    for other in lock.pins:
        moved = [name for name in pin.releases if name in other.releases]
        if other.name != pin.name and moved:
            raise ConfigError(
                f"{moved[0]} is {other.name} in the lock, but {pin.name} in {_OTHER}",
                code="PIN_DIFFERS",
                where=[place for place in (other.where, pin.where) if place is not None],
                why="a release is one commit; either its tag was moved, or one of the two is not upstream's",
                hint="compare the two; to use the other one, remove the name from the lock's pin",
            )
    if known is None:
        return pin
    both = None not in (known.commit, pin.commit)
    if known.tree != pin.tree or (both and known.commit != pin.commit):
        raise ConfigError(
            f"{known.name} is {_spelled(known)} in the lock, but {_spelled(pin)} in {_OTHER}",
            code="PIN_DIFFERS",
            where=[place for place in (known.where, pin.where) if place is not None],
            why="a build has one commit and one tree, so one of the two is not upstream's",
            hint="compare the two; to use the other one, remove the pin from the lock",
        )
    releases = sorted_releases({*known.releases, *pin.releases})
    return known if releases == known.releases else replace(known, releases=releases)


def fetch_build(lock: Lock, cache: Cache, repository: Repository, tags: Tags, build: int) -> tuple[Pin, str]:
    """The pin of a tagged build, and the commit in the cache that has its tree. The caller holds the cache.

    A build of the lock must be the lock's. Raises PIN_DIFFERS, and as :func:`read_pin` and :func:`obtain`.
    """
    commit = tags.builds[build]
    pin = read_pin(repository, tags.url, build, commit, tags.releases_of(commit))
    base = own_pin(lock, pin)
    found = obtain(base, cache=cache, fetched=pin.commit, reporter=repository.reporter)
    return replace(pin, releases=base.releases, followed=base.followed), found


def _spelled(pin: Pin) -> str:
    return f"tree {pin.tree}" + (f", commit {pin.commit}" if pin.commit is not None else "")


def catalogue_pins(path: Path) -> tuple[Pin, ...]:
    """The pins of the catalogue; none if there is no such file. Raises the errors of reading it."""
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
        UPSTREAM_URL_UNUSED: a git remote was given together with source packages only. BUMP_TARGET_UNKNOWN:
        neither lock, catalogue nor remote has it. UsageError, REMOTE_HAS_NO_BUILDS: the remote is
        needed, but unknown or unusable. RELEASE_UNNUMBERED, RELEASE_OFF_MAIN_LINE: the build of a release
        cannot be determined, or it has none. SourceError, GitError, CacheError: fetching the commit failed.
    """
    if source == "sdist" and upstream_url is not None:
        raise UsageError(
            f"the remote {redacted(upstream_url)} is not used with --source sdist",
            code="UPSTREAM_URL_UNUSED",
            hint="remove --upstream-url or --source sdist",
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
    in_lock = next((pin for pin in lock.pins if (pin.name, pin.commit) == (build_name(build), commit)), None)
    if in_lock is not None:
        return replace(in_lock, releases=sorted_releases({*in_lock.releases, *releases}))
    with cache.hold(reporter) as repository:
        return read_pin(repository, url, build, commit, releases)


def _is_named(pin: Pin, name: str) -> bool:
    if pin.is_called(name):
        return True
    return _COMMIT.fullmatch(name) is not None and pin.commit is not None and pin.commit.startswith(name)


def nearest_builds_text(builds: Iterable[int], wanted: int) -> str | None:
    """The builds nearest to the wanted one, to show to the user; None without any."""
    near = sorted(builds, key=lambda build: abs(build - wanted))[:3]
    return f"nearest: {', '.join(build_name(build) for build in sorted(near))}" if near else None


def _unknown(wanted: str, builds: Collection[int], where: str, releases: Sequence[str] = ()) -> UsageError:
    name = wanted.strip().lower()
    tags = llama_cpp().tags
    why = nearest_builds_text(builds, tags.parse_build(name) or max(builds, default=0))
    if name.startswith(tags.release or "v") or name == "latest-release" or not builds:
        why = f"newest releases: {', '.join(releases[-_SHOWN:])}" if releases else "there are no releases"
    return UsageError(
        f"'{visible(wanted)}' is not a known build, release or commit",
        code="BUMP_TARGET_UNKNOWN",
        where=Location(path=where),
        why=why,
        hint="use a build like b11549, a release like v0.5.0, a commit of one (seven digits or more), latest "
        "or latest-release; with --source git the git remote is searched",
    )

"""Searching a git remote for the first build at which a patch no longer holds, by bisection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from patchkit.base.errors import Location, UsageError
from patchkit.base.workspace import Workspace
from patchkit.carry.following.classes import GOOD, Classified, UpstreamCommit
from patchkit.carry.following.classify import Comparison, classify_series
from patchkit.carry.following.rendering import Rendering, select_on
from patchkit.carry.following.sweep import Break, Row, Sweep
from patchkit.carry.following.target import own_pin, remote_url, tell_nearest
from patchkit.carry.placing.tree import read_upstream
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Pin, load_lock
from patchkit.carry.series.profile import load_profiles
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.git import redacted
from patchkit.carry.upstream.pin import obtain
from patchkit.carry.upstream.remote import list_builds, read_pin

_DECLARED = frozenset({"out of era", "off"})


def sweep_remote(
    workspace: Workspace,
    *,
    archs: Sequence[str],
    with_: Sequence[str],
    url: str | None,
    first: str | None,
    last: str | None,
) -> Sweep:
    """Look at both ends, and for each patch that holds at one and not at the other at what lies between.

    Args:
        workspace: the series, and the cache that gets the trees.
        archs: the GPUs of one candidate.
        with_: opt-in patches to take in.
        url: the git remote; by default that of the lock.
        first: a build, by default the lock's default pin.
        last: a build, by default the latest.

    Raises:
        SWEEP_BUILD_UNKNOWN, BUMP_REMOTE_UNKNOWN, REMOTE_HAS_NO_BUILDS, RemoteUrlBad, PIN_DIFFERS: it
            cannot be asked so.
        SourceError, GitError, CacheError: a tree could not be had.
    """
    reporter = workspace.reporter
    lock = load_lock(workspace.series.lock)
    builds = list_builds(where := remote_url(lock, url), reporter)
    begin, end = _ends(first or str(lock.default), last, builds, where)
    cache = open_cache(workspace.cache_root)
    series = load_series(workspace.series.patches)
    profiles = load_profiles(workspace.series.profiles, archs)

    rows: dict[int, Row] = {}
    compared: dict[str, Rendering] = {}  # those of the first build

    def look(build: int) -> Row:
        """The row of a build, made once; all are compared with the first one."""
        if build in rows:
            return rows[build]
        with cache.hold(reporter) as repository:
            pin = read_pin(repository, where, build, builds[build])
            base = own_pin(lock, pin)  # the cache keeps one base for a build
            commit = obtain(base, cache=cache, fetched=pin.commit, reporter=reporter)
            files = read_upstream(repository, commit, series.read)
            pin = replace(pin, followed=base.followed)
        verdicts, renderings = classify_series(
            Comparison(
                workspace=workspace,
                build=pin.build,
                chosen=select_on(series, profiles, pin, with_),
                files=files,
                last=compared,
            )
        )
        if not rows:
            compared.update({each.patch.id: each for each in renderings})
        rows[build] = Row(pin=pin, before=begin if rows else None, verdicts=verdicts)
        return rows[build]

    look(begin)
    look(end)
    between = [build for build in builds if begin <= build <= end]
    found = [_search(look, patch.id, between) for patch in series.patches]
    return Sweep(
        archs=tuple(profile.arch for profile in profiles),
        patches=tuple(patch.id for patch in series.patches),
        rows=tuple(row for _, row in sorted(rows.items())),
        breaks=tuple(each for each in found if each is not None),
    )


def _ends(first: str, last: str | None, builds: Collection[int], where: str) -> tuple[int, int]:
    begin = _build(first, builds, where)
    end = max(builds) if last in (None, "latest") else _build(str(last), builds, where)
    if begin >= end:
        raise UsageError(
            f"b{begin} is not before b{end}", code="SWEEP_BUILD_UNKNOWN", hint="--from comes before --to"
        )
    return begin, end


def _search(look: Callable[[int], Row], patch: str, builds: Sequence[int]) -> Break | None:
    def verdict(at: int) -> Classified:
        return next(each for each in look(builds[at]).verdicts if each.id == patch)

    low, high = 0, len(builds) - 1
    final = verdict(high).patch_class
    if verdict(low).patch_class not in GOOD or final in GOOD or final in _DECLARED:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if verdict(middle).patch_class == final:
            high = middle
        else:
            low = middle
    return Break(
        patch=patch,
        good=builds[low],
        bad=builds[high],
        patch_class=final,
        reason=verdict(high).reason,
        commit=_commit(look(builds[high]).pin) if builds[high] - builds[low] == 1 else None,
    )


def _commit(pin: Pin) -> UpstreamCommit | None:
    if pin.commit is None or pin.commit_object is None:
        return None
    subject = pin.commit_object.partition(b"\n\n")[2].partition(b"\n")[0]
    return UpstreamCommit(commit=pin.commit, subject=subject.decode("utf-8", "replace"))


def _build(text: str, builds: Collection[int], where: str) -> int:
    number = text.strip().lower().removeprefix("b")
    if number.isdecimal() and int(number) in builds:
        return int(number)
    raise UsageError(
        f"'{text}' is no build of {redacted(where)}",
        code="SWEEP_BUILD_UNKNOWN",
        where=Location(path=redacted(where)),
        why=tell_nearest(builds, int(number)) if number.isdecimal() else None,
        hint="builds are tags like b11549",
    )

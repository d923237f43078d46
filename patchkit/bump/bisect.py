"""The first build of a git remote at which a patch no longer holds, by halving the way there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from patchkit.base.errors import Location, UsageError
from patchkit.bump.classes import GOOD, Classified, UpstreamCommit
from patchkit.bump.classify import Comparison, classify_series
from patchkit.bump.sweep import Break, Row, Sweep
from patchkit.bump.target import own_pin, remote_url
from patchkit.candidate.following import Rendering, select_on
from patchkit.candidate.workspace import Workspace
from patchkit.edits.tree import UpstreamFiles, read_upstream
from patchkit.series.catalogue import load_series
from patchkit.series.lock import Pin, load_lock
from patchkit.series.profile import load_profiles
from patchkit.upstream.cache import open_cache
from patchkit.upstream.git import redacted
from patchkit.upstream.pin import obtain
from patchkit.upstream.remote import list_builds, read_pin

_DECLARED = frozenset({"out of era", "off"})


@dataclass(slots=True, kw_only=True)
class _Prober:
    """Looks at builds, each once; all are compared with the first one."""

    read: Callable[[int], tuple[Pin, UpstreamFiles]]
    compare: Callable[[Pin, UpstreamFiles], Comparison]
    rows: dict[int, Row] = field(default_factory=dict)
    last: dict[str, Rendering] = field(default_factory=dict)
    first: int | None = None

    def verdict(self, build: int, patch: str) -> Classified:
        """The class of one patch on one build."""
        return next(each for each in self.probe(build).verdicts if each.id == patch)

    def probe(self, build: int) -> Row:
        """The row of a build."""
        if build not in self.rows:
            pin, files = self.read(build)
            comparison = self.compare(pin, files)
            verdicts, renderings = classify_series(comparison)
            if self.first is None:
                self.last.update({each.patch.id: each for each in renderings})
            self.rows[build] = Row(pin=pin, before=self.first, verdicts=verdicts)
            self.first = build if self.first is None else self.first
        return self.rows[build]


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

    def read(build: int) -> tuple[Pin, UpstreamFiles]:
        with cache.hold(reporter) as repository:
            pin = read_pin(repository, where, build, builds[build], reporter=reporter)
            base = own_pin(lock, pin)  # the cache keeps one base for a build
            found = obtain(base, cache=cache, fetched=pin.commit, reporter=reporter)
            files = read_upstream(repository, found.commit, series.folders)
            return replace(pin, followed=base.followed), files

    def compare(pin: Pin, files: UpstreamFiles) -> Comparison:
        return Comparison(
            series=workspace.series,
            build=pin.build,
            chosen=select_on(series, profiles, pin, with_),
            files=files,
            last=prober.last,
            reporter=reporter,
        )

    prober = _Prober(read=read, compare=compare)
    prober.probe(begin)
    prober.probe(end)
    between = [build for build in builds if begin <= build <= end]
    found = [_search(prober, patch.id, between) for patch in series.patches]
    return Sweep(
        archs=tuple(profile.arch for profile in profiles),
        patches=tuple(patch.id for patch in series.patches),
        rows=tuple(row for _, row in sorted(prober.rows.items())),
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


def _search(prober: _Prober, patch: str, builds: Sequence[int]) -> Break | None:
    low, high = 0, len(builds) - 1
    final = prober.verdict(builds[high], patch).patch_class
    start = prober.verdict(builds[low], patch).patch_class
    if start not in GOOD or final in GOOD or final in _DECLARED:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if prober.verdict(builds[middle], patch).patch_class == final:
            high = middle
        else:
            low = middle
    bad = prober.rows[builds[high]].pin
    return Break(
        patch=patch,
        good=builds[low],
        bad=builds[high],
        patch_class=final,
        reason=prober.verdict(builds[high], patch).reason,
        commit=_commit(bad) if builds[high] - builds[low] == 1 else None,
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
    near = sorted(builds, key=lambda build: abs(build - int(number)))[:3] if number.isdecimal() else []
    raise UsageError(
        f"'{text}' is no build of {redacted(where)}",
        code="SWEEP_BUILD_UNKNOWN",
        where=Location(path=redacted(where)),
        why=f"nearest: {', '.join(f'b{build}' for build in sorted(near))}" if near else None,
        hint="builds are tags like b11549",
    )

"""Find the first build of a git remote at which a patch can no longer be placed, by bisection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.base.errors import Location, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.searching import find_first_bad
from patchkit.base.text import visible
from patchkit.base.upstreams import build_name, llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.candidate.target import fetch_build, nearest_builds_text
from patchkit.carry.judging.classes import GOOD, Classified, UpstreamCommit
from patchkit.carry.judging.judge import SeriesJudge
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Pin, load_lock, name_pin
from patchkit.carry.sweep.run import Break, Sweep, SweepRow
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.git import redacted
from patchkit.carry.upstream.remote import remote_url
from patchkit.carry.upstream.tags import Tags, find_tagged, list_tags

_DECLARED = frozenset({"out of range", "off"})


def sweep_remote(
    workspace: Workspace,
    *,
    archs: Sequence[str],
    with_: Sequence[str],
    url: str | None,
    first: str | None,
    last: str | None,
) -> Sweep:
    """Classify at both ends, then bisect each patch that is good at the first build and not at the last one.

    Args:
        workspace: the series, and the cache for the trees.
        archs: the GPUs of one candidate.
        with_: opt-in patches to include.
        url: the git remote; by default that of the lock.
        first: a build or release; by default the lock's default pin.
        last: a build or release; by default the latest build.

    Raises:
        SWEEP_BUILD_UNKNOWN, RELEASE_UNNUMBERED, RELEASE_OFF_MAIN_LINE, UsageError,
            REMOTE_HAS_NO_BUILDS, RemoteUrlBad, PIN_DIFFERS: the builds or the remote cannot be used.
        SourceError, GitError, CacheError: a tree could not be fetched.
    """
    reporter = workspace.reporter
    lock = load_lock(workspace.series.lock)
    cache = open_cache(workspace.cache_root)
    tags = list_tags(remote_url(lock, url), reporter)
    begin, tags = find_build(first or lock.default, tags, cache.root, reporter)
    end, tags = find_build(last or "latest", tags, cache.root, reporter)
    if begin >= end:
        raise UsageError(
            f"{label_build(begin, tags)} is not before {label_build(end, tags)}",
            code="SWEEP_BUILD_UNKNOWN",
            hint="--from must be an earlier build than --to",
        )
    series = load_series(workspace.series.patches)
    wish = Wish(with_=tuple(with_))
    rows: dict[int, SweepRow] = {}
    compared: dict[str, Rendering] = {}  # renderings of the first build

    def look(build: int) -> SweepRow:
        """The row of a build, made once. All builds are compared with the first one."""
        if build in rows:
            return rows[build]
        with cache.hold(reporter) as repository:
            pin, commit = fetch_build(lock, cache, repository, tags, build)
            judge = SeriesJudge(workspace=workspace, repository=repository, series=series)
            files = judge.read(commit)
        judged = judge.judge(judge.decide(pin, archs, wish), files, compared)
        if not rows:
            compared.update(judged.last)
        rows[build] = SweepRow(pin=pin, before=begin if rows else None, verdicts=judged.verdicts)
        return rows[build]

    look(begin)
    look(end)
    between = tags.between(begin, end)
    found = [_search(look, patch.id, between) for patch in series.patches]
    return Sweep(
        archs=tuple(sorted(set(archs))),
        patches=tuple(patch.id for patch in series.patches),
        rows=tuple(row for _, row in sorted(rows.items())),
        breaks=tuple(each for each in found if each is not None),
    )


def _search(look: Callable[[int], SweepRow], patch: str, builds: Sequence[int]) -> Break | None:
    def verdict(at: int) -> Classified:
        return next(each for each in look(builds[at]).verdicts if each.id == patch)

    low, high = 0, len(builds) - 1
    final = verdict(high).patch_class
    if verdict(low).patch_class not in GOOD or final in GOOD or final in _DECLARED:
        return None
    found = find_first_bad(low, high, lambda at: "bad" if verdict(at).patch_class == final else "good")
    low, high = found.good, found.bad
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


def label_build(build: int, tags: Tags) -> str:
    """A build with its releases, for messages."""
    return name_pin(build_name(build), tags.releases_of(tags.builds[build]))


def find_build(text: str, tags: Tags, root: Path, reporter: Reporter) -> tuple[int, Tags]:
    """The number of a build or release, and the tags with it: a release may have no tag of a build.

    Raises SWEEP_BUILD_UNKNOWN, and as :func:`find_tagged`.
    """
    name = text.strip().lower()
    found = find_tagged(name, tags, root, reporter)
    if found is not None:
        return found[0], replace(tags, builds=dict(sorted({**tags.builds, found[0]: found[1]}.items())))
    build = llama_cpp().tags.parse_build(name)
    raise UsageError(
        f"{redacted(tags.url)} has no build or release '{visible(text)}'",
        code="SWEEP_BUILD_UNKNOWN",
        where=Location(path=redacted(tags.url)),
        why=nearest_builds_text(tags.builds, build) if build is not None else None,
        hint="builds are tags like b11549, releases are tags like v0.5.0",
    )

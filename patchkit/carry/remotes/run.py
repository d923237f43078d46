"""Follow the pull requests of a series' patches, and the forks that it watches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.errors import CacheError, GitError, PatchkitError, SourceError, UsageError
from patchkit.base.reporter import Reporter
from patchkit.carry.judging.changed import MOST_FILES, Versions
from patchkit.carry.remotes.pulls import (
    FollowedPull,
    NamedPull,
    blob_ids,
    ends_of,
    find_merge,
    judge_pull,
    named_pulls,
    read_versions,
)
from patchkit.carry.remotes.watch import (
    WatchedFork,
    branch_ref,
    fork_blobs,
    judge_watch,
    main_line,
    new_commits,
)
from patchkit.carry.series.body import is_as_imported
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.lock import Lock, Pin, Watched
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.followed import MAIN, Answer, FollowedRemotes, open_followed
from patchkit.carry.upstream.git import redacted
from patchkit.carry.upstream.remote import remote_url
from patchkit.carry.upstream.tags import list_tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """All followed pull requests and forks, as of the last fetch of each remote."""

    pulls: tuple[FollowedPull, ...] = ()
    watches: tuple[WatchedFork, ...] = ()

    def lines(self, pin: str, notes: Mapping[str, Sequence[str]] | None = None) -> Iterator[str]:
        """As text. ``pin``: the pin that may contain the pull requests; ``notes``: more lines by patch."""
        lines = []
        for each in self.pulls:
            if each.state != "not asked":
                lines += [*each.lines(pin), *(f"  {line}" for line in (notes or {}).get(each.patch, ()))]
        for title, followed in (
            ("pull requests", [*lines, *self._not_fetched_lines()]),
            ("watched forks", [line for each in self.watches for line in each.lines()]),
        ):
            if followed:
                yield ""
                yield f"{title}:"
                yield from (f"  {line}" for line in followed)
        states = [(each.asked, each.notes) for each in self.pulls]
        states += [(each.asked, each.notes) for each in self.watches]
        if (None, ()) in states:
            yield "  to fetch them: patchkit status --fetch"

    def _not_fetched_lines(self) -> Iterator[str]:
        """Lines on pull requests that were never fetched, grouped by remote."""
        for remote in dict.fromkeys(each.remote for each in self.pulls):
            found = [each for each in self.pulls if each.remote == remote and each.state == "not asked"]
            if found:
                named = ", ".join(f"{each.patch} ({each.number})" for each in found)
                yield f"not fetched yet: {named} of {redacted(remote)}"
                yield from (
                    f"  {note}" for note in dict.fromkeys(note for each in found for note in each.notes)
                )

    def seen(self, lock: Lock) -> tuple[Watched, ...]:
        """The watched branches for the lock, where commits up to the tips fetched just now count as seen."""
        fetched = {
            (each.url, each.branch): Watched(url=each.url, branch=each.branch, seen=each.tip)
            for each in self.watches
            if each.asked_now and each.tip is not None
        }
        wanted = {(each.url, each.branch) for each in self.watches}
        kept = {(each.url, each.branch): each for each in lock.watched if (each.url, each.branch) in wanted}
        return tuple(sorted((kept | fetched).values()))


@dataclass(slots=True, kw_only=True)
class _RemoteRequest:
    """What to fetch from one remote; ``is_upstream``: commits of its main line are not a fork's own."""

    is_upstream: bool = False
    refs: dict[str, None] = field(default_factory=dict)
    commits: dict[str, None] = field(default_factory=dict)


def read_following(series: Series, lock: Lock, pin: Pin, cache: Cache, reporter: Reporter) -> Following:
    """The state as of the last fetches, without contacting a remote."""
    return _judged(series, lock, pin, open_followed(cache, reporter), _wanted(series, lock, None), {}, set())


def imported_pulls(
    series: Series, patches: Path, cache: Cache, reporter: Reporter
) -> Mapping[str, tuple[Versions, ...]]:
    """By patch, the files of its pull request as imported.

    Only for patches whose edits were not changed since, and whose contents were fetched. Raises CacheError.
    """
    remotes = open_followed(cache, reporter)
    found: dict[str, tuple[Versions, ...]] = {}
    for pull in named_pulls(series):
        patch = series.patch(pull.patch)
        if patch is None or pull.recorded is None or remotes.last(pull.remote) is None:
            continue
        if not is_as_imported(patch, patches):
            continue
        try:
            changes = remotes.git.changes(*pull.recorded)
            versions = read_versions(changes, remotes) if len(changes) <= MOST_FILES else None
        except GitError:
            continue  # the kept history lacks them or is damaged; the state of the remote reports that
        found |= {pull.patch: versions} if versions is not None else {}
    return found


def fetch_following(
    series: Series,
    lock: Lock,
    pin: Pin,
    cache: Cache,
    reporter: Reporter,
    now: dt.datetime,
    upstream_url: str | None = None,
) -> Following:
    """Fetch from every remote. If one fails, its state of the last fetch is used.

    ``upstream_url``: a remote with upstream's main line, instead of the lock's.

    Raises CacheError on disk errors.
    """
    wanted = _wanted(series, lock, upstream_url)
    if not wanted:
        return Following()
    failures: dict[str, str] = {}
    with cache.hold(reporter) as repository:
        remotes = open_followed(cache, reporter, repository.keep_open)
        moment = now.astimezone(dt.UTC).isoformat(timespec="seconds")
        for url, each in wanted.items():
            reporter.step(f"fetching pull requests and watched branches from {redacted(url)}")
            try:
                remotes.ask(url, tuple(each.refs), tuple(each.commits), moment)
            except CacheError:
                raise
            except PatchkitError as error:
                failures[url] = f"{error.message}{f' ({error.why.splitlines()[0]})' if error.why else ''}"
        for url in wanted.keys() - failures.keys():
            try:
                _complete(url, series, lock, _mains(wanted, remotes), remotes, reporter)
            except CacheError:
                raise
            except PatchkitError as error:
                reporter.warn(f"could not fetch everything from {redacted(url)}: {error.message}")
        return _judged(series, lock, pin, remotes, wanted, failures, set(wanted) - failures.keys())


def _upstream(lock: Lock) -> str | None:
    try:
        return remote_url(lock, None)
    except UsageError:
        return None


def _wanted(series: Series, lock: Lock, upstream_url: str | None) -> Mapping[str, _RemoteRequest]:
    found: dict[str, _RemoteRequest] = {}
    forks = {watch.url for watch in series.watches}
    for pull in named_pulls(series):
        each = found.setdefault(pull.remote, _RemoteRequest())
        each.refs.update(dict.fromkeys([MAIN, pull.head_ref, pull.merge_ref]))
        each.commits.update(dict.fromkeys(pull.recorded or ()))
        each.is_upstream = pull.remote not in forks
    upstream = upstream_url or _upstream(lock)
    if forks and upstream is not None:
        each = found.setdefault(upstream, _RemoteRequest())
        each.refs[MAIN] = None
        each.is_upstream = True
    for watch in series.watches:
        each = found.setdefault(watch.url, _RemoteRequest())
        each.refs[branch_ref(watch)] = None
        if (seen := lock.seen(watch.url, watch.branch)) is not None:
            each.commits[seen] = None
    return found


def _mains(wanted: Mapping[str, _RemoteRequest], remotes: FollowedRemotes) -> tuple[str, ...]:
    """The fetched tips of upstream's main line, of every remote that has it."""
    answers = [remotes.last(url) for url, each in wanted.items() if each.is_upstream]
    found = [main for answer in answers if (main := main_line(answer)) is not None]
    return tuple(dict.fromkeys(each for each in found if remotes.has(each)))


def _complete(
    url: str,
    series: Series,
    lock: Lock,
    mains: Sequence[str],
    remotes: FollowedRemotes,
    reporter: Reporter,
) -> None:
    """Fetch what comparing needs: contents of files, and the first builds with merged pull requests."""
    answer = remotes.last(url)
    if answer is None:
        return
    blobs: list[str] = []
    merged = []
    for pull in named_pulls(series):
        if pull.remote == url:
            blobs += _pull_blobs(pull, answer, remotes)
            merged += [found[0]] if (found := find_merge(pull, answer, remotes)) is not None else []
    for watch in series.watches:
        if watch.url == url:
            seen = lock.seen(watch.url, watch.branch)
            blobs += fork_blobs(new_commits(watch, answer, mains, seen, remotes, series)[0])
    remotes.fetch_blobs(url, blobs)
    _find_builds(url, answer, [each for each in merged if each not in answer.builds], remotes, reporter)


def _pull_blobs(pull: NamedPull, answer: Answer, remotes: FollowedRemotes) -> Iterator[str]:
    for ends in ends_of(pull, answer, remotes):
        changes = remotes.git.changes(*ends)
        if len(changes) <= MOST_FILES:
            yield from blob_ids(changes)


def _find_builds(
    url: str, answer: Answer, merged: Sequence[str], remotes: FollowedRemotes, reporter: Reporter
) -> None:
    main = main_line(answer)
    if not merged or main is None:
        return
    try:
        tags = list_tags(url, reporter).builds
    except SourceError:
        return  # a fork has no tags of builds
    for commit in merged:
        since = remotes.between(commit, main)
        build = min((build for build, sha in tags.items() if sha in since), default=None)
        if build is not None:
            answer = remotes.note_build(url, answer, commit, build)


def _judged(
    series: Series,
    lock: Lock,
    pin: Pin,
    remotes: FollowedRemotes,
    wanted: Mapping[str, _RemoteRequest],
    failures: Mapping[str, str],
    fetched: set[str],
) -> Following:
    """Combine the remotes' answers; if the kept history cannot be read, report that for each of them."""
    answers = {url: remotes.last(url) for url in wanted}
    try:
        mains = _mains(wanted, remotes)
        return _judge(series, lock, pin, remotes, answers, mains, failures, fetched)
    except GitError as error:
        nothing = dict.fromkeys(answers)
        why = f"{error.message}; {error.hint}" if error.hint else error.message
        return _judge(series, lock, pin, remotes, nothing, (), dict.fromkeys(answers, why), set())


def _judge(
    series: Series,
    lock: Lock,
    pin: Pin,
    remotes: FollowedRemotes,
    answers: Mapping[str, Answer | None],
    mains: Sequence[str],
    failures: Mapping[str, str],
    fetched: set[str],
) -> Following:
    return Following(
        pulls=tuple(
            judge_pull(pull, answers[pull.remote], remotes, pin, failures.get(pull.remote))
            for pull in named_pulls(series)
        ),
        watches=tuple(
            replace(
                judge_watch(watch, answers[watch.url], mains, lock, remotes, series, failures.get(watch.url)),
                asked_now=watch.url in fetched,
            )
            for watch in series.watches
        ),
    )

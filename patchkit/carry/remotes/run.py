"""Follow the pull requests that a series' patches come from."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.errors import CacheError, GitError, PatchkitError, SourceError
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
from patchkit.carry.series.body import is_as_imported
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.lock import Pin
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.followed import MAIN, Answer, FollowedRemotes, open_followed
from patchkit.carry.upstream.git import redacted
from patchkit.carry.upstream.tags import list_tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """All followed pull requests, as of the last fetch of each remote."""

    pulls: tuple[FollowedPull, ...] = ()

    def lines(self, pin: str, notes: Mapping[str, Sequence[str]] | None = None) -> Iterator[str]:
        """As text. ``pin``: the pin that may contain the pull requests; ``notes``: more lines by patch."""
        lines = []
        for each in self.pulls:
            if each.state != "not asked":
                lines += [*each.lines(pin), *(f"  {line}" for line in (notes or {}).get(each.patch, ()))]
        lines += self._not_fetched_lines()
        if lines:
            yield ""
            yield "pull requests:"
            yield from (f"  {line}" for line in lines)
        if (None, ()) in [(each.asked, each.notes) for each in self.pulls]:
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


@dataclass(slots=True, kw_only=True)
class _RemoteRequest:
    """What to fetch from one remote."""

    refs: dict[str, None] = field(default_factory=dict)
    commits: dict[str, None] = field(default_factory=dict)


def read_following(series: Series, pin: Pin, cache: Cache, reporter: Reporter) -> Following:
    """The state as of the last fetches, without contacting a remote."""
    return _judged(series, pin, open_followed(cache, reporter), _wanted(series), {})


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
    series: Series, pin: Pin, cache: Cache, reporter: Reporter, now: dt.datetime
) -> Following:
    """Fetch from every remote. If one fails, its state of the last fetch is used.

    Raises CacheError on disk errors.
    """
    wanted = _wanted(series)
    if not wanted:
        return Following()
    failures: dict[str, str] = {}
    with cache.hold(reporter) as repository:
        remotes = open_followed(cache, reporter, repository.keep_open)
        moment = now.astimezone(dt.UTC).isoformat(timespec="seconds")
        for url, each in wanted.items():
            reporter.step(f"fetching pull requests from {redacted(url)}")
            try:
                remotes.ask(url, tuple(each.refs), tuple(each.commits), moment)
            except CacheError:
                raise
            except PatchkitError as error:
                failures[url] = f"{error.message}{f' ({error.why.splitlines()[0]})' if error.why else ''}"
        for url in wanted.keys() - failures.keys():
            try:
                _complete(url, series, remotes, reporter)
            except CacheError:
                raise
            except PatchkitError as error:
                reporter.warn(f"could not fetch everything from {redacted(url)}: {error.message}")
        return _judged(series, pin, remotes, wanted, failures)


def _wanted(series: Series) -> Mapping[str, _RemoteRequest]:
    found: dict[str, _RemoteRequest] = {}
    for pull in named_pulls(series):
        each = found.setdefault(pull.remote, _RemoteRequest())
        each.refs.update(dict.fromkeys([MAIN, pull.head_ref, pull.merge_ref]))
        each.commits.update(dict.fromkeys(pull.recorded or ()))
    return found


def _complete(
    url: str,
    series: Series,
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
    main = answer.refs.get(MAIN)
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
    pin: Pin,
    remotes: FollowedRemotes,
    wanted: Mapping[str, _RemoteRequest],
    failures: Mapping[str, str],
) -> Following:
    """Combine the remotes' answers; if the kept history cannot be read, report that for each of them."""
    answers = {url: remotes.last(url) for url in wanted}
    try:
        return _judge(series, pin, remotes, answers, failures)
    except GitError as error:
        nothing = dict.fromkeys(answers)
        why = f"{error.message}; {error.hint}" if error.hint else error.message
        return _judge(series, pin, remotes, nothing, dict.fromkeys(answers, why))


def _judge(
    series: Series,
    pin: Pin,
    remotes: FollowedRemotes,
    answers: Mapping[str, Answer | None],
    failures: Mapping[str, str],
) -> Following:
    return Following(
        pulls=tuple(
            judge_pull(pull, answers[pull.remote], remotes, pin, failures.get(pull.remote))
            for pull in named_pulls(series)
        )
    )

"""A git remote: which one knows a pin, and what it is asked for: one commit, the pin of a build."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from patchkit.base.errors import CacheError, Location, PatchkitError, SourceError, UsageError
from patchkit.base.reporter import Advance
from patchkit.base.upstreams import build_name
from patchkit.carry.series.git_object import commit_date
from patchkit.carry.series.lock import GitSource, Lock, Pin
from patchkit.carry.upstream.git import Finished, GitSilent, redacted
from patchkit.carry.upstream.repository import Repository

_SILENCE_S = 60.0  # after the first answer; git writes its progress about every second
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(::|://)")
_SCHEMES = ("https", "http", "ssh", "git", "file")
_COUNT = re.compile(rb"(?:Receiving|Counting|Compressing) objects:\s+\d+% \((\d+)/(\d+)\)")

# What git writes (LC_ALL=C, git 2.32 to 2.50) when the remote is there and has its reasons.
_UNKNOWN = ("not our ref", "couldn't find remote ref", "no such remote ref")
_REFUSED = ("does not allow request for unadvertised object", "not allow request for")


class RemoteUrlBad(SourceError):
    """The remote is named in a way patchkit does not take."""

    code = "REMOTE_URL_BAD"


def upstream_url(pin: Pin) -> str | None:
    """Where upstream's history of a pin is to be had by git, as the lock says; None where it does not."""
    return next((source.url for source in pin.sources if isinstance(source, GitSource)), None)


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


def fetch_commit(repository: Repository, url: str, commit: str, *, answer_s: float = 60.0) -> None:
    """Bring a commit and its tree into the repository.

    Args:
        repository: held by the caller.
        url: of the remote; a relative path is taken from the current folder.
        commit: 40 hex digits.
        answer_s: seconds until the remote must have answered.

    Raises:
        RemoteUrlBad: no such kind of address.
        REMOTE_SILENT, REMOTE_UNREACHABLE: it cannot be asked.
        REMOTE_COMMIT_UNKNOWN, REMOTE_REFUSES_COMMIT: it has no such commit, or does not give it.
        CacheError: the disk refused.
    """
    where, url = checked_url(url), redacted(url)
    args = (
        "fetch", "--progress", "--depth=1", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
        "--no-auto-maintenance", where, commit,
    )  # fmt: skip
    with repository.reporter.progress(f"fetching {commit[:12]} from {url}", "objects") as advance:
        try:
            finished = repository.git.watch(
                *args, on_text=_follow(advance), answer_s=answer_s, silence_s=_SILENCE_S
            )
        except GitSilent as error:
            raise SourceError(
                f"no answer from {url}: {error.message}",
                code="REMOTE_SILENT",
                hint="check the network, or use --source sdist, or --upstream-url with a mirror",
            ) from error
    if finished.status != 0:
        raise _why(url, commit, finished, repository.git.failure(args, finished))


def checked_url(url: str) -> str:
    """The address as git gets it: an absolute path, or the URL. Raises RemoteUrlBad."""
    found = _SCHEME.match(url)
    if not url or url.startswith("-") or (found and (found[2] == "::" or found[1] not in _SCHEMES)):
        raise RemoteUrlBad(
            f"'{redacted(url)}' is no remote that patchkit takes",
            why=f"it takes a path, host:path, or a URL of {', '.join(_SCHEMES)}",
            hint="give --upstream-url another value",
        )
    path = Path(url)
    return str(path.absolute()) if found is None and path.exists() else url


def _follow(advance: Advance) -> Callable[[bytes], None]:
    def on_text(text: bytes) -> None:
        counts = _COUNT.findall(text)
        if counts:
            advance(int(counts[-1][0]), int(counts[-1][1]))

    return on_text


def _why(url: str, commit: str, finished: Finished, failure: PatchkitError) -> PatchkitError:
    text = finished.stderr
    last = complaint(text)
    if any(words in text for words in _REFUSED):
        return SourceError(
            f"{url} does not serve the commit {commit} by its id",
            code="REMOTE_REFUSES_COMMIT",
            why=last,
            hint=f"allow it there: git -C {url} config uploadpack.allowAnySHA1InWant true",
        )
    if any(words in text for words in _UNKNOWN):
        return SourceError(
            f"{url} does not have the commit {commit}",
            code="REMOTE_COMMIT_UNKNOWN",
            why=last,
            hint=f"if it is a clone of yours: git -C {url} fetch origin {commit}",
        )
    if is_disks(failure, text):
        return failure
    ownership = "another user owns it: git serves it only to that user" if "dubious" in text else None
    return SourceError(
        f"nothing could be fetched from {url}",
        code="REMOTE_UNREACHABLE",
        why=ownership or last or failure.why,
        hint="check the address and the network, or use --source sdist",
    )


def is_disks(failure: PatchkitError, stderr: str) -> bool:
    """Whether a fetch failed because the disk here refused, and not the remote with the same words."""
    return isinstance(failure, CacheError) and "unable to access" not in stderr and "publickey" not in stderr


def complaint(stderr: str) -> str:
    """The lines with which git and ssh end; the rest is progress and advice."""
    return "\n".join(line for line in stderr.splitlines() if line.startswith(("fatal", "error", "ssh")))


def read_pin(repository: Repository, url: str, build: int, commit: str, releases: Sequence[str] = ()) -> Pin:
    """The pin of a build, which is ``releases``.

    Its commit is fetched, and tree, date and commit object are read from it. The caller holds the cache.
    Nothing but objects is written. Raises the errors of
    :func:`patchkit.carry.upstream.remote.fetch_commit` and REMOTE_COMMIT_UNREADABLE.
    """
    fetch_commit(repository, url, commit)
    read = repository.git.attempt("cat-file", "commit", commit)
    if read.status != 0:
        raise SourceError(
            f"{build_name(build)} of {redacted(url)} is no commit", code="REMOTE_COMMIT_UNREADABLE"
        )
    committed = commit_date(read.stdout)
    if committed is None:
        raise SourceError(
            f"{commit} of {redacted(url)} has no committer with a date", code="REMOTE_COMMIT_UNREADABLE"
        )
    return Pin(
        build=build,
        releases=tuple(releases),
        commit=commit,
        tree=repository.tree_of(commit),
        committed=committed,
        commit_object=read.stdout,
        sources=(GitSource(url=checked_url(url)),),
    )

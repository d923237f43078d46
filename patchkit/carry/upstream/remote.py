"""Git remotes: which one has a pin, and fetching a commit or the pin of a build from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from patchkit.base.errors import CacheError, Location, PatchkitError, SourceError, UsageError
from patchkit.base.files import working_folder
from patchkit.base.reporter import Advance, Reporter
from patchkit.base.upstreams import build_name
from patchkit.carry.series.git_object import commit_date
from patchkit.carry.series.lock import GitSource, Lock, Pin
from patchkit.carry.upstream.git import Finished, Git, GitTimeout, redacted
from patchkit.carry.upstream.repository import Repository

SILENCE_S = 60.0  # after the first response; git writes its progress about every second
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(::|://)")
_SCHEMES = ("https", "http", "ssh", "git", "file")
MAX_MIB = 1024
"""Limit for one fetch of history. Without file contents, all of llama.cpp's is less than a tenth of it."""
_MAX_OBJECTS = 5_000_000
_SIZE = re.compile(rb"Receiving objects: [^\r\n]*?\((?:\d+)/(\d+)\)(?:, ([0-9.]+) (bytes|KiB|MiB|GiB))?")
_MIB = {b"bytes": 2.0**-20, b"KiB": 2.0**-10, b"MiB": 1.0, b"GiB": 1024.0}
_COUNT = re.compile(rb"(?:Receiving|Counting|Compressing) objects:\s+\d+% \((\d+)/(\d+)\)")

FETCH = (
    "fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
    "--no-auto-maintenance",
)  # fmt: skip
"""A fetch of what is named, and of nothing else."""

# git's messages (LC_ALL=C, git 2.32 to 2.50) if the remote responds, but does not send the commit.
_UNKNOWN = ("not our ref", "couldn't find remote ref", "no such remote ref")
_REFUSED = ("does not allow request for unadvertised object", "not allow request for")


class RemoteUrlBad(SourceError):
    """The remote is given in an unsupported form."""

    code = "REMOTE_URL_BAD"


def upstream_url(pin: Pin) -> str | None:
    """The git remote with upstream's history of a pin, according to the lock; None if it names none."""
    return next((source.url for source in pin.sources if isinstance(source, GitSource)), None)


def remote_url(lock: Lock, wanted: str | None) -> str:
    """The git remote to use: the given one, else that of the newest pin that has one.

    Raises UsageError.
    """
    if wanted is not None:
        return wanted
    for pin in sorted(lock.pins, key=lambda pin: -pin.build):
        url = upstream_url(pin)
        if url is not None:
            return url
    raise UsageError(
        "no git remote is known",
        where=Location(path=lock.path),
        hint="name one with --upstream-url, or use a build of patches/upstreams.toml",
    )


def fetch_commit(repository: Repository, url: str, commit: str, *, answer_s: float = 60.0) -> None:
    """Fetch a commit and its tree into the repository.

    Args:
        repository: held by the caller.
        url: of the remote; a relative path is relative to the current folder.
        commit: 40 hex digits.
        answer_s: seconds to wait for the remote's first response.

    Raises:
        RemoteUrlBad: the URL is of an unsupported kind.
        REMOTE_UNREACHABLE: it does not respond.
        REMOTE_COMMIT_UNKNOWN: it lacks the commit, or refuses to send it.
        CacheError: the disk reported an error.
    """
    where, url = checked_url(url), redacted(url)
    args = (*FETCH, "--depth=1", where, commit)
    with repository.reporter.progress(f"fetching {commit[:12]} from {url}", "objects") as advance:
        try:
            finished = repository.git.watch(
                *args, on_text=_follow(advance), answer_s=answer_s, silence_s=SILENCE_S
            )
        except GitTimeout as error:
            raise SourceError(
                f"no response from {url}: {error.message}",
                code="REMOTE_UNREACHABLE",
                hint="check the network, or use --source sdist, or --upstream-url with a mirror",
            ) from error
    if finished.status != 0:
        raise _why(url, commit, finished, repository.git.failure(args, finished))


@contextmanager
def temporary_history(root: Path, prefix: str, url: str, reporter: Reporter) -> Iterator[Git]:
    """A bare repository for the history of a remote, which it calls ``upstream``; removed at the end.

    Raises RemoteUrlBad, GitError, CacheError.
    """
    where = checked_url(url)
    with working_folder(root, prefix, "creating a repository for the history") as folder:
        git = Git(reporter=reporter, git_dir=folder)
        git.init()
        git.run("config", "remote.upstream.url", where)
        yield git


def fetch_history(git: Git, url: str, *args: str, answer_s: float = 30.0) -> str:
    """Fetch from ``upstream``, without files; the reason why that failed, empty if it did not.

    ``args`` begin with the filter. Raises SourceError.
    """
    try:
        done = git.watch(*FETCH, *args, on_text=limited(url), answer_s=answer_s, silence_s=SILENCE_S)
    except GitTimeout as error:
        return error.message
    # From here on git must not fetch missing objects by itself, one by one and without a limit.
    for key in ("remote.upstream.promisor", "remote.upstream.partialclonefilter"):
        git.attempt("config", "--unset", key)
    return (complaint(done.stderr) or "git gives no reason") if done.status != 0 else ""


def limited(where: str) -> Callable[[bytes], None]:
    """A callback that reads git's progress, and stops a fetch that is larger than llama.cpp's history."""

    def on_text(text: bytes) -> None:
        for count, size, unit in _SIZE.findall(text):
            if int(count) > _MAX_OBJECTS or (size and float(size) * _MIB[unit] > MAX_MIB):
                raise SourceError(
                    f"{redacted(where)} sends more than {MAX_MIB} MiB or {_MAX_OBJECTS} objects",
                    why="the history of llama.cpp is not that large",
                )

    return on_text


def checked_url(url: str) -> str:
    """The URL as git gets it: an absolute path, or a URL. Raises RemoteUrlBad."""
    found = _SCHEME.match(url)
    if not url or url.startswith("-") or (found and (found[2] == "::" or found[1] not in _SCHEMES)):
        raise RemoteUrlBad(
            f"'{redacted(url)}' is not a supported remote",
            why=f"supported are a path, host:path, or a URL with {', '.join(_SCHEMES)}",
            hint="use another value for --upstream-url",
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
            code="REMOTE_COMMIT_UNKNOWN",
            why=last,
            hint=f"allow it there: git -C {url} config uploadpack.allowAnySHA1InWant true",
        )
    if any(words in text for words in _UNKNOWN):
        return SourceError(
            f"{url} does not have the commit {commit}",
            code="REMOTE_COMMIT_UNKNOWN",
            why=last,
            hint=f"if it is your own clone: git -C {url} fetch origin {commit}",
        )
    if is_disks(failure, text):
        return failure
    ownership = "another user owns it, and git serves it only to that user" if "dubious" in text else None
    return SourceError(
        f"nothing could be fetched from {url}",
        code="REMOTE_UNREACHABLE",
        why=ownership or last or failure.why,
        hint="check the URL and the network, or use --source sdist",
    )


def is_disks(failure: PatchkitError, stderr: str) -> bool:
    """Whether a fetch failed because of the local disk, not of the remote with the same message."""
    return isinstance(failure, CacheError) and "unable to access" not in stderr and "publickey" not in stderr


def complaint(stderr: str) -> str:
    """The error lines of git and ssh, without progress and advice."""
    return "\n".join(line for line in stderr.splitlines() if line.startswith(("fatal", "error", "ssh")))


def read_pin(repository: Repository, url: str, build: int, commit: str, releases: Sequence[str] = ()) -> Pin:
    """The pin of a build that is tagged as ``releases``.

    Its commit is fetched, and its tree, date and commit object are read. The caller holds the cache. Only
    objects are written. Raises the errors of :func:`patchkit.carry.upstream.remote.fetch_commit` and
    REMOTE_COMMIT_UNKNOWN.
    """
    fetch_commit(repository, url, commit)
    read = repository.git.attempt("cat-file", "commit", commit)
    if read.status != 0:
        raise SourceError(
            f"{build_name(build)} of {redacted(url)} is not a commit", code="REMOTE_COMMIT_UNKNOWN"
        )
    committed = commit_date(read.stdout)
    if committed is None:
        raise SourceError(
            f"{commit} of {redacted(url)} has no committer with a date", code="REMOTE_COMMIT_UNKNOWN"
        )
    return Pin(
        name=build_name(build),
        build=build,
        releases=tuple(releases),
        commit=commit,
        tree=repository.tree_of(commit),
        committed=committed,
        commit_object=read.stdout,
        sources=(GitSource(url=checked_url(url)),),
    )

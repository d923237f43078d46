"""Upstream's history between two pins, for as long as somebody asks which commit did something."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import CacheError, PatchkitError, SourceError
from patchkit.base.files import disk_errors
from patchkit.base.reporter import Advance, Reporter
from patchkit.series.lock import GitSource, Pin
from patchkit.upstream.commits import commit_date
from patchkit.upstream.git import Finished, Git, GitSilent, redacted
from patchkit.upstream.repository import Repository

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


def fetch_commit(
    repository: Repository, url: str, commit: str, *, reporter: Reporter, answer_s: float
) -> None:
    """Bring a commit and its tree into the repository.

    Args:
        repository: held by the caller.
        url: of the remote; a relative path is taken from the current folder.
        commit: 40 hex digits.
        reporter: gets the progress.
        answer_s: seconds until the remote must have answered.

    Raises:
        SourceError: one of the errors above.
        CacheError: the disk refused.
    """
    where, url = checked_url(url), redacted(url)
    args = (
        "fetch",
        "--progress",
        "--depth=1",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-recurse-submodules",
        "--no-auto-maintenance",
        where,
        commit,
    )
    with reporter.progress(f"fetching {commit[:12]} from {url}", "objects") as advance:
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
    last = _complaint(text)
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
    if isinstance(failure, CacheError) and "unable to access" not in text and "publickey" not in text:
        return failure
    ownership = "another user owns it: git serves it only to that user" if "dubious" in text else None
    return SourceError(
        f"nothing could be fetched from {url}",
        code="REMOTE_UNREACHABLE",
        why=ownership or last or failure.why,
        hint="check the address and the network, or use --source sdist",
    )


def _complaint(stderr: str) -> str:
    """The lines with which git and ssh end; the rest is progress and advice."""
    return "\n".join(line for line in stderr.splitlines() if line.startswith(("fatal", "error", "ssh")))


_TAG = re.compile(r"refs/tags/b([1-9][0-9]*)(\^\{\})?")


def list_builds(url: str, reporter: Reporter) -> Mapping[int, str]:
    """Commit by build number, ascending.

    Raises:
        RemoteUrlBad: no such kind of address.
        REMOTE_HAS_NO_BUILDS: nothing answers there, or it has no such tag.
    """
    where = checked_url(url)
    reporter.step(f"asking {redacted(url)} for its builds")
    finished = Git(reporter=reporter).attempt("ls-remote", "--tags", where, "b*")
    if finished.status != 0:
        raise SourceError(
            f"{redacted(url)} cannot be asked for its builds",
            code="REMOTE_HAS_NO_BUILDS",
            why=_complaint(finished.stderr) or finished.stderr.strip() or None,
            hint="check the address and the network, or name a mirror or a clone with --upstream-url",
        )
    found: dict[int, str] = {}
    for line in finished.stdout.decode("utf-8", "replace").splitlines():
        sha, _, name = line.partition("\t")
        tag = _TAG.fullmatch(name)
        if tag is not None and (tag[2] or int(tag[1]) not in found):
            found[int(tag[1])] = sha
    if not found:
        raise SourceError(
            f"{redacted(url)} has no tag that names a build",
            code="REMOTE_HAS_NO_BUILDS",
            why="builds are tags like b11549",
            hint="if it is a clone of yours: git fetch --tags",
        )
    return dict(sorted(found.items()))


def read_pin(
    repository: Repository, url: str, build: int, commit: str, *, reporter: Reporter, answer_s: float = 60.0
) -> Pin:
    """The pin of a build: its commit is fetched, and tree, date and commit object are read from it.

    The caller holds the cache. Nothing but objects is written. Raises the errors of
    :func:`patchkit.upstream.remote.fetch_commit` and REMOTE_COMMIT_UNREADABLE.
    """
    fetch_commit(repository, url, commit, reporter=reporter, answer_s=answer_s)
    raw = repository.git.run("cat-file", "commit", commit)
    committed = commit_date(raw)
    if committed is None:
        raise SourceError(
            f"{commit} of {redacted(url)} has no committer with a date", code="REMOTE_COMMIT_UNREADABLE"
        )
    return Pin(
        build=build,
        commit=commit,
        tree=repository.tree_of(commit),
        committed=committed,
        commit_object=raw,
        sources=(GitSource(url=checked_url(url)),),
    )


_MOST_BUILDS = 12000  # from build 1 on upstream has had fewer; more would be no two builds of it
_MOST_CHANGES = 300  # commits of one file that are looked at, the newest
_ANSWER_S = 10.0
_HISTORY_SILENCE_S = 60.0
_NO_BLOB = "0" * 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One commit; ``blobs`` has for each path that it changed the object ids before and after, if any."""

    commit: str
    subject: str
    blobs: Mapping[str, tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The span in a repository of its own."""

    git: Git
    url: str
    span: str

    def changes(self, paths: Sequence[str]) -> tuple[Change, ...]:
        """The commits of the span that change one of ``paths``, newest first, at most 300.

        A merge counts as what it brought to the main line. Raises GitError, CacheError.
        """
        out = self.git.run(
            "log", "--first-parent", "-m", "--raw", "--no-abbrev", "--no-renames",
            f"--max-count={_MOST_CHANGES}", "--format=%x00%H %s", self.span, "--", *paths,
        )  # fmt: skip
        return tuple(_change(text) for text in out.decode("utf-8", "replace").split("\0")[1:])

    def read(self, blobs: Sequence[str]) -> dict[str, bytes]:
        """The bytes of blobs, by object id; fetched first where the history came without them.

        Raises HISTORY_UNAVAILABLE, GitError, CacheError.
        """
        wanted = sorted(set(blobs))
        if not wanted:
            return {}
        if self._missing(wanted):
            # All at once: git itself would ask for one after the other.
            args = ("fetch", "--progress", "--no-tags", "--no-write-fetch-head")
            _fetch(self.git, (*args, "upstream", *self._missing(wanted)), self.url)
        if left := self._missing(wanted):
            raise SourceError(
                f"{redacted(self.url)} did not give {len(left)} of the files asked for",
                code="HISTORY_UNAVAILABLE",
            )
        found = self.git.objects(each.encode() for each in wanted)
        return {each: blob.data for each, blob in zip(wanted, found, strict=True) if blob is not None}

    def _missing(self, blobs: Sequence[str]) -> list[str]:
        out = self.git.run("cat-file", "--batch-check", stdin="".join(f"{each}\n" for each in blobs).encode())
        return [line.split(" ")[0] for line in out.decode().splitlines() if line.endswith("missing")]


@contextmanager
def open_history(root: Path, url: str, old: Pin, new: Pin, reporter: Reporter) -> Iterator[History]:
    """The history from ``old`` to ``new``.

    Args:
        root: the cache folder, held by the caller; ``history.git`` is made in it and removed again.
        url: the git remote.
        old: a pin with a commit; the history must reach it.
        new: a newer pin with a commit.
        reporter: hears about it.

    Raises:
        RemoteUrlBad: no such kind of address.
        HISTORY_UNAVAILABLE: the remote does not answer, or its history does not lead from one to the other.
        GitError, CacheError: git or the disk refused.
    """
    where = checked_url(url)
    depth = new.build - old.build + 1
    if old.commit is None or new.commit is None or not 1 < depth <= _MOST_BUILDS:
        raise SourceError(
            f"there are no commits between {old.name} and {new.name} to ask for", code="HISTORY_UNAVAILABLE"
        )
    folder = root / "history.git"
    git = Git(reporter=reporter, git_dir=folder)
    try:
        with disk_errors(folder, "making room for the history"):
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
            folder.mkdir(parents=True)
        git.run("init", "--quiet", "--bare", "--template=", "--object-format=sha1")
        git.run("config", "remote.upstream.url", where)
        reporter.step(f"asking {redacted(url)} for the commits from {old.name} to {new.name}")
        args = ("fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
        _fetch(
            git,
            (
                *args,
                "--no-auto-maintenance",
                f"--depth={depth}",
                "--filter=blob:none",
                "upstream",
                new.commit,
            ),
            url,
        )
        # From here on nothing is fetched that nobody asked for: git would do so one by one, without a limit.
        for name in ("remote.upstream.promisor", "remote.upstream.partialclonefilter"):
            git.attempt("config", "--unset", name)
        if git.attempt("merge-base", "--is-ancestor", old.commit, new.commit).status != 0:
            raise SourceError(
                f"the history of {redacted(url)} does not lead from {old.name} to {new.name}",
                code="HISTORY_UNAVAILABLE",
            )
        yield History(git=git, url=url, span=f"{old.commit}..{new.commit}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch(git: Git, args: tuple[str, ...], url: str) -> None:
    try:
        finished = git.watch(*args, on_text=lambda _: None, answer_s=_ANSWER_S, silence_s=_HISTORY_SILENCE_S)
    except GitSilent as error:
        raise SourceError(
            f"{redacted(url)} did not give its history: {error.message}", code="HISTORY_UNAVAILABLE"
        ) from error
    if finished.status != 0:
        raise SourceError(
            f"{redacted(url)} did not give its history",
            code="HISTORY_UNAVAILABLE",
            why=_complaint(finished.stderr) or None,
        )


def _change(text: str) -> Change:
    head, *rows = text.splitlines()
    commit, _, subject = head.partition(" ")
    blobs: dict[str, tuple[str | None, str | None]] = {}
    for row in rows:
        if row.startswith(":"):
            fields, _, path = row.partition("\t")
            _, _, before, after, _ = fields.split(" ")
            blobs[path] = (_blob(before), _blob(after))
    return Change(commit=commit, subject=subject, blobs=blobs)


def _blob(sha: str) -> str | None:
    return None if sha == _NO_BLOB else sha

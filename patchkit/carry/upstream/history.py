"""Upstream's commits between two pins, fetched into a temporary repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import SourceError
from patchkit.base.reporter import Reporter
from patchkit.carry.series.lock import Pin
from patchkit.carry.upstream.git import Git, redacted
from patchkit.carry.upstream.remote import fetch_history, temporary_history

_MOST_BUILDS = 12000  # more than upstream has had since build 1, so a larger difference is an error
_MOST_CHANGES = 300  # only the newest commits of a file are read
_ANSWER_S = 10.0
_NO_BLOB = "0" * 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangingCommit:
    """One commit; ``blobs`` maps each path that it changed to the object ids before and after, if any."""

    commit: str
    subject: str
    blobs: Mapping[str, tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The commits of ``span`` (``old..new``), in a repository of their own."""

    git: Git
    url: str
    span: str

    def changes(self, paths: Sequence[str]) -> tuple[ChangingCommit, ...]:
        """The commits of the span that change one of ``paths``, newest first, at most 300.

        A merge counts as one commit with all that it brought to the main line. Raises GitError, CacheError.
        """
        return self._log(f"--max-count={_MOST_CHANGES}", self.span, "--", *paths)

    def changes_of(self, paths: Sequence[str]) -> dict[str, tuple[ChangingCommit, ...]]:
        """As :meth:`changes`, for each of several files by itself; read with one call of git.

        Raises GitError, CacheError.
        """
        found = self._log(self.span, "--", *paths) if paths else ()
        changes = {path: [each for each in found if path in each.blobs] for path in paths}
        return {
            path: tuple(replace(each, blobs={path: each.blobs[path]}) for each in several[:_MOST_CHANGES])
            for path, several in changes.items()
        }

    def _log(self, *options: str) -> tuple[ChangingCommit, ...]:
        out = self.git.run(
            "log", "--first-parent", "-m", "--raw", "--no-abbrev", "--no-renames", "--format=%x00%H %s",
            *options,
        )  # fmt: skip
        return tuple(_change(text) for text in out.decode("utf-8", "replace").split("\0")[1:])

    def subjects(self) -> tuple[tuple[str, str], ...]:
        """The id and the subject of each commit of the main line in the span, newest first.

        Raises GitError, CacheError.
        """
        out = self.git.run("log", "--first-parent", "-z", "--format=%H %s", self.span, "--")
        rows = (row.partition(" ") for row in out.decode("utf-8", "replace").split("\0") if row)
        return tuple((commit, subject) for commit, _, subject in rows)

    def read(self, blobs: Sequence[str]) -> dict[str, bytes]:
        """The bytes of blobs, by object id; missing ones are fetched first.

        Raises HISTORY_UNAVAILABLE, GitError, CacheError.
        """
        wanted = sorted(set(blobs))
        if not wanted:
            return {}
        if self._missing(wanted):
            # All in one fetch, because git itself would fetch them one by one.
            _fetch(self.git, self.url, "upstream", *self._missing(wanted))
        if left := self._missing(wanted):
            raise SourceError(
                f"{redacted(self.url)} did not send {len(left)} of the requested files",
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
        root: the cache folder, held by the caller; a folder is created in it and removed again.
        url: the git remote.
        old: a pin with a commit; the history must reach it.
        new: a newer pin with a commit.
        reporter: receives progress.

    Raises:
        RemoteUrlBad: the URL is of an unsupported kind.
        HISTORY_UNAVAILABLE: the remote does not respond, or its history does not connect the two.
        GitError, CacheError: git or the disk reported an error.
    """
    depth = new.build - old.build + 1
    if old.commit is None or new.commit is None or not 1 < depth <= _MOST_BUILDS:
        raise SourceError(
            f"cannot fetch the commits between {old.name} and {new.name}",
            code="HISTORY_UNAVAILABLE",
            why="the commit of one of them is unknown"
            if old.commit is None or new.commit is None
            else f"only the commits between two builds at most {_MOST_BUILDS} apart are fetched",
        )
    with temporary_history(root, "history-", url, reporter) as git:
        reporter.step(f"fetching the commits {old.name} to {new.name} from {redacted(url)}")
        _fetch(git, url, "--filter=blob:none", f"--depth={depth}", "upstream", new.commit)
        if not git.is_ancestor(old.commit, new.commit):
            raise SourceError(
                f"the history of {redacted(url)} does not connect {old.name} and {new.name}",
                code="HISTORY_UNAVAILABLE",
            )
        yield History(git=git, url=url, span=f"{old.commit}..{new.commit}")


def _fetch(git: Git, url: str, *args: str) -> None:
    why = fetch_history(git, url, *args, answer_s=_ANSWER_S)
    if why:
        raise SourceError(
            f"could not fetch the history from {redacted(url)}", code="HISTORY_UNAVAILABLE", why=why
        )


def _change(text: str) -> ChangingCommit:
    head, *rows = text.splitlines()
    commit, _, subject = head.partition(" ")
    blobs: dict[str, tuple[str | None, str | None]] = {}
    for row in rows:
        if row.startswith(":"):
            fields, _, path = row.partition("\t")
            _, _, before, after, _ = fields.split(" ")
            blobs[path] = (_blob(before), _blob(after))
    return ChangingCommit(commit=commit, subject=subject, blobs=blobs)


def _blob(sha: str) -> str | None:
    return None if sha == _NO_BLOB else sha

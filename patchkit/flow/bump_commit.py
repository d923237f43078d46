"""The result of a bump as one commit on a branch of the repository that holds the series.

Vocabulary: the *home* is the git repository around the series folder, the user's own. Its index and its
files stay as they are: the commit is made of its HEAD with the new lock, and a branch is pointed at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from patchkit.config.lock import Lock
from patchkit.config.lock_text import format_lock
from patchkit.errors import GitError, Location
from patchkit.report import Reporter
from patchkit.series_dir import SeriesDir
from patchkit.vcs.commits import NewCommit, write_commits
from patchkit.vcs.refs import read_ref, update_ref
from patchkit.vcs.repository import Repository
from patchkit.vcs.runner import Git

__all__ = ["BumpCommitted", "SeriesNotInGit", "commit_lock", "find_home"]


class SeriesNotInGit(GitError):
    """``--commit`` with a series that no git repository holds, or one without a commit."""

    code = "BUMP_SERIES_NOT_IN_GIT"


@dataclass(frozen=True, slots=True, kw_only=True)
class BumpCommitted:
    """The branch that was made, in which repository."""

    repository: Path
    branch: str
    commit: str


def find_home(series: SeriesDir, reporter: Reporter) -> tuple[Repository, str, str]:
    """The repository around the series, its HEAD commit, and the path of the lock in it.

    Raises SeriesNotInGit.
    """
    git = Git(reporter=reporter, work_tree=None)
    folder = str(series.patches)
    found = git.attempt("-C", folder, "rev-parse", "--absolute-git-dir", "--show-prefix", "HEAD^{commit}")
    lines = found.stdout.decode("utf-8", "surrogateescape").splitlines()
    if found.status != 0 or len(lines) != 3:  # noqa: PLR2004 - as asked for
        raise SeriesNotInGit(
            f"{series.root} is in no git repository with a commit",
            where=Location(path=str(series.root)),
            why=found.stderr.strip() or None,
            hint="leave out --commit: the lock is then written in place",
        )
    return Repository(path=Path(lines[0]), reporter=reporter), lines[2], f"{lines[1]}{series.lock.name}"


def commit_lock(
    series: SeriesDir, lock: Lock, *, branch: str, message: str, date: str, reporter: Reporter
) -> BumpCommitted:
    """Commit the lock on top of HEAD and point ``branch`` at it.

    The date is given, so that the same bump on the same HEAD is the same commit.

    Raises SeriesNotInGit, RefMoved, EmptyCommit, GitError, CacheError.
    """
    home, head, path = find_home(series, reporter)
    (made,) = write_commits(
        home, head, [NewCommit(message=message, changes={path: format_lock(lock).encode()})], date=date
    )
    ref = f"refs/heads/{branch}"
    update_ref(home, ref, made.commit, read_ref(home, ref))
    return BumpCommitted(repository=home.path, branch=branch, commit=made.commit)

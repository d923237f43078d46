"""The result of a bump as one commit on a branch of the repository that holds the series."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from patchkit.base.errors import GitError, Location
from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.text import counted
from patchkit.carry.series.lock import Lock, format_lock
from patchkit.carry.upstream.commits import NewCommit, write_commits
from patchkit.carry.upstream.git import IDENTITY_EMAIL, Git
from patchkit.carry.upstream.refs import read_ref, update_ref
from patchkit.carry.upstream.repository import Repository

_MOST_SHOWN = 8
_READ = (".toml", ".jinja")


@dataclass(frozen=True, slots=True, kw_only=True)
class BumpCommitted:
    """The branch of ``bump --commit``; ``branch`` is None if HEAD already has this lock."""

    json_keys: ClassVar = "branch commit"

    repository: Path
    branch: str | None
    commit: str


def find_series_repository(series: SeriesDir, reporter: Reporter) -> tuple[Repository, str, str]:
    """The repository around the series, its HEAD commit, and the path of the lock in it.

    Raises BUMP_SERIES_UNUSABLE.
    """
    git = Git(reporter=reporter, work_tree=None)
    folder = str(series.patches)
    found = git.attempt("-C", folder, "rev-parse", "--absolute-git-dir", "--show-prefix", "HEAD^{commit}")
    lines = found.stdout.decode("utf-8", "surrogateescape").splitlines()
    if found.status != 0 or len(lines) != 3:  # noqa: PLR2004 - as asked for
        raise GitError(
            f"{series.root} is not in a git repository that has a commit",
            code="BUMP_SERIES_UNUSABLE",
            where=Location(path=str(series.root)),
            why=found.stderr.strip() or None,
            hint="without --commit, the lock is written in place",
        )
    return Repository(path=Path(lines[0]), reporter=reporter), lines[2], f"{lines[1]}{series.lock.name}"


def check_committed(series: SeriesDir, reporter: Reporter) -> None:
    """Check that the series has no uncommitted changes.

    Raises BUMP_SERIES_UNUSABLE, GitError.
    """
    find_series_repository(series, reporter)
    git = Git(reporter=reporter, work_tree=None)
    folders = [str(each) for each in series.folders if each.is_dir()]
    args = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", *folders)
    out = git.run("-C", str(series.root), *args).decode("utf-8", "surrogateescape")
    rows = [(row[:2], row[3:]) for row in out.split("\0") if row]
    # An untracked file counts only if patchkit reads files of its type: editors leave others there.
    changed = [name for state, name in rows if state != "??" or name.endswith(_READ)]
    if changed:
        raise GitError(
            f"the series has uncommitted changes in {counted(len(changed), 'file')}",
            code="BUMP_SERIES_UNUSABLE",
            where=[Location(path=name) for name in changed[:_MOST_SHOWN]],
            why="the branch would have a lock that does not match its patches",
            hint="commit them first, or run without --commit",
        )


def check_branch(series: SeriesDir, branch: str, reporter: Reporter) -> None:
    """Check that the branch can be created, or replaced without losing commits.

    Raises BUMP_SERIES_UNUSABLE, BUMP_BRANCH_TAKEN, GitError.
    """
    home, head, _ = find_series_repository(series, reporter)
    ref = f"refs/heads/{branch}"
    where = Location(path=str(home.path))
    if read_ref(home, ref) is None:
        above = branch.partition("/")[0]
        if read_ref(home, f"refs/heads/{above}") is not None:
            raise GitError(
                f"cannot create the branch {branch}: a branch {above} exists",
                code="BUMP_BRANCH_TAKEN",
                where=where,
                why="git stores branches as files, so one branch name cannot be a folder of another",
                hint=f"rename it (git branch -m {above} NEW-NAME), or run without --commit",
            )
        return
    folder = home.git.run("for-each-ref", "--format=%(worktreepath)", ref).decode("utf-8", "replace").strip()
    if folder:
        raise GitError(
            f"the branch {branch} is checked out",
            code="BUMP_BRANCH_TAKEN",
            where=Location(path=folder),
            why="moving it would leave your working files on the old commit",
            hint="switch to another branch (git switch -), or run without --commit",
        )
    makers = home.git.run("log", "--format=%ce", f"{head}..{ref}").decode("utf-8", "replace").splitlines()
    others = sorted({each for each in makers if each != IDENTITY_EMAIL})
    if others:
        raise GitError(
            f"the branch {branch} has commits that patchkit did not make",
            code="BUMP_BRANCH_TAKEN",
            where=where,
            why=f"they are by {', '.join(others)}; a bump replaces the branch with a single commit",
            hint=f"merge them, or keep them under another name: git branch -m {branch} NEW-NAME",
        )


def commit_lock(
    series: SeriesDir, lock: Lock, *, branch: str, message: str, date: str, reporter: Reporter
) -> BumpCommitted:
    """Commit the lock on top of HEAD and point ``branch`` at it; do nothing if HEAD already has this lock.

    ``date`` is a parameter so that the same bump on the same HEAD gives the same commit id.

    Raises BUMP_SERIES_UNUSABLE, BUMP_BRANCH_TAKEN, REF_MOVED, GitError, CacheError.
    """
    home, head, path = find_series_repository(series, reporter)
    data = format_lock(lock).encode()
    if home.read_blobs(head, [path] if home.find_entries(head, [path]) else []).get(path) == data:
        return BumpCommitted(repository=home.path, branch=None, commit=head)
    check_branch(series, branch, reporter)
    (written,) = write_commits(home, head, [NewCommit(message=message, changes={path: data})], date=date)
    ref = f"refs/heads/{branch}"
    update_ref(home, ref, written.commit, read_ref(home, ref))
    return BumpCommitted(repository=home.path, branch=branch, commit=written.commit)

"""Bringing commits from the cache into a repository of the user's, which then needs the cache no more.

Vocabulary: history is *cut* at a commit whose parents a repository does without on purpose; git keeps their
list in the file ``shallow``. To *carry* a commit is to copy it with all it needs, up to where it is cut.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from patchkit.vcs.bundle import pack_commits
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.repository import Repository
from patchkit.vcs.runner import Git, damaged


def carry(source: Repository, git: Git, commit: str, known: Iterable[str] = ()) -> None:
    """Copy ``commit`` into the repository of ``git``; no ref moves there.

    ``known`` are commits that it has with all they need. Every object is hashed on its way.

    Raises:
        ObjectDamaged: the source does not hold the commit as it was.
        CacheError: the disk refused.
        GitError: git refused.
    """
    if git.git_dir is None:
        raise AssertionError("a repository is always named")
    both = tuple(sha for sha in source.resolve(*known) if sha is not None)
    pack = pack_commits(source, commit, both)
    with (
        disk_errors(git.writes_to or git.git_dir, "copying commits", "name a folder on another disk"),
        tempfile.TemporaryFile(dir=git.git_dir) as stream,  # not in /tmp, which may be small
    ):
        stream.write(pack)
        stream.seek(0)
        git.run("index-pack", "--stdin", stdin=stream)
    _cut_as_in(source, git, commit)
    # An object whose content was not its name's arrived under another name.
    finished = git.attempt("rev-list", "--objects", "--quiet", commit, *(f"^{sha}" for sha in both))
    if finished.status != 0:
        raise damaged(source.path, finished.stderr.strip())


def cut_history(git_dir: Path, commits: Iterable[str]) -> None:
    """Tell git that the parents of these commits are not in this repository, on purpose."""
    path = git_dir / "shallow"
    with disk_errors(path, "marking the history as cut"):
        known = _cuts(git_dir)
        wanted = known.union(commits)
        if wanted != known:
            draft = path.with_name("shallow.lock")  # git's own name for it: cleaned up after a kill
            draft.write_text("".join(f"{each}\n" for each in sorted(wanted)), encoding="ascii")
            draft.replace(path)


def _cut_as_in(source: Repository, git: Git, commit: str) -> None:
    """Cut the copied history where the source's is cut, but where the parents are here."""
    if git.git_dir is None:
        raise AssertionError("a repository is always named")
    cuts = _cuts(source.path)
    if not cuts:
        return
    reached = cuts.intersection(source.git.run("rev-list", commit).decode("ascii").split())
    for sha in reached - _cuts(git.git_dir):
        raw = git.run("cat-file", "commit", sha).split(b"\n\n")[0]
        parents = [line[7:] for line in raw.splitlines() if line.startswith(b"parent ")]
        answers = git.run("cat-file", "--batch-check", stdin=b"".join(parent + b"\n" for parent in parents))
        if b" missing\n" in answers:
            cut_history(git.git_dir, [sha])


def _cuts(git_dir: Path) -> set[str]:
    path = git_dir / "shallow"
    return set(path.read_text(encoding="ascii").split()) if path.exists() else set()

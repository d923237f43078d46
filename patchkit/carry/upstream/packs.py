"""Commits with all that they need, on their way from one repository to another: packs and bundles."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from pathlib import Path

from patchkit.base.files import disk_errors
from patchkit.carry.upstream.git import damaged
from patchkit.carry.upstream.repository import Repository, verify_range

_SHA1 = 20  # bytes: git ends a pack with the hash of all before


def pack_commits(repository: Repository, tip: str, known: tuple[str, ...] = ()) -> bytes:
    """A pack with ``tip`` and all it needs, but for what the ``known`` commits need.

    Raises:
        ObjectDamaged: the repository lacks an object.
        GitError, CacheError: git or the disk refused.
    """
    wanted = "".join(f"{line}\n" for line in (tip, *(f"^{commit}" for commit in known)))
    # No search for deltas: it costs more time than the space is worth. Those that there are stay.
    return repository.git.run(
        "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset", "--window=0",
        stdin=wanted.encode(),
    )  # fmt: skip


def bundle_commits(repository: Repository, *, base: str, ref: str, tip: str) -> bytes:
    """The bundle of ``base..tip``, offered as ``ref``: one file that git fetches from.

    ``git bundle create`` takes a branch from where it is, but this bundle is made before its branch moves.
    And git's bundles have deltas against files of the base, which a clone without them
    (``--filter=blob:none``) would have to fetch first; this one stands alone.

    Raises:
        ObjectDamaged: an object is not what its id says.
        GitError, CacheError: git or the disk refused.
    """
    verify_range(repository, base, tip)
    return _header(base, ref, tip) + pack_commits(repository, tip, (base,))


def is_bundle_of(data: bytes, *, base: str, ref: str, tip: str) -> bool:
    """Whether the bytes are a whole bundle that says the same."""
    header = _header(base, ref, tip)
    pack = data.removeprefix(header)
    if len(pack) == len(data) or len(pack) <= _SHA1:
        return False
    return hashlib.sha1(pack[:-_SHA1], usedforsecurity=False).digest() == pack[-_SHA1:]


def _header(base: str, ref: str, tip: str) -> bytes:
    return f"# v2 git bundle\n-{base} \n{tip} {ref}\n\n".encode()


def carry(source: Repository, target: Repository, commit: str, known: Iterable[str] = ()) -> None:
    """Copy ``commit`` into the repository ``target``; no ref moves there.

    ``known`` are commits that it has with all they need. Every object is hashed on its way.

    Raises:
        ObjectDamaged: the source does not hold the commit as it was.
        CacheError: the disk refused.
        GitError: git refused.
    """
    both = tuple(sha for sha in source.resolve(*known) if sha is not None)
    pack = pack_commits(source, commit, both)
    with (
        disk_errors(target.writes_to or target.path, "copying commits", "name a folder on another disk"),
        tempfile.TemporaryFile(dir=target.path) as stream,  # not in /tmp, which may be small
    ):
        stream.write(pack)
        stream.seek(0)
        target.git.run("index-pack", "--stdin", stdin=stream)
    _cut_as_in(source, target, commit)
    # An object whose content was not its name's arrived under another name.
    finished = target.git.attempt("rev-list", "--objects", "--quiet", commit, *(f"^{sha}" for sha in both))
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


def _cut_as_in(source: Repository, target: Repository, commit: str) -> None:
    """Cut the copied history where the source's is cut, but where the parents are here."""
    cuts = _cuts(source.path)
    if not cuts:
        return
    reached = cuts.intersection(source.git.run("rev-list", commit).decode("ascii").split())
    cut_where_missing(target, reached - _cuts(target.path))


def cut_where_missing(repository: Repository, commits: Iterable[str]) -> None:
    """Cut the history at those of the commits whose parents are not in the repository.

    A commit whose parents are there must not be cut: every walk over it would end there.
    """
    for sha in commits:
        head = repository.git.run("cat-file", "commit", sha).partition(b"\n\n")[0].decode("utf-8", "replace")
        parents = [line.removeprefix("parent ") for line in head.splitlines() if line.startswith("parent ")]
        if parents and None in repository.resolve(*parents):
            cut_history(repository.path, [sha])


def _cuts(git_dir: Path) -> set[str]:
    path = git_dir / "shallow"
    return set(path.read_text(encoding="ascii").split()) if path.exists() else set()

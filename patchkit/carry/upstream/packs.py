"""Transfer commits with everything they need between repositories, as packs and bundles."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from pathlib import Path

from patchkit.base.files import disk_errors
from patchkit.carry.upstream.git import damaged
from patchkit.carry.upstream.repository import Repository, verify_range

_SHA1 = 20  # bytes: a pack ends with the hash of everything before


def pack_commits(repository: Repository, tip: str, known: tuple[str, ...] = ()) -> bytes:
    """A pack with ``tip`` and everything it needs, except for what the ``known`` commits need.

    Raises:
        ObjectDamaged: the repository lacks an object.
        GitError, CacheError: git or the disk reported an error.
    """
    wanted = "".join(f"{line}\n" for line in (tip, *(f"^{commit}" for commit in known)))
    # No search for new deltas, which costs more time than the space is worth; existing ones are reused.
    return repository.git.run(
        "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset", "--window=0",
        stdin=wanted.encode(),
    )  # fmt: skip


def bundle_commits(repository: Repository, *, base: str, ref: str, tip: str) -> bytes:
    """The bundle of ``base..tip``, offered as ``ref``: a file that git can fetch from.

    ``git bundle create`` is not used for two reasons. It needs the branch to exist, but this bundle is made
    before its branch moves. And it makes deltas against files of the base, which a clone without them
    (``--filter=blob:none``) would have to fetch first; this bundle is self-contained.

    Raises:
        ObjectDamaged: an object does not match its id.
        GitError, CacheError: git or the disk reported an error.
    """
    verify_range(repository, base, tip)
    return _header(base, ref, tip) + pack_commits(repository, tip, (base,))


def is_bundle_of(data: bytes, *, base: str, ref: str, tip: str) -> bool:
    """Whether the bytes are a complete bundle of exactly these commits and this ref."""
    header = _header(base, ref, tip)
    pack = data.removeprefix(header)
    if len(pack) == len(data) or len(pack) <= _SHA1:
        return False
    return hashlib.sha1(pack[:-_SHA1], usedforsecurity=False).digest() == pack[-_SHA1:]


def _header(base: str, ref: str, tip: str) -> bytes:
    return f"# v2 git bundle\n-{base} \n{tip} {ref}\n\n".encode()


def carry(source: Repository, target: Repository, commit: str, known: Iterable[str] = ()) -> None:
    """Copy ``commit`` into the repository ``target``; no ref moves there.

    ``known`` are commits that it has with everything they need. Every object is hashed on the way.

    Raises:
        ObjectDamaged: the source's objects are damaged.
        CacheError: the disk reported an error.
        GitError: git failed.
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
    # An object whose content did not match its id has arrived under another id, so the expected one is
    # missing.
    finished = target.git.attempt("rev-list", "--objects", "--quiet", commit, *(f"^{sha}" for sha in both))
    if finished.status != 0:
        raise damaged(source.path, finished.stderr.strip())


def cut_history(git_dir: Path, commits: Iterable[str]) -> None:
    """Mark the parents of these commits as intentionally missing in this repository (shallow)."""
    path = git_dir / "shallow"
    with disk_errors(path, "marking the history as shallow"):
        known = _cuts(git_dir)
        wanted = known.union(commits)
        if wanted != known:
            draft = path.with_name("shallow.lock")  # git's own name, so that it is cleaned up after a kill
            draft.write_text("".join(f"{each}\n" for each in sorted(wanted)), encoding="ascii")
            draft.replace(path)


def _cut_as_in(source: Repository, target: Repository, commit: str) -> None:
    """Make the copied history shallow where the source's is, unless the target has the parents."""
    cuts = _cuts(source.path)
    if not cuts:
        return
    reached = cuts.intersection(source.git.run("rev-list", commit).decode("ascii").split())
    cut_where_missing(target, reached - _cuts(target.path))


def cut_where_missing(repository: Repository, commits: Iterable[str]) -> None:
    """Make the history shallow at those of the commits whose parents are missing in the repository.

    A commit whose parents exist must not be marked, because every history walk would end there.
    """
    for sha in commits:
        head = repository.git.run("cat-file", "commit", sha).partition(b"\n\n")[0].decode("utf-8", "replace")
        parents = [line.removeprefix("parent ") for line in head.splitlines() if line.startswith("parent ")]
        if parents and None in repository.resolve(*parents):
            cut_history(repository.path, [sha])


def _cuts(git_dir: Path) -> set[str]:
    path = git_dir / "shallow"
    return set(path.read_text(encoding="ascii").split()) if path.exists() else set()

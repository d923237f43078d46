"""Commits in one file that git fetches from: a bundle.

Vocabulary: the *base* is the commit that a bundle's commits stand on and that it does not carry; git calls
it the prerequisite. A repository that lacks the base refuses the file and stays as it is; one that has it
gets the commits, and nothing of its own history changes, however shallow this repository is.

The header is written here and not by ``git bundle create``, which takes a branch from where it is: a bundle
is made before its branch moves. And git's own have deltas against files of the base, which a clone without
them (``--filter=blob:none``) would have to fetch first; these stand alone.
"""

from __future__ import annotations

import hashlib

from patchkit.vcs.repository import Repository
from patchkit.vcs.verify import verify_range

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
    """The bundle of ``base..tip``, offered as ``ref``.

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

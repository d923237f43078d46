"""Whether objects and files still have the content that their ids name.

Vocabulary: an object is *damaged* when its bytes have another SHA-1 than its name, which git itself
does not look at when it reads one. Objects are verified where they are used.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from patchkit.vcs.disk import disk_errors
from patchkit.vcs.repository import Repository, TreeEntry, git_path
from patchkit.vcs.runner import damaged

_SUBMODULE, _LINK = "160000", "120000"


def verify_objects(repository: Repository, ids: Iterable[str]) -> None:
    """Read and hash objects, in one process.

    Raises:
        ObjectDamaged: one is not what its id says, or is not here.
    """
    wanted = tuple(dict.fromkeys(ids))
    if not wanted:
        return
    out = repository.git.run("cat-file", "--batch", stdin="".join(f"{sha}\n" for sha in wanted).encode())
    at = 0
    for sha in wanted:
        end = out.index(b"\n", at)
        header = out[at:end].split(b" ")
        if len(header) != 3:  # noqa: PLR2004  # id, type, size
            raise damaged(repository.path, f"the object {sha} is missing")
        size = int(header[2])
        if _sha1(header[1], out[end + 1 : end + 1 + size]) != sha:
            raise damaged(repository.path, f"the object {sha} has other content than its name says")
        at = end + 1 + size + 1


def verify_range(repository: Repository, base: str, tip: str) -> None:
    """Verify everything that ``base..tip`` adds, and the files it replaces.

    Raises:
        ObjectDamaged: an object is not what its id says.
    """
    listed = repository.git.run("rev-list", "--objects", "--no-object-names", f"{base}..{tip}")
    fields = repository.git.run("diff-tree", "-r", "-z", "--no-renames", base, tip).split(b"\0")
    before = [head.split()[2].decode() for head in fields[0::2] if head]
    heads = [sha for sha in repository.resolve(base, tip) if sha is not None]
    verify_objects(repository, [*heads, *listed.decode().split(), *(sha for sha in before if sha.strip("0"))])


def find_other(
    repository: Repository, commit: str, directory: Path, *, since: str | None = None
) -> str | None:
    """The first file in a folder that is not what the commit has there, of all or of those changed ``since``.

    Raises:
        CacheError: the disk refused.
    """
    entries = repository.list_files(commit)
    if since is not None:
        before = set(repository.list_files(since))
        entries = tuple(entry for entry in entries if entry not in before)
    with disk_errors(directory, "verifying the checkout"):
        return next((entry.path for entry in entries if not _is_as_committed(directory, entry)), None)


def _is_as_committed(directory: Path, entry: TreeEntry) -> bool:
    if entry.mode == _SUBMODULE:
        return True
    place = os.path.join(os.fsencode(directory), git_path(entry.path))  # noqa: PTH118  # paths of bytes
    if entry.mode == _LINK:
        return os.path.islink(place) and _sha1(b"blob", os.readlink(place)) == entry.sha  # noqa: PTH114, PTH115
    if not os.path.isfile(place) or os.path.islink(place):  # noqa: PTH113, PTH114
        return False
    with open(place, "rb") as stream:  # noqa: PTH123
        return _sha1(b"blob", stream.read()) == entry.sha


def _sha1(kind: bytes, data: bytes) -> str:
    # Git's own name for the object; nothing rests on SHA-1 being hard to forge but what rests on git.
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data, usedforsecurity=False).hexdigest()

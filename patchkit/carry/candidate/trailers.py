"""Commits of a candidate without the trailers that patchkit adds."""

from __future__ import annotations

import re

from patchkit.carry.upstream.repository import Repository

_TRAILER = re.compile(rb"^(?:Patchkit-[\w-]+|Upstream-Commit):.*\n", re.MULTILINE)


def cut_trailers(message: bytes) -> bytes:
    """A message without the trailers that say how patchkit made the commit."""
    return _TRAILER.sub(b"", message.rstrip(b"\n") + b"\n").rstrip() + b"\n"


def without_trailers(repository: Repository, base: str, tip: str) -> str:
    """Write the commits of ``base..tip`` again without these trailers; returns the last one. No ref moves.

    Raises GitError, CacheError.
    """
    parent = base
    shas = repository.git.run("rev-list", "--reverse", f"{base}..{tip}", "--").split()
    for found in repository.git.objects(shas):
        if found is None:
            raise repository.missing(tip)
        head, _, message = found.data.partition(b"\n\n")
        head = re.sub(rb"^parent .*$", b"parent " + parent.encode(), head, count=1, flags=re.MULTILINE)
        parent = repository.write_object("commit", head + b"\n\n" + cut_trailers(message))
    return parent

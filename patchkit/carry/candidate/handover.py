"""A file with a branch of the cache, and the commands that bring it into the user's own clone.

The cache itself is nothing to fetch from: its pins have no parents, and git would cut the clone's history
there, too.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.files import disk_errors, write_whole
from patchkit.carry.series.lock import Pin
from patchkit.carry.upstream.export import format_mailbox
from patchkit.carry.upstream.packs import bundle_commits, is_bundle_of
from patchkit.carry.upstream.remote import upstream_url
from patchkit.carry.upstream.repository import Repository

_DOING = "writing what hands the branch over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The file and the commands. ``needs`` is what the clone must have; ``first`` gets it, where known."""

    kind: Literal["bundle", "am"]
    path: Path
    needs: str
    first: tuple[str, ...]
    commands: tuple[str, ...]

    def lines(self) -> list[str]:
        """For a person: the commands, and under them what they need."""
        if self.kind == "am":
            return [*self.commands, f"in a clone of llama.cpp, at {self.needs}"]
        return [
            *self.commands,
            f"in a clone of llama.cpp that has {self.needs}; for one that lacks it, first:",
            *self.first,
        ]


def hand_over(repository: Repository, pin: Pin, *, base: str, ref: str, tip: str) -> Handover | None:
    """Write the file for ``base..tip``, offered as ``ref``, and say how to take it; None without commits.

    The caller holds the cache. A bundle that says the same already stays; whatever ends the writing, the file
    is the one before or whole.

    Raises:
        ObjectDamaged: the cache does not hold the commits as they were.
        GitError, CacheError: git or the disk refused.
    """
    branch = ref.removeprefix("refs/heads/")
    place = repository.path.parent / "handover" / branch.replace("/", "-")
    if base == tip:
        # What lies there is of a candidate that had commits, and nobody must take it for this one.
        for kind in ("mbox", "bundle"):
            with disk_errors(place, _DOING):
                place.with_name(f"{place.name}.{kind}").unlink(missing_ok=True)
        return None
    if pin.commit_object is None:
        path = place.with_name(f"{place.name}.mbox")
        _write(path, format_mailbox(repository, base, tip))
        return Handover(
            kind="am",
            path=path,
            needs=f"upstream's {pin.title}",
            first=(),
            commands=(f"git am --keep-cr {shlex.quote(str(path))}",),
        )
    path = place.with_name(f"{place.name}.bundle")
    if not is_bundle_of(_read(path), base=base, ref=ref, tip=tip):
        _write(path, bundle_commits(repository, base=base, ref=ref, tip=tip))
    source = shlex.quote(upstream_url(pin) or "origin")
    return Handover(
        kind="bundle",
        path=path,
        needs=f"upstream's {base[:12]} ({pin.name})",
        # The ref keeps the commit, and git takes a bundle only on what a ref leads to. No --depth: it would
        # cut the history of a clone that is whole.
        first=(f"git fetch --no-tags {source} {base}:refs/patchkit/pin/{pin.name}",),
        commands=(f"git fetch {shlex.quote(str(path))} {branch}",),
    )


def _read(path: Path) -> bytes:
    with disk_errors(path, _DOING):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return b""


def _write(path: Path, data: bytes) -> None:
    with disk_errors(path, _DOING):
        # Left by runs that were killed: nobody else holds the cache.
        for partial in path.parent.glob(f".{path.name}.*.partial"):
            partial.unlink()
    write_whole(path, data, _DOING)

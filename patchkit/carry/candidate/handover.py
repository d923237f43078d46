"""Write a branch of the cache to a file, with the commands to fetch it into the user's own clone.

The cache itself should not be fetched from: its pins have no parents, so git would cut off the clone's
history there, too.
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

_DOING = "writing the branch to a file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The file and the commands. ``needs``: what the clone must have; ``first``: commands that get it."""

    kind: Literal["bundle", "am"]
    path: Path
    needs: str
    first: tuple[str, ...]
    commands: tuple[str, ...]

    def lines(self) -> list[str]:
        """The commands and their requirements, to show to the user."""
        if self.kind == "am":
            return [*self.commands, f"in a clone of llama.cpp, at {self.needs}"]
        return [
            *self.commands,
            f"in a clone of llama.cpp that has {self.needs}; for one that lacks it, first:",
            *self.first,
        ]


def hand_over(repository: Repository, pin: Pin, *, base: str, ref: str, tip: str) -> Handover | None:
    """Write the file for ``base..tip``, offered as ``ref``, and return how to use it; None without commits.

    The caller holds the cache. A bundle with the same content is kept. If writing fails, the file is either
    the previous one or complete.

    Raises:
        ObjectDamaged: the commits in the cache are damaged.
        GitError, CacheError: git or the disk reported an error.
    """
    branch = ref.removeprefix("refs/heads/")
    place = repository.path.parent / "handover" / branch.replace("/", "-")
    if base == tip:
        # An existing file is from an earlier candidate with commits; remove it, so that it is not used by
        # mistake.
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
        # The ref keeps the commit, and git needs it because a bundle's base must be reachable from a ref. No
        # --depth, because that would cut off the history of a complete clone.
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
        # Left by runs that were killed; no other process holds the cache.
        for partial in path.parent.glob(f".{path.name}.*.partial"):
            partial.unlink()
    write_whole(path, data, _DOING)

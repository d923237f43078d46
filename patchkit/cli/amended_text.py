"""The text output of ``import --replace`` and of ``series``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchkit.base.text import counted
from patchkit.carry.amending.replace import Replaced


def replaced_lines(done: Replaced) -> Iterator[str]:
    """Describe the new version of a patch: its edits, the lock, and what is left to do."""
    if done.state == "same":
        yield f"{done.patch}: the new version does the same on {done.base}; nothing was written"
        return
    counts = [
        f"{len(names)} {word}"
        for word, names in (
            ("changed", done.changed),
            ("added", done.added),
            ("removed", done.removed),
            ("kept", done.kept),
        )
        if names
    ]
    yield f"{done.patch}: new version on {done.base}: {', '.join(counts)}"
    for word, names in (("changed", done.changed), ("added", done.added), ("removed", done.removed)):
        for name in names:
            place = f", {done.places[name]}" if name in done.places else ""
            yield f"  {word} {name}{place}"
    yield from (f"  {hunk}" for hunk in done.moved)
    yield from (f"  {warning}" for warning in done.warnings)
    if done.other_builds:
        yield f"  not changed, because they are for other builds: {', '.join(done.other_builds)}"
        yield "    for a new version there, run the command again with --upstream PIN"
    yield from broken_lines(done)
    yield from lock_lines(done.renewed, done.stale, done.unchecked)
    if not done.written:
        yield "nothing was written: --dry-run"


def broken_lines(done: Replaced) -> Iterator[str]:
    """Describe the patches that cannot be placed any more."""
    for error in done.broken:
        where = f"{error.where[0]}: " if error.where else ""
        yield f"  {error.code}: {where}{error.message}"


def lock_lines(renewed: Sequence[str], stale: Sequence[str], unchecked: Sequence[str]) -> Iterator[str]:
    """Describe the state of the lock after a change of the series."""
    if renewed:
        yield f"lock: updated the digests of files for {', '.join(renewed)}; their trees stay the same"
    if stale:
        yield f"lock: to record again: {', '.join(stale)}"
    if unchecked:
        names = ", ".join(unchecked)
        yield f"lock: not checked on {counted(len(unchecked), 'build')} that are not in the cache: {names}"
    if stale:
        yield "next:  patchkit lock --all  # records the new results"

"""The text output of ``import --replace`` and of ``series``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchkit.base.text import counted
from patchkit.carry.amending.absorb import Absorbed
from patchkit.carry.amending.drop import Dropped
from patchkit.carry.amending.fold import Folded
from patchkit.carry.amending.move import Moved
from patchkit.carry.amending.replace import Replaced
from patchkit.carry.amending.split import Split


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
    yield from (f"  {line}" for warning in done.warnings for line in warning.split("\n"))
    if done.other_builds:
        yield f"  not changed, because they are for other builds: {', '.join(done.other_builds)}"
        yield "    for a new version there, run the command again with --upstream PIN"
    yield from broken_lines(done)
    yield from lock_lines(done.renewed, done.stale, done.unchecked)
    if not done.written:
        yield "nothing was written: --dry-run"


def absorbed_lines(done: Absorbed) -> Iterator[str]:
    """Describe what the commits of a branch became."""
    yield f"{done.tip[:12]} on {done.base}: {counted(len(done.patches), 'commit')}"
    width = max(len(each.patch) for each in done.patches)
    for each in done.patches:
        counts = (("changed", each.changed), ("added", each.added), ("removed", each.removed))
        words = [f"{len(names)} {word}" for word, names in counts if names]
        about = {
            "same": "unchanged",
            "new": "new patch",
            "replaced": "new version",
            "combined": f"combined with {_names(each.combined)}",
        }[each.state]
        about += ", new message" if each.reworded else ""
        yield f"  {each.patch:<{width}}  {about}{': ' if words else ''}{', '.join(words)}"
        yield from (f"    requires {name}: {why}" for name, why in each.requires)
    if done.dropped:
        yield f"dropped: {_names(done.dropped)}"
    if done.missing:
        names = _names(done.missing)
        yield f"not on the branch, and unchanged: {names} (--drop removes them from the series)"
    if done.moved:
        yield f"renumbered: {counted(len(done.moved), 'folder')}"
    yield from (f"  {line}" for warning in done.warnings for line in warning.split("\n"))
    if not done.is_changed:
        yield "the series has all of this already; nothing was written"
        return
    yield from lock_lines((), done.stale, ())
    yield from _dry(done.written)


def broken_lines(done: Replaced) -> Iterator[str]:
    """Describe the patches that cannot be placed any more."""
    for error in done.broken:
        where = f"{error.where[0]}: " if error.where else ""
        yield f"  {error.code}: {where}{error.message}"


def lock_lines(renewed: Sequence[str], stale: Sequence[str], unchecked: Sequence[str]) -> Iterator[str]:
    """Describe the state of the lock after a change of the series."""
    if renewed:
        yield f"lock: updated the digests of files for {_names(renewed)}; their trees stay the same"
    if stale:
        yield f"lock: outdated {'result' if len(stale) == 1 else 'results'}: {_names(stale)}"
    if unchecked:
        names = _names(unchecked)
        yield f"lock: not checked on {counted(len(unchecked), 'build')} that are not in the cache: {names}"
    if stale:
        yield "next:  patchkit lock --all  # records the new results"


def dropped_lines(done: Dropped) -> Iterator[str]:
    """Describe the patches that were removed."""
    yield f"dropped {', '.join(done.patches)}; {_checked(done.checked)}"
    yield from (f"  no longer named in {path}" for path in done.profiles)
    yield from (f"  known fault {fault}: no patch of the series fixes it any more" for fault in done.faults)
    yield from lock_lines((), done.stale, done.unchecked)
    yield from _dry(done.written)


_SAME = "the result is the same"
_FOLDED = {
    "joined": "their tables are unchanged",
    "lifted": "the edits of both are new where they change the same lines",
}


def folded_lines(done: Folded) -> Iterator[str]:
    """Describe the patch that two patches became."""
    yield (
        f"folded {done.patch} into {done.into}: {counted(len(done.edits), 'edit')}; {_FOLDED[done.how]}; "
        f"{_checked(done.checked, _SAME)}"
    )
    yield from (f"  edit {old} is now {new}" for old, new in done.renamed.items())
    yield from (f"  {name} now requires {done.into}" for name in done.requires)
    yield from (f"  known fault {fault} now names {done.into}" for fault in done.faults)
    yield from (f"  no longer named in {path}" for path in done.profiles)
    if done.lost:
        yield f"  not carried over from {done.patch}: {', '.join(done.lost)}"
    yield from lock_lines((), done.stale, done.unchecked)
    yield from _dry(done.written)


def moved_lines(done: Moved) -> Iterator[str]:
    """Describe the new order of patches."""
    if not done.folders:
        yield f"{done.patch} is there already; nothing was written"
        return
    yield f"moved {done.patch}; {_checked(done.checked, _SAME)}"
    yield from (f"  {old} is now {new}" for old, new in done.folders.items())
    yield from lock_lines(done.renewed, done.stale, done.unchecked)
    yield from _dry(done.written)


def split_lines(done: Split) -> Iterator[str]:
    """Describe the new patch, and the patches that were renumbered for it."""
    yield f"moved {', '.join(done.edits)} of {done.patch} into {done.folder}; {_checked(done.checked, _SAME)}"
    yield from (f"  {old} is now {new}" for old, new in done.folders.items())
    yield from (f"  {path} has a line for it" for path in done.profiles)
    yield from (f"  {user} requires {' and '.join(names)} now" for user, names in done.requires.items())
    yield from lock_lines((), done.stale, done.unchecked)
    yield "next:  adapt title, why and expected in both patch.toml"
    yield from _dry(done.written)


def _names(names: Sequence[str]) -> str:
    """The names once each: several results of the lock may be for the same build and GPUs."""
    return ", ".join(dict.fromkeys(names))


def _checked(names: Sequence[str], result: str = "the other patches can be placed") -> str:
    return f"{result} at {_names(names)}" if names else "not placed, because no candidate has it"


def _dry(written: bool) -> Iterator[str]:
    if not written:
        yield "nothing was written: --dry-run"

"""Apply to a series the function names and files that a bump found on a pin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.lock import Pin
from patchkit.carry.series.patch import Alias, Edit, Patch

_Placed = TypeVar("_Placed", Edit, Alias)


def followed_series(series: Series, pin: Pin) -> Series:
    """The series with each function at its place on ``pin``."""
    if not pin.followed:
        return series
    targets = {(each.file, each.function): (each.now_file, each.now_function) for each in pin.followed}
    return replace(series, patches=tuple(retarget_patch(patch, targets) for patch in series.patches))


def retarget_patch(patch: Patch, targets: Mapping[tuple[str, str], tuple[str, str]]) -> Patch:
    """The patch with its functions at their current places; ``targets`` maps old file and function to new.

    An edit of a file as a whole (an include) follows if all functions of that file moved to the same file.
    """
    moved: dict[str, set[str]] = {}
    for edit in patch.edits:
        if edit.function is not None:
            file, _ = targets.get((edit.file, edit.function), (edit.file, ""))
            moved.setdefault(edit.file, set()).add(file)

    def follow(one: _Placed) -> _Placed:
        target = targets.get((one.file, one.function or ""))
        if target is not None:
            return replace(one, file=target[0], function=target[1])
        files = moved.get(one.file, set())
        return one if one.function or len(files) != 1 else replace(one, file=next(iter(files)))

    return replace(patch, edits=tuple(map(follow, patch.edits)), aliases=tuple(map(follow, patch.aliases)))

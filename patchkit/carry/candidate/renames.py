"""Apply to a series the places of functions and edits that a bump found on a pin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.lock import Followed, FollowedEdit, Pin, digest_of_place
from patchkit.carry.series.patch import Alias, Edit, Patch

_Placed = TypeVar("_Placed", Edit, Alias)


def followed_series(series: Series, pin: Pin) -> Series:
    """The series with each function and edit at its place on ``pin``."""
    if not pin.followed:
        return series
    targets = {
        (each.file, each.function): (each.now_file, each.now_function)
        for each in pin.followed
        if isinstance(each, Followed)
    }
    edits = {each.key: each for each in pin.followed if isinstance(each, FollowedEdit)}
    patches = (retarget_patch(_with_places(patch, edits), targets) for patch in series.patches)
    return replace(series, patches=tuple(patches))


def _with_places(patch: Patch, places: Mapping[tuple[str, str, int], FollowedEdit]) -> Patch:
    """The patch with the recorded lines of its edits, except of those that patch.toml has changed since."""

    def follow(edit: Edit) -> Edit:
        place = places.get((patch.id, edit.id, edit.first_build or 0))
        if place is None or place.digest != digest_of_place(edit):
            return edit
        return replace(edit, at=place.at)

    return replace(patch, edits=tuple(map(follow, patch.edits))) if places else patch


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

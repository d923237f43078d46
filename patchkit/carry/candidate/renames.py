"""Adapt a series to one tree: the paths of a project, the faults in its code, and places found by a bump."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from patchkit.base.upstreams import Upstream, llama_cpp
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.lock import Followed, FollowedEdit, Pin, digest_of_place
from patchkit.carry.series.patch import Alias, BuildRange, Edit, Patch

_Placed = TypeVar("_Placed", Edit, Alias)


def followed_series(series: Series, pin: Pin) -> Series:
    """The series with each file, function and edit at its place on ``pin``.

    If the faults of the pin's code are known, they and the patches that fix them do not depend on its build.
    """
    series = faulted_series(placed_series(series, pin.project), pin.faults)
    if not pin.followed:
        return series
    targets = {
        (each.file, each.function or ""): (each.now_file, each.now_function or "")
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
        return replace(edit, at=place.at, parameters=place.parameters or edit.parameters)

    return replace(patch, edits=tuple(map(follow, patch.edits))) if places else patch


def placed_series(series: Series, project: Upstream | None) -> Series:
    """The series with the paths of another project than llama.cpp; None for llama.cpp.

    A patch that touches files outside ggml is not for another project.
    """
    if project is None or project.is_laid_out_as(llama_cpp()):
        return series

    def place(path: str) -> str:
        return project.place(path) or path

    def placed(patch: Patch) -> Patch:
        return replace(
            patch,
            builds=_builds(patch, project),
            files=tuple(replace(each, path=place(each.path)) for each in patch.files),
            removes=tuple(replace(each, path=place(each.path)) for each in patch.removes),
            renames=tuple(
                replace(each, source=place(each.source), to=place(each.to)) for each in patch.renames
            ),
            modes=tuple(replace(each, path=place(each.path)) for each in patch.modes),
            aliases=tuple(replace(each, file=place(each.file)) for each in patch.aliases),
            edits=tuple(replace(each, file=place(each.file)) for each in patch.edits),
            replaced_by=tuple(replace(each, file=place(each.file)) for each in patch.replaced_by),
            switches=None
            if patch.switches is None
            else replace(patch.switches, header=place(patch.switches.header)),
        )

    return replace(
        series,
        folders=tuple(place(folder) for folder in series.folders),
        faults=tuple(
            replace(fault, code=tuple(replace(each, file=place(each.file)) for each in fault.code))
            for fault in series.faults
        ),
        patches=tuple(map(placed, series.patches)),
    )


def _builds(patch: Patch, project: Upstream) -> BuildRange:
    beyond = sorted(path for path in patch.touched_files if project.place(path) is None)
    if not beyond:
        return patch.builds
    why = f"{project.title} has no {beyond[0]}: this file of llama.cpp does not belong to ggml"
    return replace(patch.builds, by_code=False, by_code_why=why)


def faulted_series(series: Series, faults: Collection[str] | None) -> Series:
    """The series on a tree whose code has exactly these known faults; None: its build decides.

    This concerns only faults that have signs in the code, and the patches that fix them.
    """
    if faults is None:
        return series
    there = {each.id: each.id in faults for each in series.faults if each.code}
    fixes: dict[str, bool] = {}
    for fault in series.faults:
        if fault.patch is not None and fault.id in there:
            fixes[fault.patch] = fixes.get(fault.patch, False) or there[fault.id]
    return replace(
        series,
        faults=tuple(
            replace(each, builds=replace(each.builds, by_code=there[each.id])) if each.id in there else each
            for each in series.faults
        ),
        patches=tuple(
            replace(each, builds=_by_fault(each, has_fault=fixes[each.id])) if each.id in fixes else each
            for each in series.patches
        ),
    )


def _by_fault(patch: Patch, *, has_fault: bool) -> BuildRange:
    if patch.builds.by_code is False:
        return patch.builds
    why = "" if has_fault else "this code does not have the fault that it fixes"
    return replace(patch.builds, by_code=has_fault, by_code_why=why)


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
            one = replace(one, file=target[0])
            return replace(one, function=target[1]) if target[1] else one
        files = moved.get(one.file, set())
        return one if one.function or len(files) != 1 else replace(one, file=next(iter(files)))

    return replace(patch, edits=tuple(map(follow, patch.edits)), aliases=tuple(map(follow, patch.aliases)))

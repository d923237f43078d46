"""From what a gate found in the candidate back to the line of the patch, and to whom it leaks.

Vocabulary: a problem *leaks into* a configuration when something changes there that no guard lets change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.config.manifest import Edit, Patch
from patchkit.errors import Location, PatchkitError
from patchkit.flow.plan import Plan
from patchkit.gating.verdict import Finding

_HOST = frozenset({"ISOLATION_HOST", "ISOLATION_FOREIGN_GPU", "HOST_GUARD_MISSING"})
_UNITS = "ISOLATION_UNITS"
_SERIES = ("patches/", "templates/", "arch_profiles/")
_DEVICE_CODE = re.compile(r" for (gfx[0-9a-f]+), which no patch is for")


def blame(
    problem: PatchkitError,
    plan: Plan,
    candidate: Mapping[str, bytes],
    *,
    target: str,
    evidence: Mapping[str, object],
    outside: Sequence[str],
    root: Path,
    changed: Sequence[Location],
) -> Finding:
    """A finding for one problem.

    Args:
        problem: of planning or of a gate; places of the candidate are relative to its root.
        plan: what the candidate was made of.
        candidate: its changed files.
        target: the name of the candidate.
        evidence: of the gate that found it.
        outside: GPUs with a profile that no patch of the candidate is for.
        root: the folder of the series, which no place names.
        changed: the first line that differs of each file of the pull request that the candidate is made of.
    """
    found = dict.fromkeys(_patch_places(problem, plan, candidate))
    places = tuple(replace(place, path=place.path.removeprefix(f"{root}/")) for place in found)
    # What was right before the pull request comes from what it changes, if it changes one of these files.
    files = {place.path for place in changed}
    likely = tuple(place for place in places if place.path in files) or tuple(changed)
    leaks = tuple(leaks_of(problem, evidence, outside))
    return Finding(problem=problem, target=target, patch_places=likely or places, leaks=leaks)


def leaks_of(problem: PatchkitError, evidence: Mapping[str, object], outside: Sequence[str]) -> Iterator[str]:
    """Names of configurations, sorted as the gate reads them."""
    if problem.code in _HOST:
        yield from (f"hip {arch} host" for arch in outside)
    elif problem.code == _UNITS:
        yield f"{problem.message.rpartition(' ')[2]}, every GPU and both passes"
    elif found := _DEVICE_CODE.search(problem.message):
        yield f"hip {found[1]} device"
    elif problem.code == "ISOLATION_TOKENS":
        unit = problem.message.partition(" reads differently")[0]
        yield from dict.fromkeys(_differing(evidence, unit))


def _differing(evidence: Mapping[str, object], unit: str) -> Iterator[str]:
    rows = evidence.get("readings")
    for row in rows if isinstance(rows, list) else ():
        if row["unit"] == unit and row["baseline"] != row["candidate"]:
            yield row["configuration"]


def _patch_places(problem: PatchkitError, plan: Plan, candidate: Mapping[str, bytes]) -> Iterator[Location]:
    patches = [patch for selected, _ in plan.steps if (patch := selected.patch)]
    for place in problem.where[:1]:
        if place.path.startswith(_SERIES):
            yield place
            continue
        concerned = [patch for patch in patches if place.path in _files(patch)]
        named = [patch for patch in concerned if patch.id in re.split(r"[\s,]+", place.label or "")]
        for patch in named or concerned:
            yield from _places_in(patch, plan, place, candidate)


def _places_in(
    patch: Patch, plan: Plan, place: Location, candidate: Mapping[str, bytes]
) -> Iterator[Location]:
    """The edit whose text has the line; without a line, every edit of the file."""
    for file in patch.files:
        if file.path == place.path:
            yield replace(file.where, label=f"adds {file.path}")
    edits = [edit for edit in patch.edits if edit.file == place.path]
    line = _line(candidate.get(place.path, b""), place.line)
    texts = {
        edit.id: edit.text for planned in plan.patches if planned.id == patch.id for edit in planned.edits
    }
    exact = [edit for edit in edits if line and line in {row.strip() for row in texts[edit.id].splitlines()}]
    for edit in exact or edits:
        yield _of_edit(edit)


def _of_edit(edit: Edit) -> Location:
    return replace(edit.where, label=f"edit {edit.id}")


def _files(patch: Patch) -> Iterable[str]:
    return {*(edit.file for edit in patch.edits), *(file.path for file in patch.files)}


def _line(data: bytes, number: int | None) -> str:
    lines = data.decode("utf-8", "replace").splitlines()
    return lines[number - 1].strip() if number is not None and 0 < number <= len(lines) else ""

"""Which place of the pull request a problem of a candidate comes from, and which builds it leaks into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from patchkit.base.errors import Location, PatchkitError
from patchkit.carry.candidate.plan import Plan
from patchkit.carry.series.patch import Patch
from patchkit.prove.gates.base import Evidence
from patchkit.prove.gates.isolation.evidence import IsolationEvidence
from patchkit.prove.pulls.side import SeriesSide, point_into
from patchkit.prove.pulls.targets import AffectedCandidate
from patchkit.prove.pulls.verdict import Finding

_HOST = frozenset({"ISOLATION_HOST", "ISOLATION_FOREIGN_GPU", "HOST_GUARD_MISSING"})
_UNITS = "ISOLATION_UNITS"
_SERIES = ("patches/", "templates/", "arch_profiles/")
_DEVICE_CODE = re.compile(r" for (gfx[0-9a-f]+), which no patch targets")


def blame(
    problems: Iterable[tuple[PatchkitError, Evidence | None]],
    plan: Plan,
    candidate: Mapping[str, bytes],
    target: AffectedCandidate,
    before: SeriesSide,
    after: SeriesSide,
) -> Iterator[Finding]:
    """A finding for each problem.

    Args:
        problems: from planning or from a gate, each with the evidence of its gate; places in the candidate
            are relative to its root.
        plan: the plan of the candidate.
        candidate: its changed files; empty if it could not be made.
        target: the candidate as a target of the pull request.
        before: the fork point.
        after: the head.
    """
    guarded = {arch for one in plan.patches for arch in one.targets} or set(target.archs)
    outside = [arch for arch in sorted(after.profiles) if arch not in guarded]
    changed = _changed_lines(target, before, after)
    files = {place.path for place in changed}
    root = f"{after.files.root}/"
    for problem, evidence in problems:
        point_into(problem, after.files.root)
        found = dict.fromkeys(_patch_places(problem, plan, candidate))
        places = tuple(replace(place, path=place.path.removeprefix(root)) for place in found)
        # All was right before the pull request, so a file that it changes is the likely cause.
        likely = tuple(place for place in places if place.path in files) or tuple(changed)
        yield Finding(
            problem=problem,
            target=target.name,
            patch_places=likely or places,
            leaks=tuple(leaks_of(problem, evidence, outside)),
        )


def leaks_of(problem: PatchkitError, evidence: Evidence | None, outside: Sequence[str]) -> Iterator[str]:
    """Names of configurations that the problem leaks into, in the gate's order."""
    if problem.code in _HOST:
        yield from (f"hip {arch} host" for arch in outside)
    elif problem.code == _UNITS:
        yield f"{problem.message.rpartition(' ')[2]}, every GPU and both passes"
    elif found := _DEVICE_CODE.search(problem.message):
        yield f"hip {found[1]} device"
    elif problem.code == "ISOLATION_TOKENS":
        unit = problem.message.partition(" has different tokens")[0]
        yield from dict.fromkeys(_differing(evidence, unit))


def _differing(evidence: Evidence | None, unit: str) -> Iterator[str]:
    for reading in evidence.readings if isinstance(evidence, IsolationEvidence) else ():
        if reading.unit == unit and reading.baseline != reading.candidate:
            yield reading.configuration


def _patch_places(problem: PatchkitError, plan: Plan, candidate: Mapping[str, bytes]) -> Iterator[Location]:
    patches = [patch for selected, _ in plan.steps if (patch := selected.patch)]
    for place in problem.where[:1]:
        if place.path.startswith(_SERIES):
            yield place
            continue
        concerned = [patch for patch in patches if place.path in patch.touched_files]
        named = [patch for patch in concerned if patch.id in re.split(r"[\s,]+", place.label or "")]
        for patch in named or concerned:
            yield from _places_in(patch, plan, place, candidate)


def _places_in(
    patch: Patch, plan: Plan, place: Location, candidate: Mapping[str, bytes]
) -> Iterator[Location]:
    """The edits whose text has the line; without such an edit, all edits of the file."""
    for file in patch.files:
        if file.path == place.path:
            yield replace(file.where, label=f"adds {file.path}")
    for removed in patch.removes:
        if removed.path == place.path:
            yield replace(removed.where, label=f"removes {removed.path}")
    for renamed in patch.renames:
        if place.path in (renamed.source, renamed.to):
            yield replace(renamed.where, label=f"renames {renamed.source}")
    for mode in patch.modes:
        if mode.path == place.path:
            yield replace(mode.where, label=f"mode of {mode.path}")
    edits = [edit for edit in patch.edits if edit.file == place.path]
    line = _line(candidate.get(place.path, b""), place.line)
    texts = {
        edit.id: edit.text for planned in plan.patches if planned.id == patch.id for edit in planned.edits
    }
    exact = [edit for edit in edits if line and line in {row.strip() for row in texts[edit.id].splitlines()}]
    for edit in exact or edits:
        yield replace(edit.where, label=f"edit {edit.id}")


def _line(data: bytes, number: int | None) -> str:
    lines = data.decode("utf-8", "replace").splitlines()
    return lines[number - 1].strip() if number is not None and 0 < number <= len(lines) else ""


def _changed_lines(target: AffectedCandidate, before: SeriesSide, after: SeriesSide) -> list[Location]:
    """The first changed line of each file that affects the target, as a place in the head."""
    found = []
    for name in target.reasons:
        old, new = (side.files.root / name for side in (before, after))
        if not new.is_file():
            continue
        lines = new.read_bytes().split(b"\n")
        was = old.read_bytes().split(b"\n") if old.is_file() else []
        same = next((at for at, pair in enumerate(zip(lines, was, strict=False)) if pair[0] != pair[1]), None)
        line = (min(len(lines), len(was)) if same is None else same) + 1
        found.append(Location(path=name, line=min(line, len(lines)), label="changed from here"))
    return found

"""One target: its candidate, the gates it needs, and what came of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import Location, PatchkitError, members_of
from patchkit.candidate.apply import candidate_ref, write_plan
from patchkit.candidate.available import find_available
from patchkit.candidate.find import Candidate, read_candidate
from patchkit.candidate.locking import make_result, read_inputs
from patchkit.candidate.plan import Plan, Request, plan_with
from patchkit.candidate.workspace import Workspace
from patchkit.gates.hardware import Hardware, choose_hardware
from patchkit.gates.registry import entries, find_entry, gate_names
from patchkit.gates.verify import NOTHING, Report, Timed, run_verify
from patchkit.pull.lock_rules import check_made
from patchkit.pull.side import Side, point_into
from patchkit.pull.targets import Target
from patchkit.pull.verdict import Finding, GateRow, Judged, RowState
from patchkit.series.lock import Result
from patchkit.series.patch import Edit, Patch
from patchkit.upstream.cache import open_cache
from patchkit.upstream.pin import pin_ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One gate of the ladder; ``needed`` False: ``why`` says what makes it needless."""

    gate: str
    needed: bool
    why: str


def find_needs(
    target: Target, before: Side, after: Side, *, tree: str, foreign: Sequence[str]
) -> tuple[Need, ...]:
    """The whole ladder for one target.

    Args:
        target: what is judged.
        before: the fork point.
        after: the head.
        tree: of the candidate that the head gives.
        foreign: GPUs that isolation and launch see in another way than before.
    """
    if target.before is None:
        return _all("the fork point has no such candidate")
    if target.before.tree != tree:
        return _all(f"the candidate is tree {tree[:12]} instead of {target.before.tree[:12]}")
    reasons = {entry.name: entry.always for entry in entries() if entry.always}
    for gate, why in _by_rules(target, before, after):
        reasons.setdefault(gate, why)
    strangers = [arch for arch in foreign if arch not in target.archs]
    if strangers:
        for gate in (entry.name for entry in entries() if entry.sees_every_gpu):
            reasons.setdefault(gate, f"it looks at {', '.join(strangers)}, which changed")
    return tuple(
        Need(gate=gate, needed=gate in reasons, why=reasons.get(gate, f"tree {tree[:12]} is as it was"))
        for gate in gate_names()
    )


def _all(why: str) -> tuple[Need, ...]:
    return tuple(Need(gate=gate, needed=True, why=why) for gate in gate_names())


def _by_rules(target: Target, before: Side, after: Side) -> Iterator[tuple[str, str]]:
    for arch in target.archs:
        if _facts(before, arch) != _facts(after, arch):
            for gate in (entry.name for entry in entries() if entry.reads_facts):
                yield gate, f"facts of {arch} changed"
    for name in target.patches:
        old, new = before.series.patch(name), after.series.patch(name)
        if old is None or new is None:
            continue
        told = f"of patches/{new.folder}/patch.toml changed"
        for entry in entries():
            for attribute, words in entry.reads.items():
                if getattr(old, attribute) != getattr(new, attribute):
                    yield entry.name, f"{words} {told}"


def _facts(side: Side, arch: str) -> object:
    profile = side.profiles.get(arch)
    return None if profile is None else {name: fact.value for name, fact in profile.facts.by_name.items()}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """``candidate`` and ``result`` are None when the plan has errors. ``files`` are the changed ones."""

    plan: Plan
    candidate: Candidate | None
    result: Result | None
    files: dict[str, bytes]


def make_candidate(request: Request, workspace: Workspace) -> Made:
    """Plan, and write the commits; no ref moves but that of a pin that was not here yet.

    Raises what planning raises beside the errors of places and templates, which are in the plan.
    """
    cache = open_cache(workspace.cache_root)
    with cache.hold(workspace.reporter) as repository:
        plan = plan_with(request, workspace, cache)
        if plan.errors:
            return Made(plan=plan, candidate=None, result=None, files={})
        commits, tree = write_plan(plan, repository, unlocked=False)
        tip = commits[-1].commit if commits else plan.base
        ref = candidate_ref(plan.archs, plan.pin.name)
        candidate = read_candidate(repository, ref, {ref: tip, pin_ref(plan.pin): plan.base})
        result = make_result(plan, read_inputs(plan, workspace.series), tree=tree, commit=tip)
    files: dict[str, bytes] = {}
    for _, placed in plan.steps:
        files |= placed.changes
    return Made(plan=plan, candidate=candidate, result=result, files=files)


NOT_DESCRIBED = "no gate runs: the lock of the head does not describe its series"
_UNTRUE = "no gate runs: the lock of the head records something else than the head gives"
_LAST = "GATE_LOCK_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one step found."""

    judged: tuple[Judged, ...] = ()
    findings: tuple[Finding, ...] = ()
    attention: tuple[str, ...] = ()

    def plus(self, other: Outcome) -> Outcome:
        """Both."""
        return Outcome(
            judged=(*self.judged, *other.judged),
            findings=(*self.findings, *other.findings),
            attention=(*self.attention, *other.attention),
        )

    def in_order(self) -> Outcome:
        """A lock that is behind comes last: a forgotten command must not hide what is wrong."""
        late = [one for one in self.findings if one.problem.code.startswith(_LAST)]
        rest = [one for one in self.findings if one not in late]
        return Outcome(judged=self.judged, findings=(*rest, *late), attention=self.attention)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The rows of the ladder and the problems, each with the evidence of its gate."""

    rows: tuple[GateRow, ...]
    problems: tuple[tuple[PatchkitError, Mapping[str, object]], ...] = ()
    evidence: Path | None = None


def explain_target(target: Target, before: Side, after: Side, *, foreign: Sequence[str]) -> Outcome:
    """What would run, believing the lock of the head; nothing is fetched, placed or compiled."""
    if not target.patches:
        return Outcome(judged=(_nothing(target, after),))
    if target.recorded is None:
        raise AssertionError("a lock without it does not describe the series")
    tree = target.recorded.tree
    rows = tuple(
        GateRow(gate=need.gate, state="would run" if need.needed else "not needed", why=need.why)
        for need in find_needs(target, before, after, tree=tree, foreign=foreign)
    )
    return Outcome(judged=(_judged(target, tree, rows),))


def set_aside(target: Target, why: str) -> Judged:
    """A target that no gate looks at, because what it would look at is not what it should be."""
    return replace(_judged(target, None, ()), no_gates=why)


def _nothing(target: Target, after: Side) -> Judged:
    """A target without a patch: its tree is upstream's own."""
    there = find_available(after.files, target.archs, target.pin.build).sentence
    told = replace(_judged(target, None, ()), no_gates=f"{NOTHING}. {there}")
    return replace(told, tree=target.pin.tree, nothing_to_prove=True)


def judge_target(
    target: Target,
    before: Side,
    after: Side,
    workspace: Workspace,
    *,
    foreign: Sequence[str],
    full: bool,
    environ: Mapping[str, str],
    hardware: Hardware | None,
) -> Outcome:
    """Make the candidate and run what it needs; ``workspace`` has the series of the head.

    Raises only what stops everything (CacheError, KeyboardInterrupt); any other error is a finding.
    """
    made = _make(target, before, after, workspace)
    if isinstance(made, Outcome):
        return made
    if made.candidate is None or made.result is None:
        raise AssertionError("made without errors")
    untrue = tuple(Finding(problem=one, target=target.name) for one in check_made(target, made.result))
    if untrue:
        return Outcome(judged=(set_aside(target, _UNTRUE),), findings=untrue)
    if not target.patches:
        return Outcome(judged=(_nothing(target, after),))
    tree = made.result.tree
    ran = run_needed(
        find_needs(target, before, after, tree=tree, foreign=foreign),
        made.candidate,
        workspace,
        upstream=target.pin.name,
        full=full,
        environ=environ,
        hardware=hardware,
    )
    for problem, _ in ran.problems:
        point_into(problem, after.files.root)
    findings = _findings(ran.problems, made, target, before, after)
    return Outcome(judged=(_judged(target, tree, ran.rows, ran.evidence),), findings=findings)


def place_target(target: Target, before: Side, after: Side, workspace: Workspace) -> Outcome:
    """Place a target whose lock does not describe it, and run no gate.

    What is wrong with a place or a template keeps the author from writing the lock, so it has to be told.
    """
    made = _make(target, before, after, workspace)
    findings = made.findings if isinstance(made, Outcome) else ()
    return Outcome(judged=(set_aside(target, NOT_DESCRIBED),), findings=findings)


def _make(target: Target, before: Side, after: Side, workspace: Workspace) -> Made | Outcome:
    """The candidate, or what keeps it from being made."""
    root = after.files.root
    request = Request(archs=target.archs, upstream=target.pin.name, with_=target.with_, only=target.only)
    try:
        made = make_candidate(request, workspace)
    except PatchkitError as error:
        rows = _none_ran(f"the candidate cannot be made: {error.code}")
        found = tuple(Finding(problem=one, target=target.name) for one in members_of(point_into(error, root)))
        return Outcome(judged=(_judged(target, None, rows),), findings=found)
    if made.candidate is not None:
        return made
    problems: list[tuple[PatchkitError, Mapping[str, object]]] = [
        (point_into(problem, root), {}) for problem in made.plan.errors
    ]
    return Outcome(
        judged=(_judged(target, None, _none_ran("the series cannot be applied")),),
        findings=_findings(problems, made, target, before, after),
    )


def run_needed(
    needs: Sequence[Need],
    candidate: Candidate,
    workspace: Workspace,
    *,
    upstream: str,
    full: bool,
    environ: Mapping[str, str],
    hardware: Hardware | None,
) -> Ran:
    """Run the gates that are needed and can run here. What keeps one from running is a problem."""
    hardware = hardware or choose_hardware(candidate.archs, None, model=None, no_gpu=True)
    here = (*gate_names("anywhere"), *(gate.name for gate in hardware.gates))
    wanted = [need.gate for need in needs if need.needed]
    only = [name for name in map(hardware.own_name, wanted) if name in here]
    if not only:
        return Ran(rows=_rows(needs, None, hardware))
    try:
        report = run_verify(
            workspace,
            archs=candidate.archs,
            upstream=upstream,
            only=only,
            full=full,
            environ=environ,
            candidate=candidate,
            hardware=hardware,
        )
    except PatchkitError as error:
        rows = tuple(
            GateRow(
                gate=need.gate,
                state="not run" if need.needed else "not needed",
                why=f"the gates ended with {error.code}" if need.needed else need.why,
            )
            for need in needs
        )
        return Ran(rows=rows, problems=tuple((one, {}) for one in members_of(error)))
    problems = tuple(
        (problem, gate.result.evidence_json) for gate in report.gates for problem in gate.result.problems
    )
    return Ran(rows=_rows(needs, report, hardware), problems=problems, evidence=report.folder)


def _rows(needs: Sequence[Need], report: Report | None, hardware: Hardware) -> tuple[GateRow, ...]:
    found = {gate.result.gate: gate for gate in (report.gates if report is not None else ())}
    rows = []
    for need in needs:
        on_cpu = hardware.own_name(need.gate)
        # A row of the CPU stands beside that of the GPU, and never for it.
        for name in dict.fromkeys([need.gate, on_cpu]):
            gate = found.get(name)
            if not need.needed:
                rows.append(GateRow(gate=name, state="not needed", why=need.why))
            elif name in hardware.not_here or gate is None:
                entry = find_entry(name)
                needs_gpu = entry.needs if entry is not None and entry.name == name else ""
                why = hardware.not_here.get(name, needs_gpu or "it does not run here")
                rows.append(GateRow(gate=name, state="not run", why=why))
            else:
                rows.append(_row(gate, need.why))
    return tuple(rows)


def _row(gate: Timed, why: str) -> GateRow:
    state: RowState = gate.result.verdict
    return GateRow(
        gate=gate.result.gate,
        state=state,
        why=gate.result.summary if state == "not run" else why,
        summary=gate.result.summary,
        seconds=gate.seconds,
        not_proven=gate.result.not_run,
    )


def _findings(
    problems: Iterable[tuple[PatchkitError, Mapping[str, object]]],
    made: Made,
    target: Target,
    before: Side,
    after: Side,
) -> tuple[Finding, ...]:
    guarded = {arch for one in made.plan.patches for arch in one.targets} or set(target.archs)
    outside = [arch for arch in sorted(after.profiles) if arch not in guarded]
    changed = _changed_lines(target, before, after)
    return tuple(
        blame(
            problem,
            made.plan,
            made.files,
            target=target.name,
            evidence=evidence,
            outside=outside,
            root=after.files.root,
            changed=changed,
        )
        for problem, evidence in problems
    )


def _changed_lines(target: Target, before: Side, after: Side) -> list[Location]:
    """Where each file that reached the target begins to differ, as a place in the head."""
    found = []
    for name in target.reasons:
        old, new = (side.files.root / name for side in (before, after))
        if not new.is_file():
            continue
        lines = new.read_bytes().split(b"\n")
        was = old.read_bytes().split(b"\n") if old.is_file() else []
        same = next((at for at, pair in enumerate(zip(lines, was, strict=False)) if pair[0] != pair[1]), None)
        line = (min(len(lines), len(was)) if same is None else same) + 1
        found.append(Location(path=name, line=min(line, len(lines)), label="changed from here on"))
    return found


def _none_ran(why: str) -> tuple[GateRow, ...]:
    return tuple(GateRow(gate=name, state="not run", why=why) for name in gate_names())


def _judged(
    target: Target, tree: str | None, rows: tuple[GateRow, ...], evidence: Path | None = None
) -> Judged:
    return Judged(
        name=target.name,
        archs=target.archs,
        build=target.pin.build,
        patches=target.patches,
        reasons=target.reasons,
        tree_before=None if target.before is None else target.before.tree,
        tree=tree,
        rows=rows,
        evidence=evidence,
    )

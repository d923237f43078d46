"""One target: its candidate, the gates it needs, and what came of each.

Vocabulary: an *outcome* is what judging adds to the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.errors import Location, PatchkitError, members_of
from patchkit.flow.available import find_available
from patchkit.flow.candidates import Candidate
from patchkit.flow.hardware import GPU_GATES, Hardware, choose_hardware
from patchkit.flow.plan import Request
from patchkit.flow.verify import GATE_NAMES, NOTHING, Report, Timed, run_verify
from patchkit.flow.workspace import Workspace
from patchkit.gating.blame import blame
from patchkit.gating.candidate import Made, make_candidate
from patchkit.gating.lock_rules import check_made
from patchkit.gating.needs import LADDER, Need, find_needs
from patchkit.gating.side import Side, point_into
from patchkit.gating.targets import Target
from patchkit.gating.verdict import Finding, GateRow, Judged, RowState

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
    here = (*GATE_NAMES, *(gate.name for gate in hardware.gates))
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
        (problem, gate.result.evidence) for gate in report.gates for problem in gate.result.problems
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
                why = hardware.not_here.get(name, GPU_GATES.get(name, "it does not run here"))
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
    return tuple(GateRow(gate=name, state="not run", why=why) for name in LADDER)


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

"""Judge one target: make its candidate, and run the gates whose result may have changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import PatchkitError, members_of
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.listing import find_available
from patchkit.carry.candidate.lock import write_result
from patchkit.carry.candidate.plan import Plan, make_plan
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.series.lock import Result
from patchkit.carry.upstream.cache import open_cache
from patchkit.prove.gates.base import Evidence
from patchkit.prove.gates.registry import find_entry, gate_names
from patchkit.prove.pulls.blame import blame
from patchkit.prove.pulls.first_look import GateRequest
from patchkit.prove.pulls.lock_rules import check_recorded
from patchkit.prove.pulls.needs import every_gate, find_needs
from patchkit.prove.pulls.side import SeriesSide, point_into
from patchkit.prove.pulls.targets import AffectedCandidate
from patchkit.prove.pulls.verdict import CandidateVerdict, Finding, GateRow
from patchkit.prove.verify.hardware import Hardware, choose_hardware
from patchkit.prove.verify.run import NOTHING, Report, run_verify

NOT_DESCRIBED = "no gate runs: the lock of the head does not match its series"
_UNTRUE = "no gate runs: the lock of the head records a different result than the head gives"

Outcome = tuple[CandidateVerdict, tuple[Finding, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCandidate:
    """A candidate with its plan, the result that a lock records for it, and its changed ``files``."""

    plan: Plan
    candidate: Candidate
    result: Result
    files: Mapping[str, bytes]


def make_candidate(request: Request, workspace: Workspace) -> WrittenCandidate | Plan:
    """Plan and write the commits; a plan with errors is returned instead.

    No ref changes except that of a pin that is new here. Raises the errors of planning, except those of
    places and templates, which are in the plan.
    """
    cache = open_cache(workspace.cache_root)
    with cache.hold(workspace.reporter) as repository:
        plan = make_plan(request, workspace, cache)
        if plan.errors:
            return plan
        candidate, result = write_result(plan, repository, workspace.series)
    return WrittenCandidate(plan=plan, candidate=candidate, result=result, files=plan.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRuns:
    """The result of each gate, and the problems, each with the evidence of its gate."""

    rows: tuple[GateRow, ...]
    problems: tuple[tuple[PatchkitError, Evidence | None], ...] = ()
    evidence: Path | None = None


def run_needed(
    needs: Sequence[GateRow],
    written: WrittenCandidate,
    workspace: Workspace,
    *,
    full: bool,
    environ: Mapping[str, str],
    hardware: Hardware | None,
) -> GateRuns:
    """Run the gates that are needed and available here. An error that prevents a run is a problem."""
    archs = written.candidate.archs
    hardware = hardware or choose_hardware(archs, None, model=None, no_gpu=True)
    here = (*gate_names("anywhere"), *(gate.name for gate in hardware.gates))
    wanted = [hardware.own_name(need.gate) for need in needs if need.state == "would run"]
    only = [name for name in wanted if name in here]
    if not only:
        return GateRuns(rows=_rows(needs, None, hardware))
    try:
        report = run_verify(
            workspace,
            archs=archs,
            upstream=written.plan.pin.name,
            only=only,
            full=full,
            environ=environ,
            candidate=written.candidate,
            hardware=hardware,
        )
    except PatchkitError as error:
        return GateRuns(
            rows=not_run(needs, f"the gates stopped with {error.code}"),
            problems=tuple((one, None) for one in members_of(error)),
        )
    problems = tuple((problem, gate.evidence) for gate in report.gates for problem in gate.problems)
    return GateRuns(rows=_rows(needs, report, hardware), problems=problems, evidence=report.folder)


def not_run(needs: Sequence[GateRow], why: str) -> tuple[GateRow, ...]:
    """Mark all gates that would run as not run."""
    return tuple(
        replace(need, state="not run", why=why) if need.state == "would run" else need for need in needs
    )


def _rows(needs: Sequence[GateRow], report: Report | None, hardware: Hardware) -> tuple[GateRow, ...]:
    # A row of the CPU is added next to the row of the GPU and never replaces it.
    return tuple(
        _row(name, need, report, hardware)
        for need in needs
        for name in dict.fromkeys([need.gate, hardware.own_name(need.gate)])
    )


def _row(name: str, need: GateRow, report: Report | None, hardware: Hardware) -> GateRow:
    if need.state == "not needed":
        return replace(need, gate=name)
    found = next((gate for gate in report.gates if gate.gate == name), None) if report else None
    if name in hardware.not_here or found is None:
        entry = find_entry(name)
        needs_gpu = entry.needs if entry is not None and entry.name == name else ""
        why = hardware.not_here.get(name, needs_gpu or "it does not run here")
        return GateRow(gate=name, state="not run", why=why)
    return GateRow(
        gate=name,
        state=found.verdict,
        why=found.summary if found.verdict == "not run" else need.why,
        summary=found.summary,
        seconds=found.seconds,
        not_proven=found.not_run,
    )


def set_aside(target: AffectedCandidate, why: str) -> CandidateVerdict:
    """A target for which no gate runs, because its candidate is not the recorded one."""
    return replace(_judged(target, None, ()), no_gates=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges the targets of one pull request, from ``before`` (the fork point) to ``after`` (the head).

    ``workspace`` has the series of the head. ``foreign``: GPUs that changed in the eyes of gates that check
    every GPU.
    """

    request: GateRequest
    before: SeriesSide
    after: SeriesSide
    workspace: Workspace
    foreign: Sequence[str]
    environ: Mapping[str, str]
    hardware: Callable[[Sequence[str]], Hardware] | None

    def explain(self, target: AffectedCandidate) -> CandidateVerdict:
        """What would run if the lock of the head is right; nothing is fetched, placed or compiled."""
        if not target.patches:
            return self._nothing(target)
        if target.recorded is None:
            raise AssertionError("such a lock does not match the series")
        tree = target.recorded.tree
        return _judged(target, tree, self._needs(target, tree))

    def judge(self, target: AffectedCandidate) -> Outcome:
        """Make the candidate and run the gates that it needs.

        Raises only what ends the whole command (CacheError, KeyboardInterrupt); any other error is a finding.
        """
        self.workspace.reporter.step(f"judging {target.name}")
        written = self._make(target)
        if not isinstance(written, WrittenCandidate):
            return written
        untrue = tuple(
            Finding(problem=one, target=target.name) for one in check_recorded(target, written.result)
        )
        if untrue:
            return set_aside(target, _UNTRUE), untrue
        if not target.patches:
            return self._nothing(target), ()
        tree = written.result.tree
        ran = run_needed(
            self._needs(target, tree),
            written,
            self.workspace,
            full=self.request.full,
            environ=self.environ,
            hardware=self.hardware(target.archs) if self.hardware else None,
        )
        findings = blame(ran.problems, written.plan, written.files, target, self.before, self.after)
        return _judged(target, tree, ran.rows, ran.evidence), tuple(findings)

    def place(self, target: AffectedCandidate) -> Outcome:
        """Place a target that its lock does not match, and run no gate.

        Errors of places and templates prevent the author from writing the lock, so they are reported.
        """
        written = self._make(target)
        return (
            set_aside(target, NOT_DESCRIBED),
            () if isinstance(written, WrittenCandidate) else written[1],
        )

    def _needs(self, target: AffectedCandidate, tree: str) -> tuple[GateRow, ...]:
        return find_needs(target, self.before, self.after, tree=tree, foreign=self.foreign)

    def _nothing(self, target: AffectedCandidate) -> CandidateVerdict:
        """A target without a patch: its tree is upstream's own."""
        there = find_available(self.after.files, target.archs, target.pin.build).sentence
        bare = _judged(target, target.pin.tree, ())
        return replace(bare, no_gates=f"{NOTHING}. {there}", nothing_to_prove=True)

    def _make(self, target: AffectedCandidate) -> WrittenCandidate | Outcome:
        """The candidate, or the findings that prevent it."""
        request = Request(archs=target.archs, upstream=target.pin.name, with_=target.with_, only=target.only)
        try:
            written = make_candidate(request, self.workspace)
        except PatchkitError as error:
            rows = every_gate("not run", f"the candidate cannot be made: {error.code}")
            point_into(error, self.after.files.root)
            found = tuple(Finding(problem=one, target=target.name) for one in members_of(error))
            return _judged(target, None, rows), found
        if isinstance(written, WrittenCandidate):
            return written
        rows = every_gate("not run", "the series cannot be applied")
        problems: list[tuple[PatchkitError, Evidence | None]] = [(one, None) for one in written.errors]
        findings = blame(problems, written, {}, target, self.before, self.after)
        return _judged(target, None, rows), tuple(findings)


def _judged(
    target: AffectedCandidate, tree: str | None, rows: tuple[GateRow, ...], evidence: Path | None = None
) -> CandidateVerdict:
    return CandidateVerdict(
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

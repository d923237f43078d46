"""Gate ``backend-ops``: upstream's test-backend-ops on both sides, plus patchkit's own attention cases."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from patchkit.base.errors import GateError, PatchkitError
from patchkit.base.files import disk_errors
from patchkit.base.report.blocks import Block, Table, columns
from patchkit.base.report.blocks import Row as TableRow
from patchkit.base.text import counted
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.hardware.attention import AttentionResult, gate_cases
from patchkit.gpu.hardware.backend_ops import Choice, Row
from patchkit.gpu.hardware.program import RemoteRunner, RunContext, describe_reused
from patchkit.prove.build import CandidateBuildFailed, Sides, runs_folder
from patchkit.prove.gates.base import (
    Count,
    DeviceEvidence,
    DeviceGate,
    DeviceSetup,
    GateResult,
    Many,
    MeasuredNumber,
    Record,
)
from patchkit.prove.gates.emulated import not_proven_on, verdict_on
from patchkit.prove.gates.operations import (
    TIMEOUT_S,
    AbortedCase,
    BackendOpsBroken,
    OpsRun,
    OwnPair,
    Runs,
    Selected,
    Tools,
    format_aborting,
    is_same,
    narrowed_to,
    run_ops,
    run_own,
    select,
)
from patchkit.prove.gates.sides import BuiltSides, built_sides, sides_on
from patchkit.prove.subject import Subject

NAME = "backend-ops"
# max_nmse_err of test_flash_attn_ext, tests/test-backend-ops.cpp of build 6900.
UPSTREAM_LIMIT = 5e-4
# Chosen, not measured on an AMD GPU: another kernel may sum in another order. Upstream's CPU code sums V in
# half precision; it differs from the definition by 1e-4 at 4096 keys and by 3.5e-4 at 16384 (measured).
_FLOOR, _FACTOR = 1e-4, 3.0
_SHOWN = 8
# Upstream's inputs are random in every run, and small matmuls come close to their limit: of 340 cases one
# q5_1 matmul of 16 numbers had 6.1e-4 of 5e-4, by a kernel that no patch had touched (build 11063,
# 2026-11-23).
_NEAR, _AGAIN = 2.0, 4
_OVER = re.compile(r"= (\d+\.\d+) > (\d+\.\d+)(?!\S)")  # as upstream's %.9f prints an error and its limit


_WORST = 40  # patchkit's own cases that are shown, of several hundred


class OwnCase(Record):
    """One of patchkit's own cases, baseline first; ``rows`` is the number of compared rows."""

    case: str
    supported: Many[bool]
    rows: Count
    nmse: Many[MeasuredNumber | None]
    worst_row: Many[MeasuredNumber | None]
    finite: bool

    @property
    def worst(self) -> float:
        """The larger NMSE; NaN counts as worse than any number."""
        found = [one for one in self.nmse if one is not None]
        return math.inf if any(map(math.isnan, found)) else max(found, default=0.0)


class OpsLimits(Record):
    """Upstream's limit, and that of patchkit's own cases: a factor of the baseline's, at least the floor."""

    nmse: MeasuredNumber
    floor: MeasuredNumber
    factor_of_baseline: MeasuredNumber


class BackendOpsEvidence(DeviceEvidence):
    """What ran, what it was compared with, how many cases passed, and every one of patchkit's own cases."""

    device: str
    backend: str
    operations: Many[str]
    pattern: str | None
    reference: str
    sides: BuiltSides
    commands: Many[str]
    own_runs: str
    tests_run: Count
    tests_passed: Count
    baseline_tests_run: Count
    baseline_tests_passed: Count
    failing_on_both: Many[str] = ()
    near_misses: Many[str] = ()
    aborting: Many[AbortedCase] = ()
    limits: OpsLimits
    own: Many[OwnCase]

    @property
    def outcome(self) -> str:
        """How many cases the candidate ran."""
        own = sum(one.supported[-1] for one in self.own if one.supported)
        return counted(self.tests_run + own, "operation case")

    def blocks(self) -> Iterator[Block]:
        """Counts of upstream's cases, and the least exact of patchkit's own."""
        yield Table(
            name="backend-ops",
            caption=f"test-backend-ops on {self.device}",
            columns=columns("side", "cases run #", "passed #"),
            rows=(
                TableRow(cells=("baseline", str(self.baseline_tests_run), str(self.baseline_tests_passed))),
                TableRow(cells=("candidate", str(self.tests_run), str(self.tests_passed))),
            ),
        )
        worst = sorted(self.own, key=lambda one: -one.worst)[:_WORST]
        if worst:
            yield Table(
                name="backend-ops-own",
                caption="patchkit's own cases against double precision, least exact first",
                columns=columns("case", "NMSE #", "NMSE of the worst row #"),
                rows=tuple(
                    TableRow(cells=(one.case, _figures(one.nmse), _figures(one.worst_row))) for one in worst
                ),
                note=f"The {len(worst)} least exact of {len(self.own)}. "
                "Two figures are baseline and candidate.",
                is_detail=True,
            )

    def provenance(self) -> Iterator[tuple[str, str]]:
        """Adds the device."""
        yield from super().provenance()
        yield "device", self.device


def _figures(sides: Sequence[float | None]) -> str:
    return " -> ".join("-" if one is None else f"{one:.1e}" for one in sides) or "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOpsGate(DeviceGate):
    """``ops`` replaces the operations of the changed files; ``pattern`` narrows upstream's cases.

    On the CPU the default is a sample: all attention cases, twice, take half an hour of one core. With
    ``is_sample`` it is a sample on the emulated GPU as well; ``types`` narrows that to cases of these tensor
    types.
    """

    NAME = NAME
    ops: tuple[str, ...] = ()
    pattern: str | None = None
    cases: Sequence[Case] = field(default_factory=gate_cases)
    timeout_s: float = TIMEOUT_S
    elsewhere: RemoteRunner | None = None
    is_sample: bool = False
    is_sanitized: bool = False
    types: tuple[str, ...] = ()

    @classmethod
    def make(cls, setup: DeviceSetup) -> BackendOpsGate:
        """The gate on a device."""
        is_sample = setup.machine.is_emulated and not setup.full
        return cls(
            machine=setup.machine,
            elsewhere=setup.elsewhere,
            cases=gate_cases(is_sample=is_sample),
            is_sample=is_sample,
            is_sanitized=setup.is_sanitized,
        )

    def run(self, subject: Subject) -> GateResult:
        """Build both sides, run both lists of cases on both.

        Raises:
            ToolchainError: building or running the baseline failed.
            CacheError: the disk is full or not writable.
        """
        try:
            looked = Runs(folder=runs_folder(subject, NAME, self.machine))
            with sides_on(self.machine, subject) as sides, looked.kept():
                return self._run(subject, sides, looked)
        except (CandidateBuildFailed, BackendOpsBroken) as error:
            return GateResult.ended_by(self.name, error)

    def _run(self, subject: Subject, sides: Sides, looked: Runs) -> GateResult:
        place = RunContext(
            folder=runs_folder(subject, NAME, self.machine),
            reporter=subject.reporter,
            elsewhere=self.elsewhere,
        )
        tools = Tools(
            subject=subject,
            machine=self.machine,
            sides=sides,
            place=place,
            timeout_s=self.timeout_s,
            looked=looked.variables if self.is_sanitized else None,
            is_spread=bool(self.types),
        )
        sample = select(tools, ops=self.ops, pattern=self.pattern, is_sample=self.is_sample)
        chosen = narrowed_to(sample, self.types) if self.is_sample else sample
        part = ""
        if chosen.wanted is not None:
            part = f" (of {len(sample.choice.cases)}, those of {', '.join(self.types)})"
        subject.reporter.step(f"test-backend-ops of {chosen.label} on {self.machine.label}")
        upstream = run_ops(tools, chosen.choice, chosen.wanted)
        near = confirm_near_misses(near_misses(upstream), lambda n, cases: _run_again(tools, n, cases))
        own: list[OwnPair] = []
        aborting: tuple[str, ...] = ()
        if chosen.has_attention:
            subject.reporter.step(f"{len(self.cases)} of patchkit's attention cases on {self.machine.label}")
            own, aborting = run_own(tools, self.cases)
        problems = (*judge_ops(upstream, near), *(judge_own(own) if chosen.has_attention else ()))
        evidence = self._evidence(chosen, sides, upstream, near, own)
        unsupported = sum(not new.is_supported for _, new in own)
        return GateResult(
            gate=self.name,
            verdict=verdict_on(self.machine, problems),
            summary=(
                f"{evidence.tests_run} cases of upstream{part} and {len(own) - unsupported} of patchkit ran "
                f"on {self.machine.label}, both sides; {len(problems)} problems"
            ),
            problems=problems,
            evidence=evidence,
            not_run=(
                *not_proven_on(self.machine, subject),
                *chosen.skipped,
                *(
                    (f"{unsupported} of patchkit's cases: not supported by the backend",)
                    if unsupported
                    else ()
                ),
                *format_aborting(upstream.aborting),
                *aborting,
            ),
            lines=(*_lines(evidence, len(upstream.tests[1]), own), *describe_reused(upstream.runs)),
        )

    def _evidence(
        self,
        chosen: Selected,
        sides: Sides,
        upstream: OpsRun,
        near: Sequence[str],
        own: Sequence[OwnPair],
    ) -> BackendOpsEvidence:
        before, after = upstream.tests
        return BackendOpsEvidence(
            device=self.machine.label,
            backend=self.machine.backend,
            operations=chosen.ops,
            pattern=chosen.choice.pattern,
            reference="upstream's cases: the CPU backend of the baseline, loaded first in the same "
            "process; patchkit's cases: the definition of attention in double precision",
            sides=built_sides(sides),
            commands=tuple(run.command for run in upstream.runs),
            own_runs="once: both sides are the same files" if is_same(sides) else "each side",
            tests_run=sum(row.is_supported for row in after),
            tests_passed=sum(row.has_passed for row in after),
            baseline_tests_run=sum(row.is_supported for row in before),
            baseline_tests_passed=sum(row.has_passed for row in before),
            failing_on_both=tuple(_failing_on_both(before, after)),
            near_misses=tuple(near),
            aborting=upstream.aborting,
            limits=OpsLimits(nmse=UPSTREAM_LIMIT, floor=_FLOOR, factor_of_baseline=_FACTOR),
            own=tuple(
                OwnCase(
                    case=str(new.case),
                    supported=(old.is_supported, new.is_supported),
                    rows=new.rows,
                    nmse=(old.nmse, new.nmse),
                    worst_row=(old.worst, new.worst),
                    finite=new.is_finite,
                )
                for old, new in own
            ),
        )


def _lines(found: BackendOpsEvidence, listed: int, own: Sequence[OwnPair]) -> Iterator[str]:
    """The lines below the summary; ``listed`` counts upstream's cases."""
    yield (
        f"test-backend-ops {', '.join(found.operations) or 'all operations'}: "
        f"{found.tests_passed} of {found.tests_run} cases pass, "
        f"baseline {found.baseline_tests_passed} of {found.baseline_tests_run}; "
        f"{listed - found.tests_run} not supported"
    )
    theirs = found.failing_on_both
    if theirs:
        yield f"upstream's own: {len(theirs)} cases fail on both sides, for example {theirs[0]}"
    if found.near_misses:
        yield (
            f"random inputs: {len(found.near_misses)} cases exceeded their limit once, by less than "
            f"{_NEAR:g} times, and passed in {_AGAIN} more runs, for example {found.near_misses[0]}"
        )
    measured = [new for _, new in own if new.is_supported]
    worst = max(measured, key=lambda one: one.nmse, default=None)
    if worst is not None:
        yield (
            f"patchkit's cases against double precision: {len(measured)} of {len(own)} cases ran, "
            f"largest NMSE {worst.nmse:.1e} ({worst.case})"
        )


def near_misses(run: OpsRun) -> tuple[str, ...]:
    """Cases that only the candidate fails, by less than twice their limit."""
    return tuple(row.case for row in _own_faults(run) if _is_near(row.said))


def _is_near(text: str) -> bool:
    found = _OVER.search(text)
    return found is not None and float(found[1]) < _NEAR * float(found[2])


def confirm_near_misses(
    cases: Sequence[str], run_again: Callable[[int, tuple[str, ...]], OpsRun]
) -> tuple[str, ...]:
    """The cases that pass on the candidate in four more runs."""
    left = tuple(cases)
    for number in range(_AGAIN):
        if left:
            passed = {row.case for row in run_again(number, left).tests[1] if row.has_passed}
            left = tuple(case for case in left if case in passed)
    return left


def _run_again(tools: Tools, number: int, cases: tuple[str, ...]) -> OpsRun:
    place = replace(tools.place, folder=tools.place.folder / f"again-{number}")
    with disk_errors(place.folder, "running cases again"):
        place.folder.mkdir(parents=True, exist_ok=True)
    return run_ops(replace(tools, place=place), Choice(cases=cases))


def _own_faults(run: OpsRun) -> list[Row]:
    baseline = {row.case: row for row in run.tests[0]}
    failed = [row for row in run.tests[1] if row.is_supported and not row.has_passed]
    return [row for row in failed if row.case not in baseline or baseline[row.case].has_passed]


def judge_ops(run: OpsRun, near: Collection[str] = ()) -> Iterator[PatchkitError]:
    """Check every rule for upstream's cases; cases in ``near`` passed when they ran again."""
    after = run.tests[1]
    if not any(row.is_supported for row in after):
        yield GateError(
            "no case of upstream ran on the candidate",
            code="BACKEND_OPS_NOTHING_RUN",
            why="test-backend-ops counts 0 of 0 as success, this gate does not",
            hint="patchkit verify --gate launch shows what the candidate supports",
        )
        return
    if not any(row.has_passed for row in after):
        # If the baseline fails all cases too, nothing was shown; the device may not compute at all.
        yield GateError(
            f"all {len(after)} cases give wrong results on the candidate",
            code="BACKEND_OPS_FAILED",
            why="\n".join(_row_text(row) for row in after[:_SHOWN]),
            hint="the baseline's rows are next to the evidence",
        )
        return
    lost = _lost(run.support) or _lost(run.tests)
    if lost:
        yield GateError(
            f"{len(lost)} cases are supported by the baseline but not by the candidate",
            code="BACKEND_OPS_SUPPORT_LOST",
            why="\n".join(lost[:_SHOWN]),
            hint="patchkit explain shows the kernel of each shape",
        )
    failed = [row for row in after if row.is_supported and not row.has_passed]
    own_fault = [row for row in _own_faults(run) if row.case not in near]
    if own_fault:
        yield GateError(
            f"{len(own_fault)} of {len(after)} cases give wrong results on the candidate",
            code="BACKEND_OPS_FAILED",
            why="\n".join(_row_text(row) for row in own_fault[:_SHOWN]),
            hint="to run one: the command in the evidence, with its environment variables and -p CASE",
        )
    if run.status != 0 and not failed:
        yield GateError(
            f"test-backend-ops exited with status {run.status}, but no row of its table failed",
            code="BACKEND_OPS_FAILED",
            hint="its output is next to the evidence",
        )


def judge_own(pairs: Sequence[OwnPair]) -> Iterator[PatchkitError]:
    """Check every rule for patchkit's own cases."""
    if not any(new.is_supported for _, new in pairs):
        yield GateError(
            "none of patchkit's own cases ran on the candidate",
            code="BACKEND_OPS_NOTHING_RUN",
            why="the candidate supports none of them",
        )
        return
    lost = [str(new.case) for old, new in pairs if old.is_supported and not new.is_supported]
    if lost:
        yield GateError(
            f"{len(lost)} of patchkit's cases are supported by the baseline but not by the candidate",
            code="BACKEND_OPS_SUPPORT_LOST",
            why="\n".join(lost[:_SHOWN]),
        )
    wrong = [(old, new) for old, new in pairs if new.is_supported and _is_wrong(old, new)]
    if wrong:
        yield GateError(
            f"{len(wrong)} of {len(pairs)} of patchkit's cases are too far from the definition of attention",
            code="BACKEND_OPS_INEXACT",
            why="\n".join(_distance(old, new) for old, new in itertools.islice(wrong, _SHOWN)),
            hint="NMSE is the squared error over the squared reference; limits are in the evidence",
        )


def allowed_nmse(baseline: float) -> float:
    """The largest NMSE that a case may have, given the baseline's.

    Three times the baseline's, but at least 1e-4, and at most upstream's limit unless the baseline exceeds
    it.
    """
    return min(max(_FACTOR * baseline, _FLOOR), max(UPSTREAM_LIMIT, baseline))


def _is_wrong(old: AttentionResult, new: AttentionResult) -> bool:
    if not new.is_finite:
        return True
    limit = allowed_nmse(old.nmse) if old.is_supported else UPSTREAM_LIMIT
    # One row may be further off than the mean: as far as in the baseline, or ten times the limit.
    row_limit = max(_FACTOR * old.worst, 10 * limit)
    return not (new.nmse <= limit and new.worst <= row_limit)


def _distance(old: AttentionResult, new: AttentionResult) -> str:
    if not new.is_finite:
        return f"{new.case}: a value is not a number"
    return (
        f"{new.case}: NMSE {new.nmse:.1e}, baseline {old.nmse:.1e}; "
        f"worst row {new.worst:.1e} at token,head,sequence {new.worst_at}"
    )


def _failing_on_both(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    wrong = {row.case for row in before if row.is_supported and not row.has_passed}
    return [row.case for row in after if row.is_supported and not row.has_passed and row.case in wrong]


def _lost(sides: tuple[tuple[Row, ...], tuple[Row, ...]]) -> list[str]:
    before, after = sides
    now = {row.case for row in after if row.is_supported}
    return [row.case for row in before if row.is_supported and row.case not in now]


def _row_text(row: Row) -> str:
    return f"{row.case}: {row.said or row.error}"

"""The gate ``backend-ops``: test-backend-ops on both sides, and cases of ours where it has holes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.errors import GateError, Location, PatchkitError, ToolchainError
from patchkit.build.sides import BuiltSide
from patchkit.candidate.build import (
    CandidateBuildFailed,
    Machine,
    Sides,
    build_sides,
    check_device,
    runs_folder,
)
from patchkit.candidate.subject import Subject
from patchkit.device.attention import Measured, gate_cases, run_attention
from patchkit.device.backend_ops import Choice, Row, Stage, make_stage, parse_rows, run_mode
from patchkit.device.driver_build import build_driver
from patchkit.device.program import Elsewhere, Place, Ran
from patchkit.gates.base import Count, DeviceEvidence, DeviceSetup, GateResult, Many, MeasuredNumber, Record
from patchkit.gates.blocks import Block, Table, columns
from patchkit.gates.blocks import Row as TableRow
from patchkit.gates.sides import BuiltSides, built_sides
from patchkit.gpu.cases import Case


class BackendOpsBroken(GateError):
    """The candidate's program hangs, crashes or prints nonsense where the baseline's does not."""

    code = "BACKEND_OPS_BROKEN"


_SUPPORT_S = 600.0
_ATTENTION = "FLASH_ATTN_EXT"
# Files of ggml-cuda by what begins their name, and the operations that they implement.
_OPS = (
    ("fattn", (_ATTENTION,)),
    ("mmq", ("MUL_MAT", "MUL_MAT_ID")),
    ("mmvq", ("MUL_MAT", "MUL_MAT_ID")),
    ("mmf", ("MUL_MAT", "MUL_MAT_ID")),
    ("mmvf", ("MUL_MAT", "MUL_MAT_ID")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What both kinds of runs need."""

    subject: Subject
    machine: Machine
    sides: Sides
    place: Place
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsRun:
    """Rows of both sides; ``support`` is what the programs said they support, ``tests`` what they ran."""

    support: tuple[tuple[Row, ...], tuple[Row, ...]]
    tests: tuple[tuple[Row, ...], tuple[Row, ...]]
    status: int
    runs: tuple[Ran, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRun:
    """Our cases, in the same order on both sides."""

    before: tuple[Measured, ...]
    after: tuple[Measured, ...]


def ops_of(changed: Sequence[str]) -> tuple[str, ...]:
    """The operations that changed files implement; empty for files that could be of any.

    A file is known by what its name begins with: ``fattn-tile.cuh`` is attention.
    """
    found: set[str] = set()
    for path in changed:
        name = path.rpartition("/")[2]
        ops = next((ops for start, ops in _OPS if name.startswith(start)), None)
        if ops is None:
            return ()
        found |= set(ops)
    return tuple(sorted(found))


def blame_candidate(error: ToolchainError) -> BackendOpsBroken:
    """The same error as a finding of the gate."""
    return BackendOpsBroken(
        f"only on the candidate: {error.message}", where=error.where, why=error.why, hint=error.hint
    )


def run_ops(tools: Tools, choice: Choice) -> OpsRun:
    """Upstream's cases.

    Raises:
        BackendOpsBroken: the candidate's run ended badly, the baseline's did not.
        DEVICE_MISSING: no device of that name, or another GPU.
        PROGRAM_HUNG and the others of :mod:`patchkit.device.program`: on the baseline.
        CacheError: the disk refused.
    """
    before, after = (_stage(tools, side) for side in (tools.sides.before, tools.sides.after))
    if tools.machine.is_cpu:
        return _run_on_cpu(tools, after, choice)
    support_before = _mode(tools, before, "support", "baseline", choice)
    tests_before = _mode(tools, before, "test", "baseline", choice)
    _whole(tests_before, support_before)
    try:
        support_after = _mode(tools, after, "support", "candidate", choice)
        tests_after = _mode(tools, after, "test", "candidate", choice)
        _whole(tests_after, support_after)
    except ToolchainError as error:
        raise blame_candidate(error) from error
    rows = [parse_rows(ran.text(), where=str(ran.stdout)) for ran in (tests_before, tests_after)]
    supported = [parse_rows(ran.text(), where=str(ran.stdout)) for ran in (support_before, support_after)]
    return OpsRun(
        support=(supported[0], supported[1]),
        tests=(rows[0], rows[1]),
        status=tests_after.status,
        runs=(support_before, tests_before, support_after, tests_after),
    )


def _run_on_cpu(tools: Tools, stage: Stage, choice: Choice) -> OpsRun:
    support = _mode(tools, stage, "support", "both", choice)
    supported = _halves(parse_rows(support.text(), where=str(support.stdout)), support)
    try:
        tests = _mode(tools, stage, "test", "both", choice)
        _whole(tests, support)
    except ToolchainError as error:
        # Whose fault it was is not in the output: what a crashed program had not written out is lost.
        _mode(tools, _stage(tools, tools.sides.before), "test", "baseline", choice)
        raise blame_candidate(error) from error
    rows = _halves(parse_rows(tests.text(), where=str(tests.stdout)), tests)
    return OpsRun(support=supported, tests=rows, status=tests.status, runs=(support, tests))


def run_own(tools: Tools, cases: Sequence[Case]) -> OwnRun:
    """Our cases on both sides.

    Raises:
        BackendOpsBroken: the candidate's run ended badly, the baseline's did not.
        DRIVER_NOT_BUILT, and the errors of a run: on the baseline.
    """
    before = _own(tools, tools.sides.before, tools.subject.baseline, "baseline", cases)
    if tools.sides.after.identity == tools.sides.before.identity:
        return OwnRun(before=before, after=before)  # the same files: the same numbers
    try:
        after = _own(tools, tools.sides.after, tools.subject.candidate, "candidate", cases)
    except ToolchainError as error:
        raise blame_candidate(error) from error
    return OwnRun(before=before, after=after)


def _own(tools: Tools, side: BuiltSide, tree: Path, name: str, cases: Sequence[Case]) -> tuple[Measured, ...]:
    subject = tools.subject
    driver = build_driver("attention_check", side, tree, subject.cache_root, subject.reporter)
    ran, measured = run_attention(
        driver,
        side,
        device=tools.machine.device,
        cases=cases,
        name=f"own-{name}",
        timeout_s=tools.timeout_s,
        place=tools.place,
    )
    check_device(tools.machine, ran.talk(), subject.archs, ran.stderr)
    return measured


def _stage(tools: Tools, side: BuiltSide) -> Stage:
    name = f"{side.identity[:16]}-against-{tools.sides.before.identity[:16]}"
    folder = side.folder.parent.parent / "stages" / name
    return make_stage(side, tools.sides.before, folder)


def _mode(tools: Tools, stage: Stage, mode: str, side: str, choice: Choice) -> Ran:
    ran = run_mode(
        stage,
        "test" if mode == "test" else "support",
        name=f"{mode}-{side}",
        choice=choice,
        device=tools.machine.device,
        timeout_s=tools.timeout_s if mode == "test" else _SUPPORT_S,
        place=tools.place,
    )
    check_device(tools.machine, ran.talk(), tools.subject.archs, ran.stderr)
    if not parse_rows(ran.text(), where=str(ran.stdout)):
        raise ToolchainError(
            f"test-backend-ops {mode} printed no row for the device {tools.machine.device}",
            code="DEVICE_MISSING",
            where=Location(path=str(ran.stdout)),
            why="it skips devices of another name and operations it does not know, and reports success",
            hint=f"its own list of devices: {stage.program} support -o {_ATTENTION}",
        )
    return ran


def _whole(tests: Ran, support: Ran) -> None:
    """As many rows ran as there are: what a program printed may be cut off at the end of a line."""
    ran, known = (len(parse_rows(one.text(), where=str(one.stdout))) for one in (tests, support))
    if ran != known:
        raise ToolchainError(
            f"test-backend-ops ran {ran} of {known} cases",
            code="PROGRAM_OUTPUT_GARBLED",
            where=Location(path=str(tests.stdout)),
            why=f"it ended with status {tests.status}; the rest of its output is missing",
            hint="run the command again",
        )


def _halves(rows: tuple[Row, ...], ran: Ran) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    half = len(rows) // 2
    before, after = rows[:half], rows[half:]
    if [row.case for row in before] != [row.case for row in after]:
        raise ToolchainError(
            "the rows of the two CPU backends are not of the same cases",
            code="PROGRAM_OUTPUT_GARBLED",
            where=Location(path=str(ran.stdout)),
            hint="run the command again",
        )
    return before, after


NAME = "backend-ops"
# max_nmse_err of test_flash_attn_ext, tests/test-backend-ops.cpp of build 6900.
UPSTREAM_LIMIT = 5e-4
# Ours, chosen and not measured on an AMD GPU: another kernel may sum in another order. Upstream's CPU code,
# which sums V in half precision, is 1e-4 from the definition at 4096 keys and 3.5e-4 at 16384 (measured).
_FLOOR, _FACTOR = 1e-4, 3.0
_TIMEOUT_S = 2 * 3600.0
_SHOWN = 8
_OPS_ATTENTION = "FLASH_ATTN_EXT"
_ON_CPU = (_OPS_ATTENTION, "MUL_MAT", "MUL_MAT_ID")  # all others would take hours there
# By the names of both ends of the corpus (builds 6900 and 11549).
_CPU_SAMPLE = r"hsk=(64|128),.*kv=(113|512),nb=(1|35),.*type_K(V)?=f16"


_WORST = 40  # cases of ours that are shown, of several hundred


class OwnCase(Record):
    """One case of ours, baseline first; ``rows`` were compared."""

    case: str
    supported: Many[bool]
    rows: Count
    nmse: Many[MeasuredNumber | None]
    worst_row: Many[MeasuredNumber | None]
    finite: bool

    @property
    def worst(self) -> float:
        """The larger NMSE; what is no number is worse than any number."""
        found = [one for one in self.nmse if one is not None]
        return math.inf if any(map(math.isnan, found)) else max(found, default=0.0)


class OpsLimits(Record):
    """Upstream's limit, and what a case of ours may have: a factor of the baseline's, at least the floor."""

    nmse: MeasuredNumber
    floor: MeasuredNumber
    factor_of_baseline: MeasuredNumber


class BackendOpsEvidence(DeviceEvidence):
    """What ran, with what it was compared, how many cases passed, and every case of ours."""

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
    limits: OpsLimits
    own: Many[OwnCase]

    def blocks(self) -> Iterator[Block]:
        """Counts of upstream's cases, and the least exact of ours."""
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
                caption="patchkit's own cases against double precision, the least exact first",
                columns=columns("case", "NMSE #", "NMSE of the worst row #"),
                rows=tuple(
                    TableRow(cells=(one.case, _figures(one.nmse), _figures(one.worst_row))) for one in worst
                ),
                note=f"The {len(worst)} least exact of {len(self.own)}; "
                "two figures are baseline and candidate.",
                is_detail=True,
            )

    def provenance(self) -> Iterator[tuple[str, str]]:
        """The device, too."""
        yield from super().provenance()
        yield "device", self.device


def _figures(sides: Sequence[float | None]) -> str:
    return " -> ".join("-" if one is None else f"{one:.1e}" for one in sides) or "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOpsGate:
    """``ops`` are tested instead of those of the changed files; ``pattern`` narrows upstream's cases.

    On the CPU the default is a sample: all cases of attention, twice, take half an hour of one core.
    """

    machine: Machine
    ops: tuple[str, ...] = ()
    pattern: str | None = None
    cases: Sequence[Case] = field(default_factory=gate_cases)
    timeout_s: float = _TIMEOUT_S
    elsewhere: Elsewhere | None = None

    @classmethod
    def make(cls, setup: DeviceSetup) -> BackendOpsGate:
        """The gate on a device."""
        return cls(machine=setup.machine, elsewhere=setup.elsewhere)

    @property
    def name(self) -> str:
        """The gate's name on this machine."""
        return self.machine.gate_name(NAME)

    def run(self, subject: Subject) -> GateResult:
        """Build both sides, run both lists on both.

        Raises:
            ToolchainError: building or running the baseline failed.
            CacheError: the disk refused.
        """
        try:
            sides = build_sides(subject, self.machine.backend)
        except CandidateBuildFailed as error:
            return GateResult.ended_by(self.name, error)
        place = Place(
            folder=runs_folder(subject, NAME, self.machine),
            reporter=subject.reporter,
            elsewhere=self.elsewhere,
        )
        tools = Tools(
            subject=subject, machine=self.machine, sides=sides, place=place, timeout_s=self.timeout_s
        )
        ops = self.ops or ops_of(subject.changed_files) or (_ON_CPU if self.machine.is_cpu else ())
        told = ", ".join(ops) or "all operations"
        try:
            subject.reporter.step(f"test-backend-ops of {told} on {self.machine.device}")
            upstream = run_ops(tools, Choice(ops=ops, pattern=self._pattern(ops)))
            subject.reporter.step(f"{len(self.cases)} attention cases of ours on {self.machine.device}")
            own = run_own(tools, self.cases)
        except BackendOpsBroken as error:
            return GateResult.ended_by(self.name, error)
        problems = [*judge_ops(upstream), *judge_own(own)]
        return self._result(problems, ops, sides, upstream, own)

    def _pattern(self, ops: Sequence[str]) -> str | None:
        if self.pattern is None and self.machine.is_cpu and tuple(ops) == (_OPS_ATTENTION,):
            return _CPU_SAMPLE
        return self.pattern

    def _result(
        self,
        problems: Sequence[PatchkitError],
        ops: Sequence[str],
        sides: Sides,
        upstream: OpsRun,
        own: OwnRun,
    ) -> GateResult:
        before, after = upstream.tests
        ran = sum(row.is_supported for row in after)
        measured = [one for one in own.after if one.is_supported]
        pattern = self._pattern(ops)
        unsupported = [one.case for one in own.after if not one.is_supported]
        return GateResult(
            gate=self.name,
            verdict="failed" if problems else "passed",
            summary=(
                f"{ran} cases of upstream and {len(measured)} of ours ran on {self.machine.device}, "
                f"both sides; {len(problems)} problems"
            ),
            problems=tuple(problems),
            evidence=BackendOpsEvidence(
                device=self.machine.device,
                backend=self.machine.backend,
                operations=tuple(ops),
                pattern=pattern,
                reference="upstream's cases: the CPU backend of the baseline, loaded first in the same "
                "process; ours: the definition of attention in double precision",
                sides=built_sides(sides),
                commands=tuple(run.command for run in upstream.runs),
                own_runs="once: both sides are the same files" if own.before is own.after else "each side",
                tests_run=ran,
                tests_passed=sum(row.has_passed for row in after),
                baseline_tests_run=sum(row.is_supported for row in before),
                baseline_tests_passed=sum(row.has_passed for row in before),
                failing_on_both=tuple(_failing_on_both(before, after)),
                limits=OpsLimits(nmse=UPSTREAM_LIMIT, floor=_FLOOR, factor_of_baseline=_FACTOR),
                own=tuple(_own_case(old, new) for old, new in zip(own.before, own.after, strict=True)),
            ),
            not_run=(
                *((self.machine.note,) if self.machine.note else ()),
                *((f"upstream's cases that do not match {pattern}: a sample ran",) if pattern else ()),
                *((f"{len(unsupported)} of our cases: not supported by the backend",) if unsupported else ()),
            ),
            lines=tuple(_lines(ops, upstream, own)),
        )


def _lines(ops: Sequence[str], upstream: OpsRun, own: OwnRun) -> Iterator[str]:
    """What a person reads below the summary."""
    before, after = upstream.tests
    ran = sum(row.is_supported for row in after)
    yield (
        f"test-backend-ops {', '.join(ops) or 'all operations'}: "
        f"{sum(row.has_passed for row in after)} of {ran} cases pass, "
        f"baseline {sum(row.has_passed for row in before)} of {sum(row.is_supported for row in before)}; "
        f"{len(after) - ran} not supported"
    )
    theirs = _failing_on_both(before, after)
    if theirs:
        yield f"upstream's own: {len(theirs)} cases fail on both sides, as {theirs[0]}"
    measured = [one for one in own.after if one.is_supported]
    worst = max(measured, key=lambda one: one.nmse, default=None)
    if worst is not None:
        yield (
            f"ours against double precision: {len(measured)} of {len(own.after)} cases ran, "
            f"largest NMSE {worst.nmse:.1e} ({worst.case})"
        )


def judge_ops(run: OpsRun) -> Iterator[PatchkitError]:
    """Every rule over upstream's cases."""
    before, after = run.tests
    if not any(row.is_supported for row in after):
        yield GateError(
            "no case of upstream's ran on the candidate",
            code="BACKEND_OPS_NOTHING_RUN",
            why="test-backend-ops reports 0 of 0 as success",
            hint="patchkit verify --gate launch shows what the candidate supports",
        )
        return
    if not any(row.has_passed for row in after):
        # Where the baseline fails all as well, nothing was shown: a device that does not compute, say.
        yield GateError(
            f"none of {len(after)} cases gives right numbers on the candidate",
            code="BACKEND_OPS_FAILED",
            why="\n".join(_told(row) for row in after[:_SHOWN]),
            hint="the baseline's rows are kept beside the evidence",
        )
        return
    lost = _lost(run.support) or _lost(run.tests)
    if lost:
        yield GateError(
            f"{len(lost)} cases are supported by the baseline and not by the candidate",
            code="BACKEND_OPS_SUPPORT_LOST",
            why="\n".join(lost[:_SHOWN]),
            hint="patchkit explain shows which kernel a shape gets, and why",
        )
    baseline = {row.case: row for row in before}
    failed = [row for row in after if row.is_supported and not row.has_passed]
    own_fault = [row for row in failed if row.case not in baseline or baseline[row.case].has_passed]
    if own_fault:
        yield GateError(
            f"{len(own_fault)} of {len(after)} cases give wrong numbers on the candidate",
            code="BACKEND_OPS_FAILED",
            why="\n".join(_told(row) for row in own_fault[:_SHOWN]),
            hint="run one: the command is in the evidence, with -p and the variables in front of it",
        )
    if run.status != 0 and not failed:
        yield GateError(
            f"test-backend-ops ended with status {run.status}, and no row of its table failed",
            code="BACKEND_OPS_FAILED",
            hint="its output is kept beside the evidence",
        )


def judge_own(run: OwnRun) -> Iterator[PatchkitError]:
    """Every rule over our cases."""
    pairs = list(zip(run.before, run.after, strict=True))
    if not any(new.is_supported for _, new in pairs):
        yield GateError(
            "no case of ours ran on the candidate", code="BACKEND_OPS_NOTHING_RUN", why="none is supported"
        )
        return
    lost = [str(new.case) for old, new in pairs if old.is_supported and not new.is_supported]
    if lost:
        yield GateError(
            f"{len(lost)} of our cases are supported by the baseline and not by the candidate",
            code="BACKEND_OPS_SUPPORT_LOST",
            why="\n".join(lost[:_SHOWN]),
        )
    wrong = [(old, new) for old, new in pairs if new.is_supported and _is_wrong(old, new)]
    if wrong:
        yield GateError(
            f"{len(wrong)} of {len(pairs)} cases of ours are too far from the definition of attention",
            code="BACKEND_OPS_INEXACT",
            why="\n".join(_distance(old, new) for old, new in itertools.islice(wrong, _SHOWN)),
            hint="NMSE is the squared distance over the squared length; limits stand in the evidence",
        )


def allowed_nmse(baseline: float) -> float:
    """The largest NMSE of a case, given the baseline's own.

    Three times the baseline's, at least 1e-4, and upstream's own limit unless the baseline is beyond it.
    """
    return min(max(_FACTOR * baseline, _FLOOR), max(UPSTREAM_LIMIT, baseline))


def _is_wrong(old: Measured, new: Measured) -> bool:
    if not new.is_finite:
        return True
    limit = allowed_nmse(old.nmse) if old.is_supported else UPSTREAM_LIMIT
    # One row may be further off than the mean of all: by as much as in the baseline, or ten times the limit.
    row_limit = max(_FACTOR * old.worst, 10 * limit)
    return not (new.nmse <= limit and new.worst <= row_limit)


def _distance(old: Measured, new: Measured) -> str:
    if not new.is_finite:
        return f"{new.case}: a value is no number"
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


def _told(row: Row) -> str:
    return f"{row.case}: {row.said or row.error}"


def _own_case(old: Measured, new: Measured) -> OwnCase:
    return OwnCase(
        case=str(new.case),
        supported=(old.is_supported, new.is_supported),
        rows=new.rows,
        nmse=(old.nmse, new.nmse),
        worst_row=(old.worst, new.worst),
        finite=new.is_finite,
    )

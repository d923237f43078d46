"""Gate ``backend-ops``: upstream's test-backend-ops on both sides, and our cases of what it leaves out."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from patchkit.base.errors import GateError, Location, PatchkitError, ToolchainError
from patchkit.base.jobs import open_pool, run_tasks
from patchkit.build.sides import BuiltSide
from patchkit.candidate.build import (
    CandidateBuildFailed,
    Machine,
    Sides,
    check_device,
    runs_folder,
)
from patchkit.candidate.subject import Subject
from patchkit.device.attention import Measured, gate_cases, run_attention
from patchkit.device.backend_ops import (
    Choice,
    Mode,
    Part,
    Row,
    Stage,
    make_stage,
    parse_rows,
    parts_of,
    run_mode,
    run_part,
)
from patchkit.device.driver_build import build_driver
from patchkit.device.program import Elsewhere, Place, Ran
from patchkit.gates.base import Count, DeviceEvidence, DeviceSetup, GateResult, Many, MeasuredNumber, Record
from patchkit.gates.blocks import Block, Table, columns
from patchkit.gates.blocks import Row as TableRow
from patchkit.gates.emulated import not_proven_on, verdict_on
from patchkit.gates.sides import BuiltSides, blame_candidate, built_sides, sides_on
from patchkit.gates.touched import told_by_name
from patchkit.gpu.cases import Case


class BackendOpsBroken(GateError):
    """The candidate's program hangs, crashes or prints nonsense where the baseline's does not."""

    code = "BACKEND_OPS_BROKEN"


_SUPPORT_S = 600.0
_ATTENTION = "FLASH_ATTN_EXT"
# Files of ggml-cuda by what begins their name, and the names of operations whose kernels they have: also
# those of graphs that are fused (MUL_MAT_VEC_FUSION, RMS_NORM_MUL_ADD). Read from builds 6900 and 11549.
_PRODUCTS = "MUL_MAT.*"
_SERVED = (
    ("fattn", _ATTENTION),
    *((name, _PRODUCTS) for name in ("mmq", "mmvq", "mmf", "mmvf", "mmid", "quantize", "vecdotq")),
    ("softmax", "SOFT_MAX.*"),
    ("topk-moe", "TOPK_MOE"),
    ("norm", ".*NORM.*"),
    ("rope", ".*ROPE.*"),
    ("getrows", "GET_ROWS.*"),
    ("set-rows", ".*SET_ROWS"),
    ("cpy", "CPY|DUP|CONT"),
    ("binbcast", "ADD|ADD1|SUB|MUL|DIV|REPEAT.*"),
    ("argsort", "ARGSORT|TOP_K.*"),
    ("ssm-", "SSM_.*"),
    ("gated_delta_net", "GATED_DELTA_NET"),
    ("gla", "GATED_LINEAR_ATTN"),
    ("wkv", "RWKV.*"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What both kinds of runs need."""

    subject: Subject
    machine: Machine
    sides: Sides
    place: Place
    timeout_s: float
    scheduler: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsRun:
    """Rows of both sides; ``support`` is what the programs said they support, ``tests`` what they ran."""

    support: tuple[tuple[Row, ...], tuple[Row, ...]]
    tests: tuple[tuple[Row, ...], tuple[Row, ...]]
    status: int
    runs: tuple[Ran, ...]


OwnPair = tuple[Measured, Measured]  # one of our cases, on the baseline and on the candidate


def ops_of(changed: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Those of the operations ``names`` that changed files serve; empty when a file could serve any.

    A file is known by what its name begins with: ``fattn-tile.cuh`` is attention.
    """
    served = told_by_name(changed, _SERVED) or ()
    return tuple(sorted({name for name in names for one in served if re.fullmatch(one, name)}))


def sample_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Cases for the emulated GPU, in the program's order: of attention a fixed choice, of all else some.

    Those are spread over the values of the operation's first variable, mostly a type, and chosen by a digest
    of their text: a case that upstream adds or removes changes no other choice.
    """
    by_op: dict[str, list[Row]] = {}
    for row in dict.fromkeys(row for row in rows if row.is_supported):
        by_op.setdefault(row.op, []).append(row)
    others = len(by_op) - (_ATTENTION in by_op)
    chosen: set[str] = set()
    for op, found in by_op.items():
        if op == _ATTENTION:
            chosen |= {row.case for row in found if re.search(_EMULATED_SAMPLE, row.params)}
            continue
        groups: dict[str, list[str]] = {}
        for row in found:
            groups.setdefault(row.params.partition(",")[0], []).append(row.case)
        each = math.ceil(max(_FEWEST, _OTHERS // others) / len(groups))
        for cases in groups.values():
            chosen |= set(sorted(cases, key=_digest)[:each])
    return tuple(dict.fromkeys(row.case for row in rows if row.case in chosen))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
    old_support, old_known = _support(tools, before, "baseline", choice)
    old_tests, old_rows = _tests(tools, before, "baseline", choice, len(old_known))
    try:
        new_support, new_known = _support(tools, after, "candidate", choice)
        new_tests, new_rows = _tests(tools, after, "candidate", choice, len(new_known))
    except ToolchainError as error:
        raise blame_candidate(error, BackendOpsBroken) from error
    return OpsRun(
        support=(old_known, new_known),
        tests=(old_rows, new_rows),
        status=max(run.status for run in new_tests),
        runs=(old_support, *old_tests, new_support, *new_tests),
    )


def list_cases(tools: Tools) -> tuple[Row, ...]:
    """Every case of upstream's, and whether the baseline supports it. Raises as a run of the baseline."""
    before = _stage(tools, tools.sides.before)
    return _mode(tools, before, "support", "listed", Choice())[1]


def _run_on_cpu(tools: Tools, stage: Stage, choice: Choice) -> OpsRun:
    """One program runs both sides, one after the other."""
    support, known = _mode(tools, stage, "support", "both", choice)
    supported = _halves(known, support)
    try:
        (tests,), rows = _tests(tools, stage, "both", choice, len(known))
    except ToolchainError as error:
        # Whose fault it was is not in the output: what a crashed program had not written out is lost.
        _mode(tools, _stage(tools, tools.sides.before), "test", "baseline", choice)
        raise blame_candidate(error, BackendOpsBroken) from error
    return OpsRun(support=supported, tests=_halves(rows, tests), status=tests.status, runs=(support, tests))


def run_own(tools: Tools, cases: Sequence[Case]) -> list[OwnPair]:
    """Our cases on both sides; once where both are the same files, and so the same numbers.

    Raises:
        BackendOpsBroken: the candidate's run ended badly, the baseline's did not.
        DRIVER_NOT_BUILT, and the errors of a run: on the baseline.
    """
    before = _own(tools, tools.sides.before, tools.subject.baseline, "baseline", cases)
    if _is_same(tools.sides):
        return list(zip(before, before, strict=True))
    try:
        after = _own(tools, tools.sides.after, tools.subject.candidate, "candidate", cases)
    except ToolchainError as error:
        raise blame_candidate(error, BackendOpsBroken) from error
    return list(zip(before, after, strict=True))


def _is_same(sides: Sides) -> bool:
    return sides.after.identity == sides.before.identity


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


def _mode(tools: Tools, stage: Stage, mode: Mode, side: str, choice: Choice) -> tuple[Ran, tuple[Row, ...]]:
    """A run of upstream's program and its table, which has rows."""
    ran = run_mode(
        stage,
        mode,
        name=f"{mode}-{side}",
        choice=choice,
        device=tools.machine.device,
        timeout_s=tools.timeout_s if mode == "test" else _SUPPORT_S,
        place=tools.place,
    )
    check_device(tools.machine, ran.talk(), tools.subject.archs, ran.stderr)
    rows = parse_rows(ran.text(), where=str(ran.stdout))
    if not rows:
        raise ToolchainError(
            f"test-backend-ops {mode} printed no row for the device {tools.machine.device}",
            code="DEVICE_MISSING",
            where=Location(path=str(ran.stdout)),
            why="it skips devices of another name and operations it does not know, and reports success",
            hint=f"its own list of devices: {stage.program} support -o {_ATTENTION}",
        )
    return ran, rows


def _support(tools: Tools, stage: Stage, side: str, choice: Choice) -> tuple[Ran, tuple[Row, ...]]:
    """What the program says of the chosen cases: there may be more of them than fit on a command line."""
    if not choice.cases:
        return _mode(tools, stage, "support", side, choice)
    ran, rows = _mode(tools, stage, "support", side, Choice())
    wanted = frozenset(choice.cases)
    return ran, tuple(row for row in rows if row.case in wanted)


def _tests(
    tools: Tools, stage: Stage, side: str, choice: Choice, known: int
) -> tuple[tuple[Ran, ...], tuple[Row, ...]]:
    """As many rows as are ``known``: what a program printed may be cut off at the end of a line."""
    if choice.cases:
        runs = _run_parts(tools, stage, side, choice.cases)
        rows = tuple(row for run in runs for row in parse_rows(run.text(), where=str(run.stdout)))
    else:
        ran, rows = _mode(tools, stage, "test", side, choice)
        runs = (ran,)
    if len(rows) != known:
        raise ToolchainError(
            f"test-backend-ops ran {len(rows)} of {known} cases",
            code="PROGRAM_OUTPUT_GARBLED",
            where=Location(path=str(runs[0].stdout)),
            why=f"it ended with status {max(run.status for run in runs)}; the rest of its output is missing",
            hint="run the command again",
        )
    return runs, rows


def _run_parts(tools: Tools, stage: Stage, side: str, cases: Sequence[str]) -> tuple[Ran, ...]:
    """The cases in several processes at once, here or on the workers of a cluster."""
    parts = [
        Part(
            stage=stage,
            name=f"test-{side}-{number}",
            cases=some,
            device=tools.machine.device,
            timeout_s=tools.timeout_s,
            folder=tools.place.folder,
            is_pinned=tools.scheduler is None,
        )
        for number, some in enumerate(parts_of(cases))
    ]
    stop = threading.Event()
    work = partial(run_part, stop=stop) if tools.scheduler is None else run_part
    done: dict[str, Ran] = {}
    with open_pool(tools.scheduler, kind="threads") as pool:
        for part, ran in run_tasks(
            pool,
            work,
            parts,
            reporter=tools.place.reporter,
            what=f"test-backend-ops, {side}",
            unit="parts",
            stop=stop,
        ):
            check_device(tools.machine, ran.talk(), tools.subject.archs, ran.stderr)
            done[part.name] = ran
    return tuple(done[part.name] for part in parts)


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
_ON_CPU = (_ATTENTION, "MUL_MAT", "MUL_MAT_ID")  # all others would take hours there
# By the names of both ends of the corpus (builds 6900 and 11549).
_CPU_SAMPLE = r"hsk=(64|128),.*kv=(113|512),nb=(1|35),.*type_K(V)?=f16"
# 524 of the 5248 that build 6900 supports: every head size and grouping, decode and batch.
_EMULATED_SAMPLE = r"kv=(113|512),nb=(1|35),(mask=1,sinks=1|mask=0,sinks=0),.*type_K(V)?=(f16|q8_0)"
_OTHERS, _FEWEST = 480, 6  # cases of all other operations together, and of each


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

    On the CPU the default is a sample: all cases of attention, twice, take half an hour of one core. With
    ``is_sample`` it is one on the emulated GPU, too.
    """

    machine: Machine
    ops: tuple[str, ...] = ()
    pattern: str | None = None
    cases: Sequence[Case] = field(default_factory=gate_cases)
    timeout_s: float = _TIMEOUT_S
    elsewhere: Elsewhere | None = None
    is_sample: bool = False
    scheduler: str | None = None

    @classmethod
    def make(cls, setup: DeviceSetup) -> BackendOpsGate:
        """The gate on a device."""
        is_sample = setup.machine.is_emulated and not setup.full
        return cls(
            machine=setup.machine,
            elsewhere=setup.elsewhere,
            cases=gate_cases(is_sample=is_sample),
            is_sample=is_sample,
            scheduler=setup.scheduler,
        )

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
            with sides_on(self.machine, subject) as sides:
                return self._run(subject, sides)
        except (CandidateBuildFailed, BackendOpsBroken) as error:
            return GateResult.ended_by(self.name, error)

    def _run(self, subject: Subject, sides: Sides) -> GateResult:
        place = Place(
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
            scheduler=self.scheduler,
        )
        listed = list_cases(tools)
        ops = self.ops or ops_of(subject.changed_files, [row.op for row in listed])
        ops = ops or (_ON_CPU if self.machine.is_cpu else ())
        choice = self._choice(ops, listed)
        told = ", ".join(ops) or "all operations"
        subject.reporter.step(f"test-backend-ops of {told} on {self.machine.told}")
        upstream = run_ops(tools, choice)
        has_attention = not ops or _ATTENTION in ops
        own: list[OwnPair] = []
        if has_attention:
            subject.reporter.step(f"{len(self.cases)} attention cases of ours on {self.machine.told}")
            own = run_own(tools, self.cases)
        problems = (*judge_ops(upstream), *(judge_own(own) if has_attention else ()))
        evidence = self._evidence(ops, choice, sides, upstream, own)
        unsupported = sum(not new.is_supported for _, new in own)
        return GateResult(
            gate=self.name,
            verdict=verdict_on(self.machine, problems),
            summary=(
                f"{evidence.tests_run} cases of upstream and {len(own) - unsupported} of ours ran on "
                f"{self.machine.told}, both sides; {len(problems)} problems"
            ),
            problems=problems,
            evidence=evidence,
            not_run=(
                *not_proven_on(self.machine, subject.archs),
                *(
                    (f"upstream's cases that do not match {evidence.pattern}: a sample ran",)
                    if evidence.pattern
                    else ()
                ),
                *(_left_out(ops, choice, listed) if choice.cases else ()),
                *((f"{unsupported} of our cases: not supported by the backend",) if unsupported else ()),
            ),
            lines=tuple(_lines(evidence, len(upstream.tests[1]), own)),
        )

    def _choice(self, ops: tuple[str, ...], listed: Sequence[Row]) -> Choice:
        if self.machine.is_emulated:
            rows = [row for row in _of(ops, listed) if row.is_supported]
            cases = sample_of(rows) if self.is_sample else tuple(dict.fromkeys(row.case for row in rows))
            pattern = re.compile(self.pattern or "")
            wanted = {row.case for row in rows if pattern.search(row.params)}
            if wanted:
                return Choice(cases=tuple(case for case in cases if case in wanted))
        is_default = self.pattern is None and self.machine.is_cpu and ops == (_ATTENTION,)
        return Choice(ops=ops, pattern=_CPU_SAMPLE if is_default else self.pattern)

    def _evidence(
        self,
        ops: Sequence[str],
        choice: Choice,
        sides: Sides,
        upstream: OpsRun,
        own: Sequence[OwnPair],
    ) -> BackendOpsEvidence:
        before, after = upstream.tests
        return BackendOpsEvidence(
            device=self.machine.told,
            backend=self.machine.backend,
            operations=tuple(ops),
            pattern=choice.pattern,
            reference="upstream's cases: the CPU backend of the baseline, loaded first in the same "
            "process; ours: the definition of attention in double precision",
            sides=built_sides(sides),
            commands=tuple(run.command for run in upstream.runs),
            own_runs="once: both sides are the same files" if _is_same(sides) else "each side",
            tests_run=sum(row.is_supported for row in after),
            tests_passed=sum(row.has_passed for row in after),
            baseline_tests_run=sum(row.is_supported for row in before),
            baseline_tests_passed=sum(row.has_passed for row in before),
            failing_on_both=tuple(_failing_on_both(before, after)),
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


def _of(ops: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not ops or row.op in ops]


def _left_out(ops: Sequence[str], choice: Choice, listed: Sequence[Row]) -> Iterator[str]:
    cases = {row.case for row in _of(ops, listed) if row.is_supported}
    left = len(cases - set(choice.cases))
    if left:
        yield f"{left} more of upstream's {len(cases)} cases: a sample ran (--full runs all)"


def _lines(found: BackendOpsEvidence, listed: int, own: Sequence[OwnPair]) -> Iterator[str]:
    """What a person reads below the summary; ``listed`` counts upstream's cases."""
    yield (
        f"test-backend-ops {', '.join(found.operations) or 'all operations'}: "
        f"{found.tests_passed} of {found.tests_run} cases pass, "
        f"baseline {found.baseline_tests_passed} of {found.baseline_tests_run}; "
        f"{listed - found.tests_run} not supported"
    )
    theirs = found.failing_on_both
    if theirs:
        yield f"upstream's own: {len(theirs)} cases fail on both sides, as {theirs[0]}"
    measured = [new for _, new in own if new.is_supported]
    worst = max(measured, key=lambda one: one.nmse, default=None)
    if worst is not None:
        yield (
            f"ours against double precision: {len(measured)} of {len(own)} cases ran, "
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


def judge_own(pairs: Sequence[OwnPair]) -> Iterator[PatchkitError]:
    """Every rule over our cases."""
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

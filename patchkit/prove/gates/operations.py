"""Select and run cases of upstream's test-backend-ops and patchkit's attention cases, on both sides."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from patchkit.base.digests import sha256
from patchkit.base.errors import GateError, Location, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.jobs import cores, open_pool, run_tasks
from patchkit.base.text import counted
from patchkit.base.watching import count_lines, follow_file
from patchkit.gpu.emulated.cases import Case, CaseAborted, without_aborts
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.emulator import EmulationOptions
from patchkit.gpu.emulated.kept_runs import REPORT, is_clean_report
from patchkit.gpu.hardware.attention import AttentionResult, run_attention
from patchkit.gpu.hardware.backend_ops import (
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
    single_out,
)
from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.gpu.hardware.program import ProgramRun, RunContext
from patchkit.prove.build import Machine, Sides, check_device
from patchkit.prove.gates.base import Record
from patchkit.prove.gates.sides import blame_candidate
from patchkit.prove.gates.touched import match_changed_files
from patchkit.prove.subject import Subject
from patchkit.toolchain.sides import BuiltSide


class BackendOpsBroken(GateError):
    """The candidate's program hangs, crashes or prints garbage, but the baseline's does not."""

    code = "BACKEND_OPS_BROKEN"


class AbortedCase(Record):
    """A case of upstream that is skipped on both sides, because the baseline's program aborts in it."""

    case: str
    message: str
    why: str | None
    output: str


_SUPPORT_S = 600.0
# So many cases may end the baseline's program; with more, the backend counts as broken. The most seen are 48
# (build 9538 with rocWMMA, docs/records/emulated-operations.md).
_MOST_ABORTING = 64
TIMEOUT_S = 2 * 3600.0
ATTENTION = "FLASH_ATTN_EXT"
# File name prefixes in ggml-cuda, and the names of the operations that their kernels serve, including fused
# graphs (MUL_MAT_VEC_FUSION, RMS_NORM_MUL_ADD). Read from builds 6900 and 11549.
_PRODUCTS = "MUL_MAT.*"
_SERVED = (
    ("fattn", ATTENTION),
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


def _no_more(_name: str) -> Mapping[str, str]:
    return {}


def _nothing(_name: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What both kinds of runs need.

    ``variables`` gives the additional environment of a test run, by its name; ``forget`` is called with the
    name of a run that is discarded. If ``looked`` is set, the environment that it gives is tried first.
    ``is_spread``: spread the candidate's cases over all cores, even if there are few.
    """

    subject: Subject
    machine: Machine
    sides: Sides
    place: RunContext
    timeout_s: float
    variables: Callable[[str], Mapping[str, str]] = _no_more
    forget: Callable[[str], None] = _nothing
    looked: Callable[[str], Mapping[str, str]] | None = None
    is_spread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsRun:
    """Rows of both sides: ``support`` is what the programs claim to support, ``tests`` what they ran.

    ``aborting`` are cases that are in neither.
    """

    support: tuple[tuple[Row, ...], tuple[Row, ...]]
    tests: tuple[tuple[Row, ...], tuple[Row, ...]]
    status: int
    runs: tuple[ProgramRun, ...]
    aborting: tuple[AbortedCase, ...] = ()


RUN_REPORT = "report.json"
"""The report that a run with checks writes at its end, in its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The results of runs with checks: each run has a folder below ``looked``, by its name."""

    folder: Path

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep results for the duration of the context, starting without those of a killed run.

        Raises CacheError.
        """
        shutil.rmtree(self.looked, ignore_errors=True)
        try:
            yield
        finally:
            shutil.rmtree(self.looked, ignore_errors=True)

    @property
    def looked(self) -> Path:
        """The folder of all reports and code objects."""
        return self.folder / "looked"

    def variables(self, name: str) -> Mapping[str, str]:
        """The environment of a run of that name; its folder is emptied first. Raises CacheError."""
        place = self.looked / name
        shutil.rmtree(place, ignore_errors=True)
        with disk_errors(place, "preparing a run"):
            place.mkdir(parents=True, exist_ok=True)
        return EmulationOptions(checks=usual_checks(), report=place / RUN_REPORT, objects=place).variables()

    def forget(self, name: str) -> None:
        """Delete the results of a run."""
        shutil.rmtree(self.looked / name, ignore_errors=True)

    def of(self, side: str) -> list[Path]:
        """The runs of a side. If both sides are the same files, only the baseline has patchkit's cases."""
        tests = [path for path in self.looked.glob(f"test-{side}*") if path.is_dir()]
        own = [path for path in (self.looked / f"own-{side}", self.looked / "own-baseline") if path.is_dir()]
        return [*sorted(tests, key=lambda path: (len(path.name), path.name)), *own[:1]]


OwnPair = tuple[
    AttentionResult, AttentionResult
]  # one of patchkit's cases, on the baseline and on the candidate


def ops_of(changed: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Those of the operations ``names`` that changed files serve; empty if a file could serve any.

    Files are matched by name prefix: ``fattn-tile.cuh`` is attention.
    """
    served = match_changed_files(changed, _SERVED) or ()
    return tuple(sorted({name for name in set(names) for one in served if re.fullmatch(one, name)}))


def sample_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Cases for the emulated GPU, in the program's order: for attention a fixed choice, else a few per op.

    The few are spread over the values of the operation's first variable, mostly a type, and chosen by a
    digest of their text, so that a case which upstream adds or removes changes no other choice. Cases that
    are too large are used only if an operation has no smaller one.
    """
    by_op: dict[str, list[Row]] = {}
    for row in dict.fromkeys(row for row in rows if row.is_supported):
        by_op.setdefault(row.op, []).append(row)
    others = len(by_op) - (ATTENTION in by_op)
    chosen: set[str] = set()
    for op, found in by_op.items():
        if op == ATTENTION:
            chosen |= {row.case for row in found if re.search(EMULATED_SAMPLE, row.params)}
            continue
        groups: dict[str, list[str]] = {}
        for row in found:
            groups.setdefault(row.params.partition(",")[0], []).append(row.case)
        each = math.ceil(max(_FEWEST, _OTHERS // others) / len(groups))
        for cases in groups.values():
            small = [case for case in cases if elements_of(case) <= _MOST_ELEMENTS]
            wanted = small or [min(cases, key=elements_of)]
            chosen |= set(sorted(wanted, key=_digest)[:each])
    return tuple(dict.fromkeys(row.case for row in rows if row.case in chosen))


def elements_of(case: str) -> int:
    """Elements of the largest tensor of a case, from the variables in its text; 0 if there are none."""
    sizes = [math.prod(map(int, found.split(","))) for found in _SHAPE.findall(case)]
    given = {name: int(value) for name, value in _DIMENSION.findall(case)}
    m, n, k = (given.get(name, 1) for name in "mnk")
    batches = max((math.prod(map(int, found.split(","))) for found in _BATCHES.findall(case)), default=1)
    if len(given) > 1:
        sizes += [m * k * max(batches, given.get("n_mats", 1)), n * k * batches, m * n * batches]
    return max(sizes, default=0)


def _digest(text: str) -> str:
    return sha256(text)


def run_ops(tools: Tools, choice: Choice, wanted: frozenset[str] | None = None) -> OpsRun:
    """Run upstream's cases on both sides.

    Cases of ``choice.cases`` that end the baseline's program with a signal are skipped on both sides, if
    there are others. With ``wanted`` the candidate runs only these and the baseline's other rows are ignored;
    if the baseline ends in all of them, the candidate runs the others.

    Raises:
        BackendOpsBroken: the candidate's run failed, the baseline's did not.
        DEVICE_MISSING: no device of that name, or another GPU.
        PROGRAM_FAILED and the others of :mod:`patchkit.gpu.hardware.program`: on the baseline.
        CacheError: the disk is full or not writable.
    """
    before, after = (_stage(tools, side) for side in (tools.sides.before, tools.sides.after))
    if tools.machine.is_cpu:
        return _run_on_cpu(tools, after, choice)
    old_support, old_known = _support(tools, before, "baseline", choice)
    old_tests, aborting = _tests(tools, before, "baseline", choice, len(old_known), most=_MOST_ABORTING)
    skipped = frozenset(one.case for one in aborting)
    old_known = tuple(row for row in old_known if row.case not in skipped)
    old_rows = _rows(old_tests, len(old_known))
    if wanted is not None and wanted - skipped:
        skipped |= frozenset(choice.cases) - wanted
        aborting = tuple(one for one in aborting if one.case in wanted)
        old_known = tuple(row for row in old_known if row.case in wanted)
        old_rows = tuple(row for row in old_rows if row.case in wanted)
    try:
        new_support, new_known = _support(tools, after, "candidate", choice)
        new_known = tuple(row for row in new_known if row.case not in skipped)
        new_tests, _ = _tests(tools, after, "candidate", choice, len(new_known), skipped=skipped)
        new_rows = _rows(new_tests, len(new_known))
    except ToolchainError as error:
        raise blame_candidate(error, BackendOpsBroken) from error
    return OpsRun(
        support=(old_known, new_known),
        tests=(old_rows, new_rows),
        status=max(run.status for run in new_tests),
        runs=(old_support, *old_tests, new_support, *new_tests),
        aborting=aborting,
    )


def format_aborting(aborting: Sequence[AbortedCase]) -> Iterator[str]:
    """A line for each operation that has cases which abort on the baseline."""
    by_op: dict[str, list[str]] = {}
    for one in aborting:
        by_op.setdefault(one.case.partition("(")[0], []).append(one.case)
    for op, cases in by_op.items():
        yield f"{op} ({counted(len(cases), 'case')}): the baseline aborts, for example in {cases[0]}"


def list_cases(tools: Tools) -> tuple[Row, ...]:
    """All cases of upstream and whether the baseline supports them. Raises the errors of a baseline run."""
    before = _stage(tools, tools.sides.before)
    return _mode(tools, before, "support", "listed", Choice())[1]


def _run_on_cpu(tools: Tools, stage: Stage, choice: Choice) -> OpsRun:
    """Run both sides in one program, one after the other."""
    support, known = _mode(tools, stage, "support", "both", choice)
    supported = _halves(known, support)
    try:
        (tests,), _ = _tests(tools, stage, "both", choice, len(known))
        rows = _rows((tests,), len(known))
    except ToolchainError as error:
        # The output does not show which side failed: a crashed program loses what it had not yet written.
        _mode(tools, _stage(tools, tools.sides.before), "test", "baseline", choice)
        raise blame_candidate(error, BackendOpsBroken) from error
    return OpsRun(support=supported, tests=_halves(rows, tests), status=tests.status, runs=(support, tests))


def run_own(tools: Tools, cases: Sequence[Case]) -> tuple[list[OwnPair], tuple[str, ...]]:
    """Run patchkit's cases on both sides, or once if both sides are the same files and so give equal results.

    Also returns a line for each kind of case that aborts on the baseline; such cases run on neither side.

    Raises:
        BackendOpsBroken: the candidate's run failed, the baseline's did not.
        NOT_BUILT, and the errors of a run: on the baseline.
    """
    baseline = partial(_own, tools, tools.sides.before, tools.subject.baseline, "baseline")
    runnable, before, aborting = without_aborts(baseline, cases)
    if is_same(tools.sides):
        return list(zip(before, before, strict=True)), aborting
    try:
        after = _own(tools, tools.sides.after, tools.subject.candidate, "candidate", runnable)
    except ToolchainError as error:
        raise blame_candidate(error, BackendOpsBroken) from error
    return list(zip(before, after, strict=True)), aborting


def is_same(sides: Sides) -> bool:
    """Whether both sides are the same files."""
    return sides.after.identity == sides.before.identity


def _own(
    tools: Tools, side: BuiltSide, tree: Path, name: str, cases: Sequence[Case]
) -> tuple[AttentionResult, ...]:
    subject = tools.subject
    driver = build_driver("attention_check", side, tree, subject.cache_root, subject.reporter)
    run_name = f"own-{name}"

    def measured(variables: Mapping[str, str]) -> tuple[AttentionResult, ...]:
        ran, found = run_attention(
            driver,
            replace(side, environment={**side.environment, **variables}),
            device=tools.machine.device,
            cases=cases,
            name=run_name,
            timeout_s=tools.timeout_s,
            place=tools.place,
        )
        check_device(tools.machine, ran.talk(), subject.archs, ran.stderr)
        return found

    if tools.looked is not None:  # first with checks, as in run_part
        looked = tools.looked(run_name)
        with contextlib.suppress(ToolchainError):
            found = measured(looked)
            if is_clean_report(Path(looked[REPORT])):
                return found
    return measured(tools.variables(run_name))


def _stage(tools: Tools, side: BuiltSide) -> Stage:
    name = f"{side.identity[:16]}-against-{tools.sides.before.identity[:16]}"
    folder = side.folder.parent.parent / "stages" / name
    return make_stage(side, tools.sides.before, folder)


def _with(stage: Stage, variables: Mapping[str, str]) -> Stage:
    return replace(stage, side_environment={**stage.side_environment, **variables})


def _mode(
    tools: Tools, stage: Stage, mode: Mode, side: str, choice: Choice, known: int = 0
) -> tuple[ProgramRun, tuple[Row, ...]]:
    """Run upstream's program and read its table, which must have rows; ``known`` of them, or 0 if unknown."""
    name = f"{mode}-{side}"
    with _followed(tools.place, name, side, known):
        ran = run_mode(
            _with(stage, tools.variables(name)) if mode == "test" else stage,
            mode,
            name=name,
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
            why="it skips devices of other names and operations it does not know, and then reports success",
            hint=f"to list its devices: {stage.program} support -o {ATTENTION}",
        )
    return ran, rows


def _followed(place: RunContext, name: str, side: str, known: int) -> contextlib.AbstractContextManager[None]:
    """Report the progress of a run that prints ``known`` rows: all cases take minutes."""
    if not known or place.elsewhere is not None:  # output of a remote run arrives at its end
        return contextlib.nullcontext()
    what = f"test-backend-ops, {'both sides' if side == 'both' else side}"
    return follow_file(place.folder / f"{name}.out", count_lines(known), place.reporter, what, "cases")


def _support(tools: Tools, stage: Stage, side: str, choice: Choice) -> tuple[ProgramRun, tuple[Row, ...]]:
    """The rows of the chosen cases; all are listed, as they may not fit on a command line."""
    if not choice.cases:
        return _mode(tools, stage, "support", side, choice)
    ran, rows = _mode(tools, stage, "support", side, Choice())
    wanted = frozenset(choice.cases)
    return ran, tuple(row for row in rows if row.case in wanted)


def _rows(runs: Sequence[ProgramRun], known: int) -> tuple[Row, ...]:
    """All rows, which must be ``known`` many: output may be cut off at the end of a line."""
    rows = tuple(row for run in runs for row in parse_rows(run.text(), where=str(run.stdout)))
    if len(rows) != known:
        raise ToolchainError(
            f"test-backend-ops ran {len(rows)} of {known} cases",
            code="PROGRAM_FAILED",
            where=Location(path=str(runs[0].stdout)),
            why=f"it exited with status {max(run.status for run in runs)}; the rest of its output is missing",
            hint="run the command again",
        )
    return rows


def _tests(
    tools: Tools,
    stage: Stage,
    side: str,
    choice: Choice,
    known: int,
    *,
    skipped: frozenset[str] = frozenset(),
    most: int = 0,
) -> tuple[tuple[ProgramRun, ...], tuple[AbortedCase, ...]]:
    """Run the chosen cases except ``skipped``, ``known`` rows, in several processes if the cases are named.

    Also returns the cases that end the program. Raises CaseAborted if there are more than ``most``, or if all
    cases do.
    """
    if not choice.cases:
        return (_mode(tools, stage, "test", side, choice, known)[0],), ()
    parts = _parts(tools, stage, side, choice.cases, skipped)
    done = _run_parts(tools, parts, side)
    most = min(most, sum(len(part.cases) for part in parts) - 1)

    def again(part: Part) -> ProgramRun | ToolchainError:
        return run_part(replace(part, stage=_with(stage, tools.variables(part.name))))

    runs: list[ProgramRun] = []
    aborting: list[AbortedCase] = []
    for part in parts:
        for some, ended in single_out(part, done[part.name], again):
            if isinstance(ended, ProgramRun):
                runs.append(ended)
                continue
            (case,) = some.cases
            if len(aborting) == most:
                raise CaseAborted.of(ended, case, f"{ended.message}, in case {case}")
            output = str(ended.where[0])
            aborting.append(AbortedCase(case=case, message=ended.message, why=ended.why, output=output))
            tools.forget(some.name)
    return tuple(runs), tuple(aborting)


def _parts(
    tools: Tools, stage: Stage, side: str, cases: Sequence[str], skipped: frozenset[str]
) -> tuple[Part, ...]:
    """The cases of each process. Both sides have the same division, except for skipped or spread cases."""
    parts = [tuple(case for case in some if case not in skipped) for some in parts_of(cases)]
    if tools.is_spread and side == "candidate":
        each = math.ceil(cores() / max(1, len(parts)))
        parts = [some for part in parts for some in _cut(part, each)]
    return tuple(
        Part(
            stage=_with(stage, tools.variables(f"test-{side}-{number}")),
            name=f"test-{side}-{number}",
            cases=some,
            device=tools.machine.device,
            timeout_s=tools.timeout_s,
            folder=tools.place.folder,
            looked=None if tools.looked is None else _with(stage, tools.looked(f"test-{side}-{number}")),
        )
        for number, some in enumerate(parts)
        if some
    )


def _cut(cases: tuple[str, ...], most: int) -> Iterator[tuple[str, ...]]:
    """In order, cut into at most ``most`` pieces of about equal size."""
    size = max(1, math.ceil(len(cases) / most))
    yield from (cases[start : start + size] for start in range(0, len(cases), size))


def _run_parts(tools: Tools, parts: Sequence[Part], side: str) -> dict[str, ProgramRun | ToolchainError]:
    """The result of each part by its name."""
    stop = threading.Event()
    done: dict[str, ProgramRun | ToolchainError] = {}
    with open_pool("threads") as pool:
        for part, ended in run_tasks(
            pool,
            partial(run_part, stop=stop),
            parts,
            reporter=tools.place.reporter,
            what=f"test-backend-ops, {side}",
            unit="parts",
            stop=stop,
        ):
            if isinstance(ended, ProgramRun):
                check_device(tools.machine, ended.talk(), tools.subject.archs, ended.stderr)
                if not ended.is_kept:
                    tools.place.reporter.used("run", ended.cpu_s)
            done[part.name] = ended
    return done


def _halves(rows: tuple[Row, ...], ran: ProgramRun) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    half = len(rows) // 2
    before, after = rows[:half], rows[half:]
    if [row.case for row in before] != [row.case for row in after]:
        raise ToolchainError(
            "test-backend-ops did not run the same cases on both CPU backends",
            code="PROGRAM_FAILED",
            where=Location(path=str(ran.stdout)),
            hint="run the command again",
        )
    return before, after


ON_CPU = (ATTENTION, "MUL_MAT", "MUL_MAT_ID")  # all other operations would take hours
# Matches the case names of builds 6900 and 11549, the two ends of the corpus.
_CPU_SAMPLE = r"hsk=(64|128),.*kv=(113|512),nb=(1|35),.*type_K(V)?=f16"
# 524 of the 5248 that build 6900 supports: every head size and grouping, decode and batch.
EMULATED_SAMPLE = r"kv=(113|512),nb=(1|35),(mask=1,sinks=1|mask=0,sinks=0),.*type_K(V)?=(f16|q8_0)"
# Limit for a sample: 128 MB of floats. MUL_MAT_HADAMARD of build 11549 has a case of 2^28, 5 GB with checks.
_MOST_ELEMENTS = 2**25
_SHAPE = re.compile(r"\bne\w*=\[([0-9,]+)\]")
_BATCHES = re.compile(r"\bbs=\[([0-9,]+)\]")
_DIMENSION = re.compile(r"\b(m|n|k|n_mats)=(\d+)")
_OTHERS, _FEWEST = 480, 6  # cases of all operations except attention together, and the minimum of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The cases of a gate: operations (none: all), upstream's cases, and a line for each skipped group.

    ``wanted``: the cases for the candidate, if the baseline's results are available for more.
    """

    ops: tuple[str, ...]
    choice: Choice
    skipped: tuple[str, ...]
    wanted: frozenset[str] | None = None

    @property
    def has_attention(self) -> bool:
        """Whether patchkit's own cases are included."""
        return not self.ops or ATTENTION in self.ops

    @property
    def label(self) -> str:
        """The operations as text."""
        return ", ".join(self.ops) or "all operations"


def select(tools: Tools, *, ops: tuple[str, ...], pattern: str | None, is_sample: bool) -> Selected:
    """Select cases of upstream; without ``ops`` those of the operations that changed files serve.

    Raises the errors of :func:`list_cases`.
    """
    listed = list_cases(tools)
    ops = ops or ops_of(tools.subject.backend_files, [row.op for row in listed])
    ops = ops or (ON_CPU if tools.machine.is_cpu else ())
    rows = [row for row in listed if not ops or row.op in ops]
    supported = [row for row in rows if row.is_supported]
    choice = _choice(tools.machine, ops, pattern, supported, is_sample=is_sample)
    return Selected(ops=ops, choice=choice, skipped=tuple(_skipped(choice, rows)))


def _choice(
    machine: Machine, ops: tuple[str, ...], pattern: str | None, rows: Sequence[Row], *, is_sample: bool
) -> Choice:
    if machine.is_emulated:
        cases = sample_of(rows) if is_sample else tuple(dict.fromkeys(row.case for row in rows))
        fitting = re.compile(pattern or "")
        wanted = {row.case for row in rows if fitting.search(row.params)}
        if wanted:
            return Choice(cases=tuple(case for case in cases if case in wanted))
    is_default = pattern is None and machine.is_cpu and ops == (ATTENTION,)
    return Choice(ops=ops, pattern=_CPU_SAMPLE if is_default else pattern)


def narrowed_to(chosen: Selected, types: Sequence[str]) -> Selected:
    """Narrow a sample to cases of some tensor types; unchanged if it has none of them.

    For the baseline, the parts that a sample is divided into stay whole, so that their cached results can be
    reused.
    """
    named = re.compile(rf"=({'|'.join(map(re.escape, types))})(?=[,)])", re.IGNORECASE)
    parts = [part for part in parts_of(chosen.choice.cases) if any(map(named.search, part))]
    whole = tuple(case for part in parts for case in part)
    if not types or not whole:
        return chosen
    wanted = frozenset(filter(named.search, whole))
    left = len(chosen.choice.cases) - len(wanted)
    skipped = f"{left} of {len(chosen.choice.cases)} cases of the sample: not of {', '.join(types)}"
    return replace(
        chosen,
        choice=replace(chosen.choice, cases=whole),
        skipped=(*((skipped,) if left else ()), *chosen.skipped),
        wanted=wanted,
    )


def _skipped(choice: Choice, rows: Sequence[Row]) -> Iterator[str]:
    if choice.pattern:
        yield f"upstream's cases that do not match {choice.pattern}: a sample ran"
    if choice.cases:
        cases = {row.case for row in rows if row.is_supported}
        left = len(cases - set(choice.cases))
        if left:
            yield f"{left} more of upstream's {len(cases)} cases: a sample ran (--full runs all)"

"""Running test-backend-ops and our own cases on both sides, so that a rule can compare them row by row.

On a GPU each side is one run against the baseline's CPU backend. On the CPU one run has both: the first half
of its rows is the baseline against itself, the second the candidate against the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.build.sides import BuiltSide
from patchkit.errors import Location, ToolchainError
from patchkit.gates.backend_ops_errors import BackendOpsBroken
from patchkit.gates.hardware import Machine, Sides, check_device
from patchkit.gates.subject import Subject
from patchkit.programs.attention import Measured, run_attention
from patchkit.programs.backend_ops import Choice, Row, Stage, make_stage, parse_rows, run_mode
from patchkit.programs.native_build import build_driver
from patchkit.programs.run import OutputGarbled, Place, Ran
from patchkit.recorder.cases import Case

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
        OutputGarbled, ProgramHung and the others of :mod:`patchkit.programs.run`: on the baseline.
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
        raise OutputGarbled(
            f"test-backend-ops ran {ran} of {known} cases",
            where=Location(path=str(tests.stdout)),
            why=f"it ended with status {tests.status}; the rest of its output is missing",
            hint="run the command again",
        )


def _halves(rows: tuple[Row, ...], ran: Ran) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    half = len(rows) // 2
    before, after = rows[:half], rows[half:]
    if [row.case for row in before] != [row.case for row in after]:
        raise OutputGarbled(
            "the rows of the two CPU backends are not of the same cases",
            where=Location(path=str(ran.stdout)),
            hint="run the command again",
        )
    return before, after

"""The tests that a build passes or fails: a command, operations of test-backend-ops, or llama-bench."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import signal
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from patchkit.base.errors import (
    AnchorError,
    Location,
    PatchkitError,
    ToolchainError,
    UsageError,
    members_of,
)
from patchkit.base.files import disk_errors, file_sha256, file_stamp
from patchkit.base.process import ToolTimeout, run_tool, signal_name
from patchkit.base.reporter import Reporter
from patchkit.base.searching import Outcome
from patchkit.base.text import counted
from patchkit.carry.series.switches import turn_off
from patchkit.gpu.hardware.backend_ops import Choice, make_stage
from patchkit.gpu.hardware.bench.measure import Arm, Bench, Setup, open_bench
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.rounds import AGAIN, BASELINE, CANDIDATE
from patchkit.gpu.hardware.bench.statistics import FEWEST, Comparison, compare
from patchkit.gpu.hardware.program import RunContext
from patchkit.gpu.hardware.runner import LocalRunner
from patchkit.prove.bench.test_list import WantedTest
from patchkit.prove.build import CandidateBuildFailed, Machine, check_device, run_operations
from patchkit.toolchain.cmake import BuildFailed, NotConfigured
from patchkit.toolchain.compile import CompileFailed
from patchkit.toolchain.parts import OPERATION_TESTS
from patchkit.toolchain.sides import BuiltSide

_DOING = "saving the output of a test"
_SKIP, _NOT_FOUND = 125, frozenset({126, 127})  # as in git bisect run; the last two are those of a shell
_SIGNALLED = 128  # shell convention: the status of a program ended by a signal is 128 plus the signal
_LAST_SIGNAL = 64  # Linux; for example 255, from exit(-1), is not a signal
_STOPPED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP})
_LINE = 200  # characters of a program's output in a reason
_HASHED = 16 * 2**20  # bytes; a larger file, such as a model, is known by size and time of its last change


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The outcome of a test, and the reason in words."""

    outcome: Outcome
    why: str


class Check(Protocol):
    """A test. Outcomes of an earlier run are reused if ``identity`` is equal."""

    @property
    def label(self) -> str:
        """The test in words."""
        ...

    @property
    def identity(self) -> Mapping[str, object]:
        """All settings that an outcome depends on, besides the build."""
        ...

    @property
    def is_relative(self) -> bool:
        """Whether builds are compared with the first candidate, which is then good by definition."""
        ...

    def run(self, side: BuiltSide, reference: Callable[[], BuiltSide], folder: Path) -> Checked:
        """Test a build. ``reference`` gives that of the first candidate; files go into ``folder``.

        Raises an error if the build is not at fault, for example for a command that does not exist.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCheck:
    """A command of the user. Its exit status decides as in ``git bisect run``.

    0 is good, 125 skips the build, 126 and 127 are errors of the command, and all others are bad, as are a
    crash and a command that runs longer than ``timeout_s``. The folder of the build is first on PATH.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    timeout_s: float
    reporter: Reporter
    is_relative: bool = False

    @property
    def label(self) -> str:
        """The command."""
        return shlex.join(self.argv)

    @property
    def identity(self) -> Mapping[str, object]:
        """The command, and the files that it names: a script that was edited is another test."""
        return {"command": list(self.argv), "files": [_stamp_of(word, self.environ) for word in self.argv]}

    def run(self, side: BuiltSide, reference: Callable[[], BuiltSide], folder: Path) -> Checked:
        """Run it. Raises BISECT_COMMAND: it does not exist, or was stopped from outside."""
        del reference
        log = folder / "output.log"
        # Patches that the user has turned off must not be off in every candidate.
        own = {name: value for name, value in self.environ.items() if name not in turn_off(())}
        variables = {**own, **side.environment, "PATCHKIT_BUILD": str(side.folder)}
        variables["PATH"] = os.pathsep.join([str(side.folder), self.environ.get("PATH", os.defpath)])
        with disk_errors(log, _DOING):
            folder.mkdir(parents=True, exist_ok=True)
            file = log.open("wb")
        with file:
            try:
                done = run_tool(
                    self.argv,
                    into=(file, file),
                    env=variables,
                    timeout_s=self.timeout_s,
                    check=False,
                    reporter=self.reporter,
                    work="run",
                )
            except ToolTimeout:
                return Checked(outcome="bad", why=f"it did not end in {self.timeout_s / 60:g} minutes")
        return self._judge(done.returncode, log)

    def _judge(self, status: int, log: Path) -> Checked:
        by_shell = status - _SIGNALLED if _SIGNALLED < status <= _SIGNALLED + _LAST_SIGNAL else 0
        number = -status if status < 0 else by_shell
        if number in _STOPPED or status in _NOT_FOUND:
            what = f"was stopped by {signal_name(number)}" if number in _STOPPED else "could not be started"
            raise UsageError(
                f"the command {what}, which says nothing about the build",
                code="BISECT_COMMAND",
                where=Location(path=str(log)),
                why=_tail(log),
                hint="correct the command, and run the search again: finished tests are kept",
            )
        if status == 0:
            return Checked(outcome="good", why="exit status 0")
        if status == _SKIP:
            return Checked(outcome="skip", why="exit status 125")
        end = f"ended by {signal_name(number)}" if number else f"exit status {status}"
        return Checked(outcome="bad", why="; ".join(filter(None, [end, _tail(log)])))


def check_command(word: str, programs: Sequence[str], environ: Mapping[str, str]) -> None:
    """Check before anything is built that a command exists, here or among the programs of a build.

    Raises:
        BISECT_COMMAND: it does not, or it is not executable.
    """
    if word in programs or shutil.which(word, path=environ.get("PATH", os.defpath)) is not None:
        return
    path = Path(word)
    is_here = path.exists()
    raise UsageError(
        f"{word} cannot be run",
        code="BISECT_COMMAND",
        where=Location(path=word) if is_here else None,
        why=("it is a folder" if path.is_dir() else "it is not executable")
        if is_here and os.sep in word
        else "there is no such command on PATH or among the programs of the build"
        if os.sep not in word
        else "there is no such file",
        hint=f"for a script in this folder: ./{word}" if is_here and os.sep not in word else None,
    )


def _stamp_of(word: str, environ: Mapping[str, str]) -> object:
    path = Path(shutil.which(word, path=environ.get("PATH", os.defpath)) or word)
    try:
        if not path.is_file():
            return None
        return file_sha256(path) if path.stat().st_size <= _HASHED else list(file_stamp(path))
    except (OSError, ValueError):
        return None


def _tail(log: Path) -> str:
    """The last line of an output that is not empty."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:_LINE] for line in reversed(lines) if line.strip()), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCheck:
    """Upstream's test-backend-ops for some operations. Bad: a case is wrong, or the program crashes."""

    choice: Choice
    machine: Machine
    archs: tuple[str, ...]
    timeout_s: float
    reporter: Reporter
    is_relative: bool = False

    @property
    def label(self) -> str:
        """The operations, and where they run."""
        return f"{OPERATION_TESTS} {' '.join(self.choice.words)} on {self.machine.label}"

    @property
    def identity(self) -> Mapping[str, object]:
        """The cases and the device."""
        return {"operations": self.choice.words, "device": self.machine.label}

    def run(self, side: BuiltSide, reference: Callable[[], BuiltSide], folder: Path) -> Checked:
        """Run the cases. Raises as :func:`run_operations`, if it is not the build's fault.

        A GPU is compared with the build's own CPU backend, because ggml's interface differs between builds.
        The CPU backend is compared with that of the first candidate, which must be of the same build.
        """
        stage = make_stage(side, reference() if self.machine.is_cpu else side, folder / "stage")
        try:
            rows = run_operations(
                stage,
                self.machine,
                self.archs,
                self.choice,
                name="test",
                timeout_s=self.timeout_s,
                place=RunContext(folder=folder, reporter=self.reporter),
            )
        except ToolchainError as error:
            if error.code not in {"PROGRAM_CRASHED", "PROGRAM_FAILED", "DEVICE_LOST"}:
                raise
            return Checked(outcome="bad", why=error.message)
        wrong = [row for row in rows if not row.has_passed]
        if wrong:
            first = f"{wrong[0].case}: {wrong[0].error}"[:_LINE]
            return Checked(outcome="bad", why=f"{len(wrong)} of {counted(len(rows), 'case')} wrong: {first}")
        if not rows:
            return Checked(outcome="skip", why="it has no such case, or the device does not support it")
        return Checked(outcome="good", why=f"{counted(len(rows), 'case')} correct")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCheck:
    """llama-bench against the first candidate, in turns. Bad: a test is slower by more than ``least``.

    ``least`` is a fraction. ``rounds``: how many are measured at most, until every test is clear.
    """

    model: Path
    tests: tuple[WantedTest, ...]
    plan: BenchPlan
    least: float
    machine: Machine
    archs: tuple[str, ...]
    timeout_s: float
    reporter: Reporter
    rounds: int = 3 * FEWEST
    is_relative: bool = True

    @property
    def label(self) -> str:
        """The tests, the model and the limit."""
        tests = ", ".join(test.name for test in self.tests)
        return f"{tests} of {self.model.name} at most {100 * self.least:g} % slower than the first candidate"

    @property
    def identity(self) -> Mapping[str, object]:
        """The settings that a speed depends on, besides the build."""
        return {
            "tests": [test.name for test in self.tests],
            "model": list(file_stamp(self.model)),
            "batch": [self.plan.batch, self.plan.micro_batch],
            "threads": self.plan.threads,
            "least": self.least,
            "device": self.machine.label,
        }

    def run(self, side: BuiltSide, reference: Callable[[], BuiltSide], folder: Path) -> Checked:
        """Measure until all tests are clear. Raises the errors of llama-bench on the first candidate."""
        good = _arm(BASELINE, reference())
        setup = Setup(
            arms=(good, replace(good, label=AGAIN), _arm(CANDIDATE, side)),
            model=self.model,
            plan=replace(
                self.plan,
                prompts=tuple(sorted({test.prompt for test in self.tests if test.prompt})),
                generated=tuple(sorted({test.generated for test in self.tests if test.generated})),
                depths=tuple(sorted({test.depth for test in self.tests})),
                repetitions=1,
                device=None if self.machine.is_cpu else self.machine.device,
            ),
            runner=LocalRunner(reporter=self.reporter),
        )
        with open_bench(
            folder,
            setup,
            reporter=self.reporter,
            timeout_s=self.timeout_s,
            check_talk=lambda talk, where: check_device(self.machine, talk, self.archs, where),
        ) as bench:
            count = 0
            while True:
                count += FEWEST
                try:
                    bench.measure(count)
                except PatchkitError as error:
                    if error.code != "BENCH_FAILED":
                        raise
                    return Checked(outcome="skip", why=error.message)
                found = {test.name: self._compared(bench, count, test) for test in self.tests}
                outcome = judge_speeds(tuple(found.values()), self.least)
                if outcome != "skip" or count >= self.rounds:
                    break
        figures = ", ".join(f"{name} {_text(one)}" for name, one in found.items())
        undecided = f"not decided in {count} rounds: " if outcome == "skip" else ""
        return Checked(outcome=outcome, why=f"{undecided}{figures}")

    def _compared(self, bench: Bench, rounds: int, test: WantedTest) -> Comparison:
        times: dict[str, list[float]] = {}
        for entry in bench.entries(rounds):
            for row in bench.rows(entry):
                if (row.test.prompt, row.test.generated, row.test.depth) == (
                    test.prompt,
                    test.generated,
                    test.depth,
                ):
                    times.setdefault(entry.label, []).append(statistics.median(row.samples_ns))
        return compare(times[BASELINE], times[CANDIDATE], times[AGAIN], least=self.least)


def judge_speeds(compared: Sequence[Comparison], least: float) -> Outcome:
    """Bad if a test is slower by more than the limit, good if none can be, else not decided."""
    if any(one.verdict == "slower" for one in compared):
        return "bad"
    limit = -math.log1p(least)
    return "good" if all(one.rounds >= FEWEST and one.effect.low > limit for one in compared) else "skip"


def _text(one: Comparison) -> str:
    low, middle, high = (
        100 * math.expm1(each) for each in (one.effect.low, one.effect.middle, one.effect.high)
    )
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


def _arm(label: str, side: BuiltSide) -> Arm:
    return Arm(label=label, folder=side.folder, tree=side.tree, build=side.identity, env=side.environment)


# Of the emulated GPU: the host code of a build needs functions that it does not provide.
_UNLINKED = frozenset({"HOST_LINK_FAILED", "RECORDER_LACKS_CALLS"})


def is_of_the_build(error: PatchkitError) -> bool:
    """Whether a build cannot be made, so it is skipped; other errors are of the machine or the request."""
    kinds = (BuildFailed, NotConfigured, CandidateBuildFailed, CompileFailed, AnchorError)
    return all(isinstance(each, kinds) or each.code in _UNLINKED for each in members_of(error))

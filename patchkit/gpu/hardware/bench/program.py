"""A call of llama-bench, and every way that it can end badly."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.errors import GateError, Location, PatchkitError, ToolchainError
from patchkit.base.files import write_whole
from patchkit.base.process import Completed, ToolTimeout, signal_name
from patchkit.base.upstreams import llama_cpp
from patchkit.gpu.hardware.bench.conditions import read_conditions
from patchkit.gpu.hardware.bench.options import BenchOptions, BenchPlan, bench_arguments, parse_help
from patchkit.gpu.hardware.bench.rows import BenchRow, BenchUnreadable, parse_rows
from patchkit.gpu.hardware.program import has_lost_gpu, has_no_memory
from patchkit.gpu.hardware.runner import Job, Runner

_HELP_S = 60.0
_BETWEEN_LOOKS_S = 10.0  # at temperatures and clocks
_TAIL = 15  # lines of stderr in a message
_SIGNALLED = 128  # a shell's status for a program that a signal ended, plus the signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that ended well. ``text`` are its rows as they were printed, ``conditions`` the machine's."""

    argv: tuple[str, ...]
    text: str
    rows: tuple[BenchRow, ...]
    talk: str
    seconds: float
    conditions: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class LlamaBench:
    """Calls of llama-bench on one machine; ``timeout_s`` is per call.

    ``check_talk`` looks at what a call writes to stderr, and raises when it ran where it must not.
    ``clock`` gives seconds.
    """

    runner: Runner
    timeout_s: float
    check_talk: Callable[[str, Path], None] | None = None
    clock: Callable[[], float] = time.monotonic
    _options: dict[Path, BenchOptions] = field(default_factory=dict)
    _looked: float | None = None

    def argv(self, build: Path, model: Path, plan: BenchPlan, *, tag: str) -> list[str]:
        """The command line, as the build in that folder takes it; it is asked once.

        Raises:
            BENCH_FAILED and its like: it does not print its help.
            BENCH_HELP_UNKNOWN: that is no help of llama-bench that we know.
        """
        there = self.runner.place(build)
        if build not in self._options:
            done = self.runner.run(
                _job(there, [f"{there}/{llama_cpp().programs.bench}", "--help"], f"{tag}-help", _HELP_S)
            )
            if done.returncode != 0:
                raise bench_failure(done, "llama-bench --help", build)
            self._options[build] = parse_help(done.stdout.decode("utf-8", "replace"))
        return [
            f"{there}/{llama_cpp().programs.bench}",
            *bench_arguments(self._options[build], plan, self.runner.place(model)),
        ]

    def call(self, build: Path, model: Path, plan: BenchPlan, *, tag: str, what: str, failed: Path) -> Call:
        """Run the llama-bench of a build to a good end; ``what`` names the call in messages.

        What it wrote before a bad end is kept as ``failed``.

        Raises:
            BENCH_FAILED, BENCH_CRASHED, BENCH_HUNG, BENCH_OUT_OF_MEMORY, BENCH_GPU_LOST: it did not end well.
            BENCH_OUTPUT_UNREADABLE, BENCH_DEVICE_WRONG, BENCH_TESTS_UNASKED: its output is not a result.
            What ``check_talk`` raises, and CacheError: the disk refused.
        """
        argv = self.argv(build, model, plan, tag=tag)
        try:
            done = self.runner.run(_job(self.runner.place(build), argv, tag, self.timeout_s))
        except ToolTimeout as error:
            keep_output(failed, f"{error.message}\n{error.why}\n".encode())
            hint = f"give it more with --timeout; {error.hint}"
            raise ToolchainError(error.message, code="BENCH_HUNG", why=error.why, hint=hint) from error
        text, talk = (out.decode("utf-8", "replace") for out in (done.stdout, done.stderr))
        try:
            if done.returncode != 0:
                raise bench_failure(done, what, failed)
            rows = read_rows(text, failed)
            check_rows(rows, plan.device)
            if self.check_talk is not None:
                self.check_talk(talk, failed)
            _check_tests(rows, plan, failed)
        except PatchkitError:
            keep_output(failed, done.stdout + done.stderr)
            raise
        return Call(
            argv=done.argv,
            text=text,
            rows=rows,
            talk=talk,
            seconds=done.seconds,
            conditions=self._conditions(tag),
        )

    def _conditions(self, tag: str) -> dict[str, str]:
        now = self.clock()
        if self._looked is not None and now - self._looked < _BETWEEN_LOOKS_S:
            return {}
        self._looked = now
        return read_conditions(self.runner, tag)


def _job(there: str, argv: Sequence[str], tag: str, timeout_s: float) -> Job:
    return Job(argv=tuple(argv), tag=tag, env={"LD_LIBRARY_PATH": there}, timeout_s=timeout_s)


def keep_output(path: Path, data: bytes) -> None:
    """Write what a call printed. Raises CacheError."""
    write_whole(path, data, "keeping the output of llama-bench")


def read_rows(text: str, kept: Path) -> tuple[BenchRow, ...]:
    """The rows of what a run wrote; ``kept`` is where that lies. Raises BENCH_OUTPUT_UNREADABLE."""
    try:
        return parse_rows(text, str(kept))
    except BenchUnreadable as error:
        # Theirs is the exit code of a file that somebody named: this one a program wrote just now.
        raise ToolchainError(
            error.message, code="BENCH_OUTPUT_UNREADABLE", where=error.where, why=error.why, hint=error.hint
        ) from error


def bench_failure(completed: Completed, what: str, kept: Path) -> ToolchainError:
    """The error for a run that did not end with status 0; ``what`` names the arm and round."""
    text = completed.stderr.decode("utf-8", "replace")
    why = "\n".join(text.splitlines()[-_TAIL:]) or "it wrote nothing to stderr"
    again = "what was measured is kept; run the command again to go on from there"

    def failure(message: str, *, code: str, hint: str = again) -> ToolchainError:
        return ToolchainError(message, code=code, where=Location(path=str(kept)), why=why, hint=hint)

    status = completed.returncode
    number = -status if status < 0 else max(0, status - _SIGNALLED)
    if has_no_memory(text):
        hint = "a smaller model, or smaller depths"
        return failure(f"{what} ran out of memory", code="BENCH_OUT_OF_MEMORY", hint=hint)
    if has_lost_gpu(text):
        hint = f"look at the driver with: dmesg | tail; {again}"
        return failure(f"{what} lost the GPU", code="BENCH_GPU_LOST", hint=hint)
    if number:
        no_memory = "the system may have run out of memory: dmesg | grep -i oom; "
        hint = f"{no_memory if number == signal.SIGKILL else ''}{again}"
        return failure(f"{what} was ended by {signal_name(number)}", code="BENCH_CRASHED", hint=hint)
    return failure(f"{what} ended with status {status}", code="BENCH_FAILED")


def _check_tests(rows: Sequence[BenchRow], plan: BenchPlan, kept: Path) -> None:
    found = sorted((row.test.prompt, row.test.generated, row.test.depth) for row in rows)
    if tuple(found) != plan.lengths:
        raise ToolchainError(
            f"llama-bench measured {len(found)} tests where {len(plan.lengths)} were asked for",
            code="BENCH_TESTS_UNASKED",
            where=Location(path=str(kept)),
            why=f"prompt, generated, depth: {found} instead of {list(plan.lengths)}",
            hint="look at the file; the options of this build may mean something else",
        )


def check_rows(rows: tuple[BenchRow, ...], device: str | None) -> None:
    """Every row was measured on the device that was asked for (None: any). Raises BENCH_DEVICE_WRONG."""
    for row in rows:
        if device is None:
            continue
        backend = device.rstrip("0123456789")
        if row.device != device or not any(backend.lower() in name.lower() for name in row.backends):
            raise GateError(
                f"llama-bench ran on '{row.device}' with {', '.join(row.backends)}, not on {device}",
                code="BENCH_DEVICE_WRONG",
                why="figures of another device prove nothing of this one",
                hint="llama-bench --list-devices shows the names",
            )

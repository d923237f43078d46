"""One call of llama-bench, and the error for each way it can fail."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

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
_BETWEEN_LOOKS_S = 10.0  # minimum interval between samples of temperatures and clocks
_TAIL = 15  # lines of stderr in a message
_SIGNALLED = 128  # shell convention: the status of a program ended by a signal is 128 plus the signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A successful call. ``text`` is its stdout, ``conditions`` the state of the machine."""

    argv: tuple[str, ...]
    text: str
    rows: tuple[BenchRow, ...]
    talk: str
    seconds: float
    conditions: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class LlamaBench:
    """Calls llama-bench on one machine; ``timeout_s`` is per call.

    ``check_talk`` checks a call's stderr, and raises if it ran on the wrong device. ``clock`` returns
    seconds.
    """

    runner: Runner
    timeout_s: float
    check_talk: Callable[[str, Path], None] | None = None
    clock: Callable[[], float] = time.monotonic
    _options: dict[Path, BenchOptions] = field(default_factory=dict)
    _looked: float | None = None

    def argv(self, build: Path, model: Path, plan: BenchPlan, *, tag: str) -> list[str]:
        """The command line for the build in that folder; its ``--help`` is run once.

        Raises:
            BENCH_FAILED and similar: ``--help`` failed.
            BENCH_FAILED: its help is that of an unknown version of llama-bench.
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

    def call(
        self,
        build: Path,
        model: Path,
        plan: BenchPlan,
        *,
        tag: str,
        what: str,
        failed: Path,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> Call:
        """Run the llama-bench of a build; ``what`` names the call in messages.

        ``env``: further environment variables. The output of a failed call is kept in the file ``failed``.

        Raises:
            BENCH_FAILED, BENCH_OUT_OF_MEMORY, BENCH_GPU_LOST: it failed.
            BENCH_FAILED, BENCH_DEVICE_WRONG, BENCH_FAILED: its output is not the result.
            The errors of ``check_talk``, and CacheError if a file cannot be written.
        """
        argv = self.argv(build, model, plan, tag=tag)
        try:
            done = self.runner.run(_job(self.runner.place(build), argv, tag, self.timeout_s, env))
        except ToolTimeout as error:
            keep_output(failed, f"{error.message}\n{error.why}\n".encode())
            hint = f"allow more time with --timeout; {error.hint}"
            raise ToolchainError(error.message, code="BENCH_FAILED", why=error.why, hint=hint) from error
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


def _job(
    there: str,
    argv: Sequence[str],
    tag: str,
    timeout_s: float,
    env: Mapping[str, str] = MappingProxyType({}),
) -> Job:
    return Job(argv=tuple(argv), tag=tag, env={**env, "LD_LIBRARY_PATH": there}, timeout_s=timeout_s)


def keep_output(path: Path, data: bytes) -> None:
    """Keep the output of a call. Raises CacheError."""
    write_whole(path, data, "saving the output of llama-bench")


def read_rows(text: str, kept: Path) -> tuple[BenchRow, ...]:
    """Parse the output of a run, which is kept in the file ``kept``. Raises BENCH_FAILED."""
    try:
        return parse_rows(text, str(kept))
    except BenchUnreadable as error:
        # BenchUnreadable is a usage error about a user's file, but this output is from a program.
        raise ToolchainError(
            error.message, code="BENCH_FAILED", where=error.where, why=error.why, hint=error.hint
        ) from error


def bench_failure(completed: Completed, what: str, kept: Path) -> ToolchainError:
    """The error for a run with a status other than 0; ``what`` names build and round."""
    text = completed.stderr.decode("utf-8", "replace")
    why = "\n".join(text.splitlines()[-_TAIL:]) or "it wrote nothing to stderr"
    again = "finished runs are kept; run the command again to resume"

    def failure(message: str, *, code: str, hint: str = again) -> ToolchainError:
        return ToolchainError(message, code=code, where=Location(path=str(kept)), why=why, hint=hint)

    status = completed.returncode
    number = -status if status < 0 else max(0, status - _SIGNALLED)
    if has_no_memory(text):
        hint = "use a smaller model, or smaller depths"
        return failure(f"{what} ran out of memory", code="BENCH_OUT_OF_MEMORY", hint=hint)
    if has_lost_gpu(text):
        hint = f"check the driver's messages with: dmesg | tail; {again}"
        return failure(f"{what} lost the GPU", code="BENCH_GPU_LOST", hint=hint)
    if number:
        no_memory = "the system may have run out of memory (check: dmesg | grep -i oom); "
        hint = f"{no_memory if number == signal.SIGKILL else ''}{again}"
        return failure(f"{what} was ended by {signal_name(number)}", code="BENCH_FAILED", hint=hint)
    return failure(f"{what} failed with status {status}", code="BENCH_FAILED")


def _check_tests(rows: Sequence[BenchRow], plan: BenchPlan, kept: Path) -> None:
    found = sorted((row.test.prompt, row.test.generated, row.test.depth) for row in rows)
    if tuple(found) != plan.lengths:
        raise ToolchainError(
            f"llama-bench measured {len(found)} tests, but {len(plan.lengths)} were requested",
            code="BENCH_FAILED",
            where=Location(path=str(kept)),
            why=f"prompt, generated, depth: {found} instead of {list(plan.lengths)}",
            hint="see the file; options may have another meaning in this build",
        )


def check_rows(rows: tuple[BenchRow, ...], device: str | None) -> None:
    """Check that every row was measured on the requested device (None: any). Raises BENCH_DEVICE_WRONG."""
    for row in rows:
        if device is None:
            continue
        backend = device.rstrip("0123456789")
        if row.device != device or not any(backend.lower() in name.lower() for name in row.backends):
            raise GateError(
                f"llama-bench ran on '{row.device}' with {', '.join(row.backends)}, not on {device}",
                code="BENCH_DEVICE_WRONG",
                why="results of another device do not count for this one",
                hint="'llama-bench --list-devices' lists the device names",
            )

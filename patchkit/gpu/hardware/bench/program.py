"""One call of llama-bench, and every way that it can end badly."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from patchkit.base.errors import GateError, Location, ToolchainError
from patchkit.base.files import write_whole
from patchkit.base.process import Completed, ToolTimeout
from patchkit.gpu.hardware.bench.options import BenchOptions, parse_help
from patchkit.gpu.hardware.bench.rows import BenchRow, BenchUnreadable, parse_rows
from patchkit.gpu.hardware.program import has_lost_gpu, has_no_memory, signal_name
from patchkit.gpu.hardware.runner import Job, Runner

_HELP_S = 60.0
_TAIL = 15  # lines of stderr in a message
_SIGNALLED = 128  # a shell's status for a program that a signal ended, plus the signal


def ask_options(runner: Runner, folder: Path, *, tag: str, label: str, kept: Path) -> BenchOptions:
    """How the llama-bench in ``folder`` spells its options.

    ``label`` names it in messages, ``kept`` is the folder that they point to.

    Raises:
        BENCH_FAILED and its like: it does not print its help.
        BENCH_HELP_UNKNOWN: that is no help of llama-bench that we know.
    """
    done = runner.run(_job(runner, folder, ["--help"], tag, _HELP_S))
    if done.returncode != 0:
        raise bench_failure(done, f"llama-bench --help of {label}", kept)
    return parse_help(done.stdout.decode("utf-8", "replace"))


def run_bench_program(
    runner: Runner,
    folder: Path,
    arguments: Sequence[str],
    *,
    tag: str,
    timeout_s: float,
    what: str,
    failed: Path,
) -> Completed:
    """Run the llama-bench in ``folder`` to a good end; ``what`` names the run in messages.

    What it wrote before a bad end is kept as ``failed``.

    Raises:
        BENCH_FAILED, BENCH_CRASHED, BENCH_HUNG, BENCH_OUT_OF_MEMORY, BENCH_GPU_LOST: it did not end well.
        CacheError: the disk refused.
    """
    try:
        done = runner.run(_job(runner, folder, arguments, tag, timeout_s))
    except ToolTimeout as error:
        keep_output(failed, f"{error.message}\n{error.why}\n".encode())
        raise ToolchainError(error.message, code="BENCH_HUNG", why=error.why, hint=error.hint) from error
    if done.returncode != 0:
        keep_output(failed, done.stdout + done.stderr)
        raise bench_failure(done, what, failed)
    return done


def keep_output(path: Path, data: bytes) -> None:
    """Write what a call printed. Raises CacheError."""
    write_whole(path, data, "keeping the output of llama-bench")


def _job(runner: Runner, folder: Path, arguments: Sequence[str], tag: str, timeout_s: float) -> Job:
    there = runner.place(folder)
    return Job(
        argv=(f"{there}/llama-bench", *arguments),
        tag=tag,
        env={"LD_LIBRARY_PATH": there},
        timeout_s=timeout_s,
    )


def read_output(completed: Completed, kept: Path) -> tuple[BenchRow, ...]:
    """The rows that a run wrote; ``kept`` is where its output lies. Raises BENCH_OUTPUT_UNREADABLE."""
    return read_rows(completed.stdout.decode("utf-8", "replace"), kept)


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

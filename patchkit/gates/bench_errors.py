"""What can go wrong while llama-bench runs, and what it can find."""

from __future__ import annotations

import signal
from pathlib import Path

from patchkit.bench.fields import BenchFieldMissing, BenchGarbage
from patchkit.bench.rows import BenchRow, BenchTruncated, parse_rows
from patchkit.errors import ExitCode, GateError, Location, PatchkitError, ToolchainError
from patchkit.proc import Completed

# As the backends of builds 6900 to 11549 word it (ggml-cuda's error check, ggml-backend, llama_context), the
# kernel's driver, and the C++ library.
_NO_MEMORY = ("out of memory", "failed to allocate", "bad_alloc", "cannot allocate memory", "alloc failed")
_GPU_LOST = (
    "hsa_status_error",
    "device is lost",
    "gpu hang",
    "unspecified launch failure",
    "illegal memory access",
    "hiperrorillegaladdress",
    "cuda error: an illegal",
    "device not ready",
    "gpu reset",
)
_TAIL = 15  # lines of stderr in a message


class BenchSlower(GateError):
    """A test is slower than the patches may make it."""

    code = "BENCH_SLOWER"


class BenchGainMissing(GateError):
    """A test does not gain what a patch promises."""

    code = "BENCH_GAIN_MISSING"


class BenchFailed(ToolchainError):
    """llama-bench ended with an error."""

    code = "BENCH_FAILED"


class BenchCrashed(ToolchainError):
    """A signal ended llama-bench."""

    code = "BENCH_CRASHED"


class BenchOutOfMemory(PatchkitError):
    """The model and its cache do not fit into the memory of the device or of the machine."""

    code = "BENCH_OUT_OF_MEMORY"
    exit_code = ExitCode.TOOLCHAIN


class BenchOutputUnreadable(ToolchainError):
    """llama-bench ended well, and what it wrote is no result."""

    code = "BENCH_OUTPUT_UNREADABLE"


class BenchGpuLost(PatchkitError):
    """The driver gave up on the GPU."""

    code = "BENCH_GPU_LOST"
    exit_code = ExitCode.TOOLCHAIN


def read_output(completed: Completed, kept: Path) -> tuple[BenchRow, ...]:
    """The rows that a run wrote; ``kept`` is where its output lies. Raises BenchOutputUnreadable."""
    try:
        return parse_rows(completed.stdout.decode("utf-8", "replace"), str(kept))
    except (BenchGarbage, BenchTruncated, BenchFieldMissing) as error:
        # Theirs is the exit code of a file that somebody named: this one a program wrote just now.
        raise BenchOutputUnreadable(
            error.message, where=error.where, why=error.why, hint=error.hint
        ) from error


def bench_failure(completed: Completed, what: str, kept: Path) -> PatchkitError:
    """The error for a run that did not end with status 0; ``what`` names the arm and round."""
    text = completed.stderr.decode("utf-8", "replace")
    low = text.lower()
    where = Location(path=str(kept))
    why = "\n".join(text.splitlines()[-_TAIL:]) or "it wrote nothing to stderr"
    again = "what was measured is kept; run the command again to go on from there"
    if any(words in low for words in _NO_MEMORY):
        hint = "a smaller model, or smaller depths"
        return BenchOutOfMemory(f"{what} ran out of memory", where=where, why=why, hint=hint)
    if any(words in low for words in _GPU_LOST):
        hint = f"look at the driver with: dmesg | tail; {again}"
        return BenchGpuLost(f"{what} lost the GPU", where=where, why=why, hint=hint)
    if completed.returncode < 0 or completed.returncode > 128:  # noqa: PLR2004  # a shell's way to say signal
        number = -completed.returncode if completed.returncode < 0 else completed.returncode - 128
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        if name == "SIGKILL":
            hint = f"the system may have run out of memory: dmesg | grep -i oom; {again}"
            return BenchOutOfMemory(f"{what} was killed", where=where, why=why, hint=hint)
        return BenchCrashed(f"{what} was ended by {name}", where=where, why=why, hint=again)
    return BenchFailed(f"{what} ended with status {completed.returncode}", where=where, why=why, hint=again)

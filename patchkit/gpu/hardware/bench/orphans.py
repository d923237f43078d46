"""Finds llama-bench processes left running by a killed patchkit: they would disturb the next measurement."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.process import GPU_VISIBILITY
from patchkit.base.reporter import Reporter

_LOOK_S = 1.0
_PATIENCE_S = 3600.0  # as long as a single call may take


def wait_for_orphans(programs: Sequence[Path], reporter: Reporter, patience_s: float = _PATIENCE_S) -> None:
    """Return when none of the programs runs on our GPUs. Raises BENCH_FAILED after ``patience_s``."""
    deadline = time.monotonic() + patience_s
    was_announced = False
    while found := processes_of(programs):
        ids = " ".join(map(str, found))
        if time.monotonic() >= deadline:
            raise ToolchainError(
                "llama-bench is still running, and would disturb the measurement",
                code="BENCH_FAILED",
                where=[Location(path=str(program)) for program in programs[:1]],
                why=f"process {ids}",
                hint=f"end it with: kill {ids}",
            )
        if not was_announced:
            reporter.info(f"waiting for another llama-bench on these GPUs to end (process {ids})")
            was_announced = True
        time.sleep(_LOOK_S)


def processes_of(programs: Sequence[Path]) -> list[int]:
    """The ids of the processes that run one of the programs, sorted; another user's are not seen.

    Nor are those that were given other GPUs than we were: runs on four GPUs would wait for each other.
    """
    wanted = {os.path.realpath(program) for program in programs}
    found = []
    for path in Path("/proc").glob("[0-9]*/exe"):
        try:
            # A string, which may end with " (deleted)".
            if os.readlink(path) in wanted and _may_share(path.parent):  # noqa: PTH115
                found.append(int(path.parent.name))
        except OSError:  # it ended, or is another user's
            continue
    return sorted(found)


def _may_share(process: Path) -> bool:
    """Whether it may be on a GPU that we may use, by both environments. Raises OSError."""
    words = (process / "environ").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    theirs = dict(word.split("=", 1) for word in words if "=" in word)
    return all(
        theirs[name] == os.environ[name] for name in GPU_VISIBILITY if name in theirs and name in os.environ
    )

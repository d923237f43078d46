"""Calls of llama-bench that a killed patchkit left running: they would disturb the next measurement.

A killed patchkit cannot end what it started. Such a call ends by itself when it writes its result, since
nobody reads it any more; until then nothing is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from patchkit.errors import Location, ToolchainError
from patchkit.report import Reporter

_PROCESSES = Path("/proc")
_LOOK_S = 1.0
_PATIENCE_S = 3600.0  # as long as a single call may take


def wait_for_orphans(
    programs: Sequence[Path], reporter: Reporter, patience_s: float = _PATIENCE_S, look_s: float = _LOOK_S
) -> None:
    """Return when none of the programs runs. Raises BENCH_STILL_RUNNING after ``patience_s`` seconds."""
    deadline = time.monotonic() + patience_s
    told = False
    while found := processes_of(programs):
        ids = " ".join(map(str, found))
        if time.monotonic() >= deadline:
            raise ToolchainError(
                "llama-bench is still running, and would disturb the measurement",
                code="BENCH_STILL_RUNNING",
                where=[Location(path=str(program)) for program in programs[:1]],
                why=f"process {ids}",
                hint=f"end it with: kill {ids}",
            )
        if not told:
            reporter.info(f"waiting for llama-bench of an interrupted measurement (process {ids})")
            told = True
        time.sleep(look_s)


def processes_of(programs: Sequence[Path], processes: Path = _PROCESSES) -> list[int]:
    """The ids of the processes that run one of the programs, sorted; another user's are not seen."""
    wanted = {os.path.realpath(program) for program in programs}
    found = []
    for path in processes.glob("[0-9]*/exe"):
        try:
            if os.readlink(path) in wanted:  # noqa: PTH115  # a string, which may end with " (deleted)"
                found.append(int(path.parent.name))
        except OSError:  # it ended, or is another user's
            continue
    return sorted(found)

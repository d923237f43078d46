"""A real Dask scheduler and real workers, all processes of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path


@contextlib.contextmanager
def dask_cluster(folder: Path, workers: int, environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of a scheduler with so many workers of one thread; logs go to the folder."""
    with contextlib.ExitStack() as stack:

        def start(name: str, *words: str) -> None:
            with (folder / f"{name}.log").open("wb") as log:
                argv = [sys.executable, "-m", f"distributed.cli.dask_{name.partition('-')[0]}", *words]
                process = subprocess.Popen(
                    argv, stdout=log, stderr=log, cwd=folder, env=dict(environ or os.environ)
                )
            stack.callback(_end, process)

        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        address = _address(folder / "scheduler.log")
        for number in range(workers):
            start(f"worker-{number}", address, "--no-dashboard", "--no-nanny", "--nthreads", "1")
        yield address


def _address(log: Path) -> str:
    for _ in range(600):
        found = re.search(rb"tcp://127\.0\.0\.1:\d+", log.read_bytes())
        if found is not None:
            return found[0].decode()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(30)
    process.kill()
    process.wait()

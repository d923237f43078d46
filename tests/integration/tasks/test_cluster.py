"""Jobs on a real Dask scheduler with a real worker, both processes of this machine."""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import sys
import time

import pytest
from refusing import refused

from patchkit.base.jobs import open_pool, run_tasks
from patchkit.base.reporter import NullReporter

pytestmark = pytest.mark.slow


def _start(tmp_path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (tmp_path / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=log, stderr=log, cwd=tmp_path, env=dict(os.environ)
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    process.kill()
    process.wait()


@pytest.fixture
def scheduler(tmp_path):
    process = _start(
        tmp_path, "scheduler", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
        "--no-dashboard",
    )  # fmt: skip
    try:
        for _ in range(300):
            found = re.search(rb"tcp://127\.0\.0\.1:\d+", (tmp_path / "scheduler.log").read_bytes())
            if found is not None:
                break
            time.sleep(0.1)
        else:
            pytest.fail((tmp_path / "scheduler.log").read_text())
        yield found[0].decode()
    finally:
        _end(process)


@pytest.fixture
def worker(tmp_path, scheduler):
    process = _start(
        tmp_path, "worker", "distributed.cli.dask_worker", scheduler, "--no-dashboard", "--no-nanny",
        "--nthreads", "1",
    )  # fmt: skip
    try:
        yield scheduler
    finally:
        _end(process)


def test_a_cluster_gives_every_result(worker) -> None:
    with open_pool(worker, kind="processes") as pool:
        done = run_tasks(pool, math.factorial, [3, 4, 5], reporter=NullReporter(), what="x", unit="numbers")
        assert dict(done) == {3: 6, 4: 24, 5: 120}


def test_a_scheduler_without_workers_is_an_error(scheduler, monkeypatch) -> None:
    monkeypatch.setattr("patchkit.base.jobs._WORKERS_S", 0.5)
    with refused("SCHEDULER_UNREACHABLE"), open_pool(scheduler, kind="threads"):
        pass

"""Jobs on a real Dask scheduler with a real worker, both processes of this machine."""

from __future__ import annotations

import math

import pytest
from dask_cluster import dask_cluster
from refusing import refused

from patchkit.base.jobs import open_pool, run_tasks
from patchkit.base.reporter import NullReporter

pytestmark = pytest.mark.slow


@pytest.fixture
def scheduler(tmp_path):
    with dask_cluster(tmp_path, workers=0) as address:
        yield address


@pytest.fixture
def worker(tmp_path):
    with dask_cluster(tmp_path, workers=1) as address:
        yield address


def test_a_cluster_gives_every_result(worker) -> None:
    with open_pool(worker, kind="processes") as pool:
        done = run_tasks(pool, math.factorial, [3, 4, 5], reporter=NullReporter(), what="x", unit="numbers")
        assert dict(done) == {3: 6, 4: 24, 5: 120}


def test_a_scheduler_without_workers_is_an_error(scheduler, monkeypatch) -> None:
    monkeypatch.setattr("patchkit.base.jobs._WORKERS_S", 0.5)
    with refused("SCHEDULER_UNREACHABLE"), open_pool(scheduler, kind="threads"):
        pass

"""Jobs on threads and processes: results as they complete, and errors."""

from __future__ import annotations

import os
import threading

import pytest
from refusing import refused

from patchkit.base.jobs import open_pool, run_tasks
from patchkit.base.reporter import NullReporter


def _square(number: int) -> int:
    return number * number


def _die(number: int) -> int:
    os._exit(number)


def _run(executor, work, items, stop=None):
    return run_tasks(
        executor, work, items, reporter=NullReporter(), what="testing", unit="numbers", stop=stop
    )


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_every_item_comes_back_with_its_result(kind) -> None:
    with open_pool(kind, 2) as pool:
        assert dict(_run(pool, _square, [1, 2, 3])) == {1: 1, 2: 4, 3: 9}


def test_no_items_are_no_results() -> None:
    with open_pool("threads", 1) as pool:
        assert list(_run(pool, _square, [])) == []


def test_a_result_comes_before_the_slowest_is_done() -> None:
    gate = threading.Event()
    with open_pool("threads", 2) as pool:
        results = _run(pool, lambda item: item == "fast" or gate.wait(30), ["slow", "fast"])
        assert next(results)[0] == "fast"
        gate.set()
        assert next(results)[0] == "slow"


def test_the_first_error_cancels_pending_jobs_and_sets_stop() -> None:
    began = []
    stop = threading.Event()

    def work(item: int) -> int:
        began.append(item)
        if item == 0:
            raise ValueError("broken")
        assert stop.wait(30)  # the rest of the queue is cancelled by then
        return item

    with open_pool("threads", 1) as pool, pytest.raises(ValueError, match="broken"):
        list(_run(pool, work, list(range(1000)), stop))
    assert stop.is_set()
    # The one worker may have taken one more, whichever it came to while the others were being cancelled.
    assert began[0] == 0
    assert len(began) <= 2


def test_leaving_the_loop_early_stops_the_rest() -> None:
    stop = threading.Event()
    with open_pool("threads", 1) as pool:
        results = _run(pool, _square, list(range(100)), stop)
        next(results)
        results.close()
    assert stop.is_set()


def test_a_process_that_dies_is_an_error() -> None:
    with open_pool("processes", 1) as pool, refused("WORKER_DIED", match="died"):
        list(_run(pool, _die, [7]))

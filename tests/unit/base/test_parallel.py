"""Parallel jobs: order of results, the first error, and ending of running jobs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from patchkit.base.jobs import cores, run_parallel
from patchkit.base.process import ToolStopped, run_tool
from patchkit.base.reporter import NullReporter


def _run(items, work, stop=None):
    return run_parallel(items, work, reporter=NullReporter(), what="working", unit="items", stop=stop)


def test_results_come_in_the_order_of_the_items() -> None:
    def work(item: int) -> int:
        time.sleep(0.01 * (5 - item))
        return item * item

    assert _run([1, 2, 3, 4], work) == [1, 4, 9, 16]
    assert _run([], work) == []
    assert cores() >= 1


def test_the_first_error_stops_running_tools_and_cancels_the_rest(tmp_path: Path) -> None:
    stop = threading.Event()
    ended: list[str] = []
    running = tmp_path / "running"

    def work(item: int) -> None:
        if item == 0:
            while not running.exists():
                time.sleep(0.01)
            raise LookupError("bad item")
        if item == 1:
            try:
                run_tool(
                    ["sh", "-c", f"touch '{running}'; exec sleep 600"], reporter=NullReporter(), stop=stop
                )
            except ToolStopped as error:
                ended.append(error.message)
                raise
        ended.append(f"item {item} ran")

    items = [0, 1, *range(2, 40)]
    if cores() < 2:
        pytest.skip("needs two workers")
    with pytest.raises(LookupError):
        _run(items, work, stop)
    assert "sh was stopped" in ended
    assert len(ended) < len(items)


def test_a_stopped_tool_ends_even_with_input(tmp_path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(ToolStopped):
        run_tool(
            ["sh", "-c", "cat >/dev/null; sleep 600"],
            stdin=b"x" * 200_000,
            reporter=NullReporter(),
            stop=stop,
        )

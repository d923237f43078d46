"""Runs jobs in threads or processes, and yields results as they complete."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeVar

from patchkit.base.errors import ToolchainError
from patchkit.base.reporter import Reporter

Item = TypeVar("Item")
Result = TypeVar("Result")

_TICK_S = 0.2


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


@contextmanager
def open_pool(kind: Literal["threads", "processes"], workers: int | None = None) -> Iterator[Executor]:
    """Threads or processes, by default one per core; jobs not yet started are cancelled at the end."""
    workers = workers or cores()
    executor: ThreadPoolExecutor | ProcessPoolExecutor
    if kind == "threads":
        executor = ThreadPoolExecutor(max_workers=workers)
    else:
        # Not forked: this process may have threads, and a fork copies their locks in the locked state.
        context = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(max_workers=workers, mp_context=context, initializer=_leave_ctrl_c)
    try:
        yield executor
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def run_tasks(
    executor: Executor,
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    reporter: Reporter,
    what: str,
    unit: str,
    stop: threading.Event | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Call ``work`` on each item; yields (item, result) pairs in the order of completion.

    The caller can save each result at once, so that an interrupt loses only the jobs that are running.
    ``stop`` is set when the run ends early, to end work that watches it.

    Raises:
        WORKER_DIED: a worker process died.
        Whatever a job raises; jobs not yet started are then cancelled.
    """
    futures: dict[Future[Result], Item] = {}
    try:
        futures.update({executor.submit(work, item): item for item in items})
        with reporter.progress(what, unit) as advance:
            waiting = set(futures)
            advance(0, len(futures))
            while waiting:
                done, waiting = wait(waiting, timeout=_TICK_S, return_when=FIRST_COMPLETED)
                for future in done:
                    yield futures[future], _result(future)
                advance(len(futures) - len(waiting), len(futures))
    except BaseException:
        for future in futures:
            future.cancel()
        if stop is not None:
            stop.set()
        raise


def run_parallel(
    items: Sequence[Item],
    work: Callable[[Item], Result],
    *,
    reporter: Reporter,
    what: str,
    unit: str,
    stop: threading.Event | None = None,
) -> list[Result]:
    """Call ``work`` on each item in threads of this machine; the results are in the order of the items.

    For work that waits for compilers. Raises and sets ``stop`` as :func:`run_tasks`.
    """
    places = list(enumerate(items))
    if not places:
        return []
    with open_pool("threads") as pool:
        done = run_tasks(pool, partial(_at, work), places, reporter=reporter, what=what, unit=unit, stop=stop)
        found = {index: result for (index, _), result in done}
    return [found[index] for index, _ in places]


def _at(work: Callable[[Item], Result], place: tuple[int, Item]) -> Result:
    return work(place[1])


def _result(future: Future[Result]) -> Result:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise ToolchainError(
            "a worker process died while running a job",
            code="WORKER_DIED",
            why=f"{error}; the most common cause is that the machine ran out of memory",
            hint="run the command again with fewer --jobs; finished jobs are kept",
        ) from error


def _leave_ctrl_c() -> None:
    """Ignore SIGINT in a worker: Ctrl-C reaches every process of the terminal, but only the parent acts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

"""Where jobs run, as an executor of :mod:`concurrent.futures`, and their results as they come.

Vocabulary: a *job* is one call that needs no other; *threads* are for jobs that wait for programs,
*processes* for jobs that compute in Python, a *scheduler* hands jobs to the workers of a Dask cluster.
The function of a job and its item cross to other processes except with threads: both must pickle, and
workers must see the same folders under the same paths.
"""

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
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, TypeVar

from patchkit.errors import ToolchainError
from patchkit.report import Reporter

Item = TypeVar("Item")
Result = TypeVar("Result")

_TICK_S = 0.2


def cores() -> int:
    """As many as this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


def open_pool(
    scheduler: str | None, *, kind: Literal["threads", "processes"], workers: int | None = None
) -> AbstractContextManager[Executor]:
    """The executor of ``scheduler`` (``tcp://host:port``), or one of this machine when there is none.

    ``workers`` is how many jobs run at once here, by default one per core; a cluster decides for itself.

    Raises, when the context is entered:
        SCHEDULER_ADDRESS, SCHEDULER_LIBRARY_MISSING, SCHEDULER_UNREACHABLE, WORKERS_DIFFER: no such cluster.
    """
    if scheduler is None:
        return local_pool(kind, workers or cores())
    from patchkit.tasks.cluster import cluster_pool  # noqa: PLC0415 - needs an optional library

    return cluster_pool(scheduler)


@contextmanager
def local_pool(kind: Literal["threads", "processes"], workers: int) -> Iterator[Executor]:
    """Threads or processes of this machine; jobs that did not begin are dropped when the context ends."""
    executor: ThreadPoolExecutor | ProcessPoolExecutor
    if kind == "threads":
        executor = ThreadPoolExecutor(max_workers=workers)
    else:
        # Not forked: this process may have threads, and their locks would be copied as they are.
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
    """``work`` on each item; each item with its result as soon as it is there, in no order.

    So the caller can write down what is done before the next one is: an interrupt then loses only what
    is under way. ``stop`` is set when the run ends early, for work that listens to it.

    Raises:
        WORKER_LOST: a process or a worker of the cluster died.
        Whatever a job raises; the jobs that did not begin are cancelled then.
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


def _result(future: Future[Result]) -> Result:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise ToolchainError(
            "a worker process died in the middle of a job",
            code="WORKER_LOST",
            why=f"{error}; most often the machine ran out of memory",
            hint="run it again with fewer --jobs: what is done is kept",
        ) from error


def _leave_ctrl_c() -> None:
    """Ctrl-C goes to every process of the terminal; only the one that waits may answer it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

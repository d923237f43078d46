"""Where jobs run, as an executor of :mod:`concurrent.futures`, and their results as they come."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
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
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, TypeVar

from patchkit.base.errors import ToolchainError, UsageError
from patchkit.base.reporter import Reporter

if TYPE_CHECKING:
    from distributed import Client

_ADDRESS = re.compile(r"(tcp|tls)://[^\s/:]+:\d{1,5}|tcp://\[[0-9a-fA-F:]+\]:\d{1,5}")
_CONNECT_S = 10.0
_WORKERS_S = 10.0


@contextmanager
def cluster_pool(address: str) -> Iterator[Executor]:
    """An executor that hands jobs to the workers of the scheduler at ``address``.

    Raises:
        SCHEDULER_ADDRESS: no ``tcp://host:port``.
        SCHEDULER_LIBRARY_MISSING: Dask is not installed here.
        SCHEDULER_UNREACHABLE: nothing answers within ten seconds, or no worker is there.
        WORKERS_DIFFER: a worker has another patchkit or Python, or none.
    """
    if _ADDRESS.fullmatch(address) is None:
        raise UsageError(
            f"'{address}' is no address of a Dask scheduler",
            code="SCHEDULER_ADDRESS",
            hint="like --scheduler tcp://localhost:8786",
        )
    client = _connect(address)
    try:
        _check_workers(client, address)
        with client.get_executor(pure=False) as executor:
            yield executor
    finally:
        client.close()


def _connect(address: str) -> Client:
    try:
        from distributed import Client  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ToolchainError(
            "--scheduler needs Dask, which is not installed",
            code="SCHEDULER_LIBRARY_MISSING",
            why=str(error),
            hint="pip install 'patchkit[distributed]'",
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
        try:
            client.wait_for_workers(1, timeout=_WORKERS_S)
        except BaseException:
            client.close()
            raise
    except (OSError, TimeoutError) as error:
        raise ToolchainError(
            f"no Dask scheduler with workers answers at {address}",
            code="SCHEDULER_UNREACHABLE",
            why=str(error) or "no answer in time",
            hint="start one with: dask scheduler; and on each machine: dask worker ADDRESS",
        ) from error
    return client


def _check_workers(client: Client, address: str) -> None:
    ours = _versions()
    try:
        theirs = client.run(_versions)
    except (ImportError, AttributeError) as error:  # raised on the worker: it cannot import this module
        raise ToolchainError(
            f"a worker at {address} has no patchkit",
            code="WORKERS_DIFFER",
            why=str(error),
            hint=f"install this on every machine: {ours}",
        ) from error
    other = {worker: told for worker, told in theirs.items() if told != ours}
    if other:
        worker, told = next(iter(other.items()))
        raise ToolchainError(
            f"{len(other)} of {len(theirs)} workers at {address} are not like this patchkit",
            code="WORKERS_DIFFER",
            why=f"{worker} has {told}, here is {ours}",
            hint="use the same Python and the same patchkit on every machine",
        )


def _versions() -> str:
    return f"patchkit {version('patchkit')}, Python {sys.version_info.major}.{sys.version_info.minor}"


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


def run_parallel(
    items: Sequence[Item],
    work: Callable[[Item], Result],
    *,
    reporter: Reporter,
    what: str,
    unit: str,
    stop: threading.Event | None = None,
    scheduler: str | None = None,
) -> list[Result]:
    """``work`` on each item, by threads of this machine; the results in the order of the items.

    For work that waits for compilers. With a ``scheduler`` it goes to the workers of that cluster: what the
    work holds must be such that it can be sent, and its files where they see them.

    Raises and sets ``stop`` as :func:`run_tasks`; with a scheduler as :func:`open_pool`.
    """
    places = list(enumerate(items))
    if not places:
        return []
    with open_pool(scheduler, kind="threads") as pool:
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
            "a worker process died in the middle of a job",
            code="WORKER_LOST",
            why=f"{error}; most often the machine ran out of memory",
            hint="run it again with fewer --jobs: what is done is kept",
        ) from error


def _leave_ctrl_c() -> None:
    """Ctrl-C goes to every process of the terminal; only the one that waits may answer it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

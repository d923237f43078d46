"""Runs jobs in threads, processes or a Dask cluster, and yields results as they complete."""

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
    """An executor that runs jobs on the workers of the Dask scheduler at ``address``.

    Raises:
        USAGE_VALUE: the address is not ``tcp://host:port``.
        LIBRARY_MISSING: Dask is not installed here.
        SCHEDULER_UNREACHABLE: no connection, or no worker, within ten seconds.
        SCHEDULER_UNREACHABLE: a worker has no patchkit, or another version of patchkit or Python.
    """
    if _ADDRESS.fullmatch(address) is None:
        raise UsageError(
            f"'{address}' is not the address of a Dask scheduler",
            code="USAGE_VALUE",
            hint="use tcp://HOST:PORT, for example: --scheduler tcp://localhost:8786",
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
            code="LIBRARY_MISSING",
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
            f"cannot reach a Dask scheduler with workers at {address}",
            code="SCHEDULER_UNREACHABLE",
            why=str(error) or "timed out",
            hint="start a scheduler with: dask scheduler; and on each machine: dask worker ADDRESS",
        ) from error
    return client


def _check_workers(client: Client, address: str) -> None:
    ours = _versions()
    try:
        theirs = client.run(_versions)
    except (ImportError, AttributeError) as error:  # raised on the worker: it cannot import this module
        raise ToolchainError(
            f"patchkit is not installed on a worker of {address}",
            code="SCHEDULER_UNREACHABLE",
            why=str(error),
            hint=f"install this on every machine: {ours}",
        ) from error
    other = {worker: versions for worker, versions in theirs.items() if versions != ours}
    if other:
        worker, versions = next(iter(other.items()))
        raise ToolchainError(
            f"{len(other)} of {len(theirs)} workers at {address} have other versions than this machine",
            code="SCHEDULER_UNREACHABLE",
            why=f"{worker} has {versions}; this machine has {ours}",
            hint="use the same Python and the same patchkit on every machine",
        )


def _versions() -> str:
    return f"patchkit {version('patchkit')}, Python {sys.version_info.major}.{sys.version_info.minor}"


Item = TypeVar("Item")
Result = TypeVar("Result")

_TICK_S = 0.2


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


def open_pool(
    scheduler: str | None, *, kind: Literal["threads", "processes"], workers: int | None = None
) -> AbstractContextManager[Executor]:
    """An executor on the cluster of ``scheduler`` (``tcp://host:port``), or on this machine if it is None.

    ``workers`` is the number of parallel jobs on this machine, by default one per core; a cluster ignores it.

    Raises, when the context is entered:
        USAGE_VALUE, LIBRARY_MISSING, SCHEDULER_UNREACHABLE: the cluster
            cannot be used.
    """
    if scheduler is None:
        return local_pool(kind, workers or cores())

    return cluster_pool(scheduler)


@contextmanager
def local_pool(kind: Literal["threads", "processes"], workers: int) -> Iterator[Executor]:
    """Threads or processes of this machine; jobs not yet started are cancelled when the context ends."""
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
        SCHEDULER_UNREACHABLE: a process or a worker of the cluster died.
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
    scheduler: str | None = None,
) -> list[Result]:
    """Call ``work`` on each item in threads of this machine; the results are in the order of the items.

    For work that waits for compilers. With a ``scheduler`` the jobs run on the workers of that cluster: then
    ``work`` and the items must be picklable, and the workers must see the same files.

    Raises and sets ``stop`` as :func:`run_tasks`; with a scheduler also raises as :func:`open_pool`.
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
            "a worker process died while running a job",
            code="SCHEDULER_UNREACHABLE",
            why=f"{error}; the most common cause is that the machine ran out of memory",
            hint="run the command again with fewer --jobs; finished jobs are kept",
        ) from error


def _leave_ctrl_c() -> None:
    """Ignore SIGINT in a worker: Ctrl-C reaches every process of the terminal, but only the parent acts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

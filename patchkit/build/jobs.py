"""Several jobs at once, results in order; the first error, or Ctrl-C, stops the rest.

The work is waiting for compilers, so threads do. Whoever waits hears of progress by the number done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from patchkit.base.reporter import Reporter

Item = TypeVar("Item")
Result = TypeVar("Result")

_TICK_S = 0.2


def workers() -> int:
    """As many as this process may use cores."""
    return max(1, len(os.sched_getaffinity(0)))


def run_parallel(
    items: Sequence[Item],
    work: Callable[[Item], Result],
    *,
    reporter: Reporter,
    what: str,
    unit: str,
    stop: threading.Event | None = None,
) -> list[Result]:
    """``work`` on each item; the results in the order of the items. Raises the first error there is.

    ``stop`` is set when the run ends early; work that hands it to ``run_tool`` then ends at once.
    """
    pool = ThreadPoolExecutor(max_workers=workers())
    try:
        futures: list[Future[Result]] = [pool.submit(work, item) for item in items]
        with reporter.progress(what, unit) as advance:
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, timeout=_TICK_S, return_when=FIRST_EXCEPTION)
                advance(len(futures) - len(waiting), len(futures))
                for future in done:
                    future.result()  # raises what the job raised
        return [future.result() for future in futures]
    except BaseException:
        if stop is not None:
            stop.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)

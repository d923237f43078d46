"""Following a build by its log: Ninja's ``[done/total]`` lines become progress while it runs.

The log is a file that the build writes to, so that it is whole whatever happens to either process.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchkit.report import Advance, Reporter

_LOOK_S = 0.3
_STATUS = re.compile(rb"^\[(\d+)/(\d+)\] ", re.MULTILINE)
_TAIL = 65536  # bytes of the end of a log that are looked at


def last_status(text: bytes) -> tuple[int, int] | None:
    """The last ``[done/total]`` at the beginning of a line; None when there is none."""
    found = _STATUS.findall(text)
    return (int(found[-1][0]), int(found[-1][1])) if found else None


@contextmanager
def follow(log: Path, reporter: Reporter, what: str) -> Iterator[None]:
    """Report the progress of the build that writes ``log``, until the block ends."""
    ended = threading.Event()
    began = log.stat().st_size if log.exists() else 0
    with reporter.progress(what, "steps") as advance:
        thread = threading.Thread(target=_watch, args=(log, began, advance, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _watch(log: Path, began: int, advance: Advance, ended: threading.Event) -> None:
    told = None
    while True:
        last = ended.wait(_LOOK_S)
        try:
            with log.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(began, size - _TAIL))
                status = last_status(file.read())
        except OSError:  # not there yet
            status = None
        if status is not None and status != told:
            advance(*status)
            told = status
        if last:
            return

"""Progress reports from a file that another program is writing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from patchkit.base.reporter import Reporter

_LOOK_S = 0.3


@contextmanager
def follow_file(
    path: Path, look: Callable[[BinaryIO], tuple[int, int] | None], reporter: Reporter, what: str, unit: str
) -> Iterator[None]:
    """Poll the file with ``look``, which returns (done, total), and report progress until the block ends.

    The file may not exist yet.
    """
    ended = threading.Event()
    reported: tuple[int, int] | None = None
    with reporter.progress(what, unit) as advance:

        def watch() -> None:
            nonlocal reported
            while True:
                last = ended.wait(_LOOK_S)
                try:
                    with path.open("rb") as file:
                        status = look(file)
                except OSError:
                    status = None
                if status is not None and status != reported:
                    advance(*status)
                    reported = status
                if last:
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def count_lines(total: int) -> Callable[[BinaryIO], tuple[int, int]]:
    """A ``look`` for :func:`follow_file` that counts complete lines, up to ``total``.

    Each call reads only the new bytes; it starts again if the file was replaced by a shorter one.
    """
    seen = lines = 0

    def look(file: BinaryIO) -> tuple[int, int]:
        nonlocal seen, lines
        if file.seek(0, 2) < seen:  # until now this was the file of an earlier run
            seen = lines = 0
        file.seek(seen)
        new = file.read()
        seen += len(new)
        lines += new.count(b"\n")
        return min(lines, total), total

    return look

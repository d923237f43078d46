"""Progress that is read off a file while another program writes it."""

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
    """Report what ``look`` sees in the file, done and total, now and then until the block ends.

    A file that is not there yet has nothing to see.
    """
    ended = threading.Event()
    told: tuple[int, int] | None = None
    with reporter.progress(what, unit) as advance:

        def watch() -> None:
            nonlocal told
            while True:
                last = ended.wait(_LOOK_S)
                try:
                    with path.open("rb") as file:
                        status = look(file)
                except OSError:
                    status = None
                if status is not None and status != told:
                    advance(*status)
                    told = status
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
    """A look that counts whole lines, each byte once, and anew where the file is; at most ``total``."""
    seen = lines = 0

    def look(file: BinaryIO) -> tuple[int, int]:
        nonlocal seen, lines
        if file.seek(0, 2) < seen:  # what an earlier run left was there until now
            seen = lines = 0
        file.seek(seen)
        new = file.read()
        seen += len(new)
        lines += new.count(b"\n")
        return min(lines, total), total

    return look

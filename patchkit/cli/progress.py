"""Progress on stderr: plain lines, or lines with a progress bar on a terminal.

rich is imported only if stderr is a terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from patchkit.base.reporter import Advance, NullReporter, Reporter, Work
from patchkit.base.text import visible
from patchkit.cli.terminal import ColorChoice, wants_color, write_stderr

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

_SILENCE_S = 60.0  # longest time without a line in a log


def make_reporter(*, verbose: bool, quiet: bool, color: ColorChoice) -> Reporter:
    """Return a silent reporter if ``quiet`` or stderr is closed, bars on a terminal, else plain lines."""
    if quiet or not sys.stderr:
        return NullReporter()
    if not sys.stderr.isatty():
        return LineReporter(verbose=verbose)
    from rich.console import Console

    return BarReporter(Console(stderr=True, no_color=not wants_color(color, sys.stderr)), verbose=verbose)


class LineReporter:
    """Writes a line per event, for logs and pipes; progress is a line per minute."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose

    def _line(self, text: str, style: str | None = None) -> None:
        del style
        write_stderr(visible(text))

    def step(self, text: str) -> None:
        """Show the start of a unit of work."""
        self._line(f"* {text}", "bold")

    def info(self, text: str) -> None:
        """Show information."""
        self._line(f"  {text}")

    def warn(self, text: str) -> None:
        """Show a warning: something that limits the value of the result."""
        self._line(f"warning: {text}", "yellow")

    def command(self, text: str) -> None:
        """Show an external command, if verbose."""
        if self._verbose:
            self._line(f"+ {text}", "dim")

    def used(self, work: Work, cpu_s: float) -> None:
        """Ignore the time; --timings sums it up."""

    @contextmanager
    def progress(self, text: str, unit: str) -> Iterator[Advance]:
        """Show a line after each minute of work with a known total; shorter work shows none."""
        last = time.monotonic()

        def advance(done: int, total: int | None = None) -> None:
            nonlocal last
            now = time.monotonic()
            if total and now - last >= _SILENCE_S:
                last = now
                self._line(f"  {text}: {100 * done // total} % of {_amount(total, unit)}")

        yield advance


class BarReporter(LineReporter):
    """Writes lines to a terminal, and a bar that disappears when its work is done."""

    def __init__(self, console: Console, *, verbose: bool) -> None:
        super().__init__(verbose=verbose)
        self._console = console
        self._is_free = threading.Lock()

    def _line(self, text: str, style: str | None = None) -> None:
        with suppress(OSError):  # the terminal may be gone; the work continues
            self._console.print(visible(text), style=style, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def progress(self, text: str, unit: str) -> Iterator[Advance]:
        """Show a bar, with speed for bytes and a count for everything else; one at a time."""
        if not self._is_free.acquire(blocking=False):  # parallel work; only the first gets a bar
            yield lambda _done, _total=None: None
            return
        try:
            with self._bar(text, unit) as advance:
                yield advance
        finally:
            self._is_free.release()

    @contextmanager
    def _bar(self, text: str, unit: str) -> Iterator[Advance]:
        from rich.markup import escape
        from rich.progress import Progress

        columns = _columns_of(unit)
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(escape(visible(text)), total=None)

            def advance(done: int, total: int | None = None) -> None:
                bar.update(task, completed=done, total=total)

            yield advance


def _columns_of(unit: str) -> list[str | ProgressColumn]:
    from rich import progress

    text_and_bar: list[str | ProgressColumn] = ["{task.description}", progress.BarColumn()]
    if unit != "bytes":
        return [*text_and_bar, progress.MofNCompleteColumn(), unit]
    return [
        *text_and_bar,
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    ]


def _amount(count: int, unit: str) -> str:
    if unit != "bytes":
        return f"{count} {unit}"
    return f"{count / 1e6:.1f} MB"

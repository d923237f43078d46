"""The interface for progress reports of long operations, independent of terminals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, Protocol

Work = Literal["preprocess", "compile", "generate", "link", "build", "run", "other"]
"""The kind of work of a tool: preprocess or compile a unit, generate code from IR, link, build with
upstream's CMake, run a built program, or something else."""


class Advance(Protocol):
    """Moves a progress bar: ``done`` of ``total`` units (``None``: total unknown)."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Move to ``done``."""


class Reporter(Protocol):
    """Receives progress and messages for users. Calls must be cheap."""

    def step(self, text: str) -> None:
        """Report that a new step begins."""

    def info(self, text: str) -> None:
        """Report something that is not a problem."""

    def warn(self, text: str) -> None:
        """Report something that makes the result less reliable or complete."""

    def command(self, text: str) -> None:
        """Report a command that is about to run, quoted for a shell."""

    def used(self, work: Work, cpu_s: float) -> None:
        """Report the CPU time of a tool that has ended, its child processes included."""

    def progress(self, text: str, unit: str) -> AbstractContextManager[Advance]:
        """A bar for the duration of the context; ``unit`` is ``bytes`` or a plural noun."""
        ...


class NullReporter:
    """Discards all reports."""

    def step(self, text: str) -> None:
        """Ignore."""

    def info(self, text: str) -> None:
        """Ignore."""

    def warn(self, text: str) -> None:
        """Ignore."""

    def command(self, text: str) -> None:
        """Ignore."""

    def used(self, work: Work, cpu_s: float) -> None:
        """Ignore."""

    @contextmanager
    def progress(self, text: str, unit: str) -> Iterator[Advance]:
        """Show no bar."""
        del text, unit

        def advance(done: int, total: int | None = None) -> None:
            del done, total

        yield advance

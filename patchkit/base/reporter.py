"""What long work reports while it runs, and to whom; nothing here knows of terminals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, Protocol

Work = Literal["preprocess", "compile", "generate", "link", "build", "run", "other"]
"""What a tool does: read a unit's tokens, compile one, make code of what a front end left, link, build with
upstream's CMake, run what was built, or anything else."""


class Advance(Protocol):
    """Moves a progress bar: ``done`` of ``total`` units (``None``: total unknown)."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Move to ``done``."""


class Reporter(Protocol):
    """Receives what a person watching would want to know. Calls must be cheap."""

    def step(self, text: str) -> None:
        """A new unit of work begins."""

    def info(self, text: str) -> None:
        """Something worth reading, not a problem."""

    def warn(self, text: str) -> None:
        """Something that changes what the result is worth."""

    def command(self, text: str) -> None:
        """An outside command about to run, quoted so that it can be pasted."""

    def used(self, work: Work, cpu_s: float) -> None:
        """A tool has ended; ``cpu_s`` are the processor seconds of it and of all that it started."""

    def progress(self, text: str, unit: str) -> AbstractContextManager[Advance]:
        """A bar for the duration of the context; ``unit`` is ``bytes`` or a plural noun."""
        ...


class NullReporter:
    """Says nothing."""

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
        """Count nothing."""
        del text, unit

        def advance(done: int, total: int | None = None) -> None:
            del done, total

        yield advance

"""A reporter that keeps what it was told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from patchkit.base.reporter import Advance, NullReporter


@dataclass
class Recorder(NullReporter):
    """``lines``: the kind and the text of each report."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def step(self, text: str) -> None:
        self.lines.append(("step", text))

    def info(self, text: str) -> None:
        self.lines.append(("info", text))

    def warn(self, text: str) -> None:
        self.lines.append(("warn", text))

    def command(self, text: str) -> None:
        self.lines.append(("command", text))

    @contextmanager
    def progress(self, text: str, unit: str) -> Iterator[Advance]:
        self.lines.append(("progress", f"{text} ({unit})"))
        yield lambda _done, _total=None: None

    def said(self, *kinds: str) -> list[str]:
        """The texts of these kinds, in order."""
        return [text for kind, text in self.lines if kind in kinds]

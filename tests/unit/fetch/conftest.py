from __future__ import annotations

import pytest

from patchkit.base.reporter import NullReporter


class Recorder(NullReporter):
    """A reporter that keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def step(self, text: str) -> None:
        self.lines.append(("step", text))

    def info(self, text: str) -> None:
        self.lines.append(("info", text))

    def warn(self, text: str) -> None:
        self.lines.append(("warn", text))

    def command(self, text: str) -> None:
        self.lines.append(("command", text))

    def said(self, kind: str) -> list[str]:
        return [text for found, text in self.lines if found == kind]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()

"""What a gate asks of the place where its programs run.

Vocabulary: a *runner* is this machine or another one; a *job* is one program run there to its end; to *place*
a file or folder is to have it there. A gate says what to run in words of the place, and hears how it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from patchkit.proc import Completed, run_tool
from patchkit.report import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One program.

    ``argv`` holds paths as :meth:`Runner.place` gave them. ``env`` comes on top of a scrubbed environment.
    ``tag`` tells jobs apart that look alike, such as the third round from the fourth: a job of equal tag and
    command is one job, and a runner that resumes gives its result again.
    """

    argv: tuple[str, ...]
    tag: str
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None


class Runner(Protocol):
    """Where programs run. Neither method raises for a program that failed: the status says that."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def place(self, path: Path) -> str:
        """Have a file or folder there, and give its path there. What is there already is not copied again."""
        ...

    def run(self, job: Job) -> Completed:
        """Run a job to its end.

        Raises:
            ToolMissing, TOOL_NOT_STARTED: there is no such program.
            ToolTimeout: it was stopped after ``timeout_s``.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRunner:
    """This machine."""

    reporter: Reporter

    @property
    def name(self) -> str:
        """What reports call it."""
        return "this machine"

    def place(self, path: Path) -> str:
        """The path itself."""
        return str(path)

    def run(self, job: Job) -> Completed:
        """Run a job to its end; raises as :meth:`Runner.run`."""
        return run_tool(job.argv, env=job.env, timeout_s=job.timeout_s, check=False, reporter=self.reporter)

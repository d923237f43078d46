"""Time spent by a run: processor seconds per stage and kind of work."""

from __future__ import annotations

import resource
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import get_args

from patchkit.base.reporter import Advance, Reporter, Work
from patchkit.base.text import align_columns
from patchkit.prove.gates.base import Count, Many, Number, Record

_OWN = "patchkit"


class Spent(Record):
    """One kind of work in one stage: number of tool processes, and their processor seconds."""

    work: str
    tools: Count
    cpu_s: Number


class Stage(Record):
    """One stage, usually a gate: ``seconds`` of wall clock, and the work done in it.

    The work ``patchkit`` is that of patchkit's own process, counted as one tool.
    """

    name: str
    seconds: Number
    spent: Many[Spent]

    @property
    def cpu_s(self) -> float:
        """Total processor seconds."""
        return sum(each.cpu_s for each in self.spent)


class Stopwatch:
    """A reporter that forwards everything and sums the processor time of tools. Thread-safe."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()
        self._used: dict[str, list[float]] = defaultdict(list)
        self._stages: list[Stage] = []

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The finished stages, in order."""
        return tuple(self._stages)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the work inside the ``with`` block for that stage."""
        with self._lock:
            self._used.clear()
        began, own = time.monotonic(), _own_cpu_s()
        try:
            yield
        finally:
            seconds, own = time.monotonic() - began, _own_cpu_s() - own
            with self._lock:
                spent = [
                    Spent(work=work, tools=len(used), cpu_s=round(sum(used), 2))
                    for work in get_args(Work)
                    if (used := self._used.get(work))
                ]
            spent.append(Spent(work=_OWN, tools=1, cpu_s=round(own, 2)))
            self._stages.append(Stage(name=name, seconds=round(seconds, 2), spent=tuple(spent)))

    def used(self, work: Work, cpu_s: float) -> None:
        """Add the time of a tool that has ended."""
        with self._lock:
            self._used[work].append(cpu_s)
        self._reporter.used(work, cpu_s)

    def step(self, text: str) -> None:
        """Forward."""
        self._reporter.step(text)

    def info(self, text: str) -> None:
        """Forward."""
        self._reporter.info(text)

    def warn(self, text: str) -> None:
        """Forward."""
        self._reporter.warn(text)

    def command(self, text: str) -> None:
        """Forward."""
        self._reporter.command(text)

    def progress(self, text: str, unit: str) -> AbstractContextManager[Advance]:
        """Forward."""
        return self._reporter.progress(text, unit)


def timings_table(stages: tuple[Stage, ...]) -> list[str]:
    """The stages as a text table: wall clock, then processor seconds with the number of tool processes."""
    done = {each.work for stage in stages for each in stage.spent}
    works = [work for work in (*get_args(Work), _OWN) if work in done]
    head = ["stage", "clock", "processor", *works]
    rows = [head, *(_row(each.name, each.seconds, [each], works) for each in stages)]
    rows.append(_row("all", sum(each.seconds for each in stages), stages, works))
    return align_columns(rows, [title != "stage" for title in head])


def _row(name: str, seconds: float, stages: tuple[Stage, ...] | list[Stage], works: list[str]) -> list[str]:
    cells = [name, f"{seconds:.0f}", f"{sum(each.cpu_s for each in stages):.0f}"]
    for work in works:
        spent = [each for stage in stages for each in stage.spent if each.work == work]
        text = f"{sum(each.cpu_s for each in spent):.0f}"
        if work != _OWN:
            text += f" ({sum(each.tools for each in spent)})"
        cells.append(text if spent else "-")
    return cells


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

"""Where the time of a run goes: what tools used, by stage and by kind of work."""

from __future__ import annotations

import sys

import pytest

from patchkit.base.process import run_tool
from patchkit.base.reporter import NullReporter, Work
from patchkit.prove.verify.timings import Spent, Stage, Stopwatch, timings_table

BUSY = "import os, time\nwhile time.process_time() < 0.2: pass\n"
PARENT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}], check=True)\n"


def python(program: str, watch: Stopwatch, work: Work, *, check: bool = True) -> None:
    run_tool([sys.executable, "-c", program], reporter=watch, work=work, check=check)


def spent(stage: Stage) -> dict[str, Spent]:
    return {each.work: each for each in stage.spent}


def test_what_children_of_a_tool_used_is_the_tools() -> None:
    watch = Stopwatch(NullReporter())
    with watch.stage("one"):
        python(PARENT, watch, "build")
    assert spent(watch.stages[0])["build"].cpu_s >= 0.2


def test_each_stage_has_its_own_tools_however_they_end() -> None:
    watch = Stopwatch(NullReporter())
    with watch.stage("one"):
        python("", watch, "compile")
        python("raise SystemExit(3)", watch, "compile", check=False)
    with watch.stage("two"):
        python("", watch, "run")
    first, second = watch.stages
    assert {work: each.tools for work, each in spent(first).items()} == {"compile": 2, "patchkit": 1}
    assert {work: each.tools for work, each in spent(second).items()} == {"run": 1, "patchkit": 1}


def test_a_stage_that_ends_in_the_middle_is_kept() -> None:
    watch = Stopwatch(NullReporter())
    with pytest.raises(KeyboardInterrupt), watch.stage("one"):
        raise KeyboardInterrupt
    assert [stage.name for stage in watch.stages] == ["one"]


def test_the_table_adds_up() -> None:
    own = Spent(work="patchkit", tools=1, cpu_s=1.0)
    stages = (
        Stage(name="compile", seconds=30.0, spent=(Spent(work="compile", tools=7, cpu_s=50.0), own)),
        Stage(name="launch", seconds=8.4, spent=(Spent(work="run", tools=2, cpu_s=3.0), own)),
    )
    assert [line.split() for line in timings_table(stages)] == [
        ["stage", "clock", "processor", "compile", "run", "patchkit"],
        ["compile", "30", "51", "50", "(7)", "-", "1"],
        ["launch", "8", "4", "-", "3", "(2)", "1"],
        ["all", "38", "55", "50", "(7)", "3", "(2)", "2"],
    ]

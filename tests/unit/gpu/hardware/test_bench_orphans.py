"""Programs that a killed patchkit left running are found by what they run, and waited for."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.bench.orphans import processes_of, wait_for_orphans

_PROGRAM = b"""
#include <cstdio>
int main() { std::puts("it runs"); std::fflush(stdout); std::getchar(); }
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Made here: a shell under another name is a shell on some systems only."""
    path = tmp_path / "llama-bench"
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    assert compiler, "the tests need a C++ compiler"
    subprocess.run([compiler, "-x", "c++", "-", "-o", path], input=_PROGRAM, check=True)
    return path


@pytest.fixture
def running(program: Path) -> Iterator[subprocess.Popen[bytes]]:
    with _started(program) as process:
        yield process


@contextmanager
def _started(program: Path, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, **environ}
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"it runs\n"
        yield process
        process.stdin.close()


def test_a_program_that_runs_is_found_whoever_started_it(program: Path, running) -> None:
    assert processes_of([program]) == [running.pid]
    assert processes_of([program.with_name("other")]) == []


def test_one_that_was_given_another_gpu_is_none_to_wait_for(program: Path, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with _started(program) as same, _started(program, CUDA_VISIBLE_DEVICES="1") as other:
        assert processes_of([program]) == [same.pid]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert processes_of([program]) == [other.pid]
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")  # all of them
        assert processes_of([program]) == sorted([same.pid, other.pid])


def test_the_wait_is_over_when_it_ends(program: Path, running) -> None:
    with refused("BENCH_FAILED") as caught:
        wait_for_orphans([program], NullReporter(), patience_s=0)
    assert caught.value.hint == f"end it with: kill {running.pid}"
    assert running.stdin is not None
    running.stdin.close()
    running.wait()
    wait_for_orphans([program], NullReporter(), patience_s=0)

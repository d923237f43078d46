"""Every way in which a program ends, with real processes; what it wrote stays, marked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from refusing import refused
from small_disk import on_small_disk

from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware import program as run_module
from patchkit.gpu.hardware.program import (
    RunContext,
    run_program,
)


@pytest.fixture
def place(tmp_path: Path) -> RunContext:
    return RunContext(folder=tmp_path / "runs", reporter=NullReporter())


def run(place: RunContext, script: str, *, timeout_s: float = 60.0, accept: frozenset[int] = frozenset({0})):
    return run_program("one", ["/bin/sh", "-c", script], place=place, timeout_s=timeout_s, accept=accept)


def record(place: RunContext) -> dict:
    return json.loads((place.folder / "one.json").read_text())


def test_output_and_record_are_kept(place: RunContext) -> None:
    ran = run(place, "echo out; echo err >&2; exit 1", accept=frozenset({0, 1}))
    assert (ran.status, ran.text(), ran.talk()) == (1, "out\n", "err\n")
    assert record(place)["state"] == "ended"
    assert "partial" not in record(place)


def test_the_command_can_be_pasted(place: RunContext) -> None:
    argv = ["/bin/sh", "-c", 'echo "$NAME"']
    ran = run_program("one", argv, place=place, env={"NAME": "a (b)"}, timeout_s=60.0)
    pasted = subprocess.run(["/bin/sh", "-c", ran.command], capture_output=True, text=True, check=True)
    assert pasted.stdout == ran.text() == "a (b)\n"
    assert record(place)["command"] == ran.command


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("echo part; kill -SEGV $$", "PROGRAM_CRASHED", "ended by SIGSEGV"),
        ("echo part; echo no such thing >&2; exit 3", "PROGRAM_FAILED", "failed with status 3"),
        ("echo part; kill -KILL $$", "PROGRAM_OUT_OF_MEMORY", "was killed"),
        (
            "echo part; echo 'what(): std::bad_alloc' >&2; kill -ABRT $$",
            "PROGRAM_OUT_OF_MEMORY",
            "out of memory",
        ),
        ("echo part; echo 'ggml_backend: failed to allocate' >&2; exit 2", "PROGRAM_OUT_OF_MEMORY", "memory"),
        ("echo part; echo 'ROCm error: device lost' >&2; kill -ABRT $$", "DEVICE_LOST", "lost the GPU"),
        ("echo part; kill -XFSZ $$", "DISK_FULL", "file size limit"),
    ],
)
def test_each_bad_end_has_its_error_and_leaves_what_was_written(
    place: RunContext, script: str, code: str, says: str
) -> None:
    with refused(code, match=says):
        run(place, script)
    assert (place.folder / "one.out").read_text() == "part\n"
    assert record(place)["partial"] is True
    assert record(place)["state"] == code


def test_a_program_that_hangs_is_stopped(place: RunContext) -> None:
    with refused("PROGRAM_FAILED", match="did not end within") as caught:
        run(place, "echo part; echo where >&2; sleep 600", timeout_s=0.5)
    assert caught.value.why == "where"
    assert (place.folder / "one.out").read_text() == "part\n"
    assert record(place) == {**record(place), "state": "TOOL_TIMEOUT", "partial": True}


_PART = """
import json, sys
from pathlib import Path
from patchkit.gpu.hardware.program import RunContext, run_program
from patchkit.base.errors import PatchkitError
from patchkit.base.reporter import NullReporter
place = RunContext(folder=Path(sys.argv[1]), reporter=NullReporter())
try:
    run_program("one", ["/bin/sh", "-c", "echo part"], place=place, timeout_s=60)
except PatchkitError as error:
    print(error.code, json.loads((place.folder / "one.json").read_text())["partial"])
"""


@pytest.mark.extra_tools
def test_a_full_disk_is_not_taken_for_a_short_answer(place: RunContext) -> None:
    done = subprocess.run(
        [*on_small_disk(place.folder, 3000), sys.executable, "-c", _PART, str(place.folder)],
        env={**os.environ, "PYTHONPATH": str(Path(run_module.__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["DISK_FULL", "True"], done.stderr


def test_a_folder_that_cannot_be_made_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = RunContext(folder=tmp_path / "file" / "runs", reporter=NullReporter())
    with pytest.raises(Exception, match="saving the output of a program failed"):
        run(place, "true")


_INTERRUPTED = """
import sys
from pathlib import Path
from patchkit.gpu.hardware.program import RunContext, run_program
from patchkit.base.reporter import NullReporter
place = RunContext(folder=Path(sys.argv[1]), reporter=NullReporter())
run_program("one", ["/bin/sh", "-c", "echo part; sleep 600"], place=place, timeout_s=60)
"""


def test_ctrl_c_leaves_the_record_marked(place: RunContext) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, str(place.folder)],
        env={**os.environ, "PYTHONPATH": str(Path(run_module.__file__).parents[3])},
        stderr=subprocess.DEVNULL,
    )
    out = place.folder / "one.out"
    deadline = time.monotonic() + 60
    while not (out.exists() and out.read_text()):
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    assert record(place)["state"] == "running"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) != 0
    assert record(place)["state"] == "interrupted"
    assert record(place)["partial"] is True
    assert out.read_text() == "part\n"

"""Killing, starving and racing an installation: nothing half-made is seen, and the next run repairs."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.toolchain.sdk.install import InstallRequest, install
from patchkit.toolchain.sdk.prefix import current_prefix, load_prefix

pytestmark = [pytest.mark.hip, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]

# Installs what the pickled request asks for, saying each step and the end; files may not pass the limit.
_PROGRAM = """
import pickle, resource, sys
from patchkit.base.errors import PatchkitError
from patchkit.base.reporter import NullReporter
from patchkit.toolchain.sdk.install import install

class Steps(NullReporter):
    def step(self, text): print("step", text, flush=True)
    def info(self, text): print("info", text, flush=True)
    def command(self, text): print("step", text, flush=True)

if int(sys.argv[2]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    prefix, made = install(pickle.loads(open(sys.argv[1], "rb").read()), Steps())
    print("done", prefix.path.name, made, flush=True)
except PatchkitError as error:
    print("error", error.code, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def start(tmp_path: Path):
    """Starts an installation in a process of its own."""
    number = 0

    def run(request: InstallRequest, limit: int = 0) -> subprocess.Popen[str]:
        nonlocal number
        number += 1
        path = tmp_path / f"request-{number}"
        path.write_bytes(pickle.dumps(request))
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(path), str(limit)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )

    return run


def steps_of(process: subprocess.Popen[str], until: int) -> list[str]:
    """The first lines it prints; it is waiting in the middle of the last of them."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if len(lines) == until:
            break
    return lines


def complete(cache: Path) -> bool:
    """Whether what can be seen is whole; False when there is nothing to see."""
    link = cache / "sdk" / "current"
    return link.is_symlink() and load_prefix(link.resolve()) is not None


@pytest.mark.parametrize("again", [False, True], ids=["first", "replacing"])
def test_a_killed_installation_shows_nothing_and_is_repaired(request_of, start, again: bool) -> None:
    cache = request_of().cache_root
    if again:
        install(request_of(), NullReporter())
    for until in (
        3,
        9,
        16,
        23,
        27,
        32,
    ):  # among about 35 commands, from reading the index to the last compile
        process = start(request_of(again=again))
        lines = steps_of(process, until)
        time.sleep(0.02)
        with process:
            process.kill()
        assert len(lines) == until, lines
        assert complete(cache) is again
        assert current_prefix(cache) is None or again
        visible = [path.name for path in (cache / "sdk").iterdir() if not path.name.startswith(".")]
        assert set(visible) <= {"lock", "current", *(p.name for p in (cache / "sdk").glob("[0-9a-f]*"))}
    process = start(request_of(again=again))
    out, _ = process.communicate(timeout=300)
    assert "removing the remains of a killed run" in out
    assert out.splitlines()[-1].startswith("done ")
    assert complete(cache)
    left = sorted(path.name for path in (cache / "sdk").iterdir())
    assert left == sorted([out.split()[-2], "current", "lock"])


def test_ctrl_c_leaves_nothing_and_stops_the_tools(request_of, start) -> None:
    process = start(request_of())
    steps_of(process, 9)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out.splitlines()[-1] == "interrupted"
    assert [path.name for path in (request_of().cache_root / "sdk").iterdir()] == ["lock"]


def test_two_at_once_make_one(request_of, start) -> None:
    processes = [start(request_of()) for _ in range(2)]
    outs = [process.communicate(timeout=300)[0].splitlines() for process in processes]
    ends = sorted(out[-1].split()[2] for out in outs)
    assert ends == ["False", "True"], outs
    assert len({out[-1].split()[1] for out in outs}) == 1


@pytest.mark.parametrize("limit", [1_000, 100_000, 2_000_000])
def test_a_full_disk_is_said_and_leaves_nothing(request_of, start, limit: int) -> None:
    out, _ = start(request_of(), limit).communicate(timeout=120)
    assert out.splitlines()[-1] == "error DISK_FULL", out
    assert [path.name for path in (request_of().cache_root / "sdk").iterdir()] == ["lock"]

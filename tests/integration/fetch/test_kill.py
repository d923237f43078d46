"""``kill -9`` at every event of getting the pin, and at many moments between: a rerun completes it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

# One process that imports everything once and forks for every kill; the index runs in pytest's.
_DRIVER = """
import os, pickle, shutil, signal, sys, time
from contextlib import contextmanager
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import obtain
from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream import gitpython
import git

pin, root, source, url = pickle.loads(bytes.fromhex(sys.argv[1]))

class Killer(NullReporter):
    def __init__(self, left):
        self.left = left
    def event(self, *_):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    step = info = warn = command = event
    @contextmanager
    def progress(self, text, unit):
        self.event()
        yield lambda done, total=None: self.event()
        self.event()

def forked(reporter, delay=None):
    child = os.fork()
    if child == 0:
        try:
            obtain(pin, cache=open_cache(root), source=source, index_url=url, reporter=reporter)
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(1)
        os._exit(0)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def one(reporter, delay=None):
    shutil.rmtree(root, ignore_errors=True)
    killed = forked(reporter, delay)
    again = forked(NullReporter())
    return killed, again

events = 0
while True:
    events += 1
    killed, again = one(Killer(events))
    assert again == 0, ("event", events, killed, again)
    if killed == 0:
        break
    assert killed == -9, killed
moments = 0
for moment in range(24):
    killed, again = one(NullReporter(), 0.004 * moment)
    assert again == 0, ("moment", moment, killed, again)
    moments += killed == -9
print(events - 1, moments)
"""


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("source", ["git", "sdist"])
def test_a_rerun_completes_what_a_kill_cut(upstream, index, tmp_path: Path, source: str) -> None:
    root = tmp_path / "cache"
    data = pickle.dumps((upstream.pin(), root, source, index.url)).hex()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _DRIVER, data],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    events, moments = map(int, done.stdout.split())
    assert events >= 8
    assert events + moments >= 15

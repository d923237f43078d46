"""A bump that is stopped at any point leaves lock and branches as they were, and the next one succeeds.

A *trip wire* is a git on PATH that counts its calls and, at one of them, stops the patchkit that called it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from command_line import process_environment, process_start
from small_disk import on_small_disk
from thorough import ordinary

WIRE = """\
#!{python}
import os, sys
path = {count!r}
with open(path, "a") as stream:
    stream.write(".")
if os.path.getsize(path) == {at}:
    os.kill(os.getppid(), {signal})
os.execv({git!r}, ["git", *sys.argv[1:]])
"""


def tripped(river, at, number):
    """Bump with a wire at the git call ``at``; how it ended, and how many calls there were."""
    folder = river.root / "bin"
    folder.mkdir(exist_ok=True)
    count = river.root / "count"
    count.unlink(missing_ok=True)
    wire = folder / "git"
    wire.write_text(
        WIRE.format(
            python=sys.executable, count=str(count), at=at, signal=int(number), git=shutil.which("git")
        )
    )
    wire.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = river.process("bump", "--to", "b2", "--no-verify", "--json", env={"PATH": path})
    return done, len(count.read_text())


def visible(state):
    """What a person sees: not the ref that keeps a tree that was fetched and verified."""
    return {name: sha for name, sha in state.items() if not name.startswith("refs/patchkit/pin/")}


@pytest.fixture(scope="module")
def calls(spring, tmp_path_factory, checkout):
    """How many times a whole bump calls git."""
    river = copy(spring, tmp_path_factory.mktemp("count"))
    done, number = tripped(river, 0, signal.SIGKILL)
    assert done.returncode == 0, done.stderr
    return number


def copy(spring, folder):
    shutil.copytree(spring.home, folder / "home")
    shutil.copytree(spring.cache, folder / "cache")
    (folder / "upstream").symlink_to(spring.upstream)
    return type(spring)(folder, spring.checkout)


@pytest.mark.parametrize("part", ordinary([0.15, 0.5, 0.85, "ref", "last"], (0.5, "ref")))
def test_killed_at_a_git_call_everything_is_as_it_was_or_put_back(river, calls, part):
    before = river.state()
    at = {"ref": calls - 1, "last": calls}.get(part) or round(part * calls)
    done, _ = tripped(river, at, signal.SIGKILL)
    assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert river.state()["lock"] == before["lock"]
    again = river.run("bump", "--to", "b3", "--no-verify", "--json")
    assert json.loads(again.stdout)["error"]["code"] == "BUMP_GATES_NEEDED", again.stderr
    assert visible(river.state()) == visible(before)
    assert river.left_over() == []
    assert river.run("bump", "--to", "b2", "--no-verify").returncode == 0
    assert "refs/heads/candidate/gfx1151/b2" in river.state()


@pytest.mark.parametrize("part", ordinary([0.3, 0.7, "last"], (0.7,)))
def test_ctrl_c_says_that_everything_is_as_it_was(river, calls, part):
    before = river.state()
    at = calls if part == "last" else round(part * calls)
    done, _ = tripped(river, at, signal.SIGINT)
    if done.returncode == 0:  # the last call was the end of it
        assert part == "last"
        return
    assert done.returncode == 130
    assert "lock and branches are unchanged" in json.loads(done.stdout)["error"]["message"]
    assert river.state() == before
    assert river.left_over() == []


def test_a_lock_that_cannot_be_written_puts_the_branch_back(river):
    before = river.state()
    river.lock.parent.chmod(0o555)
    try:
        if os.access(river.lock.parent, os.W_OK):  # root may write everywhere
            done = river.process("bump", "--to", "b2", "--no-verify", "--json", before=REFUSE)
        else:
            done = river.run("bump", "--to", "b2", "--no-verify", "--json")
        assert done.returncode == 8, done.stderr
    finally:
        river.lock.parent.chmod(0o755)
    assert river.state() == before


REFUSE = """\
import patchkit.carry.bump.run as bump
from patchkit.base.errors import CacheError

def refuse(path, lock):
    if "bump-" not in str(path):
        raise CacheError("writing the lock failed: No space left on device", code="DISK_FULL")
    return write(path, lock)

write, bump.write_lock = bump.write_lock, refuse
"""


@pytest.mark.extra_tools
@pytest.mark.parametrize("spare", [16, 96])
def test_a_cache_on_a_full_disk_is_as_it_was(river, tmp_path, spare):
    """Sizes in KiB above what the cache takes; the second is enough to begin with the commits."""
    before = river.state()
    mount = tmp_path / "small"
    taken = int(
        subprocess.run(["du", "-sk", str(river.cache)], capture_output=True, check=True).stdout.split()[0]
    )
    words = river.words("bump", "--to", "b2", "--no-verify", cache=mount / "cache")
    state = f"git -C '{mount}/cache/upstream.git' for-each-ref"
    script = (
        f"cp -a '{river.cache}' '{mount}/cache' || exit 78; "
        f"{state} > '{tmp_path}/before'; \"$@\"; code=$?; {state} > '{tmp_path}/after'; exit $code"
    )
    done = subprocess.run(
        [*on_small_disk(mount, taken + spare, script), *process_start(), *words],
        env=process_environment(), cwd=river.root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 78, done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode == 0:  # it was enough after all
        assert river.state()["lock"] != before["lock"]
        return
    assert done.returncode in (5, 8), done.stderr
    assert river.state()["lock"] == before["lock"]
    heads = [(tmp_path / name).read_text() for name in ("before", "after")]
    assert heads[0] == heads[1]

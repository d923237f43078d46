"""Apply is killed, starved and raced: the repository is as before or complete, and a rerun succeeds.

The process dies by SIGKILL at chosen points. Points are audit events of the interpreter (a file opened
for writing, a process started, a rename, a folder made, ...): everything apply does to the outside world
goes through one, so killing at each n-th event walks through all of its states, the same ones every time.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
from dataclasses import replace

import pytest
from command_line import process_environment, process_start
from killing import KILLER, killed
from thorough import ordinary

REF = "refs/heads/candidate/gfx1151/b1"
POINTS = 36
UPDATE_POINTS = 16


def killed_apply(world, cache, at, *, group, log=None, extra=()):
    return killed(world, at, "apply", "--arch", "gfx1151", *extra, group=group, cache=cache, log=log)


@pytest.fixture(scope="module")
def events(finished_world, tmp_path_factory):
    """How many points a cold apply with a checkout has."""
    folder = tmp_path_factory.mktemp("count")
    done = killed_apply(
        finished_world,
        folder / "cache",
        -1,
        group=True,
        log=folder / "log",
        extra=("--checkout", str(folder / "files")),
    )
    assert done.returncode == 0, done.stderr
    return int((folder / "log").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("point", ordinary(range(POINTS), (0, 9, 18, 27, 35)))
def test_killed_anywhere_leaves_it_as_before_or_complete(finished_world, events, tmp_path, point):
    world, cache, files = finished_world, tmp_path / "cache", tmp_path / "files"
    assert events >= POINTS
    at = 1 + point * (events - 3) // (POINTS - 1)  # the last two are the interpreter closing down
    mine = tmp_path / "mine.txt"
    mine.write_text("untouched")
    done = killed_apply(world, cache, at, group=point % 2 == 0, extra=("--checkout", str(files)))
    assert done.returncode == -signal.SIGKILL, f"event {at} of {events} was not reached: {done.stderr}"
    tip = world.refs()[REF]
    assert world.refs(cache).get(REF) in (None, tip)
    again = world.run("apply", "--arch", "gfx1151", "--checkout", str(files), cache=cache)
    assert again.returncode == 0, again.stderr
    assert world.refs(cache) == world.refs()
    world.git("fsck", "--strict", "--no-dangling", at=cache / "upstream.git")
    assert world.git("status", "--porcelain", at=files) == ""
    assert world.git("rev-parse", "HEAD", at=files) == tip
    assert mine.read_text() == "untouched"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "files", "mine.txt"]


@pytest.fixture(scope="module")
def grown(make_grown, tmp_path_factory):
    """A world with a checkout, whose series changed since; how many points an update has, and its tip."""
    world = make_grown(tmp_path_factory.mktemp("grown"))
    counted = make_grown(tmp_path_factory.mktemp("counted"))
    log = counted.root / "log"
    extra = ("--checkout", str(counted.root / "files"))
    done = killed_apply(counted, counted.cache, -1, group=True, log=log, extra=extra)
    assert done.returncode == 0, done.stderr
    return world, int(log.read_text()), counted.refs()[REF]


@pytest.fixture(scope="module")
def make_grown(finished_world):
    def make(folder):
        root = folder / "world"
        shutil.copytree(finished_world.root, root, symlinks=True)
        world = replace(finished_world, root=root)
        done = world.run("apply", "--arch", "gfx1151", "--checkout", str(root / "files"))
        assert done.returncode == 0, done.stderr
        patch = world.series / "patches" / "0002-demo-twin" / "patch.toml"
        patch.write_text(patch.read_text().replace("scale = 3", "scale = 5"))
        return world

    return make


@pytest.mark.slow
@pytest.mark.parametrize("point", ordinary(range(UPDATE_POINTS), (5, 10, 15)))
def test_an_update_of_a_checkout_that_was_killed_anywhere_is_finished(grown, tmp_path, point):
    first, events, tip = grown
    shutil.copytree(first.root, tmp_path / "world", symlinks=True)
    world = replace(first, root=tmp_path / "world")
    files = world.root / "files"
    world.git("branch", "mine", at=files)
    assert events >= UPDATE_POINTS
    at = 1 + point * (events - 3) // (UPDATE_POINTS - 1)
    extra = ("--checkout", str(files))
    done = killed_apply(world, world.cache, at, group=point % 2 == 0, extra=extra)
    assert done.returncode == -signal.SIGKILL, f"event {at} of {events} was not reached: {done.stderr}"
    again = world.run("apply", "--arch", "gfx1151", *extra)
    assert again.returncode == 0, again.stderr
    assert world.refs()[REF] == tip
    assert world.git("status", "--porcelain", at=files) == ""
    assert world.git("rev-parse", "HEAD", REF, at=files).split() == [tip, tip]
    world.git("fsck", "--strict", "--no-dangling", at=files)
    assert world.git("log", "-1", "--format=%s", "mine", at=files).startswith("demo-twin")


def test_two_at_once_both_succeed(world):
    running = [
        subprocess.Popen(
            [*process_start(), *world.words("apply", "--arch", arch)],
            env=process_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for arch in ("gfx1151", "gfx1151", "gfx1100")
    ]
    for process in running:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
    assert {name for name in world.refs() if "candidate" in name} == {REF, "refs/heads/candidate/gfx1100/b1"}


def stopped_apply(world, at, *extra):
    """Apply with Ctrl-C at an event: a number, or the moment before git gets certain words."""
    killer = KILLER
    if isinstance(at, tuple):
        killer = killer.replace(
            "if writes or name in NAMES:",
            f"if name == 'subprocess.Popen' and {set(at)!r} <= set(args[1]):\n"
            "        signal.raise_signal(signal.SIGINT)\n"
            "    if writes or name in NAMES:",
        )
    env = {"KILL_AT": str(at if isinstance(at, int) else -1), "KILL_GROUP": "0", "KILL_SIGNAL": "INT"}
    return world.process("apply", "--arch", "gfx1151", *extra, env=env, before=killer, own_session=True)


def test_ctrl_c_is_130_and_a_rerun_succeeds(world):
    done = stopped_apply(world, 25, "--json")
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["error"]["message"] == "stopped by Ctrl-C: no branch was moved"
    assert REF not in world.refs()
    assert world.run("apply", "--arch", "gfx1151").returncode == 0


def test_ctrl_c_during_the_checkout_leaves_the_branch_and_says_so(world, tmp_path):
    files = tmp_path / "files"
    done = stopped_apply(world, ("reset", "--hard"), "--checkout", str(files))
    assert done.returncode == 130, done.stderr
    assert f"candidate/gfx1151/b1 was not moved; {files} may be incomplete" in done.stderr
    assert REF not in world.refs()
    again = world.run("apply", "--arch", "gfx1151", "--checkout", str(files))
    assert again.returncode == 0, again.stderr
    assert world.git("rev-parse", "HEAD", at=files) == world.refs()[REF]


def test_ctrl_c_while_the_branch_moves_claims_neither(world):
    assert world.run("plan", "--arch", "gfx1151").returncode == 0  # the pin's ref is there
    done = stopped_apply(world, ("update-ref", "--no-deref", "--stdin"))
    assert done.returncode == 130, done.stderr
    assert "candidate/gfx1151/b1 is either unchanged or complete at " in done.stderr
    again = world.run("apply", "--arch", "gfx1151", "--json")
    assert json.loads(again.stdout)["commits"][-1]["commit"] == world.refs()[REF]


def test_a_checkout_that_is_refused_leaves_the_branch(world, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    done = world.run("apply", "--arch", "gfx1151", "--checkout", str(tmp_path / "mine"))
    assert done.returncode == 5
    assert "CHECKOUT_UNUSABLE" in done.stderr
    assert REF not in world.refs()


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&- 2>&-"])
def test_a_stderr_that_takes_nothing_does_not_matter(world, streams):
    command = shlex.join([*process_start(), *world.words("apply", "--arch", "gfx1151", "--json")])
    done = subprocess.run(
        f"{command} {streams}",
        shell=True,
        env=process_environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["commits"][-1]["commit"] == world.refs()[REF]


@pytest.mark.parametrize("room", ordinary([0, 1, 4, 16, 40], (1, 16)))
def test_a_full_disk_is_said_and_leaves_nothing_half(finished_world, tmp_path, room):
    """RLIMIT_FSIZE makes every write beyond ``room`` KiB fail, for git as for us: a disk that fills up."""
    world = finished_world
    before = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room} * 1024, {room} * 1024))"
    )
    cache = tmp_path / "cache"
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    done = world.process("apply", "--arch", "gfx1151", cache=cache, env=env, before=before)
    if done.returncode == 0:
        assert world.refs(cache) == world.refs()  # everything was smaller than the limit
        return
    assert done.returncode in (5, 8), done.stderr
    assert "Traceback" not in done.stderr
    assert world.refs(cache).get(REF) is None
    assert world.run("apply", "--arch", "gfx1151", cache=cache).returncode == 0
    assert world.refs(cache) == world.refs()

"""Jobs on another machine, which is an sshd of the test's own: copied, run, resumed, and what goes wrong."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.process import ToolTimeout
from patchkit.gpu.hardware.runner import (
    Job,
    RunnerError,
)

pytestmark = pytest.mark.extra_tools  # sshd and rsync


def _sh(text: str, tag: str = "t", **rest: object) -> Job:
    return Job(argv=("sh", "-c", text), tag=tag, **rest)


def _until(done: Callable[[], bool]) -> None:
    for _ in range(300):
        if done():
            return
        time.sleep(0.1)
    pytest.fail("it did not happen")


def test_a_job_gives_its_status_and_every_byte(server) -> None:
    runner = server.runner()
    done = runner.run(_sh("printf 'a\\000b\\n\\n'; echo \"it's $X\" >&2; exit 7", env={"X": "a 'b' $c"}))
    assert (done.returncode, done.stdout, done.stderr) == (7, b"a\0b\n\n", b"it's a 'b' $c\n")
    assert runner.run(_sh("kill -SEGV $$", "crash")).returncode == 128 + 11


def test_nothing_of_the_login_there_reaches_a_job(server) -> None:
    names = server.runner().run(Job(argv=("env",), tag="t")).stdout.decode().splitlines()
    assert {line.partition("=")[0] for line in names} <= {"PATH", "HOME", "LC_ALL", "PWD", "_", "SHLVL"}


def test_a_folder_is_copied_once_and_anew_when_it_changes(server, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "tool").write_text("#!/bin/sh\ncat $(dirname $0)/data\n")
    (folder / "tool").chmod(0o755)
    (folder / "data").write_text("one\n")
    there = server.runner().place(folder)
    assert Path(there).is_relative_to(server.root)
    assert server.runner().run(Job(argv=(f"{there}/tool",), tag="a")).stdout == b"one\n"
    before = (Path(there) / "data").stat().st_ctime_ns
    assert server.runner().place(folder) == there
    assert (Path(there) / "data").stat().st_ctime_ns == before
    (folder / "data").write_text("two\n")
    other = server.runner().place(folder)
    assert server.runner().run(Job(argv=(f"{other}/tool",), tag="b")).stdout == b"two\n"
    file = server.runner().place(folder / "data")
    assert server.runner().run(Job(argv=("cat", file), tag="c")).stdout == b"two\n"


def test_a_copy_that_was_cut_short_is_not_taken_for_one(server, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"x" * 100_000)
    there = Path(server.runner().place(tmp_path / "model"))
    there.write_bytes(b"x" * 50)
    (there.parent / ".complete").unlink()
    assert Path(server.runner().place(tmp_path / "model")).stat().st_size == 100_000


def test_a_lost_connection_does_not_end_the_job(server, tmp_path: Path) -> None:
    started, goon = tmp_path / "started", tmp_path / "goon"
    text = f"echo run >> {started}; while [ ! -e {goon} ]; do sleep 0.1; done; echo done"
    results = []
    thread = threading.Thread(target=lambda: results.append(server.runner().run(_sh(text))))
    thread.start()
    _until(started.exists)
    time.sleep(0.5)
    assert server.drop() > 0
    time.sleep(0.5)
    goon.touch()
    thread.join(60)
    assert [done.stdout for done in results] == [b"done\n"]
    assert started.read_text() == "run\n", "the job ran once"


def test_a_machine_that_stays_away_is_given_up_and_the_job_resumed_later(server, tmp_path: Path) -> None:
    started, goon = tmp_path / "started", tmp_path / "goon"
    job = _sh(f"echo run >> {started}; while [ ! -e {goon} ]; do sleep 0.1; done; echo done")
    errors = []

    def run() -> None:
        try:
            server.runner(patience_s=1.5).run(job)
        except RunnerError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    _until(started.exists)
    time.sleep(0.5)
    server.stop()
    thread.join(60)
    (error,) = errors
    assert "not restored within 1.5 s" in error.message
    goon.touch()
    server.start()
    assert server.runner().run(job).stdout == b"done\n"
    assert server.runner().run(job).stdout == b"done\n"
    assert started.read_text() == "run\n", "the job ran once, for three who asked"


def test_a_job_of_another_tag_is_another_job(server, tmp_path: Path) -> None:
    count = tmp_path / "count"
    for tag in ("round-1", "round-2", "round-1"):
        server.runner().run(_sh(f"echo x >> {count}", tag))
    assert count.read_text() == "x\nx\n"


def test_a_job_that_hangs_is_stopped_there(server, tmp_path: Path) -> None:
    with pytest.raises(ToolTimeout, match=r"did not finish within 0\.5 s"):
        server.runner().run(_sh(f"sleep 1000; touch {tmp_path}/after", timeout_s=0.5))
    assert not (tmp_path / "after").exists()


def test_a_job_that_dies_with_its_session_is_lost_and_runs_again_next_time(server, tmp_path: Path) -> None:
    job = _sh(f"if [ -e {tmp_path}/again ]; then echo done; else touch {tmp_path}/again; kill -KILL 0; fi")
    with refused("RUNNER_JOB_LOST"):
        server.runner().run(job)
    assert server.runner().run(job).stdout == b"done\n"


def test_ctrl_c_ends_the_job_there(server, tmp_path: Path, monkeypatch) -> None:
    runner = server.runner()
    remote = type(runner)._remote

    def interrupted(self, script: str, *, patient: bool = True):
        if "job.sh" in script:
            threading.Thread(target=remote, args=(self, script), daemon=True).start()
            _until((tmp_path / "started").exists)
            raise KeyboardInterrupt
        return remote(self, script, patient=patient)

    monkeypatch.setattr(type(runner), "_remote", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.run(_sh(f"touch {tmp_path}/started; sleep 3; touch {tmp_path}/after"))
    time.sleep(4)
    assert not (tmp_path / "after").exists()


def test_no_server_is_said_at_once(server) -> None:
    server.stop()
    with refused("RUNNER_UNREACHABLE"):
        server.runner().connect()


def test_another_host_key_is_never_accepted(server) -> None:
    known = server.folder / "known"
    known.write_text(f"[127.0.0.1]:{server.port} {(server.folder / 'other.pub').read_text()}")
    with refused("RUNNER_KEY_UNKNOWN") as caught:
        server.runner().connect()
    assert "ssh-keygen -R" in (caught.value.hint or "")


def test_an_unknown_host_is_for_the_user_to_accept(server) -> None:
    (server.folder / "known").write_text("")
    with refused("RUNNER_KEY_UNKNOWN"):
        server.runner().connect()
    assert (server.folder / "known").read_text() == ""


def test_who_has_no_key_does_not_get_in(server) -> None:
    shutil.copy(server.folder / "other.pub", server.folder / "authorized")
    with refused("RUNNER_AUTH_FAILED"):
        server.runner().connect()

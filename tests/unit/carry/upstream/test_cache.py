from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from refusing import refused
from small_disk import on_small_disk

from patchkit.base.errors import CacheError
from patchkit.base.reporter import NullReporter
from patchkit.base.workspace import default_cache_root
from patchkit.carry.upstream.cache import open_cache

REPORTER = NullReporter()


def test_the_folder_comes_from_the_environment_or_the_system(tmp_path: Path) -> None:
    assert default_cache_root({"PATCHKIT_CACHE": str(tmp_path)}) == tmp_path
    assert default_cache_root({"PATCHKIT_CACHE": "rel"}).is_absolute()
    assert default_cache_root({}).name == "patchkit"


def test_nothing_is_made_before_it_is_held(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "cache")
    assert cache.peek(REPORTER) is None
    assert list(tmp_path.iterdir()) == []
    with cache.hold(REPORTER) as repository:
        assert (repository.path / "HEAD").is_file()
    assert cache.peek(REPORTER) is not None
    assert not (tmp_path / "cache" / "lock.owner").exists()


def test_the_holder_may_hold_again(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "cache")
    with cache.hold(REPORTER) as outer, cache.hold(REPORTER) as inner:
        assert inner.path == outer.path
        assert (tmp_path / "cache" / "lock.owner").read_text() == f"{os.getpid()}\n"


_HOLD = """
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from patchkit.carry.upstream.cache import open_cache
from patchkit.base.reporter import NullReporter
class Talk(NullReporter):
    def info(self, text): print(text, flush=True)
with open_cache(Path(sys.argv[1])).hold(Talk()):
    print("held", flush=True)
    sys.stdin.read() if sys.argv[2] == "stay" else None
"""


def _hold(root: Path, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(root), how],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_second_process_waits_and_says_for_whom(tmp_path: Path) -> None:
    with _hold(tmp_path, "stay") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with _hold(tmp_path, "go") as second:
            assert second.stdout is not None
            assert second.stdout.readline() == f"waiting for another patchkit (pid {first.pid})\n"
            assert second.poll() is None
            first.communicate("")
            assert second.communicate()[0] == "held\n"
    assert (first.returncode, second.returncode) == (0, 0)


_LEAVE = """
import os, signal, sys
from pathlib import Path
from patchkit.carry.upstream.cache import open_cache
from patchkit.base.reporter import NullReporter
with open_cache(Path(sys.argv[1])).hold(NullReporter()) as repository:
    def die(text):
        os.kill(os.getpid(), signal.SIGKILL)
    repository.git.watch("fetch", sys.argv[2], on_text=die, answer_s=20, silence_s=20)
"""


def test_the_next_holder_waits_for_a_git_that_a_killed_one_left(
    tmp_path: Path, recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A git in front of git's own, which speaks once and stays.
    real = shutil.which("git")
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "git"
    fake.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *"fetch hang"*) trap "" PIPE; echo talk >&2; sleep 2.5; touch {tmp_path}/ended;;\n'
        f'*) exec {real} "$@";; esac\n'
    )
    fake.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", _LEAVE, str(tmp_path / "cache"), "hang"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PATH": path},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "ended").exists()
    with open_cache(tmp_path / "cache").hold(recorder):
        assert (tmp_path / "ended").exists()
    assert "waiting for a git process left by a killed patchkit" in recorder.said("info")


def test_an_orphan_that_never_ends_does_not_block_forever(
    tmp_path: Path, recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from patchkit.carry.upstream import cache as orphans

    monkeypatch.setattr(orphans, "_LONGEST_S", 0.1)
    with orphans.lock_against_orphans(tmp_path / "lock.git", REPORTER) as never_ends:
        with orphans.lock_against_orphans(tmp_path / "lock.git", recorder) as descriptor:
            assert descriptor != never_ends
        assert "continuing" in recorder.said("warn")[0]


def test_remains_of_a_killed_holder_are_removed_and_others_kept(tmp_path: Path, recorder) -> None:
    with _hold(tmp_path, "stay") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        first.send_signal(signal.SIGKILL)
    upstream = tmp_path / "upstream.git"
    (upstream / "objects" / "pack").mkdir(exist_ok=True)
    (upstream / "refs" / "heads" / "candidate").mkdir(parents=True)
    (upstream / "objects" / "incoming-x").mkdir()
    (upstream / "worktrees" / "w").mkdir(parents=True)
    remains = (
        "shallow.lock",
        "packed-refs.lock",
        "refs/heads/candidate/b1.lock",
        "objects/pack/tmp_pack_x",
        "fast_import_crash_9",
    )
    for name in (*remains, "worktrees/w/index.lock", "objects/incoming-x/y"):
        (upstream / name).write_text("")
    with open_cache(tmp_path).hold(recorder):
        pass
    assert not any((upstream / name).exists() for name in (*remains, "objects/incoming-x"))
    assert (upstream / "worktrees" / "w" / "index.lock").exists()
    assert "shallow.lock" in recorder.said("info")[0]
    assert not (tmp_path / "lock.owner").exists()


def test_after_a_clean_end_locks_are_left_to_their_owners(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    with cache.hold(REPORTER) as repository:
        (repository.path / "packed-refs.lock").write_text("")
    with cache.hold(REPORTER) as repository:
        assert (repository.path / "packed-refs.lock").exists()


@pytest.mark.parametrize("below", ["", "deeper/cache"])
def test_a_file_in_the_place_of_the_cache(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("mine")
    with refused("DISK_REFUSED") as caught, open_cache(tmp_path / "file" / below).hold(REPORTER):
        pass
    assert str(tmp_path / "file") in caught.value.where[0].path
    assert isinstance(caught.value, CacheError)


def test_a_folder_that_nobody_may_write_to() -> None:
    # Root may write wherever permissions forbid it; the kernel's own tree refuses root as well.
    with pytest.raises(CacheError) as caught, open_cache(Path("/proc/patchkit-cache")).hold(REPORTER):
        pass
    assert caught.value.where[0].path == "/proc/patchkit-cache"


def test_a_folder_without_permission(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o500)
    was_root = os.geteuid() == 0
    if was_root:  # root may write everywhere: be nobody for a moment
        os.seteuid(65534)
    try:
        with refused("DISK_REFUSED"), open_cache(tmp_path / "cache").hold(REPORTER):
            pass
    finally:
        if was_root:
            os.seteuid(0)


_READ_ONLY = """
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from patchkit.carry.upstream.cache import open_cache
from patchkit.base.reporter import NullReporter
cache = open_cache(Path(sys.argv[1]))
print(cache.peek(NullReporter()) is not None)
try:
    with cache.hold(NullReporter()): print("held")
except Exception as error:
    print(error.code, error.where[0].path)
"""


@pytest.mark.extra_tools
def test_a_read_only_file_system_is_read_but_not_held(tmp_path: Path) -> None:
    with open_cache(tmp_path / "cache").hold(REPORTER):
        pass
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount, "sh", str(tmp_path / "cache"), sys.executable, _READ_ONLY],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("this machine lets nobody mount anything")
    assert done.stdout.split() == ["True", "DISK_REFUSED", str(tmp_path / "cache" / "lock")], done.stderr


_FULL = """
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from patchkit.carry.upstream.cache import open_cache
from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.commits import CommitStream
def store(data):
    with open_cache(Path(sys.argv[1])).hold(NullReporter()) as repository:
        with CommitStream(repository) as stream:
            stream.begin(message="m", date="2026-01-01T00:00:00Z", parent=None)
            stream.put_file("f", "100644", data)
            return stream.finish()
try:
    store(bytes(range(256)) * 40000)
except Exception as error:
    print(error.code)
print(len(store(b"small")))
"""


@pytest.mark.extra_tools
def test_a_full_disk_is_named_and_the_cache_stays_usable(tmp_path: Path) -> None:
    done = subprocess.run(
        [*on_small_disk(tmp_path, 2048), sys.executable, "-c", _FULL, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["DISK_FULL", "1"], done.stderr

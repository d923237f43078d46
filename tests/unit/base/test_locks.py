"""Exclusive locks on files and folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from patchkit.base.errors import CacheError
from patchkit.base.locks import LockBusy, locked

_HOLD = (
    "import sys; from pathlib import Path\n"
    "from patchkit.base.locks import locked\n"
    "with locked(Path(sys.argv[1])):\n"
    "    print('held', flush=True); sys.stdin.read()\n"
)


@pytest.mark.parametrize("name", ["new/lock", "."])
def test_another_thread_waits_for_the_lock(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with locked(path), pytest.raises(LockBusy), locked(path, timeout_s=0):
        pass
    with locked(path, timeout_s=0):
        pass


def test_a_killed_process_keeps_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockBusy), locked(path, timeout_s=0):
            pass
        holder.send_signal(signal.SIGKILL)
        with locked(path, timeout_s=30):
            pass


def test_a_wait_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchkit.base.locks._PATIENCE_S", 0)
    path, calls, let_in = tmp_path / "lock", [], threading.Event()

    def wait() -> None:
        with locked(path, waiting=lambda: calls.append("waiting")):
            let_in.set()

    with locked(path):
        other = threading.Thread(target=wait)
        other.start()
        assert not let_in.wait(0.2)
    other.join(30)
    assert let_in.is_set()
    assert calls == ["waiting"]


def test_a_file_that_its_holder_replaced_is_locked_in_its_new_version(tmp_path: Path) -> None:
    path, inside = tmp_path / "file", []
    path.write_text("old")

    def wait() -> None:
        with locked(path, creates=False) as descriptor:
            inside.append(os.path.samestat(os.fstat(descriptor), path.stat()))

    with locked(path, creates=False):
        other = threading.Thread(target=wait)
        other.start()
        (tmp_path / "next").write_text("new")
        (tmp_path / "next").replace(path)
    other.join(30)
    assert inside == [True]


def test_links_and_missing_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(CacheError, match="symbolic link"), locked(tmp_path / "link"):
        pass
    with pytest.raises(CacheError), locked(tmp_path / "absent", creates=False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["link"]

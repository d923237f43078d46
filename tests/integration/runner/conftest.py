"""An ssh server of the test's own: unprivileged port, own keys, own settings, nothing of the machine's."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.runner import SshRunner, parse_target


@dataclass
class Server:
    """A running sshd; ``runner`` talks to it with a configuration of its own."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def root(self) -> Path:
        return self.folder / "there"

    def runner(self, *, patience_s: float = 20.0, **changes: object) -> SshRunner:
        url = f"ssh://127.0.0.1:{self.port}{self.root}"
        values = {"target": parse_target(url), "reporter": NullReporter(), "config": self.config}
        return SshRunner(
            **{**values, "patience_s": patience_s, "sleep": lambda _: time.sleep(0.2), **changes}
        )

    def start(self) -> None:
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None or shutil.which("rsync") is None:
            pytest.fail("the ssh runner is tested with sshd and rsync: apt install openssh-server rsync")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # sshd of root insists on it
        with (self.folder / "sshd.log").open("ab") as log:
            argv = [program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self.process = subprocess.Popen(argv, stderr=log)
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.1)
        pytest.fail((self.folder / "sshd.log").read_text())

    def stop(self) -> None:
        """End the server and every connection it serves."""
        if self.process is None:
            return
        self.drop()
        self.process.terminate()
        self.process.wait()
        self.process = None

    def drop(self) -> int:
        """Cut every connection, as a network does; how many there were."""
        assert self.process is not None
        children = _children(self.process.pid)
        for pid in children:
            for each in (pid, *_children(pid)):
                if "sshd" in _command(each):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
        return len(children)


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text()
    return ""


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "ssh"
    folder.mkdir()
    for name in ("host", "user", "other"):
        _key(folder / name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shutil.copy(folder / "user.pub", folder / "authorized")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\nMaxStartups 100\n"
    )
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "ssh_config").write_text(
        f"Host *\n IdentityFile {folder}/user\n IdentitiesOnly yes\n UserKnownHostsFile {folder}/known\n"
        " GlobalKnownHostsFile /dev/null\n StrictHostKeyChecking yes\n"
    )
    made = Server(folder=folder, port=port)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def python() -> str:
    return sys.executable

"""What --runner takes, and what runs on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.process import Completed, ToolMissing, ToolTimeout
from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.runner import (
    Job,
    LocalRunner,
    SshRunner,
    choose_runner,
    content_key,
    is_connection_loss,
    parse_target,
    runner_failure,
)


@pytest.mark.parametrize(
    ("url", "destination", "port", "root"),
    [
        ("ssh://box", "box", None, None),
        ("ssh://me@box:2222", "me@box", 2222, None),
        ("ssh://box/srv/bench/", "box", None, "/srv/bench"),
    ],
)
def test_a_url_names_user_host_port_and_folder(
    url: str, destination: str, port: int | None, root: str | None
) -> None:
    target = parse_target(url)
    assert (target.destination, target.port, target.root) == (destination, port, root)


@pytest.mark.parametrize(
    "url",
    ["", "box", "http://box", "ssh://", "ssh://me:secret@box", "ssh://box:port", "ssh://-oProxyCommand=x", "ssh://b?x"],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with refused("RUNNER_URL_BAD"):
        choose_runner(url, config=None, environ={}, reporter=NullReporter())


def test_without_a_url_it_is_this_machine(tmp_path: Path) -> None:
    runner = choose_runner(None, config=None, environ={}, reporter=NullReporter())
    assert isinstance(runner, LocalRunner)
    assert runner.place(tmp_path) == str(tmp_path)
    done = runner.run(Job(argv=("sh", "-c", "echo $X; exit 3"), tag="t", env={"X": "y"}))
    assert (done.returncode, done.stdout) == (3, b"y\n")
    with pytest.raises(ToolTimeout):
        runner.run(Job(argv=("sleep", "60"), tag="t", timeout_s=0.2))
    with pytest.raises(ToolMissing):
        runner.run(Job(argv=("no-such-program",), tag="t"))
    there = choose_runner("ssh://box", config=None, environ={"SSH_AUTH_SOCK": "/a"}, reporter=NullReporter())
    assert isinstance(there, SshRunner)
    assert (there.name, there.agent) == ("ssh://box", "/a")


@pytest.mark.parametrize(
    ("program", "status", "text", "code", "again"),
    [
        (
            "ssh",
            255,
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @",
            "RUNNER_KEY_UNKNOWN",
            False,
        ),
        ("ssh", 255, "Host key verification failed.", "RUNNER_KEY_UNKNOWN", False),
        ("ssh", 255, "me@box: Permission denied (publickey).", "RUNNER_AUTH_FAILED", False),
        ("ssh", 255, "ssh: Could not resolve hostname box", "RUNNER_UNREACHABLE", True),
        ("ssh", 255, "ssh: connect to host box port 22: Connection refused", "RUNNER_UNREACHABLE", True),
        ("ssh", 255, "ssh: connect to host box port 22: Connection timed out", "RUNNER_UNREACHABLE", True),
        ("ssh", 255, "client_loop: send disconnect: Broken pipe", "RUNNER_LOST", True),
        ("rsync", 12, "rsync: connection unexpectedly closed", "RUNNER_LOST", True),
        ("rsync", 11, "rsync: write failed: No space left on device (28)", "RUNNER_DISK_FULL", False),
        ("ssh", 127, "setsid: not found", "RUNNER_TOOL_MISSING", False),
        ("ssh", 2, "cat: x: Is a directory", "RUNNER_FAILED", False),
    ],
)
def test_failures_are_told_apart(program: str, status: int, text: str, code: str, again: bool) -> None:
    done = Completed(argv=(program,), returncode=status, stdout=b"", stderr=text.encode(), seconds=0.0)
    assert runner_failure(done, "ssh://box").code == code
    assert is_connection_loss(done) is again


def test_equal_content_has_an_equal_key(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        (folder / "tool").write_text("x")
        (folder / "link").symlink_to("tool")
    one, two = tmp_path / "one" / "bin", tmp_path / "two" / "bin"
    assert content_key(one) == content_key(two)
    (two / "tool").chmod(0o755)
    assert content_key(one) != content_key(two)
    assert content_key(one / "tool") != content_key(two / "tool")

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from processes import is_gone
from refusing import refused

from patchkit.base.errors import CacheError, GitError
from patchkit.base.reporter import NullReporter
from patchkit.carry.upstream.git import Finished, Git, check_git, fixed_environment, leaking_names
from patchkit.carry.upstream.repository import Repository


def test_output_keeps_every_byte(repo: Repository) -> None:
    data = b"\xff\x00caf\xe9\n\n"
    sha = repo.write_object("blob", data)
    assert repo.git.run("cat-file", "blob", sha) == data


def test_commands_are_echoed_so_that_they_can_be_pasted(repo: Repository, recorder) -> None:
    repo.git.run("cat-file", "-e", repo.write_object("blob", b"x"))
    assert recorder.said("command")[-1].startswith(f"git --git-dir={repo.path} cat-file -e ")


def test_a_failure_names_command_status_and_stderr(repo: Repository) -> None:
    with refused("GIT_FAILED") as caught:
        repo.git.run("cat-file", "-t", "0" * 40)
    assert "cat-file ended with status 128" in caught.value.message
    assert "could not get object info" in (caught.value.why or "")
    assert f"--git-dir={repo.path}" in (caught.value.hint or "")


def test_a_git_killed_by_a_signal_is_named_so(repo: Repository) -> None:
    error = repo.git.failure(("gc",), Finished(status=-9, stdout=b"", stderr=""))
    assert error.code == "GIT_FAILED"
    assert "killed by SIGKILL" in error.message


@pytest.mark.parametrize(
    ("status", "stderr"),
    [
        (128, "fatal: write error: No space left on device\n"),
        (128, "error: file write error: File too large"),
        (-25, ""),
    ],
)
def test_a_full_disk_met_by_git_is_a_cache_error(repo: Repository, status: int, stderr: str) -> None:
    error = repo.git.failure(("fast-import",), Finished(status=status, stdout=b"", stderr=stderr))
    assert isinstance(error, CacheError)
    assert error.code == "DISK_FULL"


def test_git_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with refused("GIT_MISSING") as caught:
        check_git(NullReporter())
    assert str(tmp_path) in (caught.value.why or "")
    assert isinstance(caught.value, GitError)


def test_importing_without_git_does_not_fail(tmp_path: Path) -> None:
    # GitPython refuses to be imported on such a machine; the message must be ours.
    code = (
        "from patchkit.base.reporter import NullReporter\n"
        "from patchkit.carry.upstream.git import check_git\n"
        "from patchkit.carry.upstream import gitpython\n"
        "import os; from pathlib import Path\n"
        "nothing = {'env': {}, 'stdin': None, 'with_stdout': True, 'keep_open': ()}\n"
        "try: gitpython.spawn(gitpython.runner_in(Path('/')), ['/nonexistent/git'], **nothing)\n"
        "except Exception as e: print(type(e).__name__)\n"
        "try: check_git(NullReporter())\n"
        "except Exception as e: print(e.code, 'GIT_PYTHON_REFRESH' in os.environ)\n"
    )
    environ = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    environ.pop("GIT_PYTHON_REFRESH", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["GitCommandNotFound", "GIT_MISSING", "False"]


def test_git_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "git"
    old.write_text("#!/bin/sh\necho git version 2.31.8\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with refused("GIT_TOO_OLD", match=r"2\.31\.8.*needs git 2\.32"):
        check_git(NullReporter())


def test_no_git_variable_of_the_caller_reaches_git(
    repo: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "evil"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "objects"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'user.name=evil'")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "evil")
    monkeypatch.setenv("LC_ALL", "xx_XX.nonsense")
    sha = repo.write_object("blob", b"x")
    assert (repo.path / "objects" / sha[:2] / sha[2:]).is_file()
    assert repo.git.run("var", "GIT_AUTHOR_IDENT").startswith(b"patchkit <patchkit@localhost>")
    assert repo.git.run("config", "--list", "--show-origin").count(b"user.name") == 0


def test_user_configuration_and_hooks_are_not_read(
    repo: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    hooks = tmp_path / "hooks"
    (home / ".config" / "git").mkdir(parents=True)
    hooks.mkdir()
    trap = tmp_path / "trapped"
    (hooks / "reference-transaction").write_text(f"#!/bin/sh\ntouch {trap}\nexit 1\n")
    (hooks / "reference-transaction").chmod(0o755)
    (home / ".gitconfig").write_text(f"[core]\n hooksPath = {hooks}\n[i18n]\n commitEncoding = latin1\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    assert repo.git.run("config", "--get", "core.hooksPath") == b"/dev/null\n"
    sha = repo.write_object("blob", b"x")
    repo.git.run("update-ref", "refs/x", sha)
    assert not trap.exists()


def test_only_trust_anchors_of_the_machine_are_kept() -> None:
    environ = {"GIT_SSL_CAINFO": "a", "GIT_DIR": "b", "GIT_TRACE": "1", "PATH": "c", "LC_ALL": "C"}
    assert leaking_names(environ, fixed_environment()) == ["GIT_DIR", "GIT_TRACE"]
    assert fixed_environment()["GIT_CONFIG_NOSYSTEM"] == "1"


def test_ctrl_c_ends_git_and_what_it_started(repo: Repository, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    fake, ready = tmp_path / "bin" / "git", tmp_path / "ready"
    # GitPython asks for the version when it is imported.
    fake.write_text(
        '#!/bin/sh\n[ "$*" != version ] || { echo git version 2.39.5; exit; }\n'
        f"sleep 6464 &\ntouch {ready}; wait\n"
    )
    fake.chmod(0o755)
    code = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background ignores it
        "from patchkit.base.reporter import NullReporter\n"
        "from patchkit.carry.upstream.git import Git\n"
        "Git(reporter=NullReporter()).run('status')\n"
    )
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.PIPE) as process:
        while not ready.exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert b"KeyboardInterrupt" in stderr
    assert is_gone("sleep 6464")


def test_an_interrupted_watch_leaves_no_process(repo: Repository) -> None:
    def interrupt(text: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repo.git.watch("fetch", "/nonexistent", on_text=interrupt, answer_s=5, silence_s=5)


def test_watch_hands_on_stderr_and_the_status(repo: Repository) -> None:
    seen = bytearray()
    done = repo.git.watch("fetch", "/nonexistent", on_text=seen.extend, answer_s=5, silence_s=5)
    assert done.status == 128
    assert done.stderr.encode() == bytes(seen)
    assert b"nonexistent" in seen


def test_git_without_a_repository_runs_outside_of_any(tmp_path: Path) -> None:
    assert Git(reporter=NullReporter()).run("version").startswith(b"git version ")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (
            "error: unable to write file a\nfatal: Could not reset index file to revision 'HEAD'.",
            "DISK_REFUSED",
        ),
        ("error: unable to write file a: No space left on device", "DISK_FULL"),
        ("fatal: Out of diskspace", "DISK_FULL"),
    ],
)
def test_a_checkout_that_cannot_be_written_blames_the_users_disk_not_the_cache(
    repo: Repository, tmp_path: Path, words: str, code: str
) -> None:
    git = replace(repo.git, writes_to=tmp_path)
    error = git.failure(("worktree", "add"), Finished(status=128, stdout=b"", stderr=words))
    assert (error.code, error.where[0].path) == (code, str(tmp_path))
    assert "delete" not in (error.hint or "")
    assert "--cache-dir" not in (error.hint or "")

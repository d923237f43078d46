from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from recorder import Recorder
from refusing import refused

from patchkit.base.errors import ExitCode
from patchkit.base.process import (
    Completed,
    ToolCrashed,
    ToolFailed,
    ToolMissing,
    ToolTimeout,
    run_in_terminal,
    run_tool,
    tool_environment,
)
from patchkit.base.reporter import NullReporter


def python(program: str, **options: object) -> Completed:
    return run_tool([sys.executable, "-c", program], reporter=NullReporter(), **options)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone_within(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def wait_for(path: Path) -> int:
    end = time.monotonic() + 20
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < end, "the child never started"
        time.sleep(0.02)
    return int(path.read_text())


def test_bytes_go_in_and_come_out_unchanged() -> None:
    data = b"\xff\x00caf\xe9\r\n\n" * 50_000  # more than a pipe holds, both ways
    program = (
        "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d); sys.stderr.buffer.write(d)"
    )
    done = python(program, stdin=data)
    assert (done.stdout, done.stderr, done.returncode) == (data, data, 0)
    assert done.seconds > 0


def test_the_command_is_echoed_so_that_it_can_be_pasted() -> None:
    listener = Recorder()
    run_tool(["echo", "a b", "$HOME"], reporter=listener)
    assert listener.said("command") == ["echo 'a b' '$HOME'"]


def test_stdin_is_empty_unless_given() -> None:
    assert python("import sys; print(len(sys.stdin.read()))").stdout == b"0\n"


def test_the_environment_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/somewhere")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")  # selects the GPUs for programs
    program = "import os; print(*sorted(f'{k}={v}' for k, v in os.environ.items()), sep='\\n')"
    seen = python(program, env={"CCACHE_DIR": "/c"}).stdout.decode().splitlines()
    expected = {**tool_environment(os.environ), "CCACHE_DIR": "/c"}
    assert {line.partition("=")[0] for line in seen} - {"LC_CTYPE"} == set(expected)
    assert "LC_ALL=C" in seen
    assert "HIP_VISIBLE_DEVICES=1" in seen
    assert "CCACHE_DIR=/c" in seen


def test_a_program_installed_beside_patchkit_is_found_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scripts, system = tmp_path / "venv", tmp_path / "system"
    monkeypatch.setattr("patchkit.base.process.sysconfig.get_path", lambda _: str(tmp_path / "venv"))
    for folder, name in ((scripts, "both"), (system, "both"), (scripts, "one")):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\necho {folder.name}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(system))
    outputs = [run_tool([name], reporter=NullReporter()).stdout for name in ("both", "one")]
    assert outputs == [b"system\n", b"venv\n"]


def test_the_working_folder_does_not_change_which_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        tool = tmp_path / name / "tool"
        tool.parent.mkdir()
        tool.write_text(f"#!/bin/sh\necho {name} $(basename $PWD)\n")
        tool.chmod(0o755)
    monkeypatch.chdir(tmp_path / "here")
    done = run_tool(["./tool"], cwd=tmp_path / "there", reporter=NullReporter())
    assert done.stdout == b"here there\n"


def test_missing_program_names_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing) as caught:
        run_tool(["clang++-99"], env={"PATH": str(tmp_path)}, reporter=NullReporter())
    assert "'clang++-99'" in caught.value.message
    assert str(tmp_path) in (caught.value.why or "")
    assert caught.value.exit_code is ExitCode.TOOLCHAIN


def test_a_file_that_is_not_executable_is_not_started(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_bytes(b"\x7fELFgarbage")
    tool.chmod(0o755)
    with refused("TOOL_NOT_STARTED") as caught:
        run_tool([str(tool)], reporter=NullReporter())
    assert "Exec format error" in caught.value.message
    assert caught.value.where[0].path == str(tool)


def test_a_missing_working_folder_is_named(tmp_path: Path) -> None:
    with refused("TOOL_NOT_STARTED") as caught:
        run_tool(["true"], cwd=tmp_path / "absent", reporter=NullReporter())
    assert caught.value.where[0].path == str(tmp_path / "absent")


def test_a_failure_keeps_command_status_and_the_end_of_stderr() -> None:
    program = "import sys; [print(f'line {n}.', file=sys.stderr) for n in range(100)]; sys.exit(3)"
    with pytest.raises(ToolFailed) as caught:
        python(program)
    why = (caught.value.why or "").splitlines()
    assert (len(why), why[0], why[-1]) == (40, "line 60.", "line 99.")
    assert caught.value.message.endswith("exited with status 3")
    assert "-c 'import sys;" in (caught.value.hint or "")


def test_without_check_a_failure_is_a_result() -> None:
    assert python("raise SystemExit(7)", check=False).returncode == 7


def test_a_crash_names_its_signal() -> None:
    with pytest.raises(ToolCrashed) as caught:
        python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert "SIGSEGV" in caught.value.message


# Writes the process id of a child that would live on, then outlives any timeout itself.
_PARENT = """
import signal, subprocess, sys, time
if {deaf}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
sys.stderr.write("compiling\\n"); sys.stderr.flush()
open({path!r}, "w").write(f"{{child.pid}}\\n")
time.sleep(600)
"""


@pytest.mark.parametrize("deaf", [False, True], ids=["polite", "deaf"])
def test_a_timeout_ends_the_children_too(tmp_path: Path, deaf: bool) -> None:
    path = tmp_path / "pid"
    with pytest.raises(ToolTimeout) as caught:
        python(_PARENT.format(path=str(path), deaf=deaf), timeout_s=1.5)
    assert caught.value.why == "compiling"
    assert "1.5 s" in caught.value.message
    assert gone_within(wait_for(path), 5)


def test_a_timeout_ends_children_in_a_group_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    program = _PARENT.format(path=str(path), deaf=False).replace('"600"]', '"600"], process_group=0')
    with pytest.raises(ToolTimeout):
        python(program, timeout_s=1.5)
    assert gone_within(wait_for(path), 5)


def test_ctrl_c_ends_the_whole_group(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    program = (
        "import sys\nfrom patchkit.base.process import run_tool\n"
        "from patchkit.base.reporter import NullReporter\n"
        f"run_tool([sys.executable, '-c', {_PARENT.format(path=str(path), deaf=False)!r}],"
        " reporter=NullReporter())"
    )
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(root)}, stderr=subprocess.PIPE
    )
    child = wait_for(path)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert b"KeyboardInterrupt" in stderr
    assert gone_within(child, 5)


def test_a_program_in_the_terminal_has_the_callers_environment(
    capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_CALLER", "a")
    argv = ["sh", "-c", "echo $OF_THE_CALLER$MORE; exit 3"]
    assert run_in_terminal(argv, env={"MORE": "b"}, is_quiet=True) == 3
    assert tuple(capfd.readouterr()) == ("", "ab\n")
    assert run_in_terminal(["sh", "-c", "kill -9 $$"]) == -9
    with refused("TOOL_NOT_STARTED"):
        run_in_terminal(["/nonexistent"])


def test_a_sigint_from_elsewhere_ends_a_program_in_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    program = (
        "import sys\nfrom patchkit.base.process import run_in_terminal\n"
        f"run_in_terminal(['sh', '-c', 'echo $$ > {path}.new; mv {path}.new {path}; exec sleep 60'])"
    )
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(root)},
        stderr=subprocess.PIPE,
        start_new_session=True,  # without a terminal
    )
    child = wait_for(path)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert b"KeyboardInterrupt" in stderr
    assert gone_within(child, 5)


def test_a_tool_may_ignore_its_stdin() -> None:
    assert run_tool(["true"], stdin=b"x" * 1_000_000, reporter=NullReporter()).returncode == 0


def test_tools_run_in_threads() -> None:
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(python(f"print({n})").stdout)) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [b"0\n", b"1\n", b"2\n", b"3\n"]


def test_an_unpickled_error_has_the_same_text() -> None:
    import pickle

    with pytest.raises(ToolFailed) as caught:
        python("raise SystemExit(2)")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.message, again.hint) == (ToolFailed, caught.value.message, caught.value.hint)


def test_a_program_of_low_priority_has_its_own_name() -> None:
    with pytest.raises(ToolTimeout, match=r"^sleep did not end within 0\.2 s"):
        run_tool(["nice", "-n", "10", "sleep", "20"], timeout_s=0.2, reporter=NullReporter())
    with pytest.raises(ToolFailed, match=r"^false exited with status 1"):
        run_tool(["nice", "-n", "10", "false"], timeout_s=20, reporter=NullReporter())

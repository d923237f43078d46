"""The console script as a process: locales, closed and full streams, start-up cost."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import process_environment, run_patchkit
from thorough import ordinary


def _run(
    *argv: str | bytes, code: str = "", closed: str = "", env: dict[str, str] | None = None, **streams: Any
) -> subprocess.CompletedProcess[bytes]:
    """patchkit, or Python that runs ``code``, as a process; ``closed``: streams, as a shell closes them."""
    start = [sys.executable, *(["-c", code] if code else ["-m", "patchkit"])]
    if closed:
        start = ["sh", "-c", f'exec "$@" {closed}', "sh", *start]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run([*start, *argv], env=process_environment(env), check=False, **streams)


def test_help_imports_none_of_the_heavy_libraries() -> None:
    code = "import sys; from patchkit.cli.app import main; main(['--help']); print('#', *sys.modules)"
    loaded = _run(code=code).stdout.decode().rpartition("#")[2].split()
    assert "patchkit.cli.boundary" in loaded
    heavy = "git clang jinja2 pydantic pypi_simple requests rich platformdirs filelock"
    assert not set(heavy.split()) & set(loaded)


@pytest.mark.parametrize("locale", ordinary(["C", "en_US.ISO-8859-1", "POSIX", "xx_YY.nonsense"], kept=2))
def test_any_text_can_be_shown_under_any_locale(locale: str) -> None:
    done = _run(b"caf\xc3\xa9-\xff", env={"LC_ALL": locale, "PYTHONIOENCODING": ""})
    assert done.returncode == 2
    assert done.stderr.startswith(b"error[USAGE_COMMAND]: unknown command 'caf")
    assert b"Traceback" not in done.stderr


def test_a_path_is_the_same_characters_though_python_was_told_to_take_ascii_only(tmp_path: Path) -> None:
    folder, ascii_only = tmp_path / "caf\u00e9", {"LC_ALL": "C", "PYTHONUTF8": "0"}
    argv = ["status", "--cache-dir", str(folder)]
    refused = _run("list", "--series-dir", str(folder), env=ascii_only).stderr
    for shown in (_run(*argv, env=ascii_only).stdout, refused):
        assert rb"/caf\xe9" in shown
        assert b"udc" not in shown
    plain = run_patchkit(*argv, "--json").stdout
    assert json.loads(_run(*argv, "--json", env=ascii_only).stdout) == json.loads(plain)
    assert r"/caf\u00e9" in plain


def test_a_byte_that_is_no_text_is_shown_as_that_byte() -> None:
    assert b"unknown command 'a\\xff\\xc3b'" in _run(b"a\xff\xc3b").stderr


def _at_a_terminal(columns: int, *argv: str, **environ: str) -> list[str]:
    """The lines that a terminal of that width is given on stdout."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    text = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        done = _run(*argv, stdout=theirs, env=environ)
        os.close(theirs)
        with contextlib.suppress(OSError):  # the end of what the other side wrote
            while part := terminal.read(65536):
                text += part
    assert done.returncode == 0, done.stderr
    return text.decode().splitlines()


@pytest.mark.parametrize("command", ["status", "list"])
def test_a_narrow_terminal_gets_lines_that_fit_and_a_pipe_whole_ones(command: str, tmp_path: Path) -> None:
    argv = (command, "--cache-dir", str(tmp_path / "cache"))
    piped = run_patchkit(*argv, env={"COLUMNS": "40"}).stdout
    narrow = _at_a_terminal(40, *argv, NO_COLOR="1")
    assert max(map(len, piped.splitlines())) > 60
    assert [line for line in narrow if len(line) > 40 and " " in line.strip()] == []
    assert " ".join(narrow).split() == piped.split()  # nothing is lost, nothing is cut


def test_a_wide_terminal_gets_whole_lines_too(tmp_path: Path) -> None:
    argv = ("status", "--cache-dir", str(tmp_path / "cache"))
    piped = run_patchkit(*argv).stdout.splitlines()
    assert _at_a_terminal(1000, *argv, NO_COLOR="1") == piped
    assert _at_a_terminal(40, *argv, COLUMNS="1000", NO_COLOR="1") == piped


def test_a_terminal_gets_colours_and_a_pipe_none(tmp_path: Path) -> None:
    argv = ("status", "--cache-dir", str(tmp_path / "cache"))
    assert any("\x1b[" in line for line in _at_a_terminal(80, *argv, TERM="xterm"))
    assert not any("\x1b[" in line for line in _at_a_terminal(80, *argv, "--color", "never"))
    assert "\x1b[" not in run_patchkit(*argv, "--color", "always").stdout


def test_a_stream_that_takes_only_ascii_gets_escapes() -> None:
    done = _run("caf\u00e9", env={"PYTHONIOENCODING": "ascii"})
    assert b"unknown command 'caf\\xe9'" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_stdout_is_an_error_of_its_own() -> None:
    with Path("/dev/full").open("wb") as full:
        listing = _run("--version", stdout=full)
        shown = _run("plan", "--help", stdout=full)
        error = _run("--json", "aply", stdout=full)
    assert listing.returncode == 8
    assert listing.stderr.startswith(b"error[OUTPUT]: ")
    assert b"hint: run the command again with '> FILE'" in listing.stderr
    assert (shown.returncode, shown.stderr) == (8, listing.stderr)
    assert error.returncode == 2, "the first error decides"
    assert b"error[OUTPUT]: " in error.stderr
    assert b"error[USAGE_COMMAND]: " in error.stderr
    assert b"Traceback" not in listing.stderr + error.stderr


def test_a_closed_stdout_is_an_error_of_its_own() -> None:
    done = _run("--json", "aply", closed=">&-")
    assert done.returncode == 2
    assert b"error[USAGE_COMMAND]: " in done.stderr
    assert b"standard output is closed" in done.stderr


def test_a_closed_stderr_does_not_matter() -> None:
    done = _run("aply", closed="2>&-")
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_reader_that_went_away_is_quiet() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as broken:
        done = _run("--json", "aply", stdout=broken)
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("argv", "colored"), [(["--color", "always"], True), (["--color", "never"], False), ([], False)]
)
def test_color_is_off_for_a_pipe_and_can_be_forced(argv: list[str], *, colored: bool) -> None:
    done = _run(*argv, "aply")
    assert (b"\x1b[" in done.stderr) is colored


def test_no_file_takes_the_number_of_a_closed_stream() -> None:
    """What git or a compiler writes to descriptor 2 would end up in that file."""
    code = (
        "import os\nfrom patchkit.cli import app\n"
        "app.main = lambda argv: os.open(os.devnull, os.O_RDONLY)\n"
        "try:\n    app.run()\nexcept SystemExit as end:\n    os._exit(end.code)"
    )
    assert _run(code=code, closed="<&- >&- 2>&-").returncode == 3


@pytest.mark.parametrize("argv", [(), ("--json",)])
@pytest.mark.parametrize(
    ("sign", "by"), [("SIGINT", b"Ctrl-C"), ("SIGTERM", b"SIGTERM"), ("SIGHUP", b"SIGHUP")]
)
@pytest.mark.parametrize(
    "module", ordinary(["patchkit.cli.boundary", "click", "patchkit.cli.doctor"], kept=1)
)
def test_ctrl_c_and_its_like_while_modules_are_imported(
    module: str, sign: str, by: bytes, argv: tuple[str, ...]
) -> None:
    code = f"""
import signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.{sign})
sys.meta_path.insert(0, Interrupting())
from patchkit.cli.app import run
sys.argv = ["patchkit", "doctor", *{argv!r}]
run()
"""
    done = _run(code=code)
    assert done.returncode == 130
    assert done.stderr.startswith(b"error[INTERRUPTED]: stopped by %s\n" % by)
    assert b"Traceback" not in done.stderr
    if argv:
        error = json.loads(done.stdout)["error"]
        assert (error["code"], error["exit_code"]) == ("INTERRUPTED", 130)
    else:
        assert done.stdout == b""


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_a_tool_ends_with_the_patchkit_that_runs_it(tmp_path: Path, sign: signal.Signals) -> None:
    """It sits in a session of its own, so no signal to patchkit reaches it; nor one while it is started."""
    tool = f"echo $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid && exec sleep 1000"
    code = (
        "import subprocess, time\nfrom patchkit.cli import app, boundary\n"
        "from patchkit.base.process import run_tool\n"
        "start = subprocess.Popen.__init__\n"
        "subprocess.Popen.__init__ = lambda *a, **k: (start(*a, **k), time.sleep(0.5))[0]\n"
        "from patchkit.base.reporter import NullReporter\n"
        f"boundary.run_command = lambda argv: run_tool(['sh', '-c', {tool!r}], reporter=NullReporter())\n"
        "app.run()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=process_environment(), stderr=subprocess.PIPE
    )
    while not (tmp_path / "pid").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(sign)
    _, err = process.communicate()
    assert process.returncode == 130, err
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_what_the_caller_ignores_stays_ignored() -> None:
    """As nohup asks for."""
    code = (
        "import signal\nfrom patchkit.cli import app\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "app.main = lambda argv: signal.raise_signal(signal.SIGHUP) or 3\napp.run()"
    )
    assert _run(code=code).returncode == 3


@pytest.mark.parametrize("limit", ordinary([5, 3, 4, 6], kept=1))
def test_too_few_open_files_is_said(limit: int) -> None:
    code = (
        "import resource, sys\nfrom patchkit.cli.app import run\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
        "sys.argv = ['patchkit', 'list']\nrun()"
    )
    done = _run(code=code)
    assert done.returncode in (0, 2, 8), done.stderr
    assert b"Traceback" not in done.stderr
    if limit == 3:
        assert done.returncode == 8
        assert b"Too many open files" in done.stderr

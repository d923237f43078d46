"""Runs programs: compilers, package managers, git, built programs, and users' own in the terminal.

All of them are started and ended by :func:`running`, also git, through GitPython (carry/upstream/git.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, TypeVar

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.reporter import Reporter, Work

_STDERR_LINES = 40  # last lines of stderr that an error message shows
_POLL_S = 0.2  # how often ``stop`` is checked
_GRACE_S = 2.0  # between SIGTERM and SIGKILL
_NICE_WORDS = 3  # words of the prefix "nice -n 10"
_PR_SET_PDEATHSIG = 1  # prctl(2)

GPU_VISIBILITY = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Environment variables that select the GPUs a program can use."""
# Passed on from the caller's environment; others would make results depend on the user's setup. The last
# ones are needed so that a run meant for the second GPU does not use the first.
_KEPT = ("PATH", "HOME", "TMPDIR", *GPU_VISIBILITY)


class ToolMissing(ToolchainError):
    """A program was not found."""

    code = "TOOL_MISSING"


class ToolFailed(ToolchainError):
    """A tool exited with a nonzero status."""

    code = "TOOL_FAILED"


class ToolTimeout(ToolchainError):
    """A tool exceeded its time limit and was stopped, with its child processes."""

    code = "TOOL_TIMEOUT"


class ToolCrashed(ToolchainError):
    """A signal ended the tool: it crashed or was killed."""

    code = "TOOL_CRASHED"


class ToolStopped(ToolchainError):
    """patchkit stopped the tool because something else failed, or because the user pressed Ctrl-C."""

    code = "TOOL_STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """Exit status (negative: ended by that signal), output and wall time of a tool.

    ``cpu_s`` is the CPU time of the tool and of the child processes that it waited for.
    """

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float
    cpu_s: float = 0.0


P = TypeVar("P", bound=subprocess.Popen[bytes])


class _Process(subprocess.Popen[bytes]):
    """A process that also records its CPU time, which Popen does not."""

    cpu_s = 0.0

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """Overrides the private method in which Popen calls waitpid, in Python 3.11 to 3.14."""
        try:
            pid, status, used = os.wait4(self.pid, wait_flags)
        except ChildProcessError:
            return self.pid, 0  # as Popen does: the process was already waited for elsewhere
        if pid == self.pid:
            self.cpu_s = used.ru_utime + used.ru_stime
        return pid, status


def run_tool(  # noqa: PLR0913 - subprocess needs all of these
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    into: tuple[IO[bytes], IO[bytes]] | None = None,
    timeout_s: float | None = None,
    check: bool = True,
    reporter: Reporter,
    stop: threading.Event | None = None,
    work: Work = "other",
) -> Completed:
    """Run a tool to completion, in the environment of :func:`tool_environment`.

    Args:
        argv: the program and its arguments; a program without a slash is searched on PATH.
        cwd: the working directory, by default the current one.
        env: variables to add to the scrubbed environment.
        stdin: input for the tool; empty by default.
        into: open files for stdout and stderr (may be the same file), written while the tool runs, so that
            its output is kept even if it fails. By default the output is in the result.
        timeout_s: seconds until the tool is stopped; no limit by default.
        check: whether a nonzero status or a signal is an error. The other errors are always raised.
        reporter: receives the command, quoted for a shell.
        stop: another thread sets it to end the tool; Ctrl-C reaches only the main thread.
        work: the kind of work, for the statistics of where time is spent.

    Raises:
        ToolMissing: the program was not found.
        TOOL_NOT_STARTED: the system could not start it.
        ToolTimeout: it was stopped after ``timeout_s``.
        ToolFailed: it exited with a nonzero status (only with ``check``).
        ToolCrashed: a signal ended it (only with ``check``).
        ToolStopped: ``stop`` was set.
    """
    environment = {**tool_environment(os.environ), **(env or {})}
    program = _find(argv[0], environment)
    reporter.command(shlex.join(argv))
    if stop is not None and stop.is_set():
        raise ToolStopped(f"{_name_of(argv)} was not started")
    began = time.monotonic()

    def start() -> _Process:
        try:
            return _Process(  # no shell; the arguments are patchkit's own
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=into[0] if into else subprocess.PIPE,
                stderr=into[1] if into else subprocess.PIPE,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise _not_started(program, error) from error

    process = None
    try:
        with running(start) as process:
            out, err = _communicate(process, argv, stdin, timeout_s, stop)
    finally:
        if process is not None:
            reporter.used(work, process.cpu_s)
    completed = Completed(
        argv=tuple(argv),
        returncode=process.returncode,
        stdout=out or b"",
        stderr=err or b"",
        seconds=time.monotonic() - began,
        cpu_s=process.cpu_s,
    )
    if check and completed.returncode != 0:
        raise tool_failure(completed)
    return completed


def run_in_terminal(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, is_quiet: bool = False
) -> int:
    """Run a user's program to completion, in the caller's environment and terminal.

    The program handles Ctrl-C itself. It is killed if patchkit dies.

    Args:
        argv: the program and its arguments.
        env: variables to add to the environment.
        is_quiet: whether to redirect its stdout to stderr.

    Returns:
        The exit status, or the negative number of the signal that ended it.

    Raises:
        TOOL_NOT_STARTED: the system could not start it.
    """
    prctl, patchkit = ctypes.CDLL(None).prctl, os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != patchkit:  # patchkit was killed before prctl took effect
            os.kill(os.getpid(), signal.SIGKILL)

    def start() -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603  # the user's own program
                argv,
                env={**os.environ, **(env or {})},
                stdout=2 if is_quiet else None,
                preexec_fn=prepare,  # noqa: PLW1509  # other threads wait for the program, and hold no lock
            )
        except OSError as error:
            raise _not_started(argv[0], error) from error

    with _interrupts_left_to_the_terminal(), running(start, _kill) as process:
        return process.wait()


@contextlib.contextmanager
def _interrupts_left_to_the_terminal() -> Iterator[None]:
    """Leave Ctrl-C to the program in the terminal; does nothing outside of Python's main thread."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    signal.signal(signal.SIGINT, _interrupt_unless_in_front)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _interrupt_unless_in_front(_number: int, _frame: FrameType | None) -> None:
    """Ignore SIGINT from Ctrl-C, which the program also gets; any other SIGINT interrupts patchkit."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:  # there is none
        raise KeyboardInterrupt from None
    try:
        is_in_front = os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
    if not is_in_front:
        raise KeyboardInterrupt


def _not_started(program: str, error: OSError) -> ToolchainError:
    path = os.fsdecode(error.filename or program)
    return ToolchainError(
        f"{program} could not be started: {error.strerror or error}",
        code="TOOL_NOT_STARTED",
        where=Location(path=path),
        hint=f"check the file with: ls -ld {shlex.quote(path)}",
    )


def tool_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for tools: a few variables of ``environ``, and the C locale for parsing messages.

    The folder of programs installed with patchkit (cmake, ninja) is appended to PATH, so that its virtual
    environment need not be active.
    """
    path = os.pathsep.join([environ.get("PATH", os.defpath), sysconfig.get_path("scripts")])
    return {**{name: environ[name] for name in _KEPT if name in environ}, "PATH": path, "LC_ALL": "C"}


def tool_failure(completed: Completed) -> ToolFailed | ToolCrashed:
    """The error for a tool with a nonzero status or a signal, with the end of its stderr."""
    name = _name_of(completed.argv)
    why = stderr_tail(completed.stderr)
    hint = f"the command was: {shlex.join(completed.argv)}"
    if completed.returncode < 0:
        return ToolCrashed(f"{name} was killed by {signal_name(-completed.returncode)}", why=why, hint=hint)
    return ToolFailed(f"{name} exited with status {completed.returncode}", why=why, hint=hint)


def _find(program: str, environment: Mapping[str, str]) -> str:
    found = shutil.which(program, path=environment.get("PATH", os.defpath))
    if found is None:
        place = "at that path" if os.sep in program else f"on PATH ({environment.get('PATH', 'not set')})"
        raise ToolMissing(
            f"program '{program}' not found",
            why=f"there is no such executable {place}",
            hint="install it, or add its folder to PATH, and run the command again",
        )
    return os.path.abspath(found)  # noqa: PTH100  # independent of ``cwd``; links are not resolved


def _communicate(
    process: subprocess.Popen[bytes],
    argv: Sequence[str],
    stdin: bytes | None,
    timeout_s: float | None,
    stop: threading.Event | None,
) -> tuple[bytes, bytes]:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        wait_s = left if stop is None else min(_POLL_S, _POLL_S if left is None else left)
        try:
            return process.communicate(stdin, timeout=wait_s)
        except subprocess.TimeoutExpired as error:
            stdin = None  # the first call is already writing it
            if stop is not None and stop.is_set():
                raise ToolStopped(f"{_name_of(argv)} was stopped") from error
            if deadline is not None and time.monotonic() >= deadline:
                raise ToolTimeout(
                    f"{_name_of(argv)} did not end within {timeout_s:g} s and was stopped",
                    why=stderr_tail(error.stderr or b""),
                    hint=f"the command was: {shlex.join(argv)}",
                ) from error


def _name_of(argv: Sequence[str]) -> str:
    """The program of a command, without a prefix ``nice -n 10``."""
    is_nice = len(argv) > _NICE_WORDS and Path(argv[0]).name == "nice" and argv[1] == "-n"
    return Path(argv[_NICE_WORDS if is_nice else 0]).name


class _DeferredSignals:
    """Defers the signals that end patchkit: records them, and delivers them later."""

    def __init__(self) -> None:
        self._received: list[int] = []
        self._handlers: dict[int, Callable[[int, FrameType | None], object]] = {}

    def defer(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if callable(handler):  # ignored signals stay ignored, also in the tool
                self._handlers[number] = handler
                signal.signal(number, lambda number, _frame: self._received.append(number))

    def deliver(self) -> None:
        """Restore the handlers and raise the recorded signals again; a handler may raise."""
        while self._handlers:
            signal.signal(*self._handlers.popitem())
        while self._received:
            signal.raise_signal(self._received.pop())


@contextlib.contextmanager
def running(start: Callable[[], P], end: Callable[[P], None] | None = None) -> Iterator[P]:
    """Run a process for the duration of the block; if the block raises, ``end`` it.

    By default the whole session of the process is ended. A tool has its own session, so Ctrl-C reaches only
    patchkit. Signals are deferred until the process has started: a handler that raises while Popen returns
    would leave a process running (seen on a busy machine). Python handles signals only in the main thread.
    """
    signals = _DeferredSignals()
    if threading.current_thread() is threading.main_thread():
        signals.defer()
    try:
        process = start()
        try:
            signals.deliver()
            yield process
        except BaseException:
            (end or _end_session)(process)
            raise
    finally:
        signals.deliver()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill only the process: it shares patchkit's session."""
    process.kill()
    process.wait()


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End the whole session: SIGTERM, then SIGKILL, which is sent even if the leader has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # Ninja puts each command into its own process group. If ninja is killed before it forwards the signal,
    # these commands keep running.
    while remaining := _in_session(process.pid):
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):  # unwritten stdin has no reader any more
                stream.close()


def _in_session(leader: int) -> list[int]:
    """The pids of a session's live processes, from /proc/PID/stat (proc(5)); none without /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_bytes().rpartition(b")")[2].split()
        except OSError:  # the process has ended
            continue
        if fields[0] not in (b"Z", b"X") and int(fields[3]) == leader:
            found.append(int(path.parent.name))
    return found


def stderr_tail(stderr: bytes | str) -> str:
    """The last lines of a program's stderr, for the ``why`` of an error."""
    text = stderr if isinstance(stderr, str) else stderr.decode("utf-8", "replace")
    tail = "\n".join(text.splitlines()[-_STDERR_LINES:]).strip()
    return tail or "it wrote nothing to stderr"


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal without a name
        return f"signal {number}"

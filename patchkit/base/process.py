"""Running programs: compilers, package clients, git, what was built, and the user's own in the terminal.

One function starts and ends them all, :func:`running`; for git it calls GitPython (carry/upstream/git.py).
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

_STDERR_LINES = 40  # of the end of stderr, kept in a message
_LOOK_S = 0.2  # between two looks at whether the tool should end
_GRACE_S = 2.0  # between asking a process group to stop and killing it
_NICE_WORDS = 3  # of "nice -n 10", in front of a program
_PR_SET_PDEATHSIG = 1  # prctl(2)

WHICH_GPUS = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""What says in an environment which of several GPUs programs may see."""
# Of the caller's environment; everything else would make a run depend on who runs it. Without the last ones a
# run on the second GPU would be one on the first.
_KEPT = ("PATH", "HOME", "TMPDIR", *WHICH_GPUS)


class ToolMissing(ToolchainError):
    """There is no such program."""

    code = "TOOL_MISSING"


class ToolFailed(ToolchainError):
    """A tool that must succeed ended with another status than 0."""

    code = "TOOL_FAILED"


class ToolTimeout(ToolchainError):
    """A tool took too long and was stopped, with its children."""

    code = "TOOL_TIMEOUT"


class ToolCrashed(ToolchainError):
    """A signal ended the tool: it crashed, or something killed it."""

    code = "TOOL_CRASHED"


class ToolStopped(ToolchainError):
    """Another part of patchkit asked the tool to end: something else failed, or the user pressed Ctrl-C."""

    code = "TOOL_STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a tool ended: ``returncode`` (negative: ended by that signal), its output and wall time.

    ``cpu_s`` are the processor seconds of it and of all that it started and waited for.
    """

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float
    cpu_s: float = 0.0


P = TypeVar("P", bound=subprocess.Popen[bytes])


class _Process(subprocess.Popen[bytes]):
    """A process that says how much of the processor it used: Popen takes that from nobody."""

    cpu_s = 0.0

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """Where Popen asks the system, from Python 3.11 to 3.14."""
        try:
            pid, status, used = os.wait4(self.pid, wait_flags)
        except ChildProcessError:
            return self.pid, 0  # as Popen has it: somebody else has taken the status
        if pid == self.pid:
            self.cpu_s = used.ru_utime + used.ru_stime
        return pid, status


def run_tool(  # noqa: PLR0913 - the least that subprocess needs to be told
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
    """Run a tool to its end, in the environment of :func:`tool_environment`.

    Args:
        argv: the program and its arguments; without a slash the program is looked for on PATH.
        cwd: the folder to run in, by default the current one.
        env: variables on top of the scrubbed environment.
        stdin: what it reads; nothing by default.
        into: open files for its stdout and stderr, or one for both, written as it goes on: what it wrote
            stays, however it ends. By default the result has it.
        timeout_s: seconds until it is stopped; by default it may take forever.
        check: whether an end with another status than 0 raises. The other errors are raised always.
        reporter: hears the command, quoted so that it can be pasted.
        stop: set by another thread, it ends the tool; Ctrl-C reaches the main thread only.
        work: what it does, for the account of where time goes.

    Raises:
        ToolMissing: no such program.
        TOOL_NOT_STARTED: the system refused to start it.
        ToolTimeout: it was stopped after ``timeout_s``.
        ToolFailed: it ended with another status than 0 (only with ``check``).
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
    """Run a program of the user's, in the caller's environment and terminal, to its end.

    Ctrl-C in the terminal is the program's to handle. It does not outlive patchkit.

    Args:
        argv: the program and its arguments.
        env: variables on top of the environment.
        is_quiet: whether what it writes to stdout goes to stderr.

    Returns:
        Its status, or negative the signal that ended it.

    Raises:
        TOOL_NOT_STARTED: the system refused to start it.
    """
    prctl, patchkit = ctypes.CDLL(None).prctl, os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != patchkit:  # it was killed before it could be asked for
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
    """Python handles signals in its main thread only: elsewhere SIGINT stays whoever's it is."""
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
    """Ctrl-C in a terminal is the program's own to handle; else SIGINT ends patchkit, and that with it."""
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
        hint=f"look at it with: ls -ld {shlex.quote(path)}",
    )


def tool_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every tool gets of ``environ``, and messages in English for whoever parses them.

    Programs that were installed beside patchkit (cmake, ninja) are found last on PATH: its environment
    need not be activated.
    """
    path = os.pathsep.join([environ.get("PATH", os.defpath), sysconfig.get_path("scripts")])
    return {**{name: environ[name] for name in _KEPT if name in environ}, "PATH": path, "LC_ALL": "C"}


def tool_failure(completed: Completed) -> ToolFailed | ToolCrashed:
    """The error for a tool that did not end with status 0: what it was, and the end of its stderr."""
    name = _name_of(completed.argv)
    why = stderr_tail(completed.stderr)
    hint = f"the command was: {shlex.join(completed.argv)}"
    if completed.returncode < 0:
        return ToolCrashed(f"{name} was ended by {signal_name(-completed.returncode)}", why=why, hint=hint)
    return ToolFailed(f"{name} ended with status {completed.returncode}", why=why, hint=hint)


def _find(program: str, environment: Mapping[str, str]) -> str:
    found = shutil.which(program, path=environment.get("PATH", os.defpath))
    if found is None:
        place = "there" if os.sep in program else f"on PATH ({environment.get('PATH', 'not set')})"
        raise ToolMissing(
            f"there is no program '{program}'",
            why=f"nothing that can be executed is {place}",
            hint="install it, or put its folder on PATH, and run the command again",
        )
    return os.path.abspath(found)  # noqa: PTH100  # ``cwd`` must not change what is run; no link is followed


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
        wait_s = left if stop is None else min(_LOOK_S, _LOOK_S if left is None else left)
        try:
            return process.communicate(stdin, timeout=wait_s)
        except subprocess.TimeoutExpired as error:
            stdin = None  # it is being fed already
            if stop is not None and stop.is_set():
                raise ToolStopped(f"{_name_of(argv)} was stopped") from error
            if deadline is not None and time.monotonic() >= deadline:
                raise ToolTimeout(
                    f"{_name_of(argv)} did not end within {timeout_s:g} s, and was stopped",
                    why=stderr_tail(error.stderr or b""),
                    hint=f"the command was: {shlex.join(argv)}",
                ) from error


def _name_of(argv: Sequence[str]) -> str:
    """The program of a command, also where it runs with low priority (``nice -n 10 PROGRAM``)."""
    is_nice = len(argv) > _NICE_WORDS and Path(argv[0]).name == "nice" and argv[1] == "-n"
    return Path(argv[_NICE_WORDS if is_nice else 0]).name


class _Kept:
    """The handlers of the signals that end patchkit, taken away, and the signals that came meanwhile."""

    def __init__(self) -> None:
        self._came: list[int] = []
        self._handlers: dict[int, Callable[[int, FrameType | None], object]] = {}

    def take(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if callable(handler):  # what is ignored stays so, also in the tool
                self._handlers[number] = handler
                signal.signal(number, lambda number, _frame: self._came.append(number))

    def answer(self) -> None:
        """Give the handlers back, and let them have what came; a handler may raise."""
        while self._handlers:
            signal.signal(*self._handlers.popitem())
        while self._came:
            signal.raise_signal(self._came.pop())


@contextlib.contextmanager
def running(start: Callable[[], P], end: Callable[[P], None] | None = None) -> Iterator[P]:
    """The process that ``start`` starts; if the block raises, ``end`` ends it, by default with its session.

    Ctrl-C reaches patchkit only: a tool is in a session of its own. Signals wait until it is started: a
    handler that raises while Popen returns leaves a process that nobody ends (seen on a busy machine). Python
    answers signals in the main thread only.
    """
    kept = _Kept()
    if threading.current_thread() is threading.main_thread():
        kept.take()
    try:
        process = start()
        try:
            kept.answer()
            yield process
        except BaseException:
            (end or _end_session)(process)
            raise
    finally:
        kept.answer()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process alone: it is of patchkit's own session."""
    process.kill()
    process.wait()


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End the whole session; the last signal cannot be refused, and goes out even if the leader is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # Ninja gives each command a group of its own, which a ninja that is killed before it could pass the
    # signal on leaves behind.
    while left := _in_session(process.pid):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):  # what stdin still held has no reader
                stream.close()


def _in_session(leader: int) -> list[int]:
    """The living processes of a session, by proc(5) (state, parent, group, session); none without /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_bytes().rpartition(b")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if fields[0] not in (b"Z", b"X") and int(fields[3]) == leader:
            found.append(int(path.parent.name))
    return found


def stderr_tail(stderr: bytes | str) -> str:
    """The end of what a program wrote to stderr, for the reason of an error."""
    text = stderr if isinstance(stderr, str) else stderr.decode("utf-8", "replace")
    tail = "\n".join(text.splitlines()[-_STDERR_LINES:]).strip()
    return tail or "it wrote nothing to stderr"


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal between the named two
        return f"signal {number}"

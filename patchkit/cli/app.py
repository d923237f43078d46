"""The entry point; it imports the rest, so that Ctrl-C during the imports is answered, too."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

# ExitCode.INTERRUPTED and ExitCode.CACHE: errors.py may be the module that could not be loaded.
_INTERRUPTED = 130
_REFUSED = 8

# patchkit.cli.completing.COMPLETION, which is imported only when a shell asks.
_COMPLETION = "_PATCHKIT_COMPLETE"


def run() -> NoReturn:
    """The console script."""
    _open_standard_streams()
    _end_as_by_ctrl_c()
    # Tokens come by the hundred thousand and are in no circle: looking for circles every 700 objects, as by
    # default, took a quarter of an import (issue 42: 27.7 and 21.0 s).
    gc.set_threshold(100_000, 20, 20)
    asked = os.environ.get(_COMPLETION)
    code = _complete(asked) if asked else main(sys.argv[1:])
    try:
        sys.exit(code)
    except KeyboardInterrupt:
        os._exit(code)


def main(argv: Sequence[str]) -> int:
    """Runs one command line and returns the exit code; every error ends here or below."""
    try:
        from patchkit.cli.boundary import answer

        return answer(argv)
    except KeyboardInterrupt as stop:
        by = stop.args[0] if stop.args else "Ctrl-C"
        return _end_early("INTERRUPTED", _INTERRUPTED, f"stopped by {by}", argv)
    except OSError as error:
        return _end_early("SYSTEM_REFUSED", _REFUSED, f"patchkit cannot be loaded: {error}", argv)


def _complete(asked: str) -> int:
    """Answers a shell. What goes wrong is not said: whoever pressed <tab> is in the middle of a line."""
    try:
        from patchkit.cli.completing import offer

        offer(asked)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  as the docstring says
        return 1
    return 0


def _end_as_by_ctrl_c() -> None:
    """Let the end of a job, and of its terminal, be as orderly as Ctrl-C: tools run in sessions of their own.

    Without this a build would go on for an hour after a CI had cancelled it. What the caller ignores, as
    nohup does with SIGHUP, stays ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _open_standard_streams() -> None:
    """Put nothing behind a standard stream that is closed.

    The next file opened would get its number, and a child process would write its messages into it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one


def _end_early(code: str, exit_code: int, message: str, argv: Sequence[str]) -> int:
    """Say why with nothing but the system: no module is there to ask."""
    try:
        if "--json" in argv:
            quoted = message.replace("\\", "\\\\").replace('"', '\\"').encode("ascii", "replace").decode()
            document = f'{{"error": {{"code": "{code}", "exit_code": {exit_code}, "message": "{quoted}"}}}}\n'
            os.write(1, document.encode())
        os.write(2, f"error[{code}]: {message}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass
    return exit_code

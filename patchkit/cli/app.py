"""The entry point. It imports the rest late, so that Ctrl-C during the imports is handled as well."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

# ExitCode.INTERRUPTED and ExitCode.CACHE, repeated because errors.py may be the module that fails to load.
_INTERRUPTED = 130
_REFUSED = 8

# patchkit.cli.completing.COMPLETION, repeated to import that module for completion only.
_COMPLETION = "_PATCHKIT_COMPLETE"


def run() -> NoReturn:
    """Run the console script."""
    _open_standard_streams()
    _treat_signals_as_ctrl_c()
    # The parser creates hundreds of thousands of tokens, none in a reference cycle. Python's default of a
    # collection every 700 objects took a quarter of an import (issue 42: 27.7 and 21.0 s). What survived the
    # first collection nearly always lives as long as the command, so it is rarely searched again.
    gc.set_threshold(100_000, 200, 20)
    completion = os.environ.get(_COMPLETION)
    code = _complete(completion) if completion else main(sys.argv[1:])
    try:
        sys.exit(code)
    except KeyboardInterrupt:
        os._exit(code)


def main(argv: Sequence[str]) -> int:
    """Run one command line and return the exit code; no error leaves this function."""
    try:
        from patchkit.cli.boundary import run_command

        return run_command(argv)
    except KeyboardInterrupt as stop:
        by = stop.args[0] if stop.args else "Ctrl-C"
        return _end_early("INTERRUPTED", _INTERRUPTED, f"stopped by {by}", argv)
    except OSError as error:
        return _end_early("SYSTEM_REFUSED", _REFUSED, f"patchkit cannot be loaded: {error}", argv)


def _complete(instruction: str) -> int:
    """Print completions for a shell. Errors are not printed: they would land in the line being typed."""
    try:
        from patchkit.cli.completing import write_completions

        write_completions(instruction)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  as the docstring says
        return 1
    return 0


def _treat_signals_as_ctrl_c() -> None:
    """Handle SIGTERM and SIGHUP like Ctrl-C, which also stops the tools; they run in their own sessions.

    Otherwise a build would continue for an hour after CI cancelled the job. A signal that the caller ignores
    (nohup ignores SIGHUP) stays ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _open_standard_streams() -> None:
    """Open /dev/null for each standard stream that is closed.

    Otherwise the next file opened would get its descriptor, and child processes would write into that file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one


def _end_early(code: str, exit_code: int, message: str, argv: Sequence[str]) -> int:
    """Report the error with os.write alone, because patchkit's modules may not have loaded."""
    try:
        if "--json" in argv:
            quoted = message.replace("\\", "\\\\").replace('"', '\\"').encode("ascii", "replace").decode()
            document = f'{{"error": {{"code": "{code}", "exit_code": {exit_code}, "message": "{quoted}"}}}}\n'
            os.write(1, document.encode())
        os.write(2, f"error[{code}]: {message}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass
    return exit_code

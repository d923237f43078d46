"""The output streams of the process: results on stdout; progress, warnings and errors on stderr."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TextIO

from patchkit.base.errors import CacheError, Location, PatchkitError, UsageError
from patchkit.base.plain import plain as as_json
from patchkit.base.text import visible, whole_characters
from patchkit.cli.error_text import Paint, format_error, uncolored
from patchkit.cli.screen import Screen

ColorChoice = Literal["auto", "always", "never"]

# SGR sequences, ECMA-48 section 8.3.117: 1 bold, 2 faint, 31 red, 32 green, 33 yellow, 34 blue, 36 cyan.
_STYLES = {
    "error": "1;31",
    "place": "1;34",
    "hint": "1;36",
    "heading": "1",
    "good": "32",
    "caution": "33",
    "bad": "31",
    "muted": "2",
}


def make_streams_total() -> None:
    """Make both streams accept every character: one that the locale lacks is written as an escape.

    Under ``LC_ALL=C`` Python switches to UTF-8 by itself (PEP 540), but not under a Latin-1 locale or with
    ``PYTHONUTF8=0``. :mod:`patchkit.base.text` handles file names that are not valid text.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class OutputFailed(CacheError):
    """Writing to stdout failed: it is closed, or its disk is full."""

    code = "OUTPUT"


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
_LIMITS = {
    errno.EMFILE: "raise the limit of open files: ulimit -n 1024",
    errno.ENFILE: "close programs: the whole machine has too many files open",
    errno.EAGAIN: "raise the limit of processes (ulimit -u), or close programs",
    errno.ENOMEM: "close programs: the machine is out of memory",
}


def system_refusal(error: OSError) -> CacheError | UsageError | None:
    """Return the error for a full, read-only or broken disk or a system limit; ``None`` for other errors."""
    where = Location(path=_spelled(error.filename)) if error.filename else None
    if error.errno in _DISK:
        return CacheError(
            "writing to disk failed",
            code="DISK_REFUSED",
            where=where,
            why=error.strerror,
            hint="df -h shows the free space",
        )
    if error.errno == errno.ENAMETOOLONG:
        return UsageError(
            "a path is too long",
            code="DISK_REFUSED",
            where=where,
            why=error.strerror,
        )
    if error.errno in _LIMITS:
        return CacheError(
            f"a system limit was reached: {error.strerror}",
            code="SYSTEM_REFUSED",
            where=where,
            hint=_LIMITS[error.errno],
        )
    return None


def _spelled(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, bytes) else str(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """Writes results to stdout and errors to stderr.

    Methods that write to stdout raise OutputFailed if that fails, and BrokenPipeError for a closed pipe.
    """

    color: ColorChoice = "auto"

    def data(self, text: str, *, as_is: bool = False, fit: bool = False) -> None:
        """Write a text result. Control characters are escaped, unless ``as_is``.

        ``fit``: fold lines to the terminal's width; a pipe gets them whole.
        """
        if not as_is:
            text = visible(text)
        if fit and (columns := _columns()):
            text = "\n".join(_fitted(line, columns) for line in text.split("\n"))
        with _stdout() as stream:
            stream.write(text if text.endswith("\n") else text + "\n")

    def raw(self, content: bytes) -> None:
        """Write a result that is bytes, such as a diff, unchanged."""
        with _stdout() as stream:
            stream.flush()
            stream.buffer.write(content)

    def document(self, value: object) -> None:
        """Write the value as a JSON document, in ASCII, so that it works under every locale."""
        value = as_json(value)
        text = json.dumps(value, ensure_ascii=False)
        if text != (whole := whole_characters(text)):
            value = json.loads(whole)
        self.data(json.dumps(value, indent=2), as_is=True)

    def finish(self) -> None:
        """Flush stdout, so that a failure is noticed."""
        if sys.stdout:
            with _stdout() as stream:
                stream.flush()

    def write_error(self, error: PatchkitError) -> None:
        """Write an error, or each error of a group, to stderr."""
        write_stderr(format_error(error, self.paint))

    @property
    def paint(self) -> Paint:
        """Colours for stderr, or none."""
        return _colored if wants_color(self.color, sys.stderr) else uncolored

    def screen(self) -> Screen:
        """Start a laid-out result for stdout: coloured and folded on a terminal, plain in a pipe."""
        columns = _columns()
        return Screen(
            columns=columns, paint=_colored if columns and wants_color(self.color, sys.stdout) else uncolored
        )


def write_stderr(text: str) -> None:
    """Write a line to stderr; failures are ignored, because there is no place to report them."""
    if not sys.stderr:  # None when the process was started with file descriptor 2 closed
        return
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        _give_up(2)


@contextlib.contextmanager
def _stdout() -> Iterator[TextIO]:
    if not sys.stdout:  # None when the process was started with file descriptor 1 closed
        raise OutputFailed(
            "the result cannot be written",
            why="standard output is closed",
            hint="redirect it: run the command again with '> FILE'",
        )
    try:
        yield sys.stdout
    except BrokenPipeError:
        raise
    except OSError as error:
        _give_up(1)
        raise OutputFailed(
            "the result cannot be written",
            why=f"standard output: {error.strerror}",
            hint="run the command again with '> FILE' on a disk with free space (df -h)",
        ) from error


def _columns() -> int:
    """Return the terminal's width if stdout is one, else 0."""
    return shutil.get_terminal_size(fallback=(0, 0)).columns if sys.stdout and sys.stdout.isatty() else 0


def _fitted(line: str, columns: int) -> str:
    """Fold the line at blanks only, so that paths stay in one piece."""
    if len(line) <= columns:
        return line
    indent = line[: len(line) - len(line.lstrip())] + "    "
    return textwrap.fill(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _give_up(descriptor: int) -> None:
    """Redirect the stream to /dev/null; flushing its buffer would fail again at exit."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def wants_color(choice: ColorChoice, stream: TextIO | None) -> bool:
    """Whether to colour a stream; ``auto``: if it is a terminal that is not dumb and NO_COLOR is not set."""
    if choice != "auto":
        return choice == "always"
    return (
        stream is not None
        and stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def _colored(text: str, role: str) -> str:
    return f"\x1b[{_STYLES[role]}m{text}\x1b[0m"

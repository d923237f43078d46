"""The two streams of the process: data on stdout, talk on stderr."""

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
from patchkit.cli.complaint import Paint, complain, plain

ColorChoice = Literal["auto", "always", "never"]

# SGR sequences, ECMA-48 section 8.3.117: 1 bold, 31 red, 34 blue, 36 cyan.
_STYLES = {"error": "1;31", "place": "1;34", "hint": "1;36"}


def make_streams_total() -> None:
    """Lets both streams take every character: what the locale cannot show is written as an escape.

    Under ``LC_ALL=C`` Python switches to UTF-8 by itself (PEP 540), under a Latin-1 locale and with
    ``PYTHONUTF8=0`` it does not. File names that reach us as lone surrogates then, or because they are
    not UTF-8, are the work of :mod:`patchkit.base.text`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class OutputFailed(CacheError):
    """stdout refused: closed, or the disk behind it is full."""

    code = "OUTPUT"


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
_LIMITS = {
    errno.EMFILE: "raise the limit of open files: ulimit -n 1024",
    errno.ENFILE: "close programs: the whole machine has too many files open",
    errno.EAGAIN: "raise the limit of processes (ulimit -u), or close programs",
    errno.ENOMEM: "close programs: the machine is out of memory",
}


def system_refusal(error: OSError) -> CacheError | UsageError | None:
    """The error for a disk that is full, read-only or broken, and for a limit of the system that is met.

    ``None`` for any other OSError.
    """
    where = Location(path=_spelled(error.filename)) if error.filename else None
    if error.errno in _DISK:
        return CacheError(
            "the disk refused a write", code="WRITE_REFUSED", where=where, why=error.strerror, hint="df -h"
        )
    if error.errno == errno.ENAMETOOLONG:
        return UsageError(
            "a path is too long",
            code="NAME_TOO_LONG",
            where=where,
            why=error.strerror,
            hint="name a shorter one",
        )
    if error.errno in _LIMITS:
        return CacheError(
            f"the system refused: {error.strerror}",
            code="SYSTEM_REFUSED",
            where=where,
            hint=_LIMITS[error.errno],
        )
    return None


def _spelled(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, bytes) else str(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """How to speak, in colours or without.

    What goes to stdout raises OutputFailed when stdout refuses it, and BrokenPipeError when its reader
    went away.
    """

    color: ColorChoice = "auto"

    def data(self, text: str, *, as_is: bool = False, fit: bool = False) -> None:
        """Writes a result for a person; only ``as_is`` it may give orders to the terminal.

        ``fit``: a line that is longer than the terminal is wide goes on in others; a pipe gets it whole.
        """
        if not as_is:
            text = visible(text)
        if fit and (columns := _columns()):
            text = "\n".join(_fitted(line, columns) for line in text.split("\n"))
        with _stdout() as stream:
            stream.write(text if text.endswith("\n") else text + "\n")

    def raw(self, content: bytes) -> None:
        """Writes a result that is bytes, such as a diff, without touching it."""
        with _stdout() as stream:
            stream.flush()
            stream.buffer.write(content)

    def document(self, value: object) -> None:
        """Writes the value as a JSON document; ASCII only, so that no locale can break it."""
        value = as_json(value)
        text = json.dumps(value, ensure_ascii=False)
        if text != (whole := whole_characters(text)):
            value = json.loads(whole)
        self.data(json.dumps(value, indent=2), as_is=True)

    def finish(self) -> None:
        """Hands everything written to the operating system, so that a failure is seen."""
        if sys.stdout:
            with _stdout() as stream:
                stream.flush()

    def complain(self, error: PatchkitError) -> None:
        """Writes an error to stderr, each of a group."""
        talk(complain(error, self.paint))

    @property
    def paint(self) -> Paint:
        """Colours for stderr, or none."""
        return _colored if wants_color(self.color) else plain


def talk(text: str) -> None:
    """Writes a line to stderr; a stderr that refuses, or is closed, is nobody's to tell."""
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
            hint="give it a place: run the command again with '> FILE'",
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
            hint="run the command again with '> FILE' on a disk that has room; df -h shows it",
        ) from error


def _columns() -> int:
    """How wide the terminal is that stdout is; 0: it is none, or does not know."""
    return shutil.get_terminal_size(fallback=(0, 0)).columns if sys.stdout and sys.stdout.isatty() else 0


def _fitted(line: str, columns: int) -> str:
    """The line in lines, broken at blanks only: a path or a command is copied in one piece."""
    if len(line) <= columns:
        return line
    indent = line[: len(line) - len(line.lstrip())] + "    "
    return textwrap.fill(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _give_up(descriptor: int) -> None:
    """Send the rest nowhere: what is still in the buffer would fail again at exit."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def wants_color(choice: ColorChoice) -> bool:
    """Whether stderr gets colours; ``auto``: a terminal that is not dumb, and no NO_COLOR."""
    if choice != "auto":
        return choice == "always"
    return (
        bool(sys.stderr)
        and sys.stderr.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def _colored(text: str, role: str) -> str:
    return f"\x1b[{_STYLES[role]}m{text}\x1b[0m"

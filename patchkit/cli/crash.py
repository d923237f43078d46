"""The report of a bug: what a developer needs, in a file, and one line for the person.

The log goes into ``logs/`` of the cache folder; when that cannot be written, into the system's folder
for temporary files.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from patchkit.cli.versions import version_of
from patchkit.errors import InternalError, Location

_LIBRARIES = ("click", "GitPython", "jinja2", "libclang", "pydantic", "pypi-simple", "rich")


def report_crash(error: BaseException, *, argv: Sequence[str], folder: Path | None) -> InternalError:
    """Writes the log and returns the error to show; never raises.

    ``folder`` is the cache folder, ``None`` when it is not known.
    """
    summary = f"{type(error).__name__}: {error}".rstrip(": ")
    text = _log_text(error, argv)
    for place in (folder / "logs" if folder is not None else None, Path(tempfile.gettempdir())):
        if place is None:
            continue
        path = place / f"patchkit-{_now():%Y%m%dT%H%M%SZ}-{os.getpid()}.log"
        try:
            place.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return InternalError(
            summary,
            code="UNEXPECTED",
            where=Location(path=str(path), label="versions and traceback"),
            why="this is a bug in patchkit",
            hint="report it together with that file",
        )
    return InternalError(
        summary, code="UNEXPECTED", why="this is a bug in patchkit, and no log could be written", hint=text
    )


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _log_text(error: BaseException, argv: Sequence[str]) -> str:
    versions = [f"python {sys.version.split()[0]} ({sys.executable})", f"platform {platform.platform()}"]
    versions += [f"{name} {version_of(name)}" for name in ("patchkit", *_LIBRARIES)]
    return "\n".join(
        [
            f"command: patchkit {shlex.join(argv)}",
            f"folder: {_folder()}",
            *versions,
            "",
            *(line.rstrip("\n") for line in traceback.format_exception(error)),
            "",
        ]
    )


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "(deleted)"

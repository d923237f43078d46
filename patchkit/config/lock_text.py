"""Writing a lock file: the same lock gives the same bytes, and the file changes in one step.

Vocabulary: see :mod:`patchkit.config.lock`.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import glob
import json
import os
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.config.lock import GitSource, Lock, Pin, Result, Source, load_lock
from patchkit.errors import CacheError, ConfigError, Location

_HEADER = "# Written by patchkit, not by hand: every line below is checked against the bytes it names.\n"
_WIDTH = 76  # of base64 lines
_DRAFT = ".patchkit-partial"
_LONG = 100  # an array of more characters gets one line per item


def format_lock(lock: Lock) -> str:
    """The text of a lock file: pins by build, results by build, archs and patches."""
    parts = [f"{_HEADER}version = 1\ndefault = {lock.default}\n"]
    parts += ["\n".join(_pin_lines(pin)) for pin in sorted(lock.pins, key=lambda pin: pin.build)]
    parts += ["\n".join(_result_lines(result)) for result in sorted(lock.results, key=lambda each: each.key)]
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


def write_lock(path: Path, lock: Lock) -> None:
    """Replace the file at ``path`` by the text of ``lock``; a reader sees the old or the new one.

    Raises:
        LOCK_NOT_WRITTEN: the disk refused.
    """
    path = path.resolve()
    draft: Path | None = None
    try:
        # A name of its own: another run may be writing, too.
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_DRAFT, dir=path.parent)
        draft = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            os.fchmod(descriptor, path.stat().st_mode & 0o777 if path.exists() else 0o644)
            stream.write(format_lock(lock))
            stream.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


def record_result(path: Path, pin: Pin, result: Result) -> bool:
    """Put a result into the lock file as it is now; false when the file says the same already.

    Runs that record at the same moment wait for each other, so that none loses what another wrote.

    Raises:
        LOCK_CHANGED: the pin is not the one the result was made on.
        LOCK_NOT_WRITTEN: the disk refused.
        ConfigError, ErrorGroup: as :func:`patchkit.config.lock.load_lock`.
    """
    path = path.resolve()
    with _locked(path):
        lock = load_lock(path)
        if pin not in lock.pins:
            raise ConfigError(
                f"the pin {pin.name} was changed in {path.name} in the meantime",
                code="LOCK_CHANGED",
                where=Location(path=str(path)),
                hint="run the command again",
            )
        if lock.result(*result.key) == result:
            return False
        _write_held(path, lock.with_result(result))
        return True


def replace_results(path: Path, before: bytes, results: Sequence[Result]) -> None:
    """Put ``results`` in the place of all that the lock file has; ``before`` is what they were made from.

    Raises:
        LOCK_CHANGED: the file holds something else than ``before``.
        LOCK_NOT_WRITTEN: the disk refused.
        ConfigError, ErrorGroup: as :func:`patchkit.config.lock.load_lock`.
    """
    path = path.resolve()
    with _locked(path):
        if path.read_bytes() != before:
            raise ConfigError(
                f"{path.name} was changed in the meantime",
                code="LOCK_CHANGED",
                where=Location(path=str(path)),
                hint="run the command again",
            )
        _write_held(path, replace(load_lock(path), results=tuple(results)))


def _write_held(path: Path, lock: Lock) -> None:
    for remains in path.parent.glob(f".{glob.escape(path.name)}.*{_DRAFT}"):
        remains.unlink(missing_ok=True)  # of a run that was killed: writers hold the lock
    write_lock(path, lock)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file at ``path`` itself: no other file has to lie beside it."""
    try:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                break
            os.close(descriptor)  # who held it before put another file in its place
    except OSError as error:
        raise _refused(path, error) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _refused(path: Path, error: OSError) -> CacheError:
    return CacheError(
        f"the lock could not be written: {error.strerror}",
        code="LOCK_NOT_WRITTEN",
        where=Location(path=str(path)),
        hint=f"check with: ls -ld {path.parent}; df {path.parent}",
    )


def _pin_lines(pin: Pin) -> Iterator[str]:
    yield "[[pin]]"
    yield f"build = {pin.build}"
    if pin.commit is not None:
        yield f"commit = {_string(pin.commit)}"
    yield f"tree = {_string(pin.tree)}"
    yield f"committed = {_string(pin.committed)}"
    if pin.ggml is not None:
        yield f"ggml = {_string(pin.ggml)}"
    if pin.commit_object is not None:
        yield "commit_object = '''"
        yield from textwrap.wrap(base64.b64encode(pin.commit_object).decode("ascii"), _WIDTH)
        yield "'''"
    for source in pin.sources:
        yield ""
        yield from _source_lines(source)
    for each in sorted(pin.followed):
        yield ""
        yield "[[pin.followed]]"
        yield f"file = {_string(each.file)}"
        yield f"function = {_string(each.function)}"
        yield f"now_file = {_string(each.now_file)}"
        yield f"now_function = {_string(each.now_function)}"


def _source_lines(source: Source) -> Iterator[str]:
    yield "[[pin.source]]"
    if isinstance(source, GitSource):
        yield 'kind = "git"'
        yield f"url = {_string(source.url)}"
        return
    yield 'kind = "sdist"'
    yield f"package = {_string(source.package)}"
    yield f"version = {_string(source.version)}"
    yield f"sha256 = {_string(source.sha256)}"
    yield f"subdir = {_string(source.subdir)}"
    yield f"omit = {_array(source.omit)}"


def _result_lines(result: Result) -> Iterator[str]:
    yield "[[result]]"
    yield f"build = {result.build}"
    yield f"archs = {_array(result.archs)}"
    yield f"patches = {_array(result.patches)}"
    yield f"tree = {_string(result.tree)}"
    yield f"commit = {_string(result.commit)}"
    for name, table in (
        ("inputs", result.inputs),
        ("rendered", result.rendered),
        ("entities", result.entities),
    ):
        yield ""
        yield f"[result.{name}]"
        yield from _table_lines(table)


def _table_lines(table: Mapping[str, str]) -> Iterator[str]:
    for key, value in sorted(table.items()):
        yield f"{_string(key)} = {_string(value)}"


def _array(items: Sequence[str]) -> str:
    line = f"[{', '.join(_string(item) for item in items)}]"
    if len(line) <= _LONG:
        return line
    return "[\n" + "".join(f"    {_string(item)},\n" for item in items) + "]"


def _string(text: str) -> str:
    # A JSON string is a TOML string but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

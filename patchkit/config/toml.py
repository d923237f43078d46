"""TOML files with places: parse, point at any key, validate with messages a person can act on.

Vocabulary: a *document* is one TOML file: its path, bytes and parsed table; a *model* is the pydantic
class that says what a document must be. Models stay inside :mod:`patchkit.config`; the rest of
patchkit sees frozen dataclasses.
"""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from patchkit.config.explain import EXPLAINED, explain_failures
from patchkit.config.places import KeyPath, find_places
from patchkit.errors import ConfigError, ErrorGroup, Location
from patchkit.source import SourceText

# The files patchkit reads are some kilobytes; a lock with every digest stays below 1 MiB.
MAX_BYTES = 4 * 1024 * 1024

# tomllib needs time and memory of the square of the parts of a key: 50,000 of them are gigabytes. Text
# with as many words joined by dots would be refused, too; none of patchkit's files has a use for it.
_MAX_PARTS = 64
_DEEP = re.compile(
    rb"""(?<![A-Za-z0-9_"'-])(?:(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){%d}""" % _MAX_PARTS
)
_MOST_PLACES = 8
_POSITION = re.compile(r" \(at line (\d+), column (\d+)\)$")
_AT_END = " (at end of document)"


class TomlModel(BaseModel):
    """Base of all models: unknown keys are errors, values keep their TOML type, results are frozen.

    Strict mode refuses a TOML array for a ``tuple``: such fields say ``Field(strict=False)``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One TOML file. ``path`` is the name used in messages; ``table`` must not be changed."""

    path: str
    data: bytes
    table: Mapping[str, Any]
    # Filled on the first question: most documents are never asked for a place.
    _places: dict[KeyPath, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _source: list[SourceText] = field(default_factory=list, init=False, repr=False, compare=False)

    def locate(self, keys: KeyPath = (), label: str | None = None) -> Location:
        """Line and column of a key path; for a path that is not there, of its nearest parent.

        Never fails: the empty path, and a path whose first key is missing, give the first line.
        """
        if not self._places:
            self._places.update(find_places(self.data))
        known = keys
        while known not in self._places:
            known = known[:-1]
        if not self._source:
            self._source.append(SourceText(self.path, self.data))
        return self._source[0].locate(self._places[known], label)


def parse_toml(path: str, data: bytes) -> Document:
    """Parse the bytes of one file; ``path`` is only used in messages.

    Raises:
        TOML_TOO_LARGE: more than 4 MiB.
        TOML_ENCODING: not UTF-8, or a byte order mark.
        TOML_NESTING: nested too deeply to be read.
        TOML_SYNTAX: not TOML; the place is file, line and column.
        TOML_NOT_FINITE: a number that is not finite; the places are all there are.
    """
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"{path} has {len(data)} bytes; the limit is {MAX_BYTES}",
            code="TOML_TOO_LARGE",
            where=Location(path=path),
            hint="is this the right file?",
        )
    text = _decode(path, data)
    deep = _DEEP.search(data)
    if deep is not None:
        raise ConfigError(
            f"{path} has a key of more than {_MAX_PARTS} parts",
            code="TOML_NESTING",
            where=SourceText(path, data).locate(deep.start()),
            hint="a key of patchkit's files has at most four parts",
        )
    try:
        table = tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(
            f"{path} nests arrays or tables too deeply",
            code="TOML_NESTING",
            where=Location(path=path),
            hint="write nested values as [table] headers",
        ) from error
    except ValueError as error:
        # tomllib's own error is a ValueError; so is Python's refusal of a number with 5000 digits.
        raise _syntax_error(path, text, str(error)) from error
    document = Document(path=path, data=data, table=table)
    _require_finite(document)
    return document


def load_toml(path: Path) -> Document:
    """Read and parse one file.

    Raises:
        TOML_MISSING, TOML_DIRECTORY, TOML_UNREADABLE: no file to read.
        ConfigError: as :func:`parse_toml`.
    """
    where = Location(path=str(path))
    try:
        # Without waiting: opening a named pipe would last until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            kind = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                raise _special(path)
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no file {path}",
            code="TOML_MISSING",
            where=where,
            hint=f"ls {path.parent} shows what is there",
        ) from error
    except IsADirectoryError as error:
        raise ConfigError(
            f"{path} is a directory, not a file",
            code="TOML_DIRECTORY",
            where=where,
            hint="name a file inside it",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}",
            code="TOML_UNREADABLE",
            where=where,
            why=error.strerror,
            hint=f"check with: ls -l {path}",
        ) from error
    return parse_toml(str(path), data)


def _special(path: Path) -> ConfigError:
    return ConfigError(
        f"cannot read {path}",
        code="TOML_UNREADABLE",
        where=Location(path=str(path)),
        why="it is a device, a pipe or a socket",
        hint=f"check with: ls -l {path}",
    )


def validate(document: Document, model: type[M], *, what: str) -> M:
    """The document as an instance of ``model``; ``what`` names its kind in messages ("lock").

    Raises:
        ErrorGroup: one :class:`ConfigError` for every wrong field, each with the place of that field.
    """
    try:
        return model.model_validate(document.table)
    except ValidationError as error:
        found = error.errors(include_url=False)
        failures = explain_failures(found, model, document.table, document.locate, what)
        more = max(0, len(found) - EXPLAINED)
    count = len(failures) + more
    shown = f", the first {len(failures)} here" if more else ""
    raise ErrorGroup(
        f"{document.path} is not a valid {what}: {count} problem{'s'[: count > 1]}{shown}", failures
    )


def _decode(path: str, data: bytes) -> str:
    if data.startswith(b"\xef\xbb\xbf"):
        raise ConfigError(
            f"{path} begins with a byte order mark",
            code="TOML_ENCODING",
            where=Location(path=path, line=1, column=1),
            hint="save the file as UTF-8 without BOM",
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x}",
            code="TOML_ENCODING",
            where=SourceText(path, data).locate(error.start),
            why=error.reason,
            hint="save the file as UTF-8",
        ) from error


def _require_finite(document: Document) -> None:
    """TOML has ``nan`` and ``inf``, JSON has not; and each comparison with ``nan`` is quietly false."""
    found = [document.locate(keys) for keys, value in _numbers(document.table) if not math.isfinite(value)]
    if found:
        raise ConfigError(
            f"{document.path} has a number that is not finite",
            code="TOML_NOT_FINITE",
            where=sorted(found, key=lambda place: (place.line or 0, place.column or 0))[:_MOST_PLACES],
            why="'nan', 'inf' and numbers beyond 1.8e308 are no amount of anything",
            hint="write a finite number, or leave the key out",
        )


def _numbers(table: Mapping[str, Any]) -> Iterator[tuple[KeyPath, float]]:
    """Every float of the document and the way to it; without recursion, whatever the nesting."""
    open_: list[tuple[KeyPath, Any]] = [((), table)]
    while open_:
        keys, value = open_.pop()
        if isinstance(value, float):
            yield keys, value
        elif isinstance(value, dict):
            open_ += [((*keys, name), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            open_ += [((*keys, index), inner) for index, inner in enumerate(value)]


def _syntax_error(path: str, text: str, message: str) -> ConfigError:
    # Line and column are attributes only from Python 3.14 on; the text of the message has them in
    # every version. tomllib counts characters, after turning CRLF into LF.
    lines = text.replace("\r\n", "\n").split("\n")
    found = _POSITION.search(message)
    if found is not None:
        line, column = int(found[1]), int(found[2])
        reason = message[: found.start()]
    elif message.endswith(_AT_END):
        line, column = len(lines), len(lines[-1]) + 1
        reason = message.removesuffix(_AT_END)
    else:
        return ConfigError(
            f"{path} cannot be parsed", code="TOML_SYNTAX", where=Location(path=path), why=message
        )
    before = lines[line - 1][: column - 1]
    where = Location(path=path, line=line, column=len(before.encode()) + 1)
    return ConfigError(f"{path} is not valid TOML", code="TOML_SYNTAX", where=where, why=reason)

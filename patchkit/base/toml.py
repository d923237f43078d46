"""Parsing and validation of TOML files, with the file position of every key for error messages."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError
from pydantic_core.core_schema import no_info_plain_validator_function

from patchkit.base.errors import ConfigError, ErrorGroup, Location
from patchkit.base.files import open_regular
from patchkit.base.source import SourceText
from patchkit.base.text import near_miss

KeyPath = tuple[str | int, ...]


class _NotInFile:
    """Marks a field that patchkit fills; the key is unknown in files."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return no_info_plain_validator_function(_refuse_key)


def _refuse_key(value: object) -> object:
    del value
    raise PydanticCustomError("not_in_file", "unknown key")


T = TypeVar("T")
Several = Annotated[tuple[T, ...], Field(strict=False)]
"""A TOML array as a tuple; not strict, because strict mode does not convert lists to tuples."""
NotInFile = Annotated[T, _NotInFile(), SkipJsonSchema()]
"""A field that patchkit fills and that files cannot set."""
Words = Annotated[str, StringConstraints(min_length=1)]
Prose = Annotated[str, StringConstraints(min_length=1), AfterValidator(str.strip)]

NOWHERE = Location(path="")
"""Location of a table that was created by code, not read from a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """Base of the frozen dataclasses for tables in TOML files; :func:`validate` creates them.

    The annotations are validated strictly: TOML types are not converted, and unknown keys are errors. A field
    ``where`` is set to the location of the table's key ``named_by``, or of the table itself. If code creates
    such a table, only ``__post_init__`` validates it.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True)
    named_by: ClassVar[str] = ""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        # Strict mode does not create dataclasses from dicts; the fields remain strict.
        return {**schema, "strict": False} if schema["type"] == "dataclass" else schema

    @classmethod
    @cache
    def reader(cls) -> TypeAdapter[Self]:
        """The validator that creates the table from a dict; cached, as building it takes milliseconds."""
        return TypeAdapter(cls)

    @classmethod
    @cache
    def keys(cls) -> Mapping[str, tuple[str, object]]:
        """The key and the type of each field that files can set, by field name."""
        hints = get_type_hints(cls, include_extras=True)
        found = {}
        for name in (each.name for each in fields(cls)):
            marks = getattr(hints[name], "__metadata__", ())
            if not any(isinstance(mark, _NotInFile) for mark in marks):
                aliases = [mark.alias for mark in marks if isinstance(mark, FieldInfo) and mark.alias]
                found[name] = (aliases[0] if aliases else name, hints[name])
        return found


M = TypeVar("M", bound=TomlTable)


# Most files have some kilobytes; a lock with every digest is below 1 MiB.
MAX_BYTES = 4 * 1024 * 1024

# tomllib needs quadratic time and memory for the parts of a dotted key: 50,000 parts need gigabytes. The
# pattern also rejects strings with as many words joined by dots, which patchkit's files do not need.
_MAX_PARTS = 64
_DEEP = re.compile(
    rb"""(?<![A-Za-z0-9_"'-])(?:(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){%d}""" % _MAX_PARTS
)
_MOST_PLACES = 8
# Cached files. One run reads the same profiles and patches for each GPU, set of patches and side of a pull
# request; a series has some 60 files.
_FILES_KEPT = 128
_POSITION = re.compile(r" \(at line (\d+), column (\d+)\)$")
_AT_END = " (at end of document)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed TOML file. ``path`` is its name in messages; ``table`` is shared and must not be modified."""

    path: str
    data: bytes
    table: Mapping[str, Any]

    def locate(self, keys: KeyPath = (), label: str | None = None) -> Location:
        """Line and column of a key path, or of its nearest parent if the key is missing.

        Never fails: the empty path, and a path whose first key is missing, give the first line.
        """
        places = find_places(self.data)
        known = keys
        while known not in places:
            known = known[:-1]
        return _source(self.path, self.data).locate(places[known], label)

    def values(self) -> Iterator[tuple[KeyPath, object]]:
        """All scalar values with their key paths, in file order; without recursion, for any nesting."""
        return _values(self.table)


_source = lru_cache(maxsize=_FILES_KEPT)(SourceText)


@lru_cache(maxsize=_FILES_KEPT)
def _deep_key(data: bytes) -> int | None:
    """Byte offset of a key with too many parts, or None."""
    found = _DEEP.search(data)
    return found.start() if found is not None else None


@lru_cache(maxsize=_FILES_KEPT)
def _read(text: str) -> tuple[Mapping[str, Any], bool]:
    """The parsed table, and whether all its numbers are finite."""
    table = tomllib.loads(text)
    return table, not any(_is_not_finite(value) for _, value in _values(table))


def _is_not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _values(table: Mapping[str, Any]) -> Iterator[tuple[KeyPath, object]]:
    waiting: list[tuple[KeyPath, Any]] = [((), table)]
    while waiting:
        keys, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((*keys, name), inner) for name, inner in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [((*keys, index), value[index]) for index in reversed(range(len(value)))]
        else:
            yield keys, value


def _existing_above(path: Path) -> Path:
    """The nearest parent folder of ``path`` that exists."""
    return next((folder for folder in path.absolute().parents if folder.is_dir()), Path("/"))


def load_toml(path: Path) -> Document:
    """Read and parse one file.

    Raises:
        TOML_MISSING, TOML_BAD: the file cannot be read.
        ConfigError: as :func:`parse_toml`.
    """
    where = Location(path=str(path))
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path} does not exist",
            code="TOML_MISSING",
            where=where,
            hint=f"list existing files with: ls {_existing_above(path)}",
        ) from error
    except IsADirectoryError as error:
        raise ConfigError(
            f"{path} is a directory, not a file",
            code="TOML_BAD",
            where=where,
            hint="name a file inside it",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}",
            code="TOML_BAD",
            where=where,
            why=error.strerror,
            hint=f"check with: ls -l {path}",
        ) from error
    return parse_toml(str(path), data)


def parse_toml(path: str, data: bytes) -> Document:
    """Parse the bytes of one file; ``path`` is only used in messages.

    Raises:
        TOML_BAD: more than 4 MiB.
        TOML_BAD: not UTF-8, or a byte order mark.
        TOML_BAD: nested too deeply.
        TOML_BAD: not valid TOML, with file, line and column.
        TOML_BAD: numbers that are not finite, with their locations.
    """
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"{path} has {len(data)} bytes; the limit is {MAX_BYTES}",
            code="TOML_BAD",
            where=Location(path=path),
            hint="is this the right file?",
        )
    text = _decode(path, data)
    deep = _deep_key(data)
    if deep is not None:
        raise ConfigError(
            f"{path} has a key of more than {_MAX_PARTS} parts",
            code="TOML_BAD",
            where=SourceText(path, data).locate(deep),
            hint="keys in patchkit's files have at most four parts",
        )
    try:
        table, is_finite = _read(text)
    except RecursionError as error:
        raise ConfigError(
            f"{path} nests arrays or tables too deeply",
            code="TOML_BAD",
            where=Location(path=path),
            hint="write nested values as [table] headers",
        ) from error
    except ValueError as error:
        # TOMLDecodeError, or the ValueError of Python's limit on the digits of an integer.
        raise _syntax_error(path, text, str(error)) from error
    document = Document(path=path, data=data, table=table)
    if not is_finite:
        raise _not_finite(document)
    return document


def _decode(path: str, data: bytes) -> str:
    if data.startswith(b"\xef\xbb\xbf"):
        raise ConfigError(
            f"{path} begins with a byte order mark",
            code="TOML_BAD",
            where=Location(path=path, line=1, column=1),
            hint="save the file as UTF-8 without BOM",
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x}",
            code="TOML_BAD",
            where=SourceText(path, data).locate(error.start),
            why=error.reason,
            hint="save the file as UTF-8",
        ) from error


def _not_finite(document: Document) -> ConfigError:
    """The error for ``nan`` and ``inf``: JSON does not have them, and comparisons with ``nan`` are false."""
    found = [document.locate(keys) for keys, value in document.values() if _is_not_finite(value)]
    return ConfigError(
        f"{document.path}: expected a finite number",
        code="TOML_BAD",
        where=sorted(found, key=lambda place: (place.line or 0, place.column or 0))[:_MOST_PLACES],
        why="'nan', 'inf' and numbers beyond 1.8e308 are not accepted",
        hint="write a finite number, or omit the key",
    )


def _syntax_error(path: str, text: str, message: str) -> ConfigError:
    # Line and column are attributes of the error only since Python 3.14; its message has them in all
    # versions. tomllib counts characters, after converting CRLF to LF.
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
            f"{path} cannot be parsed", code="TOML_BAD", where=Location(path=path), why=message
        )
    before = lines[line - 1][: column - 1]
    where = Location(path=path, line=line, column=len(before.encode()) + 1)
    return ConfigError(f"{path} is not valid TOML", code="TOML_BAD", where=where, why=reason)


@lru_cache(maxsize=_FILES_KEPT)
def _read_table(path: str, data: bytes, kind: type[TomlTable]) -> TomlTable:
    """Validate a file as a ``kind``; cached, because one command reads a profile ten times or more."""
    document = parse_toml(path, data)
    table = kind.reader().validate_python(document.table)
    _set_places(table, (), document)
    return table


def validate(document: Document, kind: type[M], *, what: str) -> M:
    """Validate a document as a ``kind``; ``what`` is its kind in messages ("lock").

    Raises:
        ErrorGroup: one :class:`ConfigError` for each invalid field, with the location of the field.
    """
    try:
        return cast("M", _read_table(document.path, document.data, cast("Hashable", kind)))
    except ValidationError as error:
        found = error.errors(include_url=False)
        failures = _explain_failures(found, kind, document, what)
        more = max(0, len(found) - EXPLAINED)
    count = f": {len(failures) + more} problems (the first {len(failures)} are shown)" if more else ""
    raise ErrorGroup(f"{document.path} is not a valid {what}{count}", failures)


def _set_places(value: object, path: KeyPath, document: Document) -> None:
    """Set ``where`` of all tables in a new value that is not shared yet."""
    if isinstance(value, TomlTable):
        for name, (key, _) in value.keys().items():
            _set_places(getattr(value, name), (*path, key), document)
        if hasattr(value, "where"):
            object.__setattr__(value, "where", document.locate((*path, value.named_by)))
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            _set_places(inner, (*path, index), document)
    elif isinstance(value, dict):
        for key, inner in value.items():
            _set_places(inner, (*path, key), document)


# Hints for required keys of patch.toml.
_EXAMPLES = {
    "guard": 'add: guard = { macros = ["GGML_USE_HIP"] } for some GPUs, or guard = "none" for every backend',
    "builds": 'add, for example: builds = { first = 11549, why = "tested with this build only" }',
}
EXPLAINED = 100  # limit on the errors shown, because locations and suggestions take time


def _explain_failures(
    failures: Sequence[ErrorDetails], kind: type[TomlTable], document: Document, what: str
) -> tuple[ConfigError, ...]:
    """One error per failure, for the first hundred, in file order."""
    explained: list[ConfigError] = []
    causes = [failure for failure in failures if not _is_consequence(failure)]
    for failure in causes[:EXPLAINED]:
        path = _path_in_file(document.table, failure["loc"]) + _discriminator(failure)
        explained.append(_explain(failure, path, kind, document.locate(path), what))
    # Each member of a union reports the same failure: keep one error per location and message.
    unique = {(error.where, error.message): error for error in explained}
    return tuple(sorted(unique.values(), key=_reading_order))


_QUOTED = re.compile(r"'([^']*)'")
_WIDTH = 80  # longest value that a message shows in full
_UNKNOWN_KEY = frozenset({"unexpected_keyword_argument", "not_in_file"})
_CHOICE_FAILURES = {"literal_error": "expected", "enum": "expected", "union_tag_invalid": "expected_tags"}


def _is_consequence(failure: ErrorDetails) -> bool:
    """Whether an array is reported as too short only because some of its items are invalid."""
    if failure["type"] != "too_short" or not isinstance(failure["input"], list):
        return False
    return len(failure["input"]) >= int(failure.get("ctx", {}).get("min_length", 0))


def _reading_order(error: ConfigError) -> tuple[int, int]:
    return (error.where[0].line or 0, error.where[0].column or 0)


def _explain(
    failure: ErrorDetails, path: KeyPath, table: type[TomlTable], where: Location, what: str
) -> ConfigError:
    name = format_key_path(path)
    kind = failure["type"]
    if kind in _UNKNOWN_KEY:
        known = _keys_at(table, failure["loc"][:-1])
        hint = near_miss(str(path[-1]), known) or f"known keys: {', '.join(sorted(known))}"
        return ConfigError(f"{what}: unknown key '{name}'", code="CONFIG_VALUE", where=where, hint=hint)
    if kind in {"missing", "union_tag_not_found"}:
        return ConfigError(
            f"{what}: '{name}' is missing",
            code="CONFIG_VALUE",
            where=where,
            hint=_EXAMPLES.get(str(path[-1]), f"add '{path[-1]}' here"),
        )
    if kind in _CHOICE_FAILURES:
        expected = str(failure.get("ctx", {}).get(_CHOICE_FAILURES[kind], ""))
        choices = _QUOTED.findall(expected) or [expected]  # numbers come without quotes
        value = failure.get("ctx", {}).get("tag", failure["input"])
        return ConfigError(
            f"{what}: '{name}' is {_show(value)}",
            code="CONFIG_VALUE",
            where=where,
            why=f"it must be one of: {', '.join(choices)}",
            hint=near_miss(str(value), choices),
        )
    if kind == "value_error" and isinstance(failure["input"], Mapping):
        # The message below would only show that the value is a table.
        text = f"{what}: '{name}' is invalid"
        return ConfigError(text, code="CONFIG_VALUE", where=where, why=_reason(failure["msg"]))
    reason = "it should be a table" if kind == "dataclass_type" else _reason(failure["msg"])
    return ConfigError(
        f"{what}: '{name}' is {_show(failure['input'])}", code="CONFIG_VALUE", where=where, why=reason
    )


def format_key_path(path: KeyPath) -> str:
    """A key path as text: ``tuning.wmma[2].nwarps``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the document"


def _discriminator(failure: ErrorDetails) -> KeyPath:
    """The key that selects the member of a union, if the failure is about that key."""
    if not failure["type"].startswith("union_tag"):
        return ()
    return (str(failure.get("ctx", {}).get("discriminator", "")).strip("'"),)


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _reason(message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message.replace("Input should", "it should").replace("Tuple should", "it should")
    return message.replace("valid dictionary", "table").replace("valid tuple", "array")


def _path_in_file(table: Mapping[str, Any], loc: tuple[str | int, ...]) -> KeyPath:
    """Pydantic's location without the names of union members and pydantic's own marks."""
    path: KeyPath = ()
    value: object = table
    for position, part in enumerate(loc):
        is_table = isinstance(value, Mapping)
        if isinstance(value, Mapping):
            inner = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            inner = value[part]
        else:
            inner = None
        if inner is not None:
            value = inner
        elif not is_table or position < len(loc) - 1 or part == "[key]":
            continue
        path = (*path, part)
    return path


def _keys_at(kind: type[TomlTable], loc: tuple[str | int, ...]) -> set[str]:
    """The keys allowed at a location: those of every table type that is possible there."""
    kinds = {kind}
    for part in loc:
        # Indices, keys of free-form tables and names of union members are not field names.
        inner = [hint for each in kinds for key, hint in each.keys().values() if key == part]
        if inner:
            kinds = {table for hint in inner for table in _tables_in(hint)}
    return {key for each in kinds for key, _ in each.keys().values()}


def _tables_in(annotation: object) -> set[type[TomlTable]]:
    if isinstance(annotation, type) and issubclass(annotation, TomlTable):
        return {annotation}
    return {kind for part in get_args(annotation) for kind in _tables_in(part)}


_BLANK_END = re.compile(rb"[^ \t\r\n]|\Z")
_LINE_END = re.compile(rb"\n|\Z")
_KEY_PART = re.compile(rb"""[ \t]*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*""")
# The closing quotes of a multi-line string may be preceded by up to two quotes of its content.
_STRING = re.compile(
    rb'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    rb"|'''(?:[^']|'(?!''))*'{3,5}"
    rb'|"(?:[^"\\\n]|\\.)*"'
    rb"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR_END = re.compile(rb"[,\]}#\n]|\Z")


@lru_cache(maxsize=_FILES_KEPT)
def find_places(data: bytes) -> Mapping[KeyPath, int]:
    """Byte offset of every key path of a valid TOML document; the root ``()`` is at 0.

    A table with several headers or dotted keys has the offset of the first of them.
    """
    return _Scanner(data).scan()


class _Scanner:
    """One pass over a valid TOML document; ``_at`` is the offset of the next unread byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._places: dict[KeyPath, int] = {(): 0}
        self._lengths: dict[KeyPath, int] = {}  # arrays of tables: elements seen so far

    def scan(self) -> dict[KeyPath, int]:
        """See :func:`find_places`."""
        table: KeyPath = ()
        self._skip_blank()
        while self._at < len(self._data):
            if self._looking_at(b"["):
                table = self._header()
            else:
                self._pair(table)
            self._skip_blank()
        return self._places

    def _header(self) -> KeyPath:
        start = self._at
        is_array = self._data.startswith(b"[[", start)
        self._at += 2 if is_array else 1
        parts = self._key()
        self._at += 2 if is_array else 1
        path: KeyPath = ()
        for number, (name, offset) in enumerate(parts, start=1):
            path = (*path, name)
            last = number == len(parts)
            self._places.setdefault(path, start if last else offset)
            if last and is_array:
                self._lengths[path] = self._lengths.get(path, 0) + 1
            if path in self._lengths:
                # A header below an array of tables belongs to the array's last element.
                path = (*path, self._lengths[path] - 1)
                self._places.setdefault(path, start)
        return path

    def _pair(self, table: KeyPath) -> None:
        path = table
        for name, offset in self._key():
            path = (*path, name)
            self._places.setdefault(path, offset)
        self._at += 1  # the equals sign
        self._skip_blank()
        self._value(path)

    def _key(self) -> list[tuple[str, int]]:
        parts: list[tuple[str, int]] = []
        while True:
            found = _KEY_PART.match(self._data, self._at)
            if found is None:
                raise ValueError(f"no TOML key at byte {self._at}")
            parts.append((_key_name(found[1]), found.start(1)))
            self._at = found.end()
            if not self._looking_at(b"."):
                return parts
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        if self._looking_at(b"["):
            for index in self._items(b"]"):
                self._places[(*path, index)] = self._at
                self._value((*path, index))
        elif self._looking_at(b"{"):
            for _ in self._items(b"}"):
                self._pair(path)
        else:
            text = _STRING.match(self._data, self._at)
            self._at = text.end() if text else self._end_of(_SCALAR_END)

    def _items(self, close: bytes) -> Iterator[int]:
        """The index of each item of an array or inline table; the caller must parse the item."""
        self._at += 1
        self._skip_blank()
        number = 0
        while self._at < len(self._data) and not self._looking_at(close):
            yield number
            number += 1
            self._skip_blank()
            self._at += 1 if self._looking_at(b",") else 0
            self._skip_blank()
        self._at += 1

    def _looking_at(self, text: bytes) -> bool:
        return self._data.startswith(text, self._at)

    def _skip_blank(self) -> None:
        self._at = self._end_of(_BLANK_END)
        while self._looking_at(b"#"):
            self._at = self._end_of(_LINE_END)
            self._at = self._end_of(_BLANK_END)

    def _end_of(self, stop: re.Pattern[bytes]) -> int:
        found = stop.search(self._data, self._at)
        return found.start() if found else len(self._data)


def _key_name(part: bytes) -> str:
    if part[:1] == b'"':
        # tomllib decodes the escapes.
        return str(tomllib.loads("k = " + part.decode())["k"])
    return part.strip(b"'").decode() if part[:1] == b"'" else part.decode()

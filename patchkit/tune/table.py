"""Reads and changes upstream's tables of kernel parameters: constexpr functions, one macro call per row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import Entity, parse_scopes
from patchkit.tune.family import Setting

_GUARD = "PATCHKIT_OWN_ROW"
_QUOTED = re.compile(rb'^([ \t]*#[ \t]*include[ \t]+")([^"\n/]+)(")', re.MULTILINE)


def cut_after(source: SourceText, function: str) -> bytes:
    """The bytes of a file up to the end of a function.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the file does not define the function exactly once.
    """
    found = [entity for entity in parse_scopes(source).entities if entity.answers_to(function)]
    found = [entity for entity in found if entity.kind == "function"]
    if len(found) != 1:
        raise ToolchainError(
            f"{source.path} defines {function} {len(found)} times, expected once",
            code="TUNE_KERNEL_UNTUNABLE",
            where=Location(path=source.path),
            hint="use another build, for example: --upstream b11549",
        )
    return source.data[: found[0].span.end] + b"\n"


def tables(path: str, data: bytes, name: str) -> list[Entity]:
    """The functions called ``name`` in a file."""
    return [each for each in parse_scopes(SourceText(path, data)).entities if each.answers_to(name)]


def table_rows(path: str, data: bytes, table: str, macro: str) -> Iterator[tuple[str, ...]]:
    """The arguments of each row of the table, in order.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the table is not defined exactly once.
    """
    body = _table(path, data, table).body
    yield from map(_words, _rows(macro).finditer(data, body.start, body.end))


def with_rows(
    path: str,
    data: bytes,
    table: str,
    macro: str,
    changed: Callable[[tuple[str, ...]], Sequence[str | int] | None],
) -> bytes:
    """The file with changed rows: ``changed`` returns the new arguments of a row, or None to keep it.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the table is not defined exactly once.
    """
    body = _table(path, data, table).body

    def row(found: re.Match[bytes]) -> bytes:
        words = changed(_words(found))
        return found[0] if words is None else f"{macro}({', '.join(map(str, words))})".encode()

    inside = _rows(macro).sub(row, data[body.start : body.end])
    return data[: body.start] + inside + data[body.end :]


def with_own_row(path: str, data: bytes, table: str, macro: str, words: Sequence[str]) -> bytes:
    """The file with an additional first row of the table, active in units that define its macros.

    Raises:
        TUNE_KERNEL_UNTUNABLE: the table is not defined exactly once.
    """
    start = _table(path, data, table).body.start
    row = f"\n#ifdef {_GUARD}\n    {macro}({', '.join(words)});\n#endif\n"
    return data[:start] + row.encode() + data[start:]


def definitions(values: Mapping[str, str | int]) -> list[str]:
    """The lines that activate a unit's own row: ``#define PATCHKIT_<NAME>`` for each value."""
    return [
        f"#define {_GUARD}",
        *(f"#define PATCHKIT_{name.upper()} {value}" for name, value in values.items()),
    ]


def local_includes(data: bytes, siblings: Sequence[str]) -> bytes:
    """The file with all quoted includes taken from two folders up, except those of ``siblings``."""

    def moved(found: re.Match[bytes]) -> bytes:
        name = found[2].decode("ascii", "replace")
        return found[0] if name in siblings else found[1] + f"../../{name}".encode() + found[3]

    return _QUOTED.sub(moved, data)


def numbers(words: Sequence[str]) -> Setting:
    """The arguments as integers; ``true`` and ``false`` are 1 and 0. Raises ValueError for others."""
    return tuple(int({"true": "1", "false": "0"}.get(word, word)) for word in words)


def _rows(macro: str) -> re.Pattern[bytes]:
    return re.compile(rb"\b" + macro.encode() + rb"\s*\(([^()]*)\)")


def _words(row: re.Match[bytes]) -> tuple[str, ...]:
    return tuple(word.strip() for word in row[1].decode("ascii", "replace").split(","))


def _table(path: str, data: bytes, table: str) -> Entity:
    found = tables(path, data, table)
    if len(found) != 1:
        raise ToolchainError(
            f"{path} does not define the table {table} exactly once",
            code="TUNE_KERNEL_UNTUNABLE",
            where=Location(path=path),
            why=f"{len(found)} functions of that name were found",
            hint="use another build; list the pins with: patchkit status",
        )
    return found[0]

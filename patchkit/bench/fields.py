"""One line of llama-bench, read field by field: nothing that it says is taken on trust.

Vocabulary: a *count* is a whole number that fits 64 bits; a *text* can be shown on a terminal as it is.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from patchkit.errors import Location, UsageError

_LARGEST = 2**63 - 1  # llama-bench counts in int64_t and uint64_t; no model, time or size comes near
_LONGEST = 1000  # characters of a text: the longest that are known name every device of a machine


class BenchGarbage(UsageError):
    """A line of llama-bench is no JSON object, or has a value that cannot be."""

    code = "BENCH_GARBAGE"


class BenchFieldMissing(UsageError):
    """A row lacks a field that every known build writes."""

    code = "BENCH_FIELD_MISSING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of one row, and where it stands; ``hint`` is the next command for one who reads of an error.

    Every method raises BenchGarbage for a value that llama-bench does not write, and BenchFieldMissing for
    a field that is not there and has no ``without``.
    """

    table: Mapping[str, object]
    where: Location
    hint: str

    def get(self, name: str) -> object:
        """The value as JSON gave it."""
        if name not in self.table:
            raise BenchFieldMissing(
                f"a row of llama-bench has no field '{name}'",
                where=self.where,
                why=f"it has: {', '.join(sorted(self.table))[:_LONGEST]!r}",
                hint="this build of llama-bench is not known: patchkit/bench/rows.py reads 6628 to 11549",
            )
        return self.table[name]

    def count(self, name: str) -> int:
        """A whole number from 0 on."""
        value = self.integer(name)
        if value < 0:
            raise self.garbage(f"'{name}' is {value}, not a count")
        return value

    def integer(self, name: str) -> int:
        """A whole number."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
            raise self.garbage(f"'{name}' is {reprlib.repr(value)}, not a count")
        return value

    def text(self, name: str, without: str | None = None) -> str:
        """A text without control characters and halves of surrogate pairs."""
        value = self.get(name) if without is None else self.table.get(name, without)
        if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST:
            raise self.garbage(f"'{name}' is {reprlib.repr(value)}, not a text")
        return value

    def word(self, name: str) -> str | None:
        """A setting, whatever its type, as text; None when the build has no such field."""
        value = self.table.get(name)
        if value is None or isinstance(value, str):
            return None if value is None else self.text(name)
        if not isinstance(value, bool):
            return str(self.integer(name))
        return str(value)

    def times(self, name: str) -> tuple[int, ...]:
        """At least one wall time in nanoseconds."""
        values = self.get(name)
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise self.garbage(f"'{name}' is no list of times")
        if not all(type(value) is int and 0 < value <= _LARGEST for value in values):
            raise self.garbage(f"'{name}' has a time that is no positive number of nanoseconds")
        return tuple(cast("Sequence[int]", values))

    def garbage(self, why: str) -> BenchGarbage:
        """The error for this row."""
        return BenchGarbage("a line of llama-bench cannot be read", where=self.where, why=why, hint=self.hint)


def parse_fields(line: str, where: Location, hint: str) -> Fields:
    """The fields of a line. Raises BenchGarbage."""
    nothing = Fields(table={}, where=where, hint=hint)
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise nothing.garbage(f"it is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise nothing.garbage("it is JSON, but no object")
    return Fields(table=cast("dict[str, object]", found), where=where, hint=hint)


def load_mode_of(fields: Fields) -> str:
    """How the model was loaded; up to 10068 builds say only whether by mmap."""
    if fields.table.get("load_mode") is not None:
        return fields.text("load_mode")
    return "mmap" if fields.get("use_mmap") else "none"

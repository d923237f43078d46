"""Conversion of values to the types that JSON has."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from patchkit.base.errors import Location, PatchkitError


@runtime_checkable
class _Model(Protocol):
    """A pydantic model, declared without importing pydantic, which would slow down each ``--help``."""

    def model_dump(self, *, mode: str, by_alias: bool, exclude_unset: bool) -> dict[str, object]: ...


def plain(value: object) -> object:  # noqa: PLR0911 - one for each kind
    """Convert a value to JSON types.

    Dataclasses and mappings become dicts, sequences become lists, and paths, locations and dates become
    strings. A dataclass gives its fields, None included. If its class has ``json_keys``, it gives the
    attributes (fields or properties) in that space-separated string instead: ``name``, or
    ``key=name.other`` for an attribute of an attribute under another key, None if the first is None.
    ``with_`` becomes ``with``. A pydantic model gives the fields that were set. An error gives its code,
    message, locations, reason and hint.
    """
    match value:
        case Path() | Location():
            return str(value)
        case dt.date():
            return value.isoformat()
        case bytes():
            return value.decode("utf-8", "surrogateescape")
        case _Model():
            return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case _ if isinstance(value, PatchkitError) or is_dataclass(value):
            return fields_of(value)
        case Sequence() | AbstractSet() if not isinstance(value, str):
            return [plain(each) for each in value]
        case _:
            return value


def fields_of(value: object) -> dict[str, object]:
    """The dictionary that :func:`plain` gives for a dataclass or an error, for adding keys."""
    if isinstance(value, PatchkitError):
        places = [asdict(place) for place in value.where]
        known = {"code": value.code, "message": value.message, "where": places}
        return known | {"why": value.why, "hint": value.hint}
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is not a dataclass")
    keys: str = getattr(value, "json_keys", None) or " ".join(field.name for field in fields(value))
    found = {}
    for each in keys.split():
        key, _, path = each.rpartition("=")
        found[(key or path).rstrip("_")] = plain(_reach(value, path))
    return found


def _reach(value: object, path: str) -> object:
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value

"""Values as a JSON document takes them."""

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
    """A pydantic model, without the time that importing pydantic takes in each ``--help``."""

    def model_dump(self, *, mode: str, by_alias: bool, exclude_unset: bool) -> dict[str, object]: ...


def plain(value: object) -> object:  # noqa: PLR0911 - one for each kind
    """Dictionaries for dataclasses and mappings, lists for sequences, texts for paths, places and days.

    A dataclass has its fields, None included. One whose class has ``json_keys`` has the attributes that this
    text names instead, fields or properties: ``name``, or ``key=name.other`` for an attribute of an attribute
    under another key, None where the first is None. ``with_`` becomes ``with``. A pydantic model has the
    fields that were filled in. An error has its code, message, places, reason and hint.
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
    """A dataclass or an error as :func:`plain` makes it, to add keys to."""
    if isinstance(value, PatchkitError):
        places = [asdict(place) for place in value.where]
        known = {"code": value.code, "message": value.message, "where": places}
        return known | {"why": value.why, "hint": value.hint}
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is no dataclass")
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

"""Values as a JSON document takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from patchkit.base.errors import Location


@runtime_checkable
class HasJson(Protocol):
    """A value with a form of its own in JSON."""

    def as_json(self) -> dict[str, object]:
        """The form."""
        ...


def plain(value: object) -> object:
    """Dictionaries for dataclasses and mappings, lists for sequences, texts for paths and places.

    What has a method ``as_json`` is what that returns; any other dataclass has its fields.
    """
    if isinstance(value, HasJson):
        return value.as_json()
    if isinstance(value, Path | Location):
        return str(value)
    if is_dataclass(value):
        return fields_of(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Sequence | frozenset) and not isinstance(value, str | bytes):
        return [plain(each) for each in value]
    return value


def fields_of(value: object, *left_out: str) -> dict[str, object]:
    """The fields of a dataclass by name, but those ``left_out``; ``with_`` becomes ``with``."""
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is no dataclass")
    names = [field.name for field in fields(value) if field.name not in left_out]
    return {name.rstrip("_"): plain(getattr(value, name)) for name in names}

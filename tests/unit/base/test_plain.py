"""Results as JSON: the fields of a dataclass, or those in its json_keys."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

import patchkit
from patchkit.base.errors import Location, UsageError
from patchkit.base.plain import fields_of, plain


@dataclass(frozen=True, kw_only=True)
class Inner:
    value: int
    hidden: object = None

    json_keys: ClassVar = "value twice double=twice"

    @property
    def twice(self) -> int:
        return 2 * self.value


@dataclass(frozen=True, kw_only=True)
class Outer:
    with_: tuple[str, ...]
    path: Path
    where: Location
    inner: dict[str, Inner]
    day: dt.date
    text: bytes
    nothing: None = None


class Model(BaseModel):
    given: int
    left: int = 1


def test_a_result_has_its_fields_by_name() -> None:
    outer = Outer(
        with_=("a",),
        path=Path("/x\udcff"),
        where=Location(path="f", line=3),
        inner={"k": Inner(value=1)},
        day=dt.date(2026, 11, 29),
        text=b"\xff",
    )
    shown = plain([outer])
    assert shown == [
        {
            "with": ["a"],
            "path": "/x\udcff",
            "where": "f:3",
            "inner": {"k": {"value": 1, "twice": 2, "double": 2}},
            "day": "2026-11-29",
            "text": "\udcff",
            "nothing": None,
        }
    ]
    assert json.loads(json.dumps(shown)) == shown


@dataclass(frozen=True, kw_only=True)
class Flat:
    inner: Inner | None
    json_keys: ClassVar = "value=inner.value"


def test_an_attribute_of_nothing_is_nothing() -> None:
    assert plain([Flat(inner=Inner(value=1)), Flat(inner=None)]) == [{"value": 1}, {"value": None}]


def test_a_model_has_the_fields_that_were_set() -> None:
    assert plain(Model(given=2)) == {"given": 2}


def test_an_error_has_its_locations_as_fields() -> None:
    error = UsageError("no", code="NO", where=Location(path="f", line=3), hint="do")
    where = [{"path": "f", "line": 3, "column": None, "label": None}]
    assert plain(error) == {"code": "NO", "message": "no", "where": where, "why": None, "hint": "do"}


def test_only_a_dataclass_has_fields() -> None:
    with pytest.raises(TypeError, match="int is not a dataclass"):
        fields_of(1)


def _classes() -> Iterator[type]:
    for found in pkgutil.walk_packages(patchkit.__path__, "patchkit."):
        if not found.name.endswith("__main__"):
            yield from (
                each for each in vars(importlib.import_module(found.name)).values() if isinstance(each, type)
            )


def test_every_key_names_an_attribute_of_its_class() -> None:
    named = {each for each in _classes() if is_dataclass(each) and hasattr(each, "json_keys")}
    assert len(named) > 40
    for each in named:
        known = {field.name for field in fields(each)} | set(dir(each))
        assert {key.rpartition("=")[2].partition(".")[0] for key in each.json_keys.split()} <= known, each

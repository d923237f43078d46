"""Results as JSON: fields by name, and a form of its own where a value has one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchkit.base.errors import Location
from patchkit.base.plain import fields_of, plain


@dataclass(frozen=True, kw_only=True)
class Inner:
    value: int

    def as_json(self) -> dict[str, object]:
        return {"own": self.value}


@dataclass(frozen=True, kw_only=True)
class Outer:
    with_: tuple[str, ...]
    path: Path
    where: Location
    inner: dict[str, Inner]
    nothing: None = None


def test_a_result_is_told_by_its_fields() -> None:
    outer = Outer(
        with_=("a",), path=Path("/x\udcff"), where=Location(path="f", line=3), inner={"k": Inner(value=1)}
    )
    told = plain([outer])
    assert told == [
        {"with": ["a"], "path": "/x\udcff", "where": "f:3", "inner": {"k": {"own": 1}}, "nothing": None}
    ]
    assert json.loads(json.dumps(told)) == told
    assert fields_of(outer, "path", "where", "inner") == {"with": ["a"], "nothing": None}


def test_only_a_dataclass_has_fields() -> None:
    with pytest.raises(TypeError, match="int is no dataclass"):
        fields_of(1)

"""Hostile JSON: what is rejected, with which message, and what is escaped."""

from __future__ import annotations

import json
import math
from typing import Annotated, Literal

import pytest
from pydantic import Field

from patchkit.base.document import (
    FILE_BYTES,
    TEXT_LENGTH,
    EvidenceMalformed,
    EvidenceUnreadable,
    harmless,
    parse_model,
)
from patchkit.prove.gates.base import Count, Many, MeasuredNumber, Number, Record


class Inner(Record):
    text: str


class Shape(Record):
    a: Annotated[Many[Inner], Field(max_length=2)] = ()
    count: Count = 0
    number: Number = 0.0
    measured: MeasuredNumber = 0.0
    word: Literal["y", "z"] = "y"
    flag: bool = True
    either: str | Inner = ""


def _read(value: object) -> Shape:
    return parse_model(json.dumps(value).encode(), Shape, "x.json")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Expecting value"),
        (b'{"a": 1', "Expecting ',' delimiter"),
        (b'{"a": 1} 2', "Extra data"),
        (b"\xff\xfe{}", "is not UTF-8"),
        (b'{"a": 1, "a": 2}', "duplicate key 'a'"),
        (b"[" * 200_000, "nested too deeply"),
        (b"1" * 10_000, "digits"),
        (b" " * (FILE_BYTES + 1), "bytes"),
    ],
    ids=["empty", "truncated", "more", "encoding", "twice", "deep", "digits", "large"],
)
def test_an_invalid_document_is_rejected_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(EvidenceUnreadable) as caught:
        parse_model(data, Shape, "x.json")
    assert why in (caught.value.why or "")
    assert caught.value.where[0].path == "x.json"


def test_a_syntax_error_has_its_line_and_column() -> None:
    with pytest.raises(EvidenceUnreadable) as caught:
        parse_model(b'{\n "a": tru\n}', Shape, "x.json")
    assert str(caught.value.where[0]) == "x.json:2:7"


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        ([], "$", "an object"),
        ({"a": [{"text": "x"}, {}]}, "$.a[1]", "an object with the field 'text'"),
        ({"a": [{"text": "x"}, "b"]}, "$.a[1]", "an object"),
        ({"a": [{"text": "x"}] * 3}, "$.a", "a list of at most 2 items"),
        ({"a": [{"text": 1}]}, "$.a[0].text", "a string"),
        ({"a": {}}, "$.a", "a list"),
        ({"count": True}, "$.count", "an integer"),
        ({"count": 1.5}, "$.count", "an integer"),
        ({"count": -1}, "$.count", "an integer from 0 to 10^15"),
        ({"count": 10**16}, "$.count", "an integer from 0 to 10^15"),
        ({"number": True}, "$.number", "a number"),
        ({"number": 10**400}, "$.number", "a number"),
        ({"number": 1e16}, "$.number", "a finite number of at most 10^15"),
        ({"number": math.inf}, "$.number", "a finite number of at most 10^15"),
        ({"number": math.nan}, "$.number", "a finite number of at most 10^15"),
        ({"measured": "x"}, "$.measured", "a number"),
        ({"word": "x"}, "$.word", "one of: y, z"),
        ({"flag": 1}, "$.flag", "true or false"),
        ({"either": 1}, "$.either", "a string"),
        ({"either": {"text": 1}}, "$.either", "a string"),
        ({"a b": 1}, "$['a b']", "a known field"),
    ],
)
def test_a_value_of_the_wrong_type_is_reported_by_its_path(value: object, path: str, expected: str) -> None:
    with pytest.raises(EvidenceMalformed) as caught:
        _read(value)
    assert caught.value.where[0].label == path
    assert caught.value.message == f"x.json: {path} is not {expected}"
    assert caught.value.why


def test_what_was_measured_may_be_no_number() -> None:
    assert math.isnan(_read({"measured": math.nan}).measured)
    assert _read({"measured": -math.inf}).measured == -math.inf


def test_strings_and_keys_are_escaped() -> None:
    assert _read({"a": [{"text": "a\x1bb"}]}).a[0].text == "a\\x1bb"
    with pytest.raises(EvidenceMalformed) as caught:
        _read({"\u202e": 1})
    assert "\u202e" not in caught.value.message


def test_harmful_characters_are_escaped() -> None:
    text = harmless("a\x1b[2Jb\x00\u202ec\ud800d\ue000\r\n\té\U0001f600")
    assert text == "a\\x1b[2Jb\\x00\\u202ec\\ud800d\ue000\\x0d\n\té\U0001f600"
    assert text.encode("utf-8")


def test_a_huge_text_is_cut_and_says_so() -> None:
    assert harmless("x" * (TEXT_LENGTH + 5)).endswith("x [5 more characters]")
    assert harmless("x" * TEXT_LENGTH) == "x" * TEXT_LENGTH

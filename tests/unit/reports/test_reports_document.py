"""Hostile JSON: what is refused, with which words, and what is made harmless."""

from __future__ import annotations

import json
import math

import pytest

from patchkit.gates.document import (
    FILE_BYTES,
    TEXT_LENGTH,
    EvidenceMalformed,
    EvidenceUnreadable,
    harmless,
    parse_document,
)


def _node(value: object):
    return parse_document(json.dumps(value).encode(), "x.json")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Expecting value"),
        (b'{"a": 1', "Expecting ',' delimiter"),
        (b'{"a": 1} 2', "Extra data"),
        (b"\xff\xfe{}", "is not UTF-8"),
        (b'{"a": 1, "a": 2}', "comes twice"),
        (b"[" * 200_000, "nested too deeply"),
        (b"1" * 10_000, "digits"),
        (b" " * (FILE_BYTES + 1), "bytes"),
    ],
    ids=["empty", "truncated", "more", "encoding", "twice", "deep", "digits", "large"],
)
def test_what_is_no_document_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(EvidenceUnreadable) as caught:
        parse_document(data, "x.json")
    assert why in (caught.value.why or "")
    assert caught.value.where[0].path == "x.json"


def test_a_syntax_error_has_its_line_and_column() -> None:
    with pytest.raises(EvidenceUnreadable) as caught:
        parse_document(b'{\n "a": tru\n}', "x.json")
    assert str(caught.value.where[0]) == "x.json:2:7"


@pytest.mark.parametrize(
    ("value", "read", "path"),
    [
        ({}, lambda node: node.get("a"), "$"),
        ({"a": None}, lambda node: node.get("a"), "$"),
        ([], lambda node: node.find("a"), "$"),
        ({"a": [1, "b"]}, lambda node: node.get("a").texts(), "$.a[0]"),
        ({"a": 1}, lambda node: node.get("a").text(), "$.a"),
        ({"a": True}, lambda node: node.get("a").integer(), "$.a"),
        ({"a": True}, lambda node: node.get("a").number(), "$.a"),
        ({"a": 1.5}, lambda node: node.get("a").integer(), "$.a"),
        ({"a": -1}, lambda node: node.get("a").integer(), "$.a"),
        ({"a": 10**16}, lambda node: node.get("a").integer(), "$.a"),
        ({"a": 10**400}, lambda node: node.get("a").number(), "$.a"),
        ({"a": math.inf}, lambda node: node.get("a").number(), "$.a"),
        ({"a": math.nan}, lambda node: node.get("a").number(), "$.a"),
        ({"a": "x"}, lambda node: node.get("a").word("y", "z"), "$.a"),
        ({"a": 1}, lambda node: node.get("a").flag(), "$.a"),
        ({"a": {}}, lambda node: list(node.get("a").items()), "$.a"),
        ({"a": []}, lambda node: list(node.get("a").fields()), "$.a"),
        ({"a": [1, 2, 3]}, lambda node: node.get("a").pair(), "$.a"),
        ({"a b": 1}, lambda node: node.get("a b").text(), "$['a b']"),
    ],
)
def test_a_value_of_another_kind_is_named_by_its_path(value, read, path: str) -> None:
    with pytest.raises(EvidenceMalformed) as caught:
        read(_node(value))
    assert caught.value.where[0].label == path
    assert caught.value.message.startswith(f"x.json: {path} is not ")
    assert caught.value.why


def test_what_was_measured_may_be_no_number() -> None:
    measured = [one.measured() for one in _node([1, 0.5, math.nan, -math.inf]).items()]
    assert measured[:2] == [1.0, 0.5]
    assert math.isnan(measured[2])
    assert measured[3] == -math.inf
    with pytest.raises(EvidenceMalformed):
        _node(["x"]).items().__next__().measured()


def test_harmful_characters_become_visible() -> None:
    text = harmless("a\x1b[2Jb\x00\u202ec\ud800d\ue000\r\n\té\U0001f600")
    assert text == "a\\x1b[2Jb\\x00\\u202ec\\ud800d\ue000\\x0d\n\té\U0001f600"
    assert text.encode("utf-8")


def test_a_huge_text_is_cut_and_says_so() -> None:
    assert harmless("x" * (TEXT_LENGTH + 5)).endswith("x [5 more characters]")
    assert harmless("x" * TEXT_LENGTH) == "x" * TEXT_LENGTH

"""Selectors as TOML writes them."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from patchkit.carry.series.selector import Selector

READER = TypeAdapter(Selector)


@pytest.mark.parametrize(
    ("table", "selector"),
    [
        ({"tokens": "a"}, Selector(tokens="a")),
        ({"statement": "a", "inside": {"body": True}}, Selector(statement="a", inside=Selector(body=True))),
        (
            {"call_arg": "a", "of": "f", "inside": {"tokens": "x"}},
            Selector(call_arg="a", of="f", inside=Selector(tokens="x")),
        ),
        ({"table_row": "64", "of": "ROW"}, Selector(table_row="64", of="ROW")),
        ({"after": {"before": {"call": "f"}}}, Selector(after=Selector(before=Selector(call="f")))),
        (
            {"between": [{"tokens": "a"}, {"body": True}]},
            Selector(between=(Selector(tokens="a"), Selector(body=True))),
        ),
    ],
)
def test_a_table_is_read_as_its_selector(table, selector):
    assert READER.validate_python(table) == selector


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "exactly one of"),
        ({"of": "f"}, "found none"),
        ({"tokens": "a", "statement": "b"}, "found tokens, statement"),
        ({"call_arg": "a"}, "'call_arg' needs 'of': the name of the called function"),
        ({"table_row": "a"}, "'table_row' needs 'of': the name of the row macro, or {}"),
        ({"tokens": "a", "of": "f"}, "'tokens' takes no 'of'"),
        ({"body": True, "inside": {"tokens": "a"}}, "'body' takes no 'inside'"),
        ({"group": "if A", "inside": {"tokens": "a"}}, "'group' takes no 'inside'"),
        ({"body": False}, "'body' must be true or absent"),
        ({"between": [{"tokens": "a"}]}, "at least 2 items"),
        ({"between": [{"tokens": "a"}] * 3}, "at most 2 items"),
        ({"tokens": ""}, "at least 1 character"),
        ({"tokens": 1}, "valid string"),
        ({"token": "a"}, "Unexpected keyword"),
        ({"before": {}}, "exactly one of"),
    ],
)
def test_what_is_no_selector_is_refused(table, message):
    with pytest.raises(ValidationError) as caught:
        READER.validate_python(table)
    assert message in str(caught.value)

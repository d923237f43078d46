"""Selectors as TOML writes them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from patchkit.series.selector import (
    After,
    Before,
    Between,
    Body,
    Call,
    CallArg,
    Condition,
    GroupLines,
    SelectorModel,
    Statement,
    TableRow,
    TemplateParams,
    Tokens,
)


@pytest.mark.parametrize(
    ("table", "selector"),
    [
        ({"tokens": "a"}, Tokens("a")),
        ({"tokens": "a", "inside": {"statement": "b"}}, Tokens("a", Statement("b"))),
        ({"statement": "a", "inside": {"body": True}}, Statement("a", Body())),
        ({"call": "f", "inside": {"condition": "x"}}, Call("f", Condition("x"))),
        ({"call_arg": "a", "of": "f", "inside": {"tokens": "x"}}, CallArg("a", "f", Tokens("x"))),
        ({"condition": "a", "inside": {"tokens": "x"}}, Condition("a", Tokens("x"))),
        ({"template_params": "int D"}, TemplateParams("int D")),
        ({"group": "ifdef X"}, GroupLines("ifdef X")),
        ({"table_row": "64", "of": "ROW"}, TableRow("64", "ROW")),
        ({"body": True}, Body()),
        ({"before": {"tokens": "a"}}, Before(Tokens("a"))),
        ({"after": {"before": {"call": "f"}}}, After(Before(Call("f")))),
        ({"between": [{"tokens": "a"}, {"body": True}]}, Between(Tokens("a"), Body())),
    ],
)
def test_each_word_builds_its_selector(table, selector):
    assert SelectorModel.model_validate(table).build() == selector


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "exactly one word"),
        ({"of": "f"}, "found none"),
        ({"tokens": "a", "statement": "b"}, "found tokens, statement"),
        ({"call_arg": "a"}, "'call_arg' needs 'of': the name of the called function"),
        ({"table_row": "a"}, "'table_row' needs 'of': the name of the row macro, or {}"),
        ({"tokens": "a", "of": "f"}, "'tokens' takes no 'of'"),
        ({"body": True, "inside": {"tokens": "a"}}, "'body' takes no 'inside'"),
        ({"group": "if A", "inside": {"tokens": "a"}}, "'group' takes no 'inside'"),
        ({"body": False}, "'body' is true or absent"),
        ({"between": [{"tokens": "a"}]}, "at least 2 items"),
        ({"between": [{"tokens": "a"}] * 3}, "at most 2 items"),
        ({"tokens": ""}, "at least 1 character"),
        ({"tokens": 1}, "valid string"),
        ({"token": "a"}, "not permitted"),
        ({"before": {}}, "exactly one word"),
    ],
)
def test_what_is_no_selector_is_refused(table, message):
    with pytest.raises(ValidationError) as caught:
        SelectorModel.model_validate(table)
    assert message in str(caught.value)

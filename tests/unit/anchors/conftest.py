"""Edits as the resolver takes them, made from the words of a patch.toml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from patchkit.base.errors import Location
from patchkit.series.patch import Edit
from patchkit.series.selector import SelectorModel


@pytest.fixture
def edit() -> Callable[..., Edit]:
    """Makes an edit from a selector table and any fields that matter."""

    def make(at: dict[str, Any] | None = None, **fields: Any) -> Edit:
        values: dict[str, Any] = {
            "id": "my-edit",
            "file": "ggml/src/ggml-cuda/t.cu",
            "function": None,
            "parameters": None,
            "at": SelectorModel.model_validate(at).build() if at is not None else None,
            "verb": "change_to",
            "side": "device",
            "count": 1,
            "text": "x",
            "template": None,
            "alias": None,
            "header": None,
            "pairs": (),
            "where": Location(path="patches/0001-p/patch.toml", line=7, column=1),
        }
        return Edit(**(values | fields))

    return make

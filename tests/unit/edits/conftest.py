"""Guards and edits for the tests of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from patchkit.base.errors import Location
from patchkit.edits.guard import Guard, Target
from patchkit.series.patch import Alias, Edit
from patchkit.series.selector import SelectorModel

GFX1151 = Target(arch="gfx1151", macro="__gfx1151__", cc=0x1151)
GFX90A = Target(arch="gfx90a", macro="__gfx90a__", cc=0x90A)


@pytest.fixture
def guard() -> Guard:
    return Guard(macros=("GGML_USE_HIP",), targets=(GFX1151,))


@pytest.fixture
def two_gpus() -> Guard:
    return Guard(macros=("GGML_USE_HIP", "GGML_HIP_ROCWMMA_FATTN"), targets=(GFX1151, GFX90A))


@pytest.fixture
def here() -> Location:
    return Location(path="patches/0001-p/patch.toml", line=7, column=1)


@pytest.fixture
def edit(here: Location) -> Callable[..., Edit]:
    def make(at: dict[str, Any] | None = None, **fields: Any) -> Edit:
        values: dict[str, Any] = {
            "id": "my-edit",
            "file": "t.cu",
            "function": None,
            "parameters": None,
            "at": SelectorModel.model_validate(at).build() if at is not None else None,
            "verb": "change_to",
            "side": "device",
            "count": 1,
            "text": None,
            "template": None,
            "alias": None,
            "header": None,
            "pairs": (),
            "where": here,
        }
        return Edit(**(values | fields))

    return make


@pytest.fixture
def alias(here: Location) -> Alias:
    return Alias(name="MY_STRIDE", file="t.cu", function="f", device="stride", upstream="STRIDE", where=here)

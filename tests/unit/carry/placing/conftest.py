"""Guards and edits for the tests of this package."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import TypeAdapter

from patchkit.base.errors import Location
from patchkit.carry.placing.guard import Guard, GuardedGpu
from patchkit.carry.placing.wmma import Accumulator, WmmaParams, WmmaVariant
from patchkit.carry.series.patch import Alias, Edit
from patchkit.carry.series.selector import Selector

GFX1151 = GuardedGpu(arch="gfx1151", macro="__gfx1151__", cc=0x1151)
GFX90A = GuardedGpu(arch="gfx90a", macro="__gfx90a__", cc=0x90A)


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
    """Makes an edit from a selector table and any fields that matter."""

    def make(at: dict[str, Any] | None = None, **fields: Any) -> Edit:
        verb = fields.get("verb", "insert_after" if {"before", "after"} & set(at or ()) else "change_to")
        verb = verb if at is not None else "add_include"
        needs = {"add_include": {"header": "h.cuh"}, "use_alias": {"alias": "A"}, "remove": {}}
        values: dict[str, Any] = {
            "id": "my-edit",
            "file": "t.cu",
            "at": TypeAdapter(Selector).validate_python(at) if at is not None else None,
            "side": "device",
            "where": here,
        }
        return Edit(**(values | needs.get(verb, {"text": "x"}) | fields | {"verb": verb}))

    return make


@pytest.fixture
def alias(here: Location) -> Alias:
    return Alias(name="MY_STRIDE", file="t.cu", function="f", device="stride", upstream="STRIDE", where=here)


@dataclass(frozen=True)
class Compiled:
    """What the compiler said about one variant with one choice of parameters."""

    variant: WmmaVariant
    params: WmmaParams
    vgprs: int
    spilled: int
    lds: int
    waves: int


@pytest.fixture(scope="session")
def compiled() -> list[Compiled]:
    text = (Path(__file__).parent / "gfx1151_wmma.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [
        Compiled(
            WmmaVariant(int(row["head_size"]), int(row["ncols"]), cast("Accumulator", row["acc"])),
            WmmaParams(int(row["kq_stride"]), int(row["nwarps"])),
            int(row["vgprs"]),
            int(row["spilled"]),
            int(row["lds"]),
            int(row["waves"]),
        )
        for row in rows
    ]

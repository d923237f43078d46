"""What a patch promises of kernels and launches: what a move allows, and what the series promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from patchkit.carry.placing.wmma import KV_PADDING, VARIANTS
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.promises import CasePromise, KernelMove

ROOT = Path(__file__).parents[4]
MOVE = KernelMove(origin="mma", to=("tile",), head_sizes=(256,), why="a test")


@pytest.mark.parametrize(
    ("head_size", "before", "after", "allowed"),
    [
        (256, ["mma"], ["tile"], True),
        (128, ["mma"], ["tile"], False),
        (256, ["mma"], ["vec"], False),
        (256, ["vec"], ["tile"], False),
        (256, ["mma"], ["tile", "vec"], False),
    ],
)
def test_a_move_allows_its_own_families_and_sizes(
    head_size: int, before: list[str], after: list[str], allowed: bool
) -> None:
    assert MOVE.allows(head_size, before, after) is allowed


def test_without_head_sizes_every_one_is_covered() -> None:
    every = KernelMove(origin="wmma", to=("mma", "tile"), head_sizes=(), why="a test")
    assert every.covers(40)
    assert every.covers(576)


@pytest.mark.parametrize(
    "row",
    [
        {"from": "wmma", "to": [], "why": "nowhere"},
        {"from": "rocwmma", "to": ["tile"], "why": "no family of that name"},
        {"from": "wmma", "to": ["tile"], "why": ""},
        {"origin": "wmma", "to": ["tile"], "why": "the word is from"},
    ],
)
def test_what_is_no_move(row: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(KernelMove).validate_python(row)


def test_the_launches_of_the_series_are_promises_of_decode_and_prefill() -> None:
    launches = {patch.id: patch.launches for patch in load_series(ROOT / "patches").patches}
    assert [name for name, each in launches.items() if each.tables] == ["wmma-tile-params"]
    told = {promise.code: promise for each in launches.values() for promise in each.cases}
    prefill, decode = told["LAUNCH_PREFILL_NOT_WMMA"], told["LAUNCH_DECODE_WMMA"]
    assert set(prefill.head_sizes) == {variant.head_size for variant in VARIANTS}
    assert (prefill.kv_multiple_of, prefill.only, decode.max_tokens, decode.never) == (
        *(KV_PADDING, "wmma"),
        *(1, "wmma"),
    )


@pytest.mark.parametrize(
    "row", [{}, {"only": "wmma", "never": "vec"}, {"never": "rocwmma"}, {"code": "LOST"}]
)
def test_what_is_no_promise(row: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(CasePromise).validate_python({"code": "LAUNCH_LOST", "broken": "a test", **row})

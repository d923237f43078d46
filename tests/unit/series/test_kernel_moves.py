"""The ``[[moves]]`` of a patch: what they cover, what they allow, and what is no move."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from patchkit.series.catalogue import load_series
from patchkit.series.promises import KernelMove

ROOT = Path(__file__).parents[3]
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


def test_the_moves_of_the_series() -> None:
    moves = {patch.id: patch.moves for patch in load_series(ROOT / "patches").patches if patch.moves}
    assert {name: [(move.origin, move.head_sizes) for move in each] for name, each in moves.items()} == {
        "rocwmma-route-off": [("wmma", ()), ("vec", ())],
        "fattn-d256-tile": [("mma", (256,))],
    }

"""Diff of lists of lines: natural to read, and without unchanged lines."""

from __future__ import annotations

import random

import pytest

from patchkit.carry.judging.line_diff import Block, compare_lines


def rows(text: str) -> list[bytes]:
    return text.encode().split(b" ")


@pytest.mark.parametrize(
    ("old", "new", "blocks"),
    [
        ("a b c", "a b c", []),
        ("a b c", "a x c", [Block(1, 2, 1, 2)]),
        ("a c", "a b c", [Block(1, 1, 1, 2)]),
        ("a b c", "a c", [Block(1, 2, 1, 1)]),
        # The brace after g is not paired with the one after f.
        ("f { } g { }", "f { } h { } g { }", [Block(3, 3, 3, 6)]),
        # A unique line between two changes is kept.
        ("} } one } }", "} x } one } y }", [Block(1, 1, 1, 2), Block(4, 4, 5, 6)]),
    ],
)
def test_what_differs(old: str, new: str, blocks: list[Block]) -> None:
    assert compare_lines(rows(old), rows(new)) == blocks


def test_the_blocks_turn_one_list_into_the_other() -> None:
    pick = random.Random(42)
    for _ in range(300):
        old = [bytes([pick.choice(b"{}abcdefgh")]) for _ in range(pick.randrange(60))]
        new = [row for row in old if pick.random() > 0.2]
        new = [each for row in new for each in ([row, b"new"] if pick.random() < 0.1 else [row])]
        made, at = [], 0
        for block in compare_lines(old, new):
            assert old[at : block.old] == new[len(made) + 0 : len(made) + block.old - at]
            made += old[at : block.old] + new[block.new : block.new_end]
            at = block.old_end
        assert made + old[at:] == new

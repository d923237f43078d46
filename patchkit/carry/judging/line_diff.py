"""Diff of two lists of lines that pairs related lines (patience diff)."""

from __future__ import annotations

import bisect
import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_SMALL = 400  # lines on both sides together; larger parts without unique lines count as changed


@dataclass(frozen=True, slots=True)
class Block:
    """Lines ``[old, old_end)`` of the first list are replaced by ``[new, new_end)`` of the second one."""

    old: int
    old_end: int
    new: int
    new_end: int

    def is_in(self, lines: range) -> bool:
        """Whether the lines of the first list, or the place of an insertion, are inside of ``lines``."""
        if self.old == self.old_end:
            return lines.start < self.old < lines.stop
        return lines.start <= self.old and self.old_end <= lines.stop


def compare_lines(old: Sequence[bytes], new: Sequence[bytes]) -> list[Block]:
    """The blocks in which two lists of lines differ, in order.

    Lines that occur once in each list are matched first (patience diff, Bram Cohen). This keeps braces and
    empty lines from pairing unrelated code, and the time depends on the changes rather than the length of the
    file.
    """
    blocks: list[Block] = []
    for block in _differences(old, new, Block(0, len(old), 0, len(new))):
        last = blocks[-1] if blocks else None
        if last is not None and (last.old_end, last.new_end) == (block.old, block.new):
            blocks[-1] = Block(last.old, block.old_end, last.new, block.new_end)
        else:
            blocks.append(block)
    return blocks


def _differences(old: Sequence[bytes], new: Sequence[bytes], within: Block) -> Iterator[Block]:
    waiting = [within]
    while waiting:
        part = _trimmed(old, new, waiting.pop())
        if part.old == part.old_end and part.new == part.new_end:
            continue
        if part.old == part.old_end or part.new == part.new_end:
            yield part
            continue
        pairs = _unique_pairs(old, new, part)
        if pairs:
            at, to = part.old, part.new
            parts = []
            for left, right in pairs:
                parts.append(Block(at, left, to, right))
                at, to = left + 1, right + 1
            parts.append(Block(at, part.old_end, to, part.new_end))
            waiting += reversed(parts)
        elif part.old_end - part.old + part.new_end - part.new > _SMALL:
            yield part
        else:
            matcher = difflib.SequenceMatcher(
                a=old[part.old : part.old_end], b=new[part.new : part.new_end], autojunk=False
            )
            for tag, i1, i2, j1, j2 in matcher.get_opcodes():
                if tag != "equal":
                    yield Block(part.old + i1, part.old + i2, part.new + j1, part.new + j2)


def _trimmed(old: Sequence[bytes], new: Sequence[bytes], part: Block) -> Block:
    a, b, c, d = part.old, part.old_end, part.new, part.new_end
    while a < b and c < d and old[a] == new[c]:
        a, c = a + 1, c + 1
    while a < b and c < d and old[b - 1] == new[d - 1]:
        b, d = b - 1, d - 1
    return Block(a, b, c, d)


def _unique_pairs(old: Sequence[bytes], new: Sequence[bytes], part: Block) -> list[tuple[int, int]]:
    """The longest chain, ascending on both sides, of lines that occur once on each side."""
    left = Counter(old[part.old : part.old_end])
    right = Counter(new[part.new : part.new_end])
    where = {new[at]: at for at in range(part.new, part.new_end) if right[new[at]] == 1}
    pairs = [
        (at, where[old[at]])
        for at in range(part.old, part.old_end)
        if left[old[at]] == 1 and old[at] in where
    ]
    ends: list[int] = []  # the smallest end of an ascending chain of each length
    chain: list[int] = []
    before: list[int | None] = []
    for rank, (_, to) in enumerate(pairs):
        length = bisect.bisect_left(ends, to)
        before.append(chain[length - 1] if length else None)
        ends[length : length + 1] = [to]
        chain[length : length + 1] = [rank]
    found: list[tuple[int, int]] = []
    at: int | None = chain[-1] if chain else None
    while at is not None:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]

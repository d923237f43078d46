"""The conflicts of a merge: their markers, and shortening of long ones.

git makes one conflict of everything between two unchanged lines. If upstream has moved half of a file
elsewhere, that is the whole file: 35,062 lines for a patch of one line (src/llama-model.cpp, builds 6900 and
11549). Such a conflict is shortened to what the patch changes, some lines around it, and the most similar
lines of upstream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.carry.judging.line_diff import Block, compare_lines

Labels = tuple[str, str, str]

_LONG = 150
"""A conflict with more lines on one side is shortened. A function of 300 lines is shown as a whole."""
_AROUND = 10  # lines of context around a change of the patch
_APART = 3  # most lines between two differences that are shown as one
_SIGNIFICANT = 3  # words that a line needs to be used for matching


def conflict_markers(labels: Labels) -> tuple[bytes, bytes, bytes]:
    """The marker lines before the patch's side of a conflict, before the old one, and after upstream's."""
    ours, base, theirs = (label.encode() for label in labels)
    return b"<<<<<<< " + ours, b"||||||| " + base, b">>>>>>> " + theirs


@dataclass(slots=True)
class Conflict:
    """One conflict: its three sides, and its rows ``[first, stop)`` in the merged file."""

    first: int
    stop: int
    patch: list[bytes]
    base: list[bytes]
    upstream: list[bytes]


def list_conflicts(rows: Sequence[bytes], labels: Labels) -> Iterator[Conflict]:
    """The conflicts of a merged file, in order."""
    begin, middle, end = conflict_markers(labels)
    side: list[bytes] | None = None
    found: Conflict | None = None
    for at, row in enumerate(rows):
        line = row.removesuffix(b"\r")
        if found is None and line == begin:
            found = Conflict(at, at, [], [], [])
            side = found.patch
        elif found is not None and side is found.patch and line == middle:
            side = found.base
        elif found is not None and side is found.base and line == b"=======":
            side = found.upstream
        elif found is not None and side is found.upstream and line == end:
            found.stop = at + 1
            yield found
            found = None
        elif found is not None and side is not None:
            side.append(row)


Order = Literal["before", "after"]
"""Where the lines that a patch inserts go: before or after those that upstream inserts at the same place."""


def interleave(conflict: Conflict, order: Order) -> list[bytes] | None:
    """The old lines with the insertions of both sides; None if one of them changes old lines."""
    inserted: list[dict[int, list[bytes]]] = []
    for side in (conflict.patch, conflict.upstream):
        blocks = compare_lines(conflict.base, side)
        if any(block.old != block.old_end for block in blocks):
            return None
        inserted.append({block.old: side[block.new : block.new_end] for block in blocks})
    first, second = inserted if order == "before" else reversed(inserted)
    found: list[bytes] = []
    for at in range(len(conflict.base) + 1):
        found += [*first.get(at, ()), *second.get(at, ()), *conflict.base[at : at + 1]]
    return found


def mark_differences(one: bytes, other: bytes, labels: Labels) -> tuple[bytes, int]:
    """Two versions of a file with a conflict, without an old side, for each difference; and their number."""
    rows, more = one.split(b"\n"), other.split(b"\n")
    tail = b"\r" if rows[0].endswith(b"\r") else b""
    begin, middle, end = (mark + tail for mark in conflict_markers(labels))
    blocks = _joined(compare_lines(rows, more), _APART)
    result: list[bytes] = []
    at = 0
    for each in blocks:
        result += [*rows[at : each.old], begin, *rows[each.old : each.old_end], middle]
        result += [b"=======" + tail, *more[each.new : each.new_end], end]
        at = each.old_end
    return b"\n".join([*result, *rows[at:]]), len(blocks)


def shorten_conflicts(merged: bytes, labels: Labels) -> tuple[bytes, int]:
    """The merged file with long conflicts shortened, and the number of conflicts.

    Taking upstream's side of every conflict gives the same file as before.
    """
    rows = merged.split(b"\n")
    result: list[bytes] = []
    at = count = 0
    for each in list_conflicts(rows, labels):
        result += rows[at : each.first]
        at = each.stop
        if max(len(each.patch), len(each.base), len(each.upstream)) <= _LONG:
            result += rows[each.first : each.stop]
            count += 1
            continue
        tail = b"\r" if rows[each.first].endswith(b"\r") else b""
        pieces = list(_short(each, [mark + tail for mark in (*conflict_markers(labels), b"=======")]))
        result += [row for piece in pieces for row in piece]
        count += sum(len(piece) > 0 and piece[0].startswith(b"<<<<<<< ") for piece in pieces)
    return b"\n".join([*result, *rows[at:]]), count


def _short(conflict: Conflict, lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Upstream's side with one conflict per change of the patch; ``lines`` are the marker lines."""
    begin, middle, end, between = lines
    at = 0
    for block in _changes(conflict):
        low, high = max(0, block.old - _AROUND), min(len(conflict.base), block.old_end + _AROUND)
        base = conflict.base[low:high]
        changed = conflict.patch[block.new : block.new_end]
        patch = [*conflict.base[low : block.old], *changed, *conflict.base[block.old_end : high]]
        first, stop = _nearest(base, conflict.upstream, at)
        yield conflict.upstream[at:first]
        yield [begin, *patch, middle, *base, between, *conflict.upstream[first:stop], end]
        at = stop
    yield conflict.upstream[at:]


def _changes(conflict: Conflict) -> list[Block]:
    """The changes of the patch to the old text; changes close to each other are joined."""
    return _joined(compare_lines(conflict.base, conflict.patch), 2 * _AROUND)


def _joined(blocks: Iterable[Block], gap: int) -> list[Block]:
    """The changes, with those joined that have at most ``gap`` lines between them."""
    found: list[Block] = []
    for block in blocks:
        last = found[-1] if found else None
        if last is not None and block.old - last.old_end <= gap:
            found[-1] = Block(last.old, block.old_end, last.new, block.new_end)
        else:
            found.append(block)
    return found


def _nearest(base: Sequence[bytes], upstream: Sequence[bytes], at: int) -> tuple[int, int]:
    """The range of upstream's lines, from ``at`` on, with most of the old lines; empty if it has too few."""
    significant = {row.strip() for row in base if len(re.findall(rb"\w+", row)) >= _SIGNIFICANT}
    hits = [line for line in range(at, len(upstream)) if upstream[line].strip() in significant]
    best: list[int] = []
    most = max(1, len(significant) // 3)
    for line in hits:
        near = [hit for hit in hits if line <= hit < line + len(base) + _AROUND]
        count = len({upstream[hit].strip() for hit in near})
        if count > most:
            best, most = near, count
    return (best[0], best[-1] + 1) if best else (at, at)

"""The conflicts of a merge: their marks, and what of a long one a person needs to see.

git makes one conflict of all that is between two lines that did not change. Where upstream has moved half of
a file elsewhere, that is the file: 35,062 lines for a patch of one line (src/llama-model.cpp, builds 6900 and
11549). Such a conflict is made short: what the patch changes, with some lines around it, and the lines of
upstream that resemble it most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from patchkit.carry.judging.rows import Block, compare_rows

Labels = tuple[str, str, str]

_LONG = 150
"""Lines of one side from which a conflict is made short. A function of 300 lines is shown as a whole."""
_AROUND = 10  # lines around a change of the patch's
_SAYING = 3  # words from which a line tells something


def marks(labels: Labels) -> tuple[bytes, bytes, bytes]:
    """The lines before the patch's side of a conflict, before the old one, and after upstream's."""
    ours, base, theirs = (label.encode() for label in labels)
    return b"<<<<<<< " + ours, b"||||||| " + base, b">>>>>>> " + theirs


@dataclass(slots=True)
class Conflict:
    """One conflict: its three sides, and the rows ``[first, stop)`` of the merged file that it is."""

    first: int
    stop: int
    patch: list[bytes]
    base: list[bytes]
    upstream: list[bytes]


def list_conflicts(rows: Sequence[bytes], labels: Labels) -> Iterator[Conflict]:
    """The conflicts of a merged file, in order."""
    begin, middle, end = marks(labels)
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


def shorten_conflicts(merged: bytes, labels: Labels) -> tuple[bytes, int]:
    """The merged file with its long conflicts made short, and how many there are.

    With upstream's side of each it is what it was.
    """
    rows = merged.split(b"\n")
    made: list[bytes] = []
    at = count = 0
    for each in list_conflicts(rows, labels):
        made += rows[at : each.first]
        at = each.stop
        if max(len(each.patch), len(each.base), len(each.upstream)) <= _LONG:
            made += rows[each.first : each.stop]
            count += 1
            continue
        tail = b"\r" if rows[each.first].endswith(b"\r") else b""
        pieces = list(_short(each, [mark + tail for mark in (*marks(labels), b"=======")]))
        made += [row for piece in pieces for row in piece]
        count += sum(len(piece) > 0 and piece[0].startswith(b"<<<<<<< ") for piece in pieces)
    return b"\n".join([*made, *rows[at:]]), count


def _short(conflict: Conflict, lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Upstream's side with one conflict for each change of the patch's; ``lines`` are the marks."""
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
    """What the patch changes of the old text, those near to one another as one."""
    found: list[Block] = []
    for block in compare_rows(conflict.base, conflict.patch):
        last = found[-1] if found else None
        if last is not None and block.old - last.old_end <= 2 * _AROUND:
            found[-1] = Block(last.old, block.old_end, last.new, block.new_end)
        else:
            found.append(block)
    return found


def _nearest(base: Sequence[bytes], upstream: Sequence[bytes], at: int) -> tuple[int, int]:
    """The lines of upstream, from ``at`` on, that have most of the old ones; no line where few have."""
    telling = {row.strip() for row in base if len(re.findall(rb"\w+", row)) >= _SAYING}
    hits = [line for line in range(at, len(upstream)) if upstream[line].strip() in telling]
    best: list[int] = []
    most = max(1, len(telling) // 3)
    for line in hits:
        near = [hit for hit in hits if line <= hit < line + len(base) + _AROUND]
        count = len({upstream[hit].strip() for hit in near})
        if count > most:
            best, most = near, count
    return (best[0], best[-1] + 1) if best else (at, at)

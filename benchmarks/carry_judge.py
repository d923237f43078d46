"""Whether a patch that a tool has placed is where it should be, told without asking the tool.

Where upstream took the same change later, its tree says what is right. Elsewhere two things are looked at:
every line of upstream that the patch does not touch must be there, as often as before; and the changed lines
must stand below the same definition as in the original, with a neighbour that they had there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from carry_git import Hunk, Store

Verdict = Literal["right", "by function", "disputed", "wrong"]
_WORDS = re.compile(r"[A-Za-z_~][\w:~]*")
_WORD = re.compile(rb"\w+|[^\w\s]")
_DEFINITION = re.compile(rb"[A-Za-z_](?!\w*:)")
_FUNCTION = re.compile(rb"[A-Za-z_].*\w\(")
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """``why`` says what is lost, or which place is another one than in the original, with both file:lines."""

    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """A change ``base..after``, and the same as a tool placed it: ``target..result``.

    ``truth`` is the commit in which upstream itself has the change at the place of the target.
    """

    base: str
    after: str
    target: str
    result: str
    truth: str | None = None


def judge(store: Store, placing: Placing) -> Judged:
    """The verdict on one placing."""
    changed = store.paths(placing.base, placing.after)
    paths = sorted({*changed, *store.paths(placing.target, placing.result)})
    if placing.truth is not None:
        other = store.paths(placing.result, placing.truth)
        if not set(other) & set(paths):
            return Judged(verdict="right")
    lost = _lost(store, placing, paths)
    if lost:
        return Judged(verdict="wrong", why=lost)
    moved = _elsewhere(store, placing)
    if placing.truth is not None and placing.truth == placing.target:
        has = (
            "has every line of it" if _is_there(store, placing, changed) else "took it, and changed it since"
        )
        told = f"put in again, where upstream {has}"
        return Judged(verdict="wrong" if has.startswith("has") else "disputed", why=told)
    if placing.truth is not None:
        told = f"not what upstream made of it{'; ' + moved if moved else ''}"
        return Judged(verdict="disputed", why=told)
    return Judged(verdict="disputed", why=moved) if moved else Judged(verdict="by function")


def _lost(store: Store, placing: Placing, paths: Iterable[str]) -> str:
    """Lines of upstream that the result lacks and the patch does not remove; '' where there are none."""
    wanted = tuple(paths)
    base, after = store.read(placing.base, wanted), store.read(placing.after, wanted)
    target, result = store.read(placing.target, wanted), store.read(placing.result, wanted)
    told = []
    for path in wanted:
        versions = [each.get(path, b"") for each in (base, after, target, result)]
        before, new, upstream, made = (Counter(data.split(b"\n")) for data in versions)
        expected = _plus(upstream, new, before)
        if expected == made:
            continue
        # A line that both sides changed is another line in the result: its words must still be there.
        words = [Counter(_WORD.findall(data)) for data in versions]
        if _plus(words[2], words[1], words[0]) == words[3]:
            continue
        missing, extra = expected - made, made - expected
        told.append(f"{path}: {_lines('lost', missing)}{_lines('added', extra)}".strip())
    return "; ".join(told)


def _is_there(store: Store, placing: Placing, paths: Iterable[str]) -> bool:
    """Whether the target has each line that the change adds, as often as the change leaves it."""
    wanted = tuple(paths)
    base, after = store.read(placing.base, wanted), store.read(placing.after, wanted)
    target = store.read(placing.target, wanted)
    for path in wanted:
        old, new, has = (Counter(each.get(path, b"").split(b"\n")) for each in (base, after, target))
        if any(has[line] < new[line] for line in new - old if line.strip()):
            return False
    return True


def _plus(upstream: Counter[bytes], new: Counter[bytes], before: Counter[bytes]) -> Counter[bytes]:
    sums = Counter(upstream)
    sums.update(new)
    sums.subtract(before)
    return Counter({key: count for key, count in sums.items() if count})


def _lines(what: str, found: Counter[bytes]) -> str:
    if not found:
        return ""
    lines = [line.decode("utf-8", "replace").strip() for line in found]
    return f"{sum(found.values())} lines {what} ({' | '.join(lines[:_SHOWN])}) "


def _elsewhere(store: Store, placing: Placing) -> str:
    """Hunks that stand elsewhere than in the original; '' where there are none."""
    ours, theirs = store.hunks(placing.base, placing.after), store.hunks(placing.target, placing.result)
    told: list[str] = []
    for path in sorted({hunk.path for hunk in (*ours, *theirs)}):
        left = [hunk for hunk in ours if hunk.path == path]
        right = [hunk for hunk in theirs if hunk.path == path]
        if len(left) != len(right):
            if {_name(hunk) for hunk in left} != {_name(hunk) for hunk in right}:
                told.append(
                    f"{path}: {len(left)} hunks became {len(right)}, {_names(left)} -> {_names(right)}"
                )
            continue
        base, target = (store.read(each, [path]).get(path, b"") for each in (placing.base, placing.target))
        for was, now in zip(left, right, strict=True):
            why = _other_place((base, was), (target, now))
            if why:
                told.append(f"{path}:{was.line} -> {path}:{now.line}: {why}")
    return "; ".join(told)


def _other_place(was: tuple[bytes, Hunk], now: tuple[bytes, Hunk]) -> str:
    """Why a hunk is in another place than it was; '' if it is below or directly above the same definition."""
    (above, below), (now_above, now_below) = (
        _neighbours(data.split(b"\n"), hunk) for data, hunk in (was, now)
    )
    if below == now_below and _DEFINITION.match(below):
        return ""
    if was[1].removed == now[1].removed and any(_FUNCTION.match(line) for line in was[1].removed):
        return ""  # the first line of a function is changed, and git names what stands above it
    if _name(was[1]) != _name(now[1]):
        return f"in '{_name(was[1])}', now in '{_name(now[1])}'"
    if above.strip() != now_above.strip() and below.strip() != now_below.strip():
        return "neither neighbour is the one that it had: perhaps a twin in the same function"
    return ""


def _neighbours(lines: list[bytes], hunk: Hunk) -> tuple[bytes, bytes]:
    """The nearest lines with text above and below what a hunk takes the place of."""
    first = hunk.line - 1 if hunk.removed else hunk.line
    last = first + len(hunk.removed)
    above = next((line for line in reversed(lines[:first]) if line.strip()), b"")
    below = next((line for line in lines[last:] if line.strip()), b"")
    return above, below


def _name(hunk: Hunk) -> str:
    """The definition above it: the word in front of its parameters."""
    words = _WORDS.findall(hunk.heading.partition("(")[0])
    return str(words[-1]) if "(" in hunk.heading and words else hunk.heading.strip()


def _names(hunks: Iterable[Hunk]) -> str:
    return ", ".join(f"{_name(hunk)}:{hunk.line}" for hunk in hunks)

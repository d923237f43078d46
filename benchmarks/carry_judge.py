"""Check, without using the tool, whether a patch that the tool applied is in the right place.

If upstream has the same change later, its tree shows what is right. Otherwise two things are checked: every
upstream line that the patch does not touch must still be there, as often as before; and the changed lines
must be below the same definition as in the original, with a neighbour that they had there.
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
    """``why`` names what is lost, or the place that differs from the original, with both file:lines."""

    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """A change ``base..after``, and the same change as a tool applied it: ``target..result``.

    ``truth`` is the upstream commit with which the result is compared, if upstream has the change.
    """

    base: str
    after: str
    target: str
    result: str
    truth: str | None = None


def judge(store: Store, placing: Placing) -> Judged:
    """The verdict on one applied patch."""
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
        is_there = _is_there(store, placing, changed)
        state = "has every line of it" if is_there else "has it and changed it since"
        return Judged(
            verdict="wrong" if is_there else "disputed", why=f"applied again, where upstream {state}"
        )
    if placing.truth is not None:
        why = f"differs from upstream's version of it{'; ' + moved if moved else ''}"
        return Judged(verdict="disputed", why=why)
    return Judged(verdict="disputed", why=moved) if moved else Judged(verdict="by function")


def _lost(store: Store, placing: Placing, paths: Iterable[str]) -> str:
    """Upstream lines that the result lacks and the patch does not remove; empty if there are none."""
    wanted = tuple(paths)
    base, after = store.read(placing.base, wanted), store.read(placing.after, wanted)
    target, result = store.read(placing.target, wanted), store.read(placing.result, wanted)
    reasons = []
    for path in wanted:
        versions = [each.get(path, b"") for each in (base, after, target, result)]
        before, new, upstream, made = (Counter(data.split(b"\n")) for data in versions)
        expected = _plus(upstream, new, before)
        if expected == made:
            continue
        # A line that both sides changed differs from both in the result, but its words must still be there.
        words = [Counter(_WORD.findall(data)) for data in versions]
        if _plus(words[2], words[1], words[0]) == words[3]:
            continue
        missing, extra = expected - made, made - expected
        reasons.append(f"{path}: {_lines('lost', missing)}{_lines('added', extra)}".strip())
    return "; ".join(reasons)


def _is_there(store: Store, placing: Placing, paths: Iterable[str]) -> bool:
    """Whether the target has every added line, as often as the changed file."""
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
    """Hunks that are in another place than in the original; empty if there are none."""
    ours, theirs = store.hunks(placing.base, placing.after), store.hunks(placing.target, placing.result)
    reasons: list[str] = []
    for path in sorted({hunk.path for hunk in (*ours, *theirs)}):
        left = [hunk for hunk in ours if hunk.path == path]
        right = [hunk for hunk in theirs if hunk.path == path]
        if len(left) != len(right):
            if {_name(hunk) for hunk in left} != {_name(hunk) for hunk in right}:
                reasons.append(
                    f"{path}: {len(left)} hunks became {len(right)}, {_names(left)} -> {_names(right)}"
                )
            continue
        base, target = (store.read(each, [path]).get(path, b"") for each in (placing.base, placing.target))
        for was, now in zip(left, right, strict=True):
            why = _other_place((base, was), (target, now))
            if why:
                reasons.append(f"{path}:{was.line} -> {path}:{now.line}: {why}")
    return "; ".join(reasons)


def _other_place(was: tuple[bytes, Hunk], now: tuple[bytes, Hunk]) -> str:
    """Why a hunk is in another place; empty if it is below or directly above the same definition."""
    (above, below), (now_above, now_below) = (
        _neighbours(data.split(b"\n"), hunk) for data, hunk in (was, now)
    )
    if below == now_below and _DEFINITION.match(below):
        return ""
    if was[1].removed == now[1].removed and any(_FUNCTION.match(line) for line in was[1].removed):
        return ""  # the first line of a function changed, and git names the definition above it
    if _name(was[1]) != _name(now[1]):
        return f"in '{_name(was[1])}', now in '{_name(now[1])}'"
    if above.strip() != now_above.strip() and below.strip() != now_below.strip():
        return "neither neighbour is the one that it had: perhaps a twin in the same function"
    return ""


def _neighbours(lines: list[bytes], hunk: Hunk) -> tuple[bytes, bytes]:
    """The nearest non-blank lines above and below a hunk."""
    first = hunk.line - 1 if hunk.removed else hunk.line
    last = first + len(hunk.removed)
    above = next((line for line in reversed(lines[:first]) if line.strip()), b"")
    below = next((line for line in lines[last:] if line.strip()), b"")
    return above, below


def _name(hunk: Hunk) -> str:
    """The name of the definition above: the word before its parameters."""
    words = _WORDS.findall(hunk.heading.partition("(")[0])
    return str(words[-1]) if "(" in hunk.heading and words else hunk.heading.strip()


def _names(hunks: Iterable[Hunk]) -> str:
    return ", ".join(f"{_name(hunk)}:{hunk.line}" for hunk in hunks)

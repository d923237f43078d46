"""Code as a list of short token runs, and how the runs of two versions stand to each other.

Vocabulary: a *unit* is the tokens up to a ``;``, ``{`` or ``}``, or one preprocessor line. Layout and
comments are not in it. Units are what is compared: of a function with thousands of tokens there are a
few hundred, and a person can read them.
"""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from patchkit.cxx.scopes import ScopeMap
from patchkit.source import Span

_ENDS = frozenset({b";", b"{", b"}"})


@dataclass(frozen=True, slots=True)
class Unit:
    """One run; ``span`` runs from its first to its last token."""

    text: str
    span: Span


@dataclass(frozen=True)
class UnitList:
    """The units of a span of one file, in order."""

    units: tuple[Unit, ...]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Their texts."""
        return tuple(unit.text for unit in self.units)

    def at(self, offset: int) -> int | None:
        """Which unit the byte offset is in, or the next one behind it; None behind the last."""
        rank = bisect.bisect_right(self.units, offset, key=lambda unit: unit.span.end - 1)
        return rank if rank < len(self.units) else None


@dataclass(frozen=True, slots=True)
class Alignment:
    """``same`` maps ranks of the old list to the new one; ``changed`` pairs ranges that correspond."""

    same: dict[int, int]
    changed: tuple[tuple[range, range], ...]


def list_units(scopes: ScopeMap, span: Span) -> UnitList:
    """The units of ``span``."""
    pieces: list[tuple[Span, bytes, bool]] = [
        (scopes.code[i].span, scopes.code[i].text, False) for i in scopes.code_in(span)
    ]
    pieces += [
        (line.span, b"# " + line.condition, True) for line in scopes.directives if span.contains(line.span)
    ]
    pieces.sort(key=lambda piece: piece[0].start)
    units: list[Unit] = []
    run: list[tuple[Span, bytes]] = []
    for place, text, is_directive in pieces:
        if is_directive:
            _close(units, run)
            units.append(Unit(text.decode("utf-8", "replace"), place))
            continue
        run.append((place, text))
        if text in _ENDS:
            _close(units, run)
    _close(units, run)
    return UnitList(tuple(units))


def _close(units: list[Unit], run: list[tuple[Span, bytes]]) -> None:
    if run:
        text = b" ".join(text for _, text in run).decode("utf-8", "replace")
        units.append(Unit(text, Span(run[0][0].start, run[-1][0].end)))
        run.clear()


def align(old: Sequence[str], new: Sequence[str]) -> Alignment:
    """Longest common runs first, as :mod:`difflib` finds them."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    same: dict[int, int] = {}
    changed: list[tuple[range, range]] = []
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag == "equal":
            same.update(zip(range(first, last), range(new_first, new_last), strict=True))
        else:
            changed.append((range(first, last), range(new_first, new_last)))
    return Alignment(same, tuple(changed))

"""Turn two versions of a file into edits of tokens, which a guard can separate from upstream's code.

A *region* is one place where the versions differ. Its *window* is the region with as many tokens around it as
make it unique. The selector names all of them, so an edit never covers code that it was not made from. The
window of an insertion includes tokens on both sides of it: in an upstream that already has the insertion, the
window does not match. What tokens do not cover, mainly comments and preprocessor lines, becomes an edit of
whole lines (:mod:`patchkit.carry.lifting.lines`).
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.lexer import lex_pattern
from patchkit.carry.cpp.scopes import Entity, ScopeMap, parse_scopes
from patchkit.carry.judging.line_diff import Block
from patchkit.carry.lifting.draft import Draft, NotLifted, apply_drafts, function_names, selected_spans
from patchkit.carry.lifting.lines import LineLifter
from patchkit.carry.series.selector import Selector

CONTEXT = 4
"""Tokens of context on each side of a region, if available. A single one is unique by chance too often.

With 4, none of the changes cut from upstream's history (tests/upstream/test_round_trip.py) went to a wrong
place on a later tree.
"""


@dataclass(frozen=True, slots=True)
class _Atom:
    """A code token, a preprocessor line, or the end of the file; ``gap`` is the text before it."""

    start: int
    end: int
    gap: bytes
    text: bytes
    position: int | None  # in the file's code tokens

    @property
    def key(self) -> tuple[bytes, bytes, bool]:
        return self.gap, self.text, self.position is None


@dataclass(frozen=True, slots=True)
class _Region:
    """Atoms ``[first, last)`` of the old version are replaced by ``[new_first, new_last)`` of the new one."""

    first: int
    last: int
    new_first: int
    new_last: int


class _Version:
    """One version of a file, as atoms."""

    def __init__(self, path: str, data: bytes) -> None:
        self.source = SourceText(path, data)
        self.scopes = parse_scopes(self.source)
        spans: list[tuple[Span, int | None]] = [(t.span, at) for at, t in enumerate(self.scopes.code)]
        spans += [(line.span, None) for line in self.scopes.directives]
        spans.append((Span(len(data), len(data)), None))
        self.atoms: list[_Atom] = []
        end = 0
        for span, position in sorted(spans, key=lambda each: each[0]):
            gap = data[end : span.start]
            self.atoms.append(_Atom(span.start, span.end, gap, self.source.text(span), position))
            end = span.end

    @cached_property
    def _lines(self) -> list[int]:
        """The line, from 0, on which each atom begins."""
        return [self.source.line_of(atom.start) - 1 for atom in self.atoms]

    def atoms_of(self, first: int, last: int) -> tuple[int, int]:
        """The range of atoms that begin on the lines ``[first, last)``."""
        return bisect.bisect_left(self._lines, first), bisect.bisect_left(self._lines, last)

    def ends_before(self, rank: int) -> int:
        """The end of the atom before ``rank``."""
        return self.atoms[rank - 1].end if rank else 0


def lift_tokens(path: str, old: bytes, new: bytes, others: Sequence[bytes]) -> tuple[Draft, ...]:
    """The edits that turn ``old`` into ``new``, in order. Regions whose windows overlap are joined.

    ``others``: the file in other upstreams, where each window may match at most once.

    Raises NotLifted if the edits cannot give ``new`` byte for byte.
    """
    rest = [parse_scopes(SourceText(path, data)) for data in others]
    before, after = _Version(path, old), _Version(path, new)
    lifter = LineLifter(before.source, after.source)
    blocks = lifter.blocks()
    while True:
        drafts = []
        for block in blocks:
            draft = _window(before, after, _region(before, after, block), rest)
            # A comment at the border of a window belongs to none of its tokens and would be lost.
            right = draft is not None and apply_drafts(old, [draft]) == lifter.with_block(block)
            drafts.append(draft if draft is not None and right else lifter.draft(block))
        met = next(
            (at for at in range(len(drafts) - 1) if drafts[at + 1].span.start < drafts[at].span.end), None
        )
        if met is None:
            break
        one, other = blocks[met : met + 2]
        blocks[met : met + 2] = [Block(one.old, other.old_end, one.new, other.new_end)]
    if apply_drafts(old, drafts) != new:
        raise NotLifted(f"{path}: it mixes different line endings, or the last line has none")
    return tuple(drafts)


def _region(before: _Version, after: _Version, block: Block) -> _Region:
    """A block of lines as atoms, without equal atoms at its start and end."""
    old, new = before.atoms, after.atoms
    first, last = before.atoms_of(block.old, block.old_end)
    new_first, new_last = after.atoms_of(block.new, block.new_end)
    while first < last and new_first < new_last and old[first].key == new[new_first].key:
        first, new_first = first + 1, new_first + 1
    while first < last and new_first < new_last and old[last - 1].key == new[new_last - 1].key:
        last, new_last = last - 1, new_last - 1
    return _Region(first, last, new_first, new_last)


def _window(before: _Version, after: _Version, region: _Region, others: Sequence[ScopeMap]) -> Draft | None:
    """The region with the fewest tokens around it that make it unique; None if there are not enough."""
    old, new = before.atoms, after.atoms
    if any(atom.position is None for atom in old[region.first : region.last]):
        return None
    low, high = _tokens_around(old, region)
    function = _function_around(before, old, low, high, region)
    if function is not None:
        span = function.span
        low = next(rank for rank in range(low, region.first + 1) if old[rank].start >= span.start)
        high = next(
            rank for rank in range(high, region.last - 1, -1) if rank == 0 or old[rank - 1].end <= span.end
        )
    # The whitespace before the region's first atom belongs to the region, unless it does not change.
    stays = (
        region.first < region.last
        and region.new_first < region.new_last
        and old[region.first].gap == new[region.new_first].gap
    )
    inserts = region.first == region.last
    first = max(low, region.first - CONTEXT)
    last = min(high, region.last + CONTEXT)
    if (first == region.first and not stays) or (inserts and last == region.last):
        return None  # with context on one side only, the edit would match again where upstream has the change
    named = function_names(before.scopes, function) if function is not None else (None, None)
    while True:
        draft = _draft(before, after, region, (first, last), named)
        if draft is not None and _is_unique(before.scopes, after.scopes, others, draft):
            return draft
        if (first, last) == (low, high):
            return None
        first, last = max(low, first - 1), min(high, last + 1)


def _tokens_around(atoms: Sequence[_Atom], region: _Region) -> tuple[int, int]:
    """The range of atoms around the region up to the next preprocessor line on each side."""
    low, high = region.first, region.last
    while low > 0 and atoms[low - 1].position is not None:
        low -= 1
    while high < len(atoms) and atoms[high].position is not None:
        high += 1
    return low, high


def _function_around(
    version: _Version, atoms: Sequence[_Atom], low: int, high: int, region: _Region
) -> Entity | None:
    """The innermost function that contains the region with a token on each side."""
    first, last = max(low, region.first - 1), min(high, region.last + 1) - 1
    span = Span(atoms[first].start, max(atoms[first].start, atoms[last].end))
    around = [e for e in version.scopes.entities if e.kind == "function" and e.span.contains(span)]
    return max(around, key=lambda entity: entity.span.start, default=None)


def _draft(
    before: _Version,
    after: _Version,
    region: _Region,
    window: tuple[int, int],
    named: tuple[str | None, str | None] | None,
) -> Draft | None:
    """The edit of a window; None if its tokens cannot be written as a pattern."""
    first, last = window
    span = Span(before.atoms[first].start, before.atoms[last - 1].end)
    new_start = after.atoms[region.new_first - (region.first - first)].start
    new_end = after.ends_before(region.new_last + (last - region.last))
    tokens = [atom.text for atom in before.atoms[first:last]]
    pattern = spelled(before.source.text(span), tokens)
    if pattern is None:
        return None
    function, parameters = named or (None, None)
    return Draft(
        file=before.source.path,
        function=function,
        parameters=parameters,
        selector=Selector(tokens=pattern),
        span=span,
        text=after.source.text(Span(new_start, new_end)),
        line=before.source.line_of(before.atoms[min(region.first, len(before.atoms) - 1)].start),
    )


def spelled(text: bytes, tokens: Sequence[bytes]) -> str | None:
    """Tokens as a pattern, spaced as in the source if that gives the same tokens, else by single spaces."""
    for data in (re.sub(rb"\s+", b" ", text), b" ".join(tokens)):
        try:
            pattern = data.decode("utf-8")
        except UnicodeDecodeError:
            return None
        # A comment among the tokens would be copied, but means nothing in a pattern.
        has_comment = b"//" in data or b"/*" in data
        if [token.text for token in lex_pattern(pattern)] == list(tokens) and not has_comment:
            return pattern
    return None


def _is_unique(source: ScopeMap, after: ScopeMap, others: Sequence[ScopeMap], draft: Draft) -> bool:
    """Whether the selector matches exactly the draft's span, and at most one place in every other upstream.

    It must not match where the change is already made, or an upstream that merged it would get it twice.
    """
    if selected_spans(source, draft) != [draft.span] or selected_spans(after, draft):
        return False
    return all(len(selected_spans(each, draft)) <= 1 for each in others)

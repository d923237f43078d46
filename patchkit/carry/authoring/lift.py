"""From two versions of a file to edits: what differs becomes tokens of a function, and what is put there.

A *region* is one place where the versions differ. Its *window* is the region with tokens around it, as many
as tell the place apart; all of them are named by the selector, so that an edit never covers what it was not
taken from. The tokens on both sides of an insertion are in the window, too: where upstream has it already,
the window is not there any more. What tokens do not reach, lines of the preprocessor above all, becomes a
hunk of text: exact lines, in exactly this version of the function.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.lexer import lex_pattern
from patchkit.carry.cpp.scopes import Entity, ScopeMap, is_code, parse_scopes
from patchkit.carry.placing.pattern import find_runs, parse_pattern
from patchkit.carry.placing.resolve import find_entity
from patchkit.carry.placing.select import select
from patchkit.carry.series.selector import Selector

CONTEXT = 4
"""Tokens kept on each side of a region, where there are as many: one is told apart by chance too often.

With 4, none of the changes cut from upstream's history (tests/upstream/test_round_trip.py) went to a wrong
place on a later tree.
"""
_NOWHERE = Location(path="")


class NotLifted(Exception):
    """Why a change cannot become edits. Internal: turned into an error of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One edit: ``text`` takes the place of ``span``, which ``selector`` finds in ``function``.

    ``digest`` and ``reason`` are those of a hunk of text, and why it is one.
    """

    file: str
    function: str | None
    parameters: str | None
    selector: Selector
    span: Span
    text: bytes
    line: int
    digest: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Atom:
    """A code token, a line of the preprocessor, or the end of the file; ``gap`` is what stands before it."""

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
    """Atoms ``[first, last)`` of the old version stand as ``[new_first, new_last)`` in the new one."""

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
    def rows(self) -> list[tuple[int, int]]:
        """The atoms that begin on one line, ``[first, last)``."""
        found: list[tuple[int, int]] = []
        line = 0
        for rank, atom in enumerate(self.atoms):
            here = self.source.line_of(atom.start)
            if here != line or atom.start == len(self.source.data):
                found.append((rank, rank))
            found[-1] = (found[-1][0], rank + 1)
            line = here
        return found

    def ends_before(self, rank: int) -> int:
        """Where the atom in front of ``rank`` ends."""
        return self.atoms[rank - 1].end if rank else 0

    def lines(self, start: int, end: int) -> Span:
        """The whole lines around some bytes, without the last line break."""
        first = self.source.line_span(self.source.line_of(start)).start
        return Span(first, self.source.line_end(end))


def lift_file(path: str, old: bytes, new: bytes, others: Sequence[bytes]) -> tuple[Draft, ...]:
    """The edits that make ``new`` of ``old``, in order.

    ``others`` are the file on other upstreams: each edit has one place there at most.

    Raises NotLifted: the change cannot be written so that it comes out byte for byte.
    """
    rest = [parse_scopes(SourceText(path, data)) for data in others]
    found = None
    if is_code(path):
        found = _by_structure(_Version(path, old), _Version(path, new), rest)
    if found is None:
        found = _by_lines(SourceText(path, old), SourceText(path, new), rest)
    if found is None or apply_drafts(old, found) != new:
        raise NotLifted(_why_not(path, old, new))
    return found


def apply_drafts(data: bytes, drafts: Sequence[Draft]) -> bytes:
    """The file with the drafts in it."""
    pieces, at = [], 0
    for draft in sorted(drafts, key=lambda each: each.span):
        pieces += [data[at : draft.span.start], draft.text]
        at = draft.span.end
    return b"".join([*pieces, data[at:]])


def _why_not(path: str, old: bytes, new: bytes) -> str:
    if old.endswith(b"\n") != new.endswith(b"\n"):
        return f"{path}: it changes whether the file ends with a line break"
    return f"{path}: neither tokens nor lines tell the place apart from others in the file"


def _by_structure(before: _Version, after: _Version, others: Sequence[ScopeMap]) -> tuple[Draft, ...] | None:
    """A draft for each region, or None; regions whose windows overlap become one."""
    regions = list(_regions(before, after))
    while True:
        drafts = []
        for region in regions:
            draft = _window(before, after, region, others) or _hunk(before, after, region, others)
            if draft is None:
                return None
            drafts.append(draft)
        met = next(
            (at for at in range(len(drafts) - 1) if drafts[at + 1].span.start < drafts[at].span.end), None
        )
        if met is None:
            return tuple(drafts)
        one, other = regions[met : met + 2]
        regions[met : met + 2] = [_Region(one.first, other.last, one.new_first, other.new_last)]


def _regions(before: _Version, after: _Version) -> Iterator[_Region]:
    """What differs, line by line, without the atoms at both ends that stand there in both versions."""
    old, new = before.atoms, after.atoms
    texts = [
        [b"".join(atom.gap + atom.text for atom in version.atoms[first:last]) for first, last in version.rows]
        for version in (before, after)
    ]
    matcher = difflib.SequenceMatcher(None, texts[0], texts[1], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            continue
        first, last = _atoms_of(before.rows, i1, i2)
        new_first, new_last = _atoms_of(after.rows, j1, j2)
        while first < last and new_first < new_last and old[first].key == new[new_first].key:
            first, new_first = first + 1, new_first + 1
        while first < last and new_first < new_last and old[last - 1].key == new[new_last - 1].key:
            last, new_last = last - 1, new_last - 1
        yield _Region(first, last, new_first, new_last)


def _atoms_of(rows: Sequence[tuple[int, int]], first: int, last: int) -> tuple[int, int]:
    start = rows[first][0] if first < len(rows) else rows[-1][1]
    return start, (rows[last - 1][1] if last > first else start)


def _window(before: _Version, after: _Version, region: _Region, others: Sequence[ScopeMap]) -> Draft | None:
    """The region with the fewest tokens around it that tell it apart; None where there are not enough."""
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
    # The blanks in front of the region's first atom are its own, unless they stay as they are.
    stays = (
        region.first < region.last
        and region.new_first < region.new_last
        and old[region.first].gap == new[region.new_first].gap
    )
    inserts = region.first == region.last
    first = max(low, region.first - CONTEXT)
    last = min(high, region.last + CONTEXT)
    if (first == region.first and not stays) or (inserts and last == region.last):
        return None  # what only follows or precedes a place would be put there again where upstream has it
    named = _names(before, function)
    while True:
        draft = _draft(before, after, region, (first, last), named)
        if draft is not None and _is_unique(before.scopes, after.scopes, others, draft):
            return draft
        if (first, last) == (low, high):
            return None
        first, last = max(low, first - 1), min(high, last + 1)


def _tokens_around(atoms: Sequence[_Atom], region: _Region) -> tuple[int, int]:
    """How far tokens go on both sides without a line of the preprocessor."""
    low, high = region.first, region.last
    while low > 0 and atoms[low - 1].position is not None:
        low -= 1
    while high < len(atoms) and atoms[high].position is not None:
        high += 1
    return low, high


def _function_around(
    version: _Version, atoms: Sequence[_Atom], low: int, high: int, region: _Region
) -> Entity | None:
    """The innermost function that the region is inside of, with a token on each side of it."""
    first, last = max(low, region.first - 1), min(high, region.last + 1) - 1
    span = Span(atoms[first].start, max(atoms[first].start, atoms[last].end))
    around = [e for e in version.scopes.entities if e.kind == "function" and e.span.contains(span)]
    return max(around, key=lambda entity: entity.span.start, default=None)


def _names(version: _Version, function: Entity | None) -> tuple[str | None, str | None] | None:
    """Name and parameters by which an edit finds the function; None where it would not."""
    if function is None:
        return None, None
    tokens = version.scopes.code_in(function.parameters)
    parameters = " ".join(version.scopes.code[at].text.decode("utf-8", "replace") for at in tokens)
    for given in (None, parameters):
        try:
            found = find_entity(version.scopes, function.name, given, _NOWHERE)
        except PatchkitError:
            continue
        if found.span == function.span:
            return function.name, given
    return None


def _draft(
    before: _Version,
    after: _Version,
    region: _Region,
    window: tuple[int, int],
    named: tuple[str | None, str | None] | None,
) -> Draft | None:
    """The edit of a window; None where the tokens would not be read as they are."""
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
    """Tokens as a pattern: as they stand on their line where that reads the same, else one blank between."""
    for data in (re.sub(rb"\s+", b" ", text), b" ".join(tokens)):
        try:
            pattern = data.decode("utf-8")
        except UnicodeDecodeError:
            return None
        if [token.text for token in lex_pattern(pattern)] == list(tokens) and not _hides(data):
            return pattern
    return None


def _hides(data: bytes) -> bool:
    """Whether a comment stands among the tokens: it would be copied, and means nothing in a pattern."""
    return b"//" in data or b"/*" in data


def _is_unique(source: ScopeMap, after: ScopeMap, others: Sequence[ScopeMap], draft: Draft) -> bool:
    """Whether the selector finds exactly the draft's span, and on no other upstream more than one place.

    Nor any where the change is there already, or it would be made twice on an upstream that took it; a digest
    tells that apart by itself.
    """
    if _places(source, draft) != [draft.span] or (draft.digest is None and _places(after, draft)):
        return False
    return all(len(_places(each, draft) or ()) <= 1 for each in others)


def _places(scopes: ScopeMap, draft: Draft) -> list[Span] | None:
    """The spans of the selector; None where the function is not there, or not alone."""
    entity = None
    if draft.function is not None:
        try:
            entity = find_entity(scopes, draft.function, draft.parameters, _NOWHERE)
        except PatchkitError:
            return None
    if draft.selector.tokens is None:
        return select(scopes, entity, draft.selector)
    domain = scopes.code_in(entity.span) if entity is not None else range(len(scopes.code))
    return [
        Span(scopes.code[first].span.start, scopes.code[last].span.end)
        for first, last in find_runs(scopes, parse_pattern(draft.selector.tokens), domain)
    ]


def _hunk(before: _Version, after: _Version, region: _Region, others: Sequence[ScopeMap]) -> Draft | None:
    """The whole lines of a region, in exactly this version of its function."""
    old = before.lines(before.ends_before(region.first), before.ends_before(region.last))
    new = after.lines(after.ends_before(region.new_first), after.ends_before(region.new_last))
    entities = [e for e in before.scopes.entities if e.kind != "record" and e.span.contains(old)]
    function = max(entities, key=lambda entity: entity.span.start, default=None)
    named = _names(before, function)
    if named is None:
        return None
    draft = Draft(
        file=before.source.path,
        function=named[0],
        parameters=named[1],
        selector=Selector(body=True),
        span=old,
        text=after.source.text(new),
        line=before.source.line_of(old.start),
        digest=before.scopes.digest(function.span) if function is not None else None,
        reason="a line of the preprocessor, or a comment beside one, is no token of the function",
    )
    around = function.span if function is not None else Span(0, len(before.source.data))
    return _grown((before.scopes, after.scopes, others), draft, around)


def _by_lines(old: SourceText, new: SourceText, others: Sequence[ScopeMap]) -> tuple[Draft, ...] | None:
    """A draft for each run of lines that differ, with the line before and behind it."""
    rows = [source.data.split(b"\n") for source in (old, new)]
    trees = (parse_scopes(old), parse_scopes(new), others)
    matcher = difflib.SequenceMatcher(None, rows[0], rows[1], autojunk=False)
    blocks = [[i1, i2, j1, j2] for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"]
    while True:
        drafts = []
        for i1, i2, j1, j2 in blocks:
            above, below = int(i1 > 0), int(i2 < len(rows[0]) - 1)
            first, last = i1 - above, i2 + below
            if first == last:
                return None
            start, end = old.line_span(first + 1).start, old.line_end(old.line_span(last).start)
            draft = Draft(
                file=old.path,
                function=None,
                parameters=None,
                selector=Selector(body=True),
                span=Span(start, end),
                text=b"\n".join(rows[1][j1 - above : j2 + below]).removesuffix(b"\r"),
                line=i1 + 1,
                reason="it is placed by lines: the file is not C++, or its tokens do not align",
            )
            grown = _grown(trees, draft, Span(0, len(old.data)))
            if grown is None:
                return None
            drafts.append(grown)
        met = next(
            (at for at in range(len(drafts) - 1) if drafts[at + 1].span.start < drafts[at].span.end), None
        )
        if met is None:
            return tuple(drafts)
        blocks[met : met + 2] = [[*blocks[met][:1], blocks[met + 1][1], blocks[met][2], blocks[met + 1][3]]]


def _grown(trees: tuple[ScopeMap, ScopeMap, Sequence[ScopeMap]], draft: Draft, within: Span) -> Draft | None:
    """The draft with as many lines more, above and below in turn, as its lines need to be alone."""
    source, above, blocked = trees[0].source, True, 0
    while blocked < 2:  # noqa: PLR2004 - neither above nor below
        wanted = source.text(draft.span).replace(b"\r\n", b"\n")
        try:
            grown = replace(draft, selector=Selector(lines=wanted.decode("utf-8") + "\n"))
        except UnicodeDecodeError:
            return None
        if wanted.strip() and _is_unique(*trees, grown):
            return grown
        more = _line_more(source, draft.span, within, above=above)
        if more is None:
            blocked += 1
        else:
            blocked = 0
            text = (
                source.data[more.start : draft.span.start] + draft.text
                if above
                else draft.text + source.data[draft.span.end : more.end]
            )
            draft = replace(draft, span=more, text=text)
        above = not above
    return None


def _line_more(source: SourceText, span: Span, within: Span, *, above: bool) -> Span | None:
    if above:
        if span.start == 0:
            return None
        start = source.line_span(source.line_of(span.start - 1)).start
        return Span(start, span.end) if start >= within.start else None
    if span.end >= len(source.data) - 1:
        return None
    end = source.line_end(source.line_span(source.line_of(span.end) + 1).start)
    return Span(span.start, end) if end <= max(within.end, span.end) else None

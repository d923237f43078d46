"""Compare a function on two upstreams by statements: what changed, and where the places of an edit moved."""

from __future__ import annotations

import bisect
import difflib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

from patchkit.base.source import Span
from patchkit.carry.cpp.directives import Directive
from patchkit.carry.cpp.lexer import Token
from patchkit.carry.cpp.scopes import Entity, ScopeMap
from patchkit.carry.judging.classes import Drift, Move
from patchkit.carry.placing.resolve import Anchor

_ENDS = frozenset({b";", b"{", b"}"})
Function = tuple[ScopeMap, Entity]
_MOST_STATEMENTS = 12  # shown per side; the digests cover all statements


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, the head of a block, or a preprocessor line.

    ``text``: its tokens, to compare. ``shown``: as it is written, on one line and without comments.
    """

    text: str
    span: Span
    shown: str


@dataclass(frozen=True)
class StatementList:
    """The statements of a span of one file, in order."""

    statements: tuple[Statement, ...]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The text of each statement."""
        return tuple(statement.text for statement in self.statements)

    def at(self, offset: int) -> int | None:
        """Rank of the statement at the byte offset, or of the next one; None after the last statement."""
        rank = bisect.bisect_right(self.statements, offset, key=lambda statement: statement.span.end - 1)
        return rank if rank < len(self.statements) else None


@dataclass(frozen=True, slots=True)
class Alignment:
    """``same`` maps ranks of the old list to the new one; ``changed`` pairs ranges that correspond."""

    same: dict[int, int]
    changed: tuple[tuple[range, range], ...]


def list_statements(scopes: ScopeMap, span: Span, without: Sequence[Span] = ()) -> StatementList:
    """The statements of ``span``. ``without``: parts of it to skip, in order; a statement ends at each."""
    starts = [skipped.start for skipped in without]
    pieces: list[tuple[int, Token | Directive]] = []
    start = span.start
    for stop, after in (*((each.start, each.end) for each in without), (span.end, span.end)):
        if start < stop:
            pieces += [(token.start, token) for token in scopes.tokens_in(Span(start, stop))]
        start = max(start, after)
    for line in scopes.directives:
        rank = bisect.bisect_right(starts, line.span.start) - 1
        if span.contains(line.span) and (rank < 0 or without[rank].end <= line.span.start):
            pieces.append((line.span.start, line))
    pieces.sort(key=lambda piece: piece[0])
    statements: list[Statement] = []
    run: list[Token] = []
    for place, piece in pieces:
        if (
            run
            and starts
            and bisect.bisect_right(starts, run[-1].start) != bisect.bisect_right(starts, place)
        ):
            _close(statements, run)
        if isinstance(piece, Directive):
            _close(statements, run)
            written = b" ".join(scopes.source.text(piece.span).replace(b"\\\n", b" ").split())
            statements.append(Statement(_decoded(b"# " + piece.condition), piece.span, _decoded(written)))
            continue
        run.append(piece)
        if piece.text in _ENDS:
            _close(statements, run)
    _close(statements, run)
    return StatementList(tuple(statements))


def _close(statements: list[Statement], run: list[Token]) -> None:
    if run:
        statements.append(Statement(_joined(run), Span(run[0].start, run[-1].end), _written(run)))
        run.clear()


def _joined(tokens: Sequence[Token]) -> str:
    return _decoded(b" ".join([token.text for token in tokens]))


def _written(tokens: Sequence[Token]) -> str:
    """Tokens with a space wherever their file has space, or a comment, between them."""
    pieces: list[bytes] = []
    end = tokens[0].start if tokens else 0
    for token in tokens:
        if token.start > end:
            pieces.append(b" ")
        pieces.append(token.text)
        end = token.end
    return _decoded(b"".join(pieces))


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def align(old: Sequence[str], new: Sequence[str]) -> Alignment:
    """Align two lists of statements with :mod:`difflib`, longest common runs first."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    same: dict[int, int] = {}
    changed: list[tuple[range, range]] = []
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag == "equal":
            same.update(zip(range(first, last), range(new_first, new_last), strict=True))
        else:
            changed.append((range(first, last), range(new_first, new_last)))
    return Alignment(same, tuple(changed))


def nameless_digest(scopes: ScopeMap, entity: Entity) -> str:
    """Digest of a function's statements that does not depend on the function's own name."""
    last = entity.name.rpartition("::")[2]
    state = hashlib.sha256()
    for text in list_statements(scopes, entity.span).texts:
        words = ("@" if word == last else word for word in text.split(" "))
        state.update(" ".join(words).encode() + b"\0")
    return state.hexdigest()


# resolve judges the series again for each patch in conflict, with the same versions of upstream's functions.
@lru_cache(maxsize=256)
def find_drift(old: Function, new: Function) -> Drift | None:
    """What changed between upstream's two versions of a function; None if nothing did."""
    (old_scopes, old_entity), (new_scopes, new_entity) = old, new
    if old_entity.digest == new_entity.digest:
        return None
    if old_entity.name != new_entity.name:
        digests = nameless_digest(old_scopes, old_entity), nameless_digest(new_scopes, new_entity)
        if digests[0] == digests[1]:
            return None
    before = list_statements(old_scopes, old_entity.span)
    after = list_statements(new_scopes, new_entity.span)
    removed: list[str] = []
    added: list[str] = []
    for first, second in align(before.texts, after.texts).changed:
        removed += (each.shown for each in before.statements[first.start : first.stop])
        added += (each.shown for each in after.statements[second.start : second.stop])
    return Drift(
        file=new_scopes.source.path,
        entity=new_entity.name,
        before=old_entity.digest,
        after=new_entity.digest,
        removed=_first(removed),
        added=_first(added),
    )


def _first(statements: list[str]) -> tuple[str, ...]:
    if len(statements) <= _MOST_STATEMENTS:
        return tuple(statements)
    return (*statements[: _MOST_STATEMENTS - 1], f"... and {len(statements) - _MOST_STATEMENTS + 1} more")


_MOST_CHARACTERS = 160  # characters of a statement

_How = Literal["nesting", "order", "statement"]


def find_moves(old: tuple[ScopeMap, Anchor], new: tuple[ScopeMap, Anchor]) -> Iterator[Move]:
    """The moves of one edit, at most one per place.

    Both anchors must be of the same edit and have the same number of places.
    """
    (old_scopes, before), (new_scopes, after) = old, new
    if before.entity is None or after.entity is None:
        return
    left = list_statements(old_scopes, before.entity.span)
    right = list_statements(new_scopes, after.entity.span)
    aligned = align(left.texts, right.texts)
    for place, target in zip(before.spans, after.spans, strict=False):
        found = _compare((old_scopes, before, place, left), (new_scopes, after, target, right), aligned)
        if found is not None:
            how, detail = found
            yield Move(
                edit=before.edit.id,
                how=how,
                before=old_scopes.source.locate(place.start),
                after=new_scopes.source.locate(target.start),
                detail=detail,
            )


_Where = tuple[ScopeMap, Anchor, Span, StatementList]


def _compare(old: _Where, new: _Where, aligned: Alignment) -> tuple[_How, str] | None:
    around, now_around = _surroundings(*old[:3]), _surroundings(*new[:3])
    rank, now_rank = old[3].at(old[2].start), new[3].at(new[2].start)
    if rank is None or now_rank is None:
        return None
    if aligned.same.get(rank) == now_rank and around == now_around:
        return None
    if around != now_around:
        left_blocks = [head for head in around if head not in now_around]
        entered = [head for head in now_around if head not in around]
        named = (("no longer inside", left_blocks), ("now inside", entered))
        parts = [f"{how} {_listed(heads)}" for how, heads in named if heads]
        return "nesting", ", ".join(parts) or "the blocks around it have another order"
    if aligned.same.get(rank) is not None or not _corresponds(aligned, rank, now_rank):
        return "order", f"was statement {rank + 1} of its function, now {now_rank + 1}"
    was, now = old[3].statements[rank].shown, new[3].statements[now_rank].shown
    return "statement", f"its statement was '{_cut(was)}', now '{_cut(now)}'"


def _corresponds(aligned: Alignment, rank: int, now: int) -> bool:
    return any(rank in left and now in right for left, right in aligned.changed)


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of a block: its tokens, to compare, and as it is written."""

    text: str
    shown: str = field(compare=False)


def _surroundings(scopes: ScopeMap, anchor: Anchor, span: Span) -> tuple[_Head, ...]:
    """Heads of the blocks and ``#if`` branches around a place, outermost first, inside its function."""
    if anchor.entity is None:
        return ()
    whole = anchor.entity.span
    heads: list[tuple[int, _Head]] = []
    position: int | None = scopes.first_from(span.start)
    if position is not None and position < len(scopes.code):
        position = scopes.parents[position]
        while position is not None and scopes.code[position].start >= whole.start:
            brace = scopes.code[position]
            if brace.text == b"{" and brace.end != anchor.entity.body.start:
                heads.append((brace.start, _head(scopes, position, whole)))
            position = scopes.parents[position]
    for group in scopes.groups:
        if whole.contains(group.span):
            heads += [
                (branch.directive.span.start, _branch_head(scopes, branch.directive))
                for branch in group.branches
                if branch.body.contains(span)
            ]
    return tuple(head for _, head in sorted(heads, key=lambda each: each[0]))


def _branch_head(scopes: ScopeMap, line: Directive) -> _Head:
    written = b" ".join(scopes.source.text(line.span).replace(b"\\\n", b" ").split())
    return _Head("#" + _decoded(line.condition), _decoded(written))


def _head(scopes: ScopeMap, brace: int, whole: Span) -> _Head:
    words: list[Token] = []
    position = brace - 1
    while position >= 0 and scopes.code[position].start >= whole.start:
        token = scopes.code[position]
        if token.text in _ENDS and not _inside_brackets(scopes, position, brace):
            break
        words.append(token)
        position -= 1
    words.reverse()
    return _Head(_joined(words), _written(words))


def _inside_brackets(scopes: ScopeMap, position: int, brace: int) -> bool:
    """Whether a ``;`` is part of the block's head, as in ``for (a; b; c) {``."""
    return scopes.parents[position] != scopes.parents[brace]


def _listed(heads: Sequence[_Head]) -> str:
    return ", ".join(f"'{_cut(head.shown)}'" for head in heads)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."

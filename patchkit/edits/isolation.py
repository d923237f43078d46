"""The first isolation check, on tokens: with the guard false, a file reads as it did before.

Vocabulary: *outside the guard* is what the preprocessor keeps when the generated conditions are
false and aliases read as upstream's tokens. This needs no compiler and no headers; the full
comparison of preprocessed units for every configuration is a gate of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from patchkit.cxx.directives import Group
from patchkit.cxx.lexer import lex_pattern
from patchkit.cxx.scopes import ScopeMap
from patchkit.edits.guard import Guard
from patchkit.errors import AnchorError, Location
from patchkit.source import Span


class GuardLeak(AnchorError):
    """Tokens differ although the guard is false."""

    code = "GUARD_LEAK"


_DIGRAPH = b"%:"


def require_isolated(
    before: ScopeMap, after: ScopeMap, guard: Guard, aliases: Mapping[str, str], where: Location
) -> None:
    """Compare the tokens outside the guard with those before; raises GuardLeak at the first difference."""
    conditions = frozenset({_condition(f"if {guard.device}"), _condition(f"if {guard.region}")})
    negated = frozenset({_condition(f"if !({guard.device})"), _condition(f"if !({guard.region})")})
    names = {name.encode(): _texts(upstream) for name, upstream in aliases.items()}
    # An earlier patch of the series may have put regions of the same guard into this file.
    old = list(_stream(before, conditions, negated, {}))
    new = list(_stream(after, conditions, negated, names))
    for (_, left), (offset, right) in zip(old, new, strict=False):
        if left != right:
            raise _leak(after, where, offset, left, right)
    # The digraph of '#' writes directives that the structure above reads as plain tokens.
    known = sum(token.text == _DIGRAPH for token in before.code)
    added = [token for token in after.code if token.text == _DIGRAPH]
    if len(added) > known:
        raise _leak(after, where, added[-1].span.start, b"(nothing)", _DIGRAPH)
    if len(old) != len(new):
        offset = new[len(old)][0] if len(new) > len(old) else len(after.source.data)
        raise _leak(after, where, offset, b"(end)", b"(end)")


def _leak(after: ScopeMap, where: Location, offset: int, left: bytes, right: bytes) -> GuardLeak:
    return GuardLeak(
        f"{after.source.path} differs outside the guard: '{_show(left)}' became '{_show(right)}'",
        where=[after.source.locate(offset), where],
        why="rendered text must not open or close an #if, and every change must be under the guard",
        hint="patchkit plan --show-text prints the rendered edits",
    )


def _show(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _texts(pattern: str) -> tuple[bytes, ...]:
    return tuple(token.text for token in lex_pattern(pattern))


def _condition(text: str) -> bytes:
    return b" ".join(_texts(text))


def _is_generated(group: Group, conditions: frozenset[bytes], negated: frozenset[bytes]) -> bool:
    """Whether a group has one of the three shapes patchkit writes; rendered text may have added branches."""
    shape = [branch.directive.condition for branch in group.branches]
    if shape[0] in negated:
        return len(shape) == 1
    return shape[0] in conditions and shape[1:] in ([], [b"else"])


def _stream(
    scopes: ScopeMap,
    conditions: frozenset[bytes],
    negated: frozenset[bytes],
    aliases: Mapping[bytes, Sequence[bytes]],
) -> Iterator[tuple[int, bytes]]:
    """Code tokens and directives in order, without dropped branches and generated directives."""
    dropped: list[Span] = []
    lines: set[int] = set()
    for group in scopes.groups:
        first = group.branches[0]
        if not _is_generated(group, conditions, negated):
            continue
        lines |= {branch.directive.span.start for branch in group.branches} | {group.endif.span.start}
        if first.directive.condition in conditions:
            dropped.append(first.body)
    items: list[tuple[Span, tuple[bytes, ...]]] = []
    for line in scopes.directives:
        if line.span.start not in lines:
            items.append((line.span, (b"#" + line.condition,)))  # noqa: PERF401 - the element type differs below
    items += [(token.span, tuple(aliases.get(token.text, (token.text,)))) for token in scopes.code]
    for span, texts in sorted(items):
        if any(drop.contains(span) for drop in dropped):
            continue
        if texts[0].startswith(b"#define ") and texts[0].split(b" ")[1] in aliases:
            continue
        for text in texts:
            yield span.start, text

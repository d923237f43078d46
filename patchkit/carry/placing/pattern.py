"""Match token patterns; layout and comments are ignored, everything else must be equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from patchkit.carry.cpp.lexer import lex_pattern
from patchkit.carry.cpp.scopes import ScopeMap

_WILDCARD = b"..."
_MOST_SIMILAR = 3  # runs listed in one message
Run = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The token texts of a pattern; ``...`` is the wildcard."""

    texts: tuple[bytes, ...]

    def __str__(self) -> str:
        return b" ".join(self.texts).decode("utf-8", "replace")


@cache
def parse_pattern(text: str) -> Pattern:
    """Lex a pattern like source code; wildcards at either end or in a row are dropped."""
    texts: list[bytes] = []
    for token in lex_pattern(text):
        if token.text != _WILDCARD or (texts and texts[-1] != _WILDCARD):
            texts.append(token.text)
    while texts and texts[-1] == _WILDCARD:
        texts.pop()
    return Pattern(tuple(texts))


def find_runs(scopes: ScopeMap, pattern: Pattern, positions: range) -> Iterator[Run]:
    """The shortest match for each start within ``positions``, in order.

    Matches may overlap: in ``f(f(x))`` the pattern ``f(...)`` matches twice, and choosing the outer one
    because it comes first would be a guess.
    """
    if not pattern.texts:
        return
    for start in positions:
        if scopes.code[start].text == pattern.texts[0]:
            end = _match(scopes, pattern.texts, 0, start, positions.stop)
            if end is not None:
                yield start, end - 1


def matches_exactly(scopes: ScopeMap, pattern: Pattern, positions: range) -> bool:
    """Whether the pattern matches all of ``positions``."""
    return _match(scopes, pattern.texts, 0, positions.start, positions.stop, whole=True) is not None


def _match(
    scopes: ScopeMap, texts: Sequence[bytes], index: int, position: int, stop: int, *, whole: bool = False
) -> int | None:
    """The position after a match of ``texts[index:]`` that starts at ``position``, or None.

    ``whole``: the match must reach ``stop``.
    """
    code = scopes.code
    while index < len(texts):
        if texts[index] == _WILDCARD:
            return _match_wildcard(scopes, texts, index + 1, position, stop, whole=whole)
        if position >= stop or code[position].text != texts[index]:
            return None
        index += 1
        position += 1
    return position if not whole or position == stop else None


def _match_wildcard(
    scopes: ScopeMap, texts: Sequence[bytes], index: int, position: int, stop: int, *, whole: bool
) -> int | None:
    while position <= stop:
        end = _match(scopes, texts, index, position, stop, whole=whole)
        if end is not None or position == stop:
            return end
        if scopes.code[position].text in (b")", b"]", b"}", b";"):
            return None
        position = max(position, scopes.match.get(position, position)) + 1
    return None


def similar_runs(scopes: ScopeMap, pattern: Pattern, positions: range) -> list[Run]:
    """The runs most similar to ``pattern``, for messages only: at least half of the tokens are equal."""
    wanted = [text for text in pattern.texts if text != _WILDCARD]
    width = len(wanted)
    scored: list[tuple[int, int]] = []
    for start in range(positions.start, positions.stop - width + 1):
        window = [scopes.code[i].text for i in range(start, start + width)]
        hits = sum(left == right for left, right in zip(window, wanted, strict=True))
        if 2 * hits >= width and hits > 0:
            scored.append((-hits, start))
    best: list[Run] = []
    for _, start in sorted(scored):
        run = (start, start + width - 1)
        if all(run[1] < other[0] or other[1] < run[0] for other in best):
            best.append(run)
        if len(best) == _MOST_SIMILAR:
            break
    return best

"""What the tokens before a ``{`` at declaration level declare: a function, record, namespace or a value.

Vocabulary: *top-level* tokens of a header are those outside brackets and outside the angle brackets
of a leading ``template<...>``. A *candidate* is a name in front of a parenthesised group: attribute
macros with arguments (``__launch_bounds__(...)``) look like functions, so the last candidate that is
not written like a macro wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.cxx.lexer import Token, TokenKind

_RECORDS = frozenset({b"struct", b"class", b"union", b"enum"})
_ATTRIBUTES = frozenset({b"__attribute__", b"throw"})  # not keywords everywhere, never a function's name
_VIRTUAL = frozenset({b"final", b"override"})


@dataclass(frozen=True, slots=True)
class Declared:
    """``parameters`` is the position of a function's ``(`` and ``None`` for everything else.

    An ``initializer`` is a value, which leaves the declaration going on behind its ``}``.
    """

    kind: Literal["function", "record", "namespace", "initializer", "other"]
    name: str
    parameters: int | None = None


@dataclass(frozen=True, slots=True)
class _Header:
    """The top-level tokens of a header; ``positions`` are theirs in the file's code."""

    positions: tuple[int, ...]
    texts: tuple[bytes, ...]
    kinds: tuple[TokenKind, ...]

    def is_name(self, rank: int) -> bool:
        return 0 <= rank < len(self.kinds) and self.kinds[rank] is TokenKind.IDENTIFIER

    def before_angles(self, rank: int) -> int:
        """The rank in front of the ``<...>`` that ends at ``rank``; ``rank`` itself when none does."""
        depth = 0
        for back in range(rank, -1, -1):
            text = self.texts[back]
            depth += text.count(b">") if text in (b">", b">>") else -(text == b"<")
            if depth <= 0:
                return back - (back < rank)
        return rank


def classify_header(code: Sequence[Token], match: Mapping[int, int], start: int, brace: int) -> Declared:
    """What ``code[start:brace]`` followed by ``{`` declares."""
    positions = tuple(_top_level(code, match, start, brace))
    header = _Header(
        positions, tuple(code[i].text for i in positions), tuple(code[i].kind for i in positions)
    )
    texts = header.texts
    if b"=" in texts and b"operator" not in texts:
        return Declared("initializer", "")
    if b"namespace" in texts:
        spaces = [t for t in texts if t not in (b"namespace", b"inline", b"::")]
        return Declared("namespace", b"::".join(spaces).decode("utf-8", "replace"))
    if texts[:1] == (b"extern",) and b"(" not in texts:
        return Declared("namespace", "")
    return _record(header) or _function(header) or Declared("other", "")


def _top_level(code: Sequence[Token], match: Mapping[int, int], start: int, brace: int) -> Iterator[int]:
    position = start
    while position < brace:
        text = code[position].text
        if text == b"template":
            position = _after_angles(code, match, position + 1, brace)
            continue
        yield position
        if text in (b"(", b"[", b"{") and position < match.get(position, position) < brace:
            position = match[position]
            yield position
        position += 1


def _after_angles(code: Sequence[Token], match: Mapping[int, int], position: int, brace: int) -> int:
    depth = 0
    while position < brace:
        text = code[position].text
        if text in (b"(", b"["):
            position = max(position, match.get(position, position))
        elif text == b"<":
            depth += 1
        elif text in (b">", b">>"):
            depth -= len(text)
            if depth <= 0:
                return position + 1
        elif depth == 0:
            return position
        position += 1
    return position


def _record(header: _Header) -> Declared | None:
    """``struct ATTRIBUTE(16) name : base {`` and its like, but no function that returns a struct."""
    texts = header.texts
    first = next((rank for rank, text in enumerate(texts) if text in _RECORDS), None)
    if first is None or b"->" in texts[:first]:
        return None
    end = texts.index(b":", first) if b":" in texts[first:] else len(texts)
    end = texts.index(b"<", first, end) if b"<" in texts[first:end] else end
    groups = [rank for rank in range(first, end) if texts[rank] == b")"]
    names = [
        rank
        for rank in range(first, end)
        if header.is_name(rank) and texts[rank] not in _VIRTUAL and texts[rank + 1 : rank + 2] != (b"(",)
    ]
    if groups and (not names or names[-1] < groups[-1]):
        return None  # the name is in front of the parentheses: a function
    name = texts[names[-1]].decode("utf-8", "replace") if names else "(anonymous)"
    return Declared("record" if texts[first] != b"enum" else "other", name)


def _function(header: _Header) -> Declared | None:
    candidates: list[Declared] = []
    texts = header.texts
    for rank, text in enumerate(texts):
        if candidates and text == b"->":
            break
        if candidates and text == b":":
            if header.is_name(len(texts) - 1) or texts[-1] in (b">", b">>"):
                return Declared("initializer", "")  # a(x), b{: the constructor's body comes later
            break
        name = _name_before(header, rank) if text == b"(" else None
        if name is not None:
            candidates.append(Declared("function", name, header.positions[rank]))
    plain = [each for each in candidates if not (each.name.startswith("__") or each.name.isupper())]
    return next(reversed(plain or candidates), None)


def _name_before(header: _Header, rank: int) -> str | None:
    """The possibly qualified name in front of the ``(`` at ``rank``."""
    first = _operator_before(header, rank)
    if first is not None:
        symbol = header.texts[first + 1 : rank]
        if not symbol:
            return None  # operator()(...): the name is in front of the second pair
        word = symbol[0].isalpha()
        last = b"operator" + (b" " if word else b"") + (b" " if word else b"").join(symbol)
    else:
        first = rank - 1
        if first >= 0 and header.texts[first] in (b">", b">>"):
            first = header.before_angles(first)  # a specialisation: name<args>(
        if not header.is_name(first) or header.texts[first] in _ATTRIBUTES:
            return None
        last = header.texts[first]
        if first > 0 and header.texts[first - 1] == b"~":
            first -= 1
            last = b"~" + last
    return b"::".join((*_qualifiers(header, first), last)).decode("utf-8", "replace")


def _operator_before(header: _Header, rank: int) -> int | None:
    """Rank of the ``operator`` whose name ends in front of ``rank``."""
    texts = header.texts
    if b"operator" not in texts[:rank]:
        return None
    first = rank - 1 - texts[:rank][::-1].index(b"operator")
    between = texts[first + 1 : rank]
    return first if b")" not in between or between == (b"(", b")") else None


def _qualifiers(header: _Header, rank: int) -> list[bytes]:
    """``a`` and ``b`` of ``a::b<T>::name`` with ``name`` at ``rank``."""
    found: list[bytes] = []
    while rank >= 2 and header.texts[rank - 1] == b"::":  # noqa: PLR2004 - a name and its ::
        rank = header.before_angles(rank - 2)
        if not header.is_name(rank):
            break
        found.insert(0, header.texts[rank])
    return found

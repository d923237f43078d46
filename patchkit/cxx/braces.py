"""What a ``{`` opens inside code: statements, a lambda, a type, or a value.

Vocabulary: a *block* holds statements and ends the one it belongs to; a *lambda* and a *record* hold
statements or members, but the statement around them goes on to its ``;``; a *value* is part of an
expression (``int x{5}``, ``f({1, 2})``, ``= {``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from patchkit.cxx.lexer import Token, TokenKind

BraceRole = Literal["block", "lambda", "record", "value"]

_BLOCK_BEFORE = frozenset({b";", b"}", b"else", b"do", b"try"})
_CONTROLS = frozenset({b"if", b"for", b"while", b"switch", b"constexpr", b"catch"})
_TYPES = frozenset({b"struct", b"class", b"union", b"enum"})
_STOPS = frozenset({b";", b"{", b"}", b"(", b"=", b"return"})
_IN_TYPES = frozenset({b"&", b"&&", b"->", b"::", b"<", b">", b"*"})
# A parenthesis behind one of these holds a type: (float4){...}, a compound literal.
_LITERAL_BEFORE = frozenset({b"=", b"(", b",", b"return", b"?", b":", b"+", b"-", b"*", b"/", b"&&", b"||"})


def brace_role(  # noqa: PLR0911 - one per kind of token
    code: Sequence[Token], match: Mapping[int, int], opener: int
) -> BraceRole:
    """The role of the ``{`` at position ``opener``, judged by what stands before it."""
    while opener > 0 and code[opener - 1].text == b"{":
        opener -= 1  # {{1, 2}} and { { x; } }: the outermost decides
    if opener == 0 or code[opener - 1].text in _BLOCK_BEFORE:
        return "block"
    token = code[opener - 1]
    if token.text == b":":
        return _behind_colon(code, match, opener - 1)
    if token.text == b")":
        return _behind_parenthesis(code, match, opener - 1)
    if token.text == b"]":
        return _behind_bracket(code, match, opener - 1)
    if token.kind is TokenKind.LITERAL:
        return "block" if opener > 1 and code[opener - 2].text == b"extern" else "value"
    if token.kind in (TokenKind.IDENTIFIER, TokenKind.KEYWORD) or token.text in (b">", b">>", b"&", b"&&"):
        return _behind_word(code, match, opener - 1)
    return "value"


def _behind_colon(code: Sequence[Token], match: Mapping[int, int], colon: int) -> BraceRole:
    """``case 1: {`` against ``for (int x : {1, 2})``."""
    position = colon
    while position >= 0 and code[position].text not in (b";", b"{", b"}", b"("):
        position = min(position, match.get(position, position)) - 1
    return "value" if position >= 0 and code[position].text == b"(" else "block"


def _behind_parenthesis(code: Sequence[Token], match: Mapping[int, int], closer: int) -> BraceRole:
    before = match.get(closer, closer) - 1
    if before >= 0 and code[before].text in (b">", b">>"):
        before = _before_angles(code, before)  # []<int n>(auto x) {
    if before >= 0 and code[before].text == b"]":
        return "lambda"
    return "value" if before >= 0 and code[before].text in _LITERAL_BEFORE else "block"


def _behind_bracket(code: Sequence[Token], match: Mapping[int, int], closer: int) -> BraceRole:
    opener = match.get(closer, closer)
    if code[opener + 1].text == b"[" or opener == 0:
        return "block"  # an attribute: if (x) [[likely]] {
    before = code[opener - 1]
    if before.text == b"return":
        return "lambda"
    # int a[2]{1, 2} and new int[2]{1, 2} are values; what captures does not follow a name.
    is_array = before.kind is not TokenKind.PUNCTUATION or before.text in (b"]", b")", b">", b"*")
    return "value" if is_array else "lambda"


def _behind_word(code: Sequence[Token], match: Mapping[int, int], last: int) -> BraceRole:
    """Behind a name or a type: ``struct name {``, ``f() const {``, ``[]() -> int {`` or ``name{value}``."""
    position = last
    while position >= 0 and code[position].text not in _STOPS:
        text = code[position].text
        if text in _TYPES:
            return "record"
        if text == b"namespace":
            return "block"
        if text == b")":
            opener = match.get(position, position)
            arrow = position + 1 <= last and code[position + 1].text == b"->"
            head = code[opener - 1].text if opener > 0 else b""
            if arrow or not (head in _CONTROLS or _is_expression(code, position + 1, last)):
                return _behind_parenthesis(code, match, position)
            return "value"
        position = min(position, match.get(position, position)) - 1
    return "value"


def _is_expression(code: Sequence[Token], first: int, last: int) -> bool:
    """Whether an operator stands between a parenthesis and a brace: ``f(x) + int{1}``."""
    words = code[first : last + 1]
    return any(token.kind is TokenKind.PUNCTUATION and token.text not in _IN_TYPES for token in words)


def _before_angles(code: Sequence[Token], position: int) -> int:
    depth = 0
    while position >= 0:
        text = code[position].text
        depth += text.count(b">") if text in (b">", b">>") else -(text == b"<")
        position -= 1
        if depth <= 0:
            return position
    return position

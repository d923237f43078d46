"""Where a statement begins and ends, on tokens.

Vocabulary: *level* means between the same pair of brackets. A control statement reaches to the end
of what it controls, its ``else`` included.
"""

from __future__ import annotations

from patchkit.cxx.scopes import ScopeMap

__all__ = ["statement_around"]

_HEADS = frozenset({b"if", b"for", b"while", b"switch"})
_VALUE_BEFORE_BRACE = frozenset({b"=", b",", b"(", b"return", b"]", b"{"})


def statement_around(scopes: ScopeMap, first: int, last: int) -> tuple[int, int]:
    """First and last position of the smallest statement that contains ``first`` to ``last``."""
    start = _start(scopes, _climb(scopes, first))
    end = _end(scopes, start)
    while end < last and start > 0:
        # The run reaches beyond the statement its first token is in: take the one around it.
        start = _start(scopes, _climb(scopes, max(start - 1, 0)))
        previous, end = end, _end(scopes, start)
        if end <= previous:
            break
    return start, max(end, last)


def _climb(scopes: ScopeMap, position: int) -> int:
    """The outermost bracket around ``position`` that is still inside the nearest block."""
    while True:
        opener = scopes.parents[position]
        if opener is None:
            return position
        if scopes.code[opener].text == b"{" and not _is_value_brace(scopes, opener):
            return position
        position = opener


def _is_value_brace(scopes: ScopeMap, opener: int) -> bool:
    return opener > 0 and scopes.code[opener - 1].text in _VALUE_BEFORE_BRACE


def _start(scopes: ScopeMap, position: int) -> int:
    code = scopes.code
    while position > 0:
        before = position - 1
        text = code[before].text
        if text in (b";", b"{", b"else", b"do"):
            return position
        if text == b":" and _ends_label(scopes, before):
            return position
        if text in (b")", b"]", b"}"):
            opener = scopes.match.get(before)
            if opener is None or opener > before:
                return position
            if text == b"}" and not _is_value_brace(scopes, opener):
                return position
            if text == b")" and _is_control_head(scopes, opener):
                return position
            position = opener
        else:
            position = before
    return position


def _ends_label(scopes: ScopeMap, colon: int) -> bool:
    position = colon - 1
    while position >= 0 and scopes.code[position].text not in (b";", b"{", b"}", b"?"):
        if scopes.code[position].text in (b"case", b"default"):
            return True
        position -= 1
    return False


def _is_control_head(scopes: ScopeMap, opener: int) -> bool:
    before = opener - 1
    if before > 0 and scopes.code[before].text == b"constexpr":
        before -= 1
    return before >= 0 and scopes.code[before].text in _HEADS


def _end(scopes: ScopeMap, position: int) -> int:
    """Last position of the statement that starts at ``position``."""
    code, match = scopes.code, scopes.match
    if position >= len(code):
        return len(code) - 1
    text = code[position].text
    if text == b"{":
        return match.get(position, position)
    if text in _HEADS:
        opener = position + 1
        if opener < len(code) and code[opener].text == b"constexpr":
            opener += 1
        end = _end(scopes, match.get(opener, opener) + 1)
        if text == b"if" and end + 1 < len(code) and code[end + 1].text == b"else":
            return _end(scopes, end + 2)
        return end
    if text == b"do":
        position = _end(scopes, position + 1) + 1
    while position < len(code) and code[position].text not in (b";", b"}"):
        position = max(position, match.get(position, position)) + 1
    return min(position, len(code) - 1)

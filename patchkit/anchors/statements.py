"""Where a statement begins and ends, on tokens.

Vocabulary: *level* means between the same pair of brackets. A control statement reaches to the end
of what it controls, its ``else`` included. A statement is *controlled* when it is, without braces,
all that an ``if``, ``else`` or loop governs: a second statement beside it would not be governed.
"""

from __future__ import annotations

from patchkit.cxx.braces import brace_role
from patchkit.cxx.brackets import CLOSING
from patchkit.cxx.scopes import ScopeMap, parse_scopes
from patchkit.source import SourceText

_HEADS = frozenset({b"if", b"for", b"while", b"switch"})
_ACCESS = frozenset({b"public", b"private", b"protected"})


def statement_around(scopes: ScopeMap, first: int, last: int) -> tuple[int, int]:
    """First and last position of the smallest statement that contains ``first`` to ``last``.

    A run over several statements of one block gives the first to the last of them.
    """
    start = _start(scopes, _climb(scopes, first))
    while (opener := scopes.parents[start]) is not None and scopes.match[opener] <= last:
        start = _start(scopes, _climb(scopes, opener))  # the run leaves the block it begins in
    end = _end(scopes, start)
    while end < last and (following := _end(scopes, end + 1)) > end:
        end = following
    return start, max(end, last)


def starts_controlled(scopes: ScopeMap, position: int) -> bool:
    """Whether a controlled statement, or the block of a control statement, starts at ``position``."""
    if not 0 < position < len(scopes.code):
        return False
    before = scopes.code[position - 1].text
    if before == b"else":
        return scopes.code[position].text != b"if"
    return before == b"do" or (before == b")" and _is_control_head(scopes, scopes.match.get(position - 1, 0)))


def covers_controlled(scopes: ScopeMap, first: int, last: int) -> bool:
    """Whether ``first`` to ``last`` is all that a control statement governs."""
    return starts_controlled(scopes, first) and _end(scopes, first) == last


def ends_controlled(scopes: ScopeMap, first: int, last: int) -> bool:
    """Whether the statement that ``first`` is in is controlled and ends at ``last``."""
    if not 0 <= first <= last < len(scopes.code):
        return False
    start = _start(scopes, _climb(scopes, first))
    return starts_controlled(scopes, start) and _end(scopes, start) == last


def is_one_statement(text: bytes) -> bool:
    """Whether ``text`` holds a single statement, so that it may stand where a controlled one stood."""
    scopes = parse_scopes(SourceText("<text>", text))
    return bool(scopes.code) and _end(scopes, 0) == len(scopes.code) - 1


def _climb(scopes: ScopeMap, position: int) -> int:
    """The outermost bracket around ``position`` that is still inside the nearest block."""
    if scopes.code[position].text in CLOSING:
        position = scopes.match.get(position, position)
    while True:
        opener = scopes.parents[position]
        if opener is None:
            return position
        if scopes.code[opener].text == b"{" and brace_role(scopes.code, scopes.match, opener) != "value":
            return position
        position = opener


def _start(scopes: ScopeMap, position: int) -> int:
    """First position of the statement that ``position``, on its level, is in."""
    if scopes.code[position].text == b"else":
        return _if_of(scopes, position)
    while position > 0:
        previous = _one_back(scopes, position)
        if previous is None:
            return position
        position = previous
    return position


def _one_back(scopes: ScopeMap, position: int) -> int | None:  # noqa: PLR0911 - one per kind of token
    """The position before ``position`` in the same statement, a bracketed group at a time."""
    before = position - 1
    text = scopes.code[before].text
    if scopes.code[position].text == b"{":  # the braces of a control statement are part of it
        if text == b"else":
            return _if_of(scopes, before)
        if text == b"do" or (text == b")" and _is_control_head(scopes, scopes.match.get(before, 0))):
            return scopes.match.get(before, position) - 1
    if text in (b";", b"{", b"else", b"do") or (text == b":" and _ends_label(scopes, before)):
        return None
    if text not in CLOSING:
        return before
    opener = scopes.match.get(before, before)
    if opener >= before or (text == b")" and _is_control_head(scopes, opener)):
        return None
    if text == b"}" and brace_role(scopes.code, scopes.match, opener) == "block":
        return _continued_head(scopes, position, opener)
    return opener


def _continued_head(scopes: ScopeMap, position: int, opener: int) -> int | None:
    """The ``do`` or ``try`` whose block ends in front of a ``while`` or ``catch`` at ``position``."""
    word, before = scopes.code[position].text, scopes.code[opener - 1].text if opener > 0 else b""
    if word == b"while" and before == b"do":
        return opener - 1
    if word == b"catch" and before in (b"try", b")"):
        return opener - 1 if before == b"try" else scopes.match.get(opener - 1, opener) - 1
    return None


def _if_of(scopes: ScopeMap, position: int) -> int:
    """The ``if`` to which the ``else`` at ``position`` belongs."""
    if position == 0:
        return position
    then = _start(scopes, _climb(scopes, position - 1))
    if then > 0 and scopes.code[then - 1].text == b")":
        head = scopes.match.get(then - 1, then) - 1
        return head - (scopes.code[head].text == b"constexpr")
    return then


def _ends_label(scopes: ScopeMap, colon: int) -> bool:
    if scopes.code[colon - 1].text in _ACCESS:
        return True
    position = colon - 1
    ternaries = 0
    while position >= 0 and scopes.code[position].text not in (b";", b"{", b"}"):
        text = scopes.code[position].text
        if text in (b"case", b"default"):
            return True
        ternaries += (text == b":") - (text == b"?")
        if ternaries < 0:
            return False  # the colon of a ?
        position -= 1
    return False


def _is_control_head(scopes: ScopeMap, opener: int) -> bool:
    before = opener - 1
    if before > 0 and scopes.code[before].text == b"constexpr":
        before -= 1
    if before < 0 or scopes.code[before].text not in _HEADS:
        return False
    # } while (x) closes a do: it governs nothing.
    closes = scopes.code[before].text == b"while" and scopes.code[before - 1].text == b"}" and before > 0
    return not closes or _continued_head(scopes, before, scopes.match.get(before - 1, before)) is None


def _behind_head(scopes: ScopeMap, position: int) -> int:
    """Behind the parentheses of the control statement at ``position``."""
    opener = position + 1
    if opener < len(scopes.code) and scopes.code[opener].text == b"constexpr":
        opener += 1
    return max(opener, scopes.match.get(opener, opener)) + 1


def _end(scopes: ScopeMap, position: int) -> int:
    """Last position of the statement that starts at ``position``."""
    pending: list[bytes] = []  # the control words whose body is being read; no recursion: chains are long
    while True:
        while (word := _text(scopes, position)) in _HEADS or word == b"do":
            pending.append(word)
            position = position + 1 if word == b"do" else _behind_head(scopes, position)
        end = _plain_end(scopes, position)
        while pending:
            word = pending.pop()
            if word == b"do":
                end = _simple_end(scopes, end + 1)
            elif word == b"if" and _text(scopes, end + 1) == b"else":
                position = end + 2
                break
        else:
            return min(end, len(scopes.code) - 1)


def _plain_end(scopes: ScopeMap, position: int) -> int:
    text = _text(scopes, position)
    if text == b"{":
        return scopes.match.get(position, position)
    if text != b"try":
        return _simple_end(scopes, position)
    end = scopes.match.get(position + 1, position + 1)
    while _text(scopes, end + 1) == b"catch":
        body = _behind_head(scopes, end + 1)
        end = scopes.match.get(body, body)
    return end


def _simple_end(scopes: ScopeMap, start: int) -> int:
    """To the ``;``, to the end of a body, or to the end of the block around it."""
    position = start
    while position < len(scopes.code):
        text = scopes.code[position].text
        if text == b";":
            return position
        if text == b"}":
            return max(position - 1, start)
        closer = max(position, scopes.match.get(position, position))
        if text == b"{" and brace_role(scopes.code, scopes.match, position) == "block":
            return closer
        position = closer + 1
    return len(scopes.code) - 1


def _text(scopes: ScopeMap, position: int) -> bytes:
    return scopes.code[position].text if position < len(scopes.code) else b""

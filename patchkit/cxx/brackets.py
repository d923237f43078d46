"""Which bracket closes which, through ``#if`` branches that open the same block twice.

Vocabulary: *code* is the token sequence without comments and directives; positions are indices
into it. In ``#if A / if (x) { #else / if (y) { #endif ... }`` both opening braces match the one
closing brace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from patchkit.cxx.directives import Directive
from patchkit.cxx.lexer import Token

OPENING = {b"(": b")", b"[": b"]", b"{": b"}"}
CLOSING = frozenset(OPENING.values())


@dataclass(slots=True)
class _Frame:
    """Bracket stack at an ``#if`` and at the end of its first branch."""

    at_if: list[int]
    after_first: list[int] | None = None


@dataclass(slots=True)
class _Matcher:
    code: Sequence[Token]
    stack: list[int] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    twins: dict[int, list[int]] = field(default_factory=dict)
    match: dict[int, int] = field(default_factory=dict)

    def directive(self, keyword: bytes) -> None:
        if keyword in (b"if", b"ifdef", b"ifndef"):
            self.frames.append(_Frame(list(self.stack)))
        elif keyword in (b"else", b"elif", b"elifdef", b"elifndef") and self.frames:
            self._end_branch(self.frames[-1])
            self.stack = list(self.frames[-1].at_if)
        elif keyword == b"endif" and self.frames:
            self.stack = self._end_branch(self.frames.pop())

    def _end_branch(self, frame: _Frame) -> list[int]:
        """The stack that counts behind the group: that of the first branch."""
        if frame.after_first is None:
            frame.after_first = list(self.stack)
        for kept, other in zip(frame.after_first, self.stack, strict=False):
            if kept != other:
                self.twins.setdefault(kept, []).append(other)
        return frame.after_first

    def token(self, index: int) -> None:
        text = self.code[index].text
        if text == b"}":
            self._drop_unclosed()
        if text in OPENING:
            self.stack.append(index)
        elif text in CLOSING and self.stack and OPENING[self.code[self.stack[-1]].text] == text:
            opening = self.stack.pop()
            self.match[index] = opening
            for candidate in (opening, *self.twins.get(opening, ())):
                self.match[candidate] = index

    def _drop_unclosed(self) -> None:
        """Prose under ``#if 0`` may open a parenthesis for good; a ``}`` must still find its ``{``."""
        kept = len(self.stack)
        while kept and self.code[self.stack[kept - 1]].text != b"{":
            kept -= 1
        if kept:
            del self.stack[kept:]


def match_brackets(code: Sequence[Token], directives: Sequence[Directive]) -> dict[int, int]:
    """Positions of matching brackets, both ways; unbalanced ones are absent."""
    matcher = _Matcher(code)
    pending = iter(directives)
    upcoming = next(pending, None)
    for index, token in enumerate(code):
        while upcoming is not None and upcoming.span.start < token.span.start:
            matcher.directive(upcoming.keyword)
            upcoming = next(pending, None)
        matcher.token(index)
    return matcher.match

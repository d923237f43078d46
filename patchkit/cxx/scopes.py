"""The entities of a file: functions, records and macros with their spans, seen in every branch.

Vocabulary: an *entity* is something with a name that an anchor can be inside of; its *header* runs
from the first token of its declaration to its body; *twins* are entities of one name in one file
(overloads, or definitions in different ``#if`` branches).

This works on tokens only, so code under a false ``#if`` is as visible as any other; the AST
(:mod:`patchkit.cxx.tree`) confirms what it sees of it.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from patchkit.cxx.brackets import match_brackets
from patchkit.cxx.declarations import Declared, classify_header
from patchkit.cxx.directives import Group, find_groups, split_directives
from patchkit.cxx.lexer import Token, lex
from patchkit.source import SourceText, Span

EntityKind = Literal["function", "record", "macro"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A named definition. ``span`` covers it whole, ``body`` what is inside its braces.

    ``name`` is qualified by enclosing namespaces and records (``ns::f``); ``digest`` is the sha256
    of its code tokens, so comments and layout do not change it.
    """

    kind: EntityKind
    name: str
    span: Span
    header: Span
    parameters: Span
    body: Span
    digest: str

    def answers_to(self, name: str) -> bool:
        """Whether ``name`` is the full name or its last components."""
        return self.name == name or self.name.endswith("::" + name)


class ScopeMap:
    """Everything structural about one source text. Built once by :func:`parse_scopes`."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.code, self.directives = split_directives(source, lex(source))
        self.match = match_brackets(self.code, self.directives)

    @cached_property
    def parents(self) -> tuple[int | None, ...]:
        """For each code position, the position of the bracket directly around it."""
        around: list[int | None] = []
        stack: list[int] = []
        for position in range(len(self.code)):
            while stack and self.match[stack[-1]] <= position:
                stack.pop()
            around.append(stack[-1] if stack else None)
            if self.match.get(position, -1) > position:
                stack.append(position)
        return tuple(around)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Conditional groups, in order."""
        return find_groups(self.source, self.directives)

    @cached_property
    def entities(self) -> tuple[Entity, ...]:
        """Functions, records and macros, in order of their start."""
        found = [*_walk(self, 0, len(self.code), ""), *_macros(self)]
        return tuple(sorted(found, key=lambda entity: (entity.span.start, -entity.span.end)))

    def code_in(self, span: Span) -> range:
        """Positions of the code tokens that lie wholly inside ``span``."""
        first = self.first_from(span.start)
        last = bisect.bisect_right(self.code, span.end, lo=first, key=lambda token: token.span.end)
        return range(first, last)

    def first_from(self, offset: int) -> int:
        """Position of the first code token at or behind ``offset``."""
        return bisect.bisect_left(self.code, offset, key=lambda token: token.span.start)

    def enclosing(self, span: Span) -> Entity | None:
        """The innermost function, record or macro that contains ``span``."""
        around = [entity for entity in self.entities if entity.span.contains(span)]
        return max(around, key=lambda entity: entity.span.start, default=None)

    def digest(self, span: Span) -> str:
        """sha256 over code tokens and directives in ``span``; layout and comments do not count."""
        pieces = [(self.code[i].span.start, self.code[i].text) for i in self.code_in(span)]
        pieces += [
            (line.span.start, b"#" + line.condition) for line in self.directives if span.contains(line.span)
        ]
        state = hashlib.sha256()
        for _, text in sorted(pieces):
            state.update(text + b"\x00")
        return state.hexdigest()


def parse_scopes(source: SourceText) -> ScopeMap:
    """Lex and structure one file. Raises what :func:`patchkit.cxx.lexer.lex` raises."""
    return ScopeMap(source)


def _macros(scopes: ScopeMap) -> Iterator[Entity]:
    for line in scopes.directives:
        if line.keyword != b"define" or not line.tokens:
            continue
        name = line.tokens[0]
        body_start = line.tokens[1].span.start if len(line.tokens) > 1 else line.span.end
        state = hashlib.sha256(line.condition)
        yield Entity(
            "macro",
            name.text.decode("utf-8", "replace"),
            line.span,
            Span(line.span.start, name.span.end),
            Span(name.span.end, name.span.end),
            Span(min(body_start, line.span.end), line.span.end),
            state.hexdigest(),
        )


def _walk(scopes: ScopeMap, first: int, last: int, prefix: str) -> Iterator[Entity]:
    """Entities among the declarations of one scope: positions ``[first, last)`` of the code."""
    start = position = first
    while position < last:
        text = scopes.code[position].text
        closing = scopes.match.get(position, position)
        if text == b"{" and position < closing < last:
            declared = classify_header(scopes.code, scopes.match, start, position)
            if declared.kind in ("function", "record"):
                yield _entity(scopes, start, position, closing, declared, prefix)
            if declared.kind in ("namespace", "record"):
                inner = prefix + declared.name + "::" if declared.name else prefix
                yield from _walk(scopes, position + 1, closing, inner)
            position = closing + 1
            if declared.kind != "initializer":
                start = position
        elif text in (b"(", b"[") and closing > position:
            position = closing + 1
        else:
            position += 1
            if text in (b";", b"}", b"{") or (text == b":" and _is_access(scopes.code, position - 2)):
                start = position


def _is_access(code: tuple[Token, ...], position: int) -> bool:
    return position >= 0 and code[position].text in (b"public", b"private", b"protected")


def _entity(
    scopes: ScopeMap, start: int, brace: int, closing: int, declared: Declared, prefix: str
) -> Entity:
    code = scopes.code
    span = Span(code[start].span.start, code[closing].span.end)
    opening = declared.parameters
    parameters = (
        Span(code[opening].span.start, code[scopes.match[opening]].span.end)
        if opening is not None
        else Span(code[brace].span.start, code[brace].span.start)
    )
    return Entity(
        "function" if declared.kind == "function" else "record",
        prefix + declared.name,
        span,
        Span(span.start, code[brace].span.start),
        parameters,
        Span(code[brace].span.end, code[closing].span.start),
        scopes.digest(span),
    )

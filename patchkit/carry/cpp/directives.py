"""Preprocessor directives and the tree of conditional groups, from tokens alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.lexer import Token, TokenKind

# Directives that start a conditional group, and those that start a further branch of it.
OPENING_KEYWORDS = frozenset({b"if", b"ifdef", b"ifndef"})
MIDDLE_KEYWORDS = frozenset({b"elif", b"else", b"elifdef", b"elifndef"})


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive; ``span`` runs from ``#`` to just before the newline that ends it."""

    keyword: bytes
    tokens: tuple[Token, ...]
    span: Span

    @property
    def condition(self) -> bytes:
        """Keyword and argument tokens joined by single spaces, the form that patterns are compared with."""
        return b" ".join((self.keyword, *(token.text for token in self.tokens)))


@dataclass(frozen=True, slots=True)
class Branch:
    """The lines between ``directive`` and the next directive of its group; ``body`` covers whole lines."""

    directive: Directive
    body: Span


@dataclass(frozen=True, slots=True)
class Group:
    """One conditional group; ``span`` runs from ``#if`` to the end of ``#endif``."""

    branches: tuple[Branch, ...]
    endif: Directive
    span: Span


def split_directives(
    source: SourceText, tokens: Sequence[Token]
) -> tuple[tuple[Token, ...], tuple[Directive, ...]]:
    """Separate code tokens from directives; comments are in neither."""
    code: list[Token] = []
    directives: list[Directive] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.text != b"#" or not _first_on_line(source, tokens, position):
            if token.kind is not TokenKind.COMMENT:
                code.append(token)
            position += 1
            continue
        end = _logical_line_end(source, token.start)
        inside: list[Token] = []
        position += 1
        while position < len(tokens) and tokens[position].start < end:
            if tokens[position].kind is not TokenKind.COMMENT:
                inside.append(tokens[position])
            if b"\n" in tokens[position].text:
                # A block comment or raw string that starts on this line extends the directive.
                end = max(end, tokens[position].end, _logical_line_end(source, tokens[position].end))
            position += 1
        keyword = inside[0].text if inside else b""
        directives.append(Directive(keyword, tuple(inside[1:]), Span(token.start, end)))
    return tuple(code), tuple(directives)


def _first_on_line(source: SourceText, tokens: Sequence[Token], position: int) -> bool:
    line = source.line_of(tokens[position].start)
    while line > 1 and _is_continued(source.text(source.line_span(line - 1))):
        line -= 1
    line_start = source.line_span(line).start
    before = position - 1
    while before >= 0 and tokens[before].kind is TokenKind.COMMENT:
        before -= 1
    return before < 0 or tokens[before].end <= line_start


def _logical_line_end(source: SourceText, offset: int) -> int:
    line = source.line_of(min(offset, max(len(source.data) - 1, 0)))
    while True:
        span = source.line_span(line)
        text = source.text(span)
        if not _is_continued(text) or span.end >= len(source.data):
            return span.start + len(text.rstrip(b"\r\n"))
        line += 1


def _is_continued(line: bytes) -> bool:
    """Whether the next line continues this one; clang allows whitespace after the backslash."""
    return line.rstrip().endswith(b"\\")


def find_groups(source: SourceText, directives: Sequence[Directive]) -> tuple[Group, ...]:
    """Every closed conditional group, in order of its ``#if``; unclosed ones are skipped."""
    groups: list[Group] = []
    open_groups: list[list[Directive]] = []
    for directive in directives:
        if directive.keyword in OPENING_KEYWORDS:
            open_groups.append([directive])
        elif directive.keyword in MIDDLE_KEYWORDS and open_groups:
            open_groups[-1].append(directive)
        elif directive.keyword == b"endif" and open_groups:
            groups.append(_close(source, open_groups.pop(), directive))
    return tuple(sorted(groups, key=lambda group: group.span.start))


def find_unbalanced(directives: Sequence[Directive]) -> Directive | None:
    """The first directive without an ``#if``; if there is none, the last ``#if`` without an ``#endif``."""
    opened: list[Directive] = []
    for line in directives:
        if line.keyword in OPENING_KEYWORDS:
            opened.append(line)
        elif line.keyword in MIDDLE_KEYWORDS and not opened:
            return line
        elif line.keyword == b"endif":
            if not opened:
                return line
            opened.pop()
    return opened[-1] if opened else None


def _close(source: SourceText, lines: list[Directive], endif: Directive) -> Group:
    branches = []
    for line, following in zip(lines, [*lines[1:], endif], strict=True):
        start = source.line_span(source.line_of(line.span.end)).end
        end = source.line_span(source.line_of(following.span.start)).start
        branches.append(Branch(line, Span(start, max(start, end))))
    return Group(tuple(branches), endif, Span(lines[0].span.start, endif.span.end))

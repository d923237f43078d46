"""Find places by name: definitions, members, labels, includes, CMake commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.lexer import TokenKind
from patchkit.carry.cpp.scopes import Entity, ScopeMap

_COMMAND = re.compile(rb"[A-Za-z_]\w*(?=[ \t]*\()")


def find_definitions(scopes: ScopeMap, name: str) -> Iterator[Span]:
    """Functions, structs, classes, unions, enums and macros of a name; else those whose name ends with it."""
    every = scopes.definitions
    exact = [entity.span for entity in every if entity.name == name]
    yield from exact or [entity.span for entity in every if entity.answers_to(name)]


def find_members(scopes: ScopeMap, name: str, owner: str) -> Iterator[Span]:
    """Declarations of a name in a struct or enum, up to and including their ``;`` or ``,``."""
    every = [each for each in scopes.definitions if each.kind in ("record", "enum")]
    exact = [each for each in every if each.name == owner]
    for entity in exact or every:
        if entity.answers_to(owner):
            yield from (span for names, span in list_members(scopes, entity) if name.encode() in names)


def list_members(scopes: ScopeMap, entity: Entity) -> Iterator[tuple[list[bytes], Span]]:
    """The declarations in the braces of a struct or enum: the names in each, and its span."""
    ends = b"," if entity.kind == "enum" else b";"
    inside = scopes.code_in(entity.body)
    first = position = inside.start
    while position < inside.stop:
        text = scopes.code[position].text
        closer = scopes.match.get(position, position)
        is_body = text == b"{" and closer > position and ends == b";" and _ends_declaration(scopes, closer)
        if closer > position and not is_body:
            position = closer + 1
            continue
        if is_body:
            position = closer
        at_label = text == b":" and scopes.code[position - 1].text in (b"public", b"private", b"protected")
        if text == ends or is_body or position == inside.stop - 1:
            span = Span(scopes.code[first].start, scopes.code[position].end)
            yield _declared(scopes, first, position + 1, is_enum=entity.kind == "enum"), span
        if text == ends or is_body or at_label:
            first = position + 1
        position += 1


def _ends_declaration(scopes: ScopeMap, closer: int) -> bool:
    """Whether a ``}`` ends a member, i.e. it closes a function's body and not a value or a struct."""
    following = scopes.code[closer + 1].text if closer + 1 < len(scopes.code) else b""
    return following not in (b";", b",", b"=") and scopes.code[closer + 1 : closer + 2] != ()


def _declared(scopes: ScopeMap, first: int, stop: int, *, is_enum: bool) -> list[bytes]:
    """The declared names: identifiers before a token that can only follow the name in a declaration."""
    if is_enum:
        return [scopes.code[first].text]
    names: list[bytes] = []
    position = first
    while position < stop:
        token = scopes.code[position]
        following = scopes.code[position + 1].text if position + 1 < stop else b";"
        if token.kind is TokenKind.IDENTIFIER and following in (b";", b"=", b"{", b"[", b",", b":", b"("):
            names.append(token.text)
        if token.text == b"=":  # skip the value
            while position < stop and scopes.code[position].text not in (b",", b";"):
                position = max(position, scopes.match.get(position, position)) + 1
            continue
        position = max(position, scopes.match.get(position, position)) + 1
    return names


def find_includes(scopes: ScopeMap, header: str) -> Iterator[Span]:
    """The lines that include a header, in quotes or angles."""
    for line in scopes.directives:
        if line.keyword == b"include" and line.tokens:
            found = b"".join(token.text for token in line.tokens)
            if found.strip(b'"<>') == header.encode():
                yield line.span


def find_commands(source: SourceText, wanted: str) -> Iterator[Span]:
    """Calls of a CMake command: ``add_subdirectory(tools)``, or by a prefix of the call.

    Layout and comments do not matter, and calls in comments are ignored.
    """
    want = _spelled(wanted.encode())
    code = _blanked(source.data, rb"#")
    for found in _COMMAND.finditer(_blanked(source.data, rb'["#]')):
        end = _closing(code, found.end())
        if end is None:
            continue
        text = _spelled(code[found.start() : end])
        if text == want or (want[-1:] != [b")"] and text[: len(want)] == want):
            yield Span(found.start(), end)


def _spelled(text: bytes) -> list[bytes]:
    found = re.findall(rb'"(?:[^"\\]|\\.)*"|[()]|[^\s()"]+', text)
    return [found[0].lower(), *found[1:]] if found else []


def _blanked(data: bytes, begins: bytes) -> bytes:
    """The file with its comments, or also its strings, replaced by spaces, so that offsets do not change.

    ``begins`` matches the start of what is replaced. A ``#`` in a string starts no comment.
    """

    def blank(found: re.Match[bytes]) -> bytes:
        text = found[0]
        return re.sub(rb"[^\n]", b" ", text) if re.match(begins, text) else text

    return re.sub(rb'(?s)"(?:[^"\\]|\\.)*"|#\[\[.*?\]\]|#[^\n]*', blank, data)


def _closing(code: bytes, start: int) -> int | None:
    depth = 0
    for found in re.finditer(rb'(?s)"(?:[^"\\]|\\.)*"|[()]', code[start:]):
        if found[0] in (b"(", b")"):
            depth += 1 if found[0] == b"(" else -1
            if depth == 0:
                return start + found.end()
    return None

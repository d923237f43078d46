"""The declarations of a source file, in a form in which those of two upstreams can be compared.

This uses tokens only, so declarations under a false ``#if`` are found like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from patchkit.base.errors import Location
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.directives import Directive
from patchkit.carry.cpp.lexer import Token, TokenKind
from patchkit.carry.cpp.scopes import (
    ANONYMOUS,
    Entity,
    ScopeMap,
    classify_header,
    is_code,
    parse_scopes,
    walk,
)
from patchkit.carry.placing.names import list_members

Kind = Literal["function", "macro", "member", "enum value", "constant"]

# Words of a declaration that change nothing for a caller. Attributes are recognised by their spelling.
_IGNORED = frozenset(
    b"static inline extern constexpr virtual explicit friend mutable thread_local typename struct class enum "
    b"noexcept override final __restrict__ __restrict register volatile".split()
)
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_VARIADIC = 1000  # more arguments than any call has


class Parameter(NamedTuple):
    """A parameter of a function or template: its type without words that no caller sees, and its name."""

    type: str
    name: str
    has_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One declaration. ``owner``: the struct or enum that it is a member of; empty for all others.

    ``parameters`` is None for what cannot be called. ``value``: the replacement of a macro without
    parameters, the value of a constant or enum value (empty if it has none), or the type of a member; for a
    function, the type of its result. ``text``: the declaration on one line.
    """

    kind: Kind
    name: str
    owner: str = ""
    templates: tuple[Parameter, ...] = ()
    parameters: tuple[Parameter, ...] | None = None
    value: str = ""
    text: str
    where: Location

    @property
    def least(self) -> int:
        """The lowest number of arguments of a call."""
        return sum(not each.has_default for each in self.parameters or () if each.type != "...")

    @property
    def most(self) -> int:
        """The highest number of arguments of a call."""
        parameters = self.parameters or ()
        variadic = any("..." in each.type for each in parameters)
        return _VARIADIC if variadic else len(parameters)


@lru_cache(maxsize=2048)
def list_declarations(path: str, data: bytes) -> Mapping[str, tuple[Declaration, ...]]:
    """The declarations of a file by name, without namespaces. A file without code has none."""
    if not is_code(path):
        return {}
    scopes = parse_scopes(SourceText(path, data))
    found: dict[str, list[Declaration]] = {}
    for each in _all(scopes):
        found.setdefault(each.name, []).append(each)
    return {name: tuple(several) for name, several in found.items()}


def _all(scopes: ScopeMap) -> Iterator[Declaration]:
    lines = {line.span: line for line in scopes.directives}
    last = 0  # end of the last record: its methods are among its members
    for entity in scopes.entities:
        if entity.kind == "macro":
            yield _macro(scopes, entity, lines[entity.span])
        elif entity.kind == "record":
            yield from _members(scopes, entity)
            last = max(last, entity.span.end)
        elif entity.span.start >= last:
            yield from _function(scopes, entity.span.start, entity.header.end, owner="")
    for enum in scopes.enums:
        yield from _enum_values(scopes, enum)
    yield from _outside(scopes, 0, len(scopes.code))


def _outside(scopes: ScopeMap, first: int, last: int) -> Iterator[Declaration]:
    """Prototypes and constants outside of functions and records: positions ``[first, last)`` of the code."""
    for start, end, declared in walk(scopes, first, last):
        if declared is None:
            yield from _statement(scopes, start, end)
        elif declared.kind == "namespace":
            yield from _outside(scopes, end + 1, scopes.match[end])


def _statement(scopes: ScopeMap, first: int, last: int) -> Iterator[Declaration]:
    """The prototype or constant in ``[first, last)``, if it is one."""
    words = [token.text for token in scopes.code[first:last]]
    if not words or words[0] in (b"typedef", b"using", b"friend", b"static_assert", b"return"):
        return
    if classify_header(scopes.code, scopes.match, first, last).kind != "initializer":
        start, end = (scopes.code[at].start for at in (first, last))
        yield from _function(scopes, start, end, owner="")
        return
    value = words.index(b"=")
    fixed = b"constexpr" in words[:value] or (b"const" in words[:value] and b"*" not in words[:value])
    name = _name_at(scopes.code, first + value - 1, first, scopes.match)
    if fixed and name is not None and b"(" not in words[:value]:
        yield Declaration(
            kind="constant",
            name=name,
            value=_joined(words[value:]),
            text=_spelled(scopes, scopes.code[first:last]),
            where=scopes.source.locate(scopes.code[first].start),
        )


def _name_at(code: Sequence[Token], position: int, first: int, match: Mapping[int, int]) -> str | None:
    """The declared name that ends at a position, before the ``[...]`` of an array."""
    while position > first and code[position].text == b"]":
        position = match.get(position, position) - 1
    token = code[position] if position > first else None
    return token.text.decode() if token is not None and token.kind is TokenKind.IDENTIFIER else None


def _function(scopes: ScopeMap, start: int, end: int, *, owner: str) -> Iterator[Declaration]:
    """The function whose declaration is in the bytes ``[start, end)``, if it is one."""
    code = scopes.code
    inside = scopes.code_in(Span(start, end))
    declared = classify_header(code, scopes.match, inside.start, inside.stop)
    opening = declared.parameters
    if declared.kind != "function" or opening is None or opening not in scopes.match:
        return
    before = code[inside.start : opening]
    templates, head = _split_template(before)
    *around, name = declared.name.split("::")
    owner = owner or (around[-1] if around else "")  # a method that is defined outside of its class
    result = _type(head[: _rank_of(head, name)])
    if not result and owner != name and "operator" not in name:
        return  # a call of a macro outside of functions
    closing = scopes.match[opening]
    yield Declaration(
        kind="function",
        name=name,
        owner=owner,
        templates=tuple(_parameters(templates)),
        parameters=tuple(_parameters(code[opening + 1 : closing])),
        value=result,
        text=_spelled(scopes, code[inside.start : closing + 1]),
        where=scopes.source.locate(code[opening - 1].start),
    )


def _rank_of(tokens: Sequence[Token], name: str) -> int:
    """Rank of the last token with that text, before its qualifiers; all tokens if there is none."""
    rank = next(
        (back for back in range(len(tokens) - 1, -1, -1) if tokens[back].text == name.encode()), len(tokens)
    )
    while rank >= 2 and tokens[rank - 1].text == b"::":  # noqa: PLR2004 - a name and its ::
        rank -= 2
    return rank


def _split_template(tokens: Sequence[Token]) -> tuple[Sequence[Token], Sequence[Token]]:
    """The parameters of ``template <...>`` and the tokens after it."""
    if not tokens or tokens[0].text != b"template":
        return (), tokens
    depth = 0
    for rank, token in enumerate(tokens[1:], 1):
        if token.text in (b"<", b">", b">>"):
            depth += 1 if token.text == b"<" else -len(token.text)
            if depth <= 0:
                return tokens[2:rank], tokens[rank + 1 :]
    return (), tokens


def _parameters(tokens: Sequence[Token]) -> Iterator[Parameter]:
    for part in split_list(tokens):
        if [token.text for token in part] != [b"void"]:
            yield _parameter(part)


def split_list(tokens: Sequence[Token]) -> list[list[Token]]:
    """The parts of a list that is separated by commas; commas in brackets and ``<...>`` separate nothing."""
    parts: list[list[Token]] = [[]]
    depth = angles = 0
    for token in tokens:
        text = token.text
        if text in (b"(", b"[", b"{"):
            depth += 1
        elif text in (b")", b"]", b"}"):
            depth -= 1
        elif depth == 0 and text == b"<":
            angles += 1
        elif depth == 0 and text in (b">", b">>"):
            angles = max(0, angles - len(text))
        if text == b"," and depth == 0 and angles == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def _parameter(tokens: Sequence[Token]) -> Parameter:
    texts = [token.text for token in tokens]
    end = texts.index(b"=") if b"=" in texts else len(texts)
    has_default = end < len(texts)
    tokens, texts = tokens[:end], texts[:end]
    stop = texts.index(b"[") if b"[" in texts else end
    array = texts[stop:]
    name = ""
    if stop and tokens[stop - 1].kind is TokenKind.IDENTIFIER and texts[stop - 2 : stop - 1] != [b"::"]:
        kind = [
            token
            for token in tokens[: stop - 1]
            if token.text not in (b"*", b"&", b"&&", b"const") and token.text not in _IGNORED
        ]
        if kind or texts[0] in (b"typename", b"class"):
            name = texts[stop - 1].decode()
            tokens = tokens[: stop - 1]
    if texts[:1] in ([b"typename"], [b"class"]):
        return Parameter("typename ..." if b"..." in texts else "typename", name, has_default)
    kept = [token for token in tokens if token.text not in (b"[", b"]")] if array else list(tokens)
    suffix = " []" if array else ""
    return Parameter(_type(kept) + suffix, name, has_default)


def _type(tokens: Sequence[Token]) -> str:
    """A type without attributes, and without a ``const`` that matters inside of the function only."""
    words = [token.text for token in tokens if not _is_attribute(token)]
    if b"*" not in words and b"&" not in words:
        words = [word for word in words if word != b"const"]
    while words[-1:] == [b"const"]:
        words.pop()
    kept: list[bytes] = []
    depth = 0
    for word in words:  # the arguments of attributes, such as __launch_bounds__(256, 1)
        depth += (word == b"(") - (word == b")")
        if depth == 0 and word not in (b")", b"[", b"]"):
            kept.append(word)
    # 'const T *' and 'T const *' are the same
    if b"const" in kept and kept[0] != b"const" and b"*" in kept[kept.index(b"const") :]:
        kept.remove(b"const")
        kept.insert(0, b"const")
    return _joined(kept)


def _is_attribute(token: Token) -> bool:
    if token.text in _IGNORED or token.text.startswith(b'"'):
        return True
    if token.kind is not TokenKind.IDENTIFIER:
        return False
    return token.text.startswith(b"__") or (token.text.isupper() and b"_" in token.text)


def _joined(words: Iterable[bytes]) -> str:
    return b" ".join(words).decode("utf-8", "replace")


def _spelled(scopes: ScopeMap, tokens: Sequence[Token]) -> str:
    """The source of some tokens on one line, without comments."""
    source = scopes.source.text(Span(tokens[0].start, tokens[-1].end))
    source = _COMMENT.sub(b" ", source).replace(b"\\\n", b" ")
    return " ".join(source.decode("utf-8", "replace").split())


def _macro(scopes: ScopeMap, entity: Entity, line: Directive) -> Declaration:
    """A macro; ``(`` right after the name begins its parameters."""
    name, rest = line.tokens[0], line.tokens[1:]
    parameters: tuple[Parameter, ...] | None = None
    if rest and rest[0].text == b"(" and rest[0].start == name.end:
        texts = [token.text for token in rest]
        end = texts.index(b")") if b")" in texts else len(texts)
        names = [_joined(token.text for token in part) for part in split_list(rest[1:end])]
        parameters = tuple(
            Parameter("..." if "..." in each else "", each, has_default=False) for each in names
        )
        value = ""
    else:
        value = _joined(token.text for token in rest)
    return Declaration(
        kind="macro",
        name=entity.name,
        parameters=parameters,
        value=value,
        text=f"#define {_spelled(scopes, line.tokens)}",
        where=scopes.source.locate(name.start),
    )


def _owner(scopes: ScopeMap, entity: Entity) -> str:
    """The name of a struct or enum; if it has none of its own, the one that a typedef gives it."""
    after = scopes.first_from(entity.span.end)
    is_typedef = scopes.code[scopes.first_from(entity.span.start)].text == b"typedef"
    if entity.name.endswith(ANONYMOUS) and is_typedef and after < len(scopes.code):
        name = scopes.code[after].text.decode("utf-8", "replace")
        return name if name.isidentifier() else entity.name
    return entity.name


def _members(scopes: ScopeMap, record: Entity) -> Iterator[Declaration]:
    short = _owner(scopes, record).rpartition("::")[2]
    for names, span in list_members(scopes, record):
        inside = scopes.code_in(span)
        tokens = scopes.tokens_in(span)
        words = [token.text for token in tokens]
        if words[:1] in ([b"using"], [b"typedef"], [b"friend"], [b"static_assert"]) or not words:
            continue
        method = list(_function(scopes, span.start, _header_end(scopes, inside), owner=short))
        if method and b"=" not in words[: words.index(b"(")]:
            yield from method
            continue
        for name in dict.fromkeys(names):
            kind = _type(tokens[: words.index(name)])
            after = words[words.index(name) + 1 :]
            array = _joined(after[: after.index(b"]") + 1]) if after[:1] == [b"["] and b"]" in after else ""
            yield Declaration(
                kind="member",
                name=name.decode("utf-8", "replace"),
                owner=short,
                value=f"{kind} {array}".strip(),
                text=_spelled(scopes, tokens),
                where=scopes.source.locate(tokens[words.index(name)].start if name in words else span.start),
            )


def _header_end(scopes: ScopeMap, inside: range) -> int:
    """Where the head of a method ends: at its ``{`` or ``;``, or at the ``:`` of a constructor."""
    position = inside.start
    seen = False
    while position < inside.stop:
        text = scopes.code[position].text
        if text in (b"{", b";") or (seen and text == b":"):
            return scopes.code[position].start
        seen = seen or text == b"("
        position = (
            max(position, scopes.match.get(position, position)) + 1 if text in (b"(", b"[") else position + 1
        )
    return scopes.code[inside.stop - 1].end


def _enum_values(scopes: ScopeMap, enum: Entity) -> Iterator[Declaration]:
    owner = _owner(scopes, enum)
    for names, span in list_members(scopes, enum):
        tokens = scopes.tokens_in(span)
        words = [token.text for token in tokens]
        if words[-1:] == [b","]:
            words.pop()
        yield Declaration(
            kind="enum value",
            name=names[0].decode("utf-8", "replace"),
            owner="" if owner.endswith(ANONYMOUS) else owner,
            value=_joined(words[2:]) if words[1:2] == [b"="] else "",
            text=_spelled(scopes, tokens).rstrip(","),
            where=scopes.source.locate(span.start),
        )

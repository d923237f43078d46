"""The names that the code of a patch calls or reads, from tokens alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.lexer import Token, TokenKind
from patchkit.carry.cpp.scopes import Entity, ScopeMap, is_code, parse_scopes
from patchkit.carry.judging.changed import added_statements
from patchkit.carry.judging.declarations import split_list

_LONGEST_TEMPLATE = 60  # tokens between < and > that are tried as template arguments
_LONGEST_LAUNCH = 200  # tokens between <<< and >>>
_ENDS_NAME = frozenset({b"=", b";", b",", b")", b"[", b"{", b":"})
_BEFORE_TYPE = frozenset({b"(", b",", b";", b"{", b"}", b"const", b"static", b"struct", b"constexpr", b"::"})
_BEFORE_CALL = frozenset(
    {b"return", b"else", b"case", b"throw", b"co_return", b"co_yield", b"and", b"or", b"not", b"do"}
)
_NOT_IN_TEMPLATE = frozenset({b"<", b"(", b";", b"{", b"}", b"&&", b"||", b"?"})
_LIBRARIES = frozenset({b"std", b"cub", b"rocwmma", b"nvcuda", b"wmma", b"thrust", b"cg"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A name in the code of a patch. ``text``: the call or expression on one line, to recognise it again.

    ``arguments``: the lowest and the highest number of arguments that a call may have, because without types
    ``f(a < b, c > d)`` may have one or two; None if it is not a call. ``qualifier``: the name before ``::``.
    ``base``: the names before a member's, in order; empty if they are more than names. ``types``: of the
    variables of the function.
    """

    name: str
    text: str
    path: str
    where: Location
    arguments: tuple[int, int] | None = None
    is_template: bool = False
    is_member: bool = False
    is_result_used: bool = True
    qualifier: str = ""
    base: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)


# resolve judges the series again for each patch in conflict, and most files are as before.
@lru_cache(maxsize=512)
def list_uses(path: str, before: bytes | None, after: bytes) -> tuple[Use, ...]:
    """The names in the statements that a change adds to a file or edits, as they are in the new version."""
    if not is_code(path) or b"\0" in after or b"\0" in (before or b""):
        return ()
    try:
        new = parse_scopes(SourceText(path, after))
        old = parse_scopes(SourceText(path, before)) if before is not None else None
        types: dict[Entity | None, Mapping[str, str]] = {}
        found: list[Use] = []
        for statement in added_statements(old, new):
            around = new.enclosing(Span(statement.span.start, statement.span.start))
            if around not in types:
                types[around] = _types(new, around)
            found += _uses(new, statement.span, around, types[around])
    except (PatchkitError, RecursionError):
        return ()
    return tuple(found)


def _types(scopes: ScopeMap, function: Entity | None) -> Mapping[str, str]:
    """The types of the parameters and variables of a function; empty text for one that is not known."""
    found: dict[str, str] = {}
    if function is None or function.kind != "function":
        return found
    code = scopes.code
    inside = scopes.code_in(function.span)
    for at in inside[1:-1]:
        if code[at].kind is not TokenKind.IDENTIFIER or code[at + 1].text not in _ENDS_NAME:
            continue
        back = at - 1
        while back > inside.start and code[back].text in (b"*", b"&", b"&&", b"const", b"__restrict__"):
            back -= 1
        before = code[back]
        if before.text in (b">", b"]") or before.text in _BEFORE_CALL:
            kind = "" if before.text == b">" and code[at + 1].text in (b"=", b";", b",", b")", b"{") else None
        elif before.kind is TokenKind.KEYWORD:
            kind = before.text.decode()
        elif before.kind is TokenKind.IDENTIFIER:
            is_pointer = code[at - 1].text in (b"*", b"&", b"&&")  # else a * b is a product
            starts = code[back - 1].text in _BEFORE_TYPE
            kind = before.text.decode("utf-8", "replace") if starts or not is_pointer else None
        else:
            kind = None
        if kind is not None:
            name = code[at].text.decode("utf-8", "replace")
            found[name] = kind if found.get(name, kind) == kind else ""
    return found


def _uses(scopes: ScopeMap, span: Span, around: Entity | None, types: Mapping[str, str]) -> Iterator[Use]:
    code = scopes.code
    for at in scopes.code_in(span):
        token = code[at]
        if token.kind is not TokenKind.IDENTIFIER:
            continue
        before = code[at - 1].text if at else b";"
        qualifier = code[at - 2].text if before == b"::" and at > 1 else b""
        if qualifier in _LIBRARIES:
            continue
        name = token.text.decode("utf-8", "replace")
        is_member = before in (b".", b"->")
        opening, is_template = _opening(scopes, at + 1)
        if not is_member and opening is not None and _is_declaration(scopes, at, around):
            continue
        if around is None and _is_initialized(code, at):
            continue
        if not is_member and not qualifier and name in types:
            continue
        base = _base(scopes, at) if is_member else ()
        use = Use(
            name=name,
            text=".".join((*base, name)),
            path=scopes.source.path,
            where=scopes.source.locate(token.start),
            is_template=is_template,
            is_member=is_member,
            qualifier=qualifier.decode("utf-8", "replace"),
            base=base,
            types=types,
        )
        if opening is not None:
            closing = scopes.match[opening]
            inside = code[opening + 1 : closing]
            counts = len(split_list(inside)), _count_commas(inside)
            following = code[closing + 1].text if closing + 1 < len(code) else b";"
            text = b" ".join(each.text for each in code[at : closing + 1]).decode("utf-8", "replace")
            is_alone = following == b";" and before in (b";", b"{", b"}")
            use = replace(use, text=text, arguments=(min(counts), max(counts)), is_result_used=not is_alone)
        yield use


def _opening(scopes: ScopeMap, at: int) -> tuple[int | None, bool]:
    """Position of the ``(`` of a call whose name is before ``at``, and whether template arguments are given.

    ``f(``, ``f<a, b>(``, ``f<<<grid, block>>>(`` and ``f<a><<<grid, block>>>(``.
    """
    code = scopes.code
    end = _after_template(scopes, at)
    is_template, position = (False, at) if end is None else (True, end)
    texts = [token.text for token in code[position : position + 2]]
    if texts == [b"<<", b"<"]:
        stop = min(position + _LONGEST_LAUNCH, len(code) - 2)
        ends = (
            each + 2
            for each in range(position + 2, stop)
            if code[each].text == b">>" and code[each + 1].text == b">"
        )
        position = next(ends, position)
    is_call = code[position].text == b"(" if position < len(code) else False
    return (position if is_call and position in scopes.match else None), is_template


def _after_template(scopes: ScopeMap, at: int) -> int | None:
    """The position after the template arguments that begin at ``at``; None if there are none."""
    code = scopes.code
    if at >= len(code) or code[at].text != b"<":
        return None
    depth, position = 0, at
    while position < min(at + _LONGEST_TEMPLATE, len(code)):
        text = code[position].text
        if text in _NOT_IN_TEMPLATE and text not in (b"<", b"("):
            return None
        depth += 1 if text == b"<" else -len(text) if text in (b">", b">>") else 0
        if depth <= 0:
            return position + 1
        position = max(position, scopes.match.get(position, position)) + 1
    return None


def _is_declaration(scopes: ScopeMap, at: int, around: Entity | None) -> bool:
    """Whether ``name(`` declares a function or variable: after a type, or in the head of its own function."""
    code = scopes.code
    if around is not None and around.kind == "function" and around.header.contains(code[at].span):
        return True
    before = code[at - 1] if at else None
    if before is None:
        return False
    if before.text == b">":  # a > f(x), or T<a> f(x)
        opening = at - 2
        while opening > 0 and code[opening].text not in _NOT_IN_TEMPLATE:
            opening -= 1
        return code[opening].text == b"<" and code[opening - 1].kind is TokenKind.IDENTIFIER
    if before.kind is TokenKind.KEYWORD:
        return before.text not in _BEFORE_CALL
    return before.kind is TokenKind.IDENTIFIER


def _is_initialized(code: Sequence[Token], at: int) -> bool:
    """Whether the name is that of a variable that is declared with a value outside of functions."""
    if not 0 < at < len(code) - 1 or code[at + 1].text not in (b"=", b"[", b"{"):
        return False
    before = code[at - 1]
    return before.kind in (TokenKind.IDENTIFIER, TokenKind.KEYWORD) or before.text in (b">", b"*", b"&")


def _base(scopes: ScopeMap, at: int) -> tuple[str, ...]:
    """``a`` and ``b`` of ``a.b[i]->name``; empty if there are calls or casts before the name."""
    code = scopes.code
    found: list[str] = []
    while at >= 2 and code[at - 1].text in (b".", b"->"):  # noqa: PLR2004 - a name and its dot
        at -= 2
        while code[at].text == b"]" and at in scopes.match:
            at = scopes.match[at] - 1
        if code[at].kind is not TokenKind.IDENTIFIER:
            return ()
        found.insert(0, code[at].text.decode("utf-8", "replace"))
    return tuple(found) if code[at - 1].text != b"::" else ()


def _count_commas(tokens: Sequence[Token]) -> int:
    """The number of arguments if no ``<`` begins template arguments."""
    depth, count = 0, 1 if tokens else 0
    for token in tokens:
        depth += (token.text in (b"(", b"[", b"{")) - (token.text in (b")", b"]", b"}"))
        count += token.text == b"," and depth == 0
    return count

"""Find undeclared names that may be the cause of what clang reports as a syntax error.

``LOG("%" FORMAT, x)`` is valid if FORMAT is a macro of some header, and ``(count) x`` if count is a type.
Without those declarations clang reports a missing parenthesis. So a message proves a syntax error only if
every name around it is known (issue 42).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from patchkit.base.source import Span
from patchkit.carry.cpp.ast import Tree
from patchkit.carry.cpp.lexer import Token, TokenKind
from patchkit.carry.cpp.scopes import BRACKETS, ScopeMap

_ENDS = frozenset({b";", b"{", b"}"})
_MEMBER = frozenset({b".", b"->"})


@dataclass(frozen=True, slots=True)
class Names:
    """The known and unknown names of a file; ``before`` is its tree without the edits, if there is one."""

    tree: Tree
    before: Tree | None = None
    before_text: Container[bytes] = frozenset()

    def is_unknown(self, name: bytes) -> bool:
        """Whether nothing that was parsed declares the name.

        A name that clang knew before the edits counts as known: the syntax error may hide its declaration.
        """
        if name not in self.tree.declared:
            return True
        if name not in self.tree.unknown:
            return False
        return self.before is None or name in self.before.unknown or name not in self.before_text


def find_doubt(scopes: ScopeMap, offset: int, names: Names) -> str | None:
    """The first unknown name that may explain a message at ``offset``; None if there is none.

    This checks the statement or declaration around it and the headers of the enclosing braces: if clang
    could not parse the first line of a function, it misreads the body. A bracket without a partner in the
    statement is an error, whatever the names are.
    """
    if not scopes.code:
        return None
    position = min(scopes.first_from(offset), len(scopes.code) - 1)
    if position and scopes.code[position].start > offset:
        position -= 1  # clang reports a missing token at the end of the token before
    is_inner = True
    around: int | None = position
    while around is not None:
        holder, brace = _to_brace(scopes, around)
        statement = _statement(scopes, holder, brace)
        if is_inner and any(
            scopes.code[index].text in BRACKETS and index not in scopes.match for index in statement
        ):
            return None
        found = _doubt_in(scopes, statement, position, names, is_inner=is_inner)
        if found is not None:
            return found
        is_inner, around = False, brace
    return None


def _to_brace(scopes: ScopeMap, position: int) -> tuple[int, int | None]:
    """The ancestor of ``position`` directly inside the innermost brace, and the position of that brace."""
    holder, around = position, scopes.parents[position]
    while around is not None and scopes.code[around].text != b"{":
        holder, around = around, scopes.parents[around]
    return holder, around


def _statement(scopes: ScopeMap, holder: int, brace: int | None) -> range:
    """The positions from just after one ``;`` or brace to the next, including everything in parentheses."""
    code, match = scopes.code, scopes.match
    lowest = -1 if brace is None else brace
    first = holder
    while first - 1 > lowest and code[first - 1].text not in _ENDS:
        first -= 1
        if code[first].text in (b")", b"]"):
            first = min(first, match.get(first, first))
    last = max(holder, match.get(holder, holder)) if code[holder].text in (b"(", b"[") else holder
    while last < len(code) and code[last].text not in _ENDS:
        last = max(last, match.get(last, last)) + 1
    return range(first, min(last + 1, len(code)))


def _doubt_in(
    scopes: ScopeMap, statement: range, position: int, names: Names, *, is_inner: bool
) -> str | None:
    called: str | None = None
    for index in statement:
        token = scopes.code[index]
        if token.kind is not TokenKind.IDENTIFIER:
            continue
        following = scopes.code[index + 1].text if index + 1 < len(scopes.code) else b""
        if index and scopes.code[index - 1].text in _MEMBER:
            # Whether ``a.b<`` starts template arguments depends on the class of ``a``.
            if following == b"<":
                return _text(token)
            continue
        for name in _with_macros(scopes, token):
            if not names.is_unknown(name.text):
                continue
            # A call affects parsing only inside its parentheses. A name in capitals may be a macro, which may
            # expand to anything.
            if name is not token or following != b"(" or name.text.upper() == name.text:
                return _text(name)
            closing = scopes.match.get(index + 1)
            if closing is None or (is_inner and index < position < closing):
                called = called or _text(name)
    return called


def _with_macros(scopes: ScopeMap, token: Token) -> Iterator[Token]:
    """The token, and the names in its expansion if the file defines it as a macro, recursively."""
    seen, waiting = set[bytes](), [token]
    while waiting:
        each = waiting.pop()
        yield each
        if each.text in seen:
            continue
        seen.add(each.text)
        for line in scopes.directives:
            if line.keyword == b"define" and line.tokens and line.tokens[0].text == each.text:
                own = _parameters(line.tokens)
                waiting += [
                    inside
                    for inside in line.tokens[1:]
                    if inside.kind is TokenKind.IDENTIFIER and inside.text not in own
                ]


def _parameters(tokens: tuple[Token, ...]) -> frozenset[bytes]:
    if len(tokens) < 2 or tokens[1].text != b"(" or tokens[1].start != tokens[0].end:  # noqa: PLR2004
        return frozenset()
    texts = [token.text for token in tokens[2:]]
    return frozenset(texts[: texts.index(b")")] if b")" in texts else texts) | {b"__VA_ARGS__", b"__VA_OPT__"}


def _text(token: Token) -> str:
    return token.text.decode("utf-8", "replace")


def touched(scopes: ScopeMap, spans: Sequence[Span]) -> tuple[Span, ...] | None:
    """The definitions that contain the spans, or the lines around spans outside definitions.

    None if a span is in a macro, which may be used anywhere in the file.
    """
    found: list[Span] = []
    for span in spans:
        if any(line.keyword == b"define" and _meets(line.span, span) for line in scopes.directives):
            return None
        first = max(scopes.first_from(span.start) - 1, 0)
        last = min(scopes.first_from(span.end), len(scopes.code) - 1)
        lines = Span(scopes.code[first].start, scopes.code[last].end) if scopes.code else span
        found.append(lines)
        found += [each.span for each in scopes.entities if each.kind != "macro" and _meets(each.span, span)]
    return tuple(found)


KEYWORDS = (
    b"alignas auto bool break case catch char class const constexpr continue default delete double else enum"
    b" extern false float for if inline int long namespace new nullptr operator private protected public"
    b" return short signed sizeof static static_cast struct switch template this throw true try typedef"
    b" typename union unsigned using virtual void volatile while"
).split()
"""Keywords that a misspelt name may mean."""
_LONG = 5  # letters; too many words are one letter away from a shorter keyword


def find_misspelt(scopes: ScopeMap, known: Container[bytes]) -> Iterator[tuple[Token, str]]:
    """Names that are not in ``known`` and look like a misspelt keyword, with that keyword.

    clang parses ``retrun x;`` as the declaration of an x of type retrun, which is not a syntax error. The
    caller has to check whether the name is declared.
    """
    for token in scopes.code:
        if token.kind is TokenKind.IDENTIFIER and token.text not in known:
            for keyword in KEYWORDS:
                if _is_slip(token.text, keyword):
                    yield token, keyword.decode()
                    break


def _is_slip(name: bytes, keyword: bytes) -> bool:
    """Whether two adjacent letters are swapped or, in a long word, one letter is wrong, missing or extra."""
    longer, shorter = sorted((name, keyword), key=len, reverse=True)
    if len(longer) - len(shorter) > 1 or name == keyword:
        return False
    first = next((i for i, letter in enumerate(shorter) if letter != longer[i]), len(shorter))
    swapped = longer[first : first + 2][::-1] == shorter[first : first + 2]
    if len(longer) == len(shorter):
        if swapped and longer[first + 2 :] == shorter[first + 2 :]:
            return True
        return len(keyword) >= _LONG and longer[first + 1 :] == shorter[first + 1 :]
    return len(keyword) >= _LONG and longer[first + 1 :] == shorter[first:]


def _meets(one: Span, other: Span) -> bool:
    return one.start <= other.end and other.start <= one.end

"""The entities of a file: functions, records and macros with their spans, in every preprocessor branch.

This uses tokens only, so code under a false ``#if`` is found like any other. The AST
(:mod:`patchkit.carry.cpp.ast`) confirms the parts that are compiled.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

from patchkit.base.digests import sha256
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.directives import (
    MIDDLE_KEYWORDS,
    OPENING_KEYWORDS,
    Directive,
    Group,
    find_groups,
    split_directives,
)
from patchkit.carry.cpp.lexer import Token, TokenKind, lex

# File types in upstream's tree at b11549 and in imported queues that are not C++; all others are code.
_TEXT = (
    ".Dockerfile", ".bash", ".bat", ".cfg", ".cmake", ".comp", ".css", ".csv", ".fish", ".gbnf", ".glsl",
    ".go", ".html", ".in", ".ini", ".java", ".jinja", ".js", ".json", ".kt", ".kts", ".lock", ".md", ".mk",
    ".nix", ".patch", ".ps1", ".py", ".rs", ".rst", ".sh", ".svelte", ".svg", ".swift", ".toml", ".ts",
    ".tsv", ".txt", ".wgsl", ".xml", ".yaml", ".yml", "LICENSE", "Makefile", "Dockerfile",
)  # fmt: skip

OPENING = {b"(": b")", b"[": b"]", b"{": b"}"}
CLOSING = frozenset(OPENING.values())
BRACKETS = CLOSING.union(OPENING)
ANONYMOUS = "(anonymous)"
"""The name of a struct or enum without one."""


@dataclass(slots=True)
class _Frame:
    """The bracket stack at an ``#if`` and at the end of its first branch."""

    at_if: list[int]
    after_first: list[int] | None = None


@dataclass(slots=True)
class _Matcher:
    """Pairs the brackets of a file; each branch of a group starts with the stack at its ``#if``.

    ``twins`` are brackets of later branches that correspond to one of the first and share its partner.
    """

    code: Sequence[Token]
    stack: list[int] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    twins: dict[int, list[int]] = field(default_factory=dict)
    match: dict[int, int] = field(default_factory=dict)

    def directive(self, keyword: bytes) -> None:
        if keyword in OPENING_KEYWORDS:
            self.frames.append(_Frame(list(self.stack)))
        elif keyword in MIDDLE_KEYWORDS and self.frames:
            self._end_branch(self.frames[-1])
            self.stack = list(self.frames[-1].at_if)
        elif keyword == b"endif" and self.frames:
            self.stack = self._end_branch(self.frames.pop())

    def _end_branch(self, frame: _Frame) -> list[int]:
        """The stack after the group, which is that of the first branch."""
        if frame.after_first is None:
            frame.after_first = list(self.stack)
        for kept, other in zip(frame.after_first, self.stack, strict=False):
            if kept != other:
                self.twins.setdefault(kept, []).append(other)
        return frame.after_first

    def bracket(self, index: int) -> None:
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
        """Drop unclosed parentheses, e.g. from prose under ``#if 0``, so that a ``}`` finds its ``{``."""
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
        if token.text not in BRACKETS:
            continue
        while upcoming is not None and upcoming.span.start < token.start:
            matcher.directive(upcoming.keyword)
            upcoming = next(pending, None)
        matcher.bracket(index)
    return matcher.match


_RECORDS = frozenset({b"struct", b"class", b"union", b"enum"})
_ATTRIBUTES = frozenset({b"__attribute__", b"throw"})  # not always keywords, but never a function's name
_VIRTUAL = frozenset({b"final", b"override"})


@dataclass(frozen=True, slots=True)
class Declared:
    """What a header declares. ``parameters`` is the position of a function's ``(``, else ``None``.

    After the ``}`` of an ``initializer`` the declaration continues.
    """

    kind: Literal["function", "record", "enum", "namespace", "initializer", "other"]
    name: str
    parameters: int | None = None


@dataclass(frozen=True, slots=True)
class _Header:
    """The top-level tokens of a header; ``positions`` are their positions in the file's code."""

    positions: tuple[int, ...]
    texts: tuple[bytes, ...]
    kinds: tuple[TokenKind, ...]

    def is_name(self, rank: int) -> bool:
        return 0 <= rank < len(self.kinds) and self.kinds[rank] is TokenKind.IDENTIFIER

    def before_angles(self, rank: int) -> int:
        """The rank before the ``<...>`` that ends at ``rank``; ``rank`` itself if none ends there."""
        depth = 0
        for back in range(rank, -1, -1):
            text = self.texts[back]
            depth += text.count(b">") if text in (b">", b">>") else -(text == b"<")
            if depth <= 0:
                return back - (back < rank)
        return rank


def classify_header(code: Sequence[Token], match: Mapping[int, int], start: int, brace: int) -> Declared:
    """Classify the declaration in ``code[start:brace]`` that is followed by ``{``."""
    positions = tuple(_top_level(code, match, start, brace))
    header = _Header(
        positions, tuple(code[i].text for i in positions), tuple(code[i].kind for i in positions)
    )
    texts = header.texts
    if b"=" in texts and b"operator" not in texts:
        return Declared("initializer", "")
    if b"namespace" in texts:
        spaces = [t for t in texts if t not in (b"namespace", b"inline", b"::")]
        return Declared("namespace", b"::".join(spaces).decode("utf-8", "replace"))
    if texts[:1] == (b"extern",) and b"(" not in texts:
        return Declared("namespace", "")
    return _record(header) or _function(header) or Declared("other", "")


def _top_level(code: Sequence[Token], match: Mapping[int, int], start: int, brace: int) -> Iterator[int]:
    position = start
    while position < brace:
        text = code[position].text
        if text == b"template":
            position = _after_angles(code, match, position + 1, brace)
            continue
        yield position
        if text in (b"(", b"[", b"{") and position < match.get(position, position) < brace:
            position = match[position]
            yield position
        position += 1


def _after_angles(code: Sequence[Token], match: Mapping[int, int], position: int, brace: int) -> int:
    depth = 0
    while position < brace:
        text = code[position].text
        if text in (b"(", b"["):
            position = max(position, match.get(position, position))
        elif text == b"<":
            depth += 1
        elif text in (b">", b">>"):
            depth -= len(text)
            if depth <= 0:
                return position + 1
        elif depth == 0:
            return position
        position += 1
    return position


def _record(header: _Header) -> Declared | None:
    """``struct ATTRIBUTE(16) name : base {`` and similar, but not a function that returns a struct."""
    texts = header.texts
    first = next((rank for rank, text in enumerate(texts) if text in _RECORDS), None)
    if first is None or b"->" in texts[:first]:
        return None
    end = texts.index(b":", first) if b":" in texts[first:] else len(texts)
    end = texts.index(b"<", first, end) if b"<" in texts[first:end] else end
    groups = [rank for rank in range(first, end) if texts[rank] == b")"]
    names = [
        rank
        for rank in range(first, end)
        if header.is_name(rank) and texts[rank] not in _VIRTUAL and texts[rank + 1 : rank + 2] != (b"(",)
    ]
    if groups and (not names or names[-1] < groups[-1]):
        return None  # the name is before the parentheses: a function
    name = texts[names[-1]].decode("utf-8", "replace") if names else ANONYMOUS
    return Declared("record" if texts[first] != b"enum" else "enum", name)


def _function(header: _Header) -> Declared | None:
    candidates: list[Declared] = []
    texts = header.texts
    for rank, text in enumerate(texts):
        if candidates and text == b"->":
            break
        if candidates and text == b":":
            if header.is_name(len(texts) - 1) or texts[-1] in (b">", b">>"):
                return Declared("initializer", "")  # a(x), b{: the constructor's body comes later
            break
        name = _name_before(header, rank) if text == b"(" else None
        if name is not None:
            candidates.append(Declared("function", name, header.positions[rank]))
    plain = [each for each in candidates if not (each.name.startswith("__") or each.name.isupper())]
    return next(reversed(plain or candidates), None)


def _name_before(header: _Header, rank: int) -> str | None:
    """The possibly qualified name before the ``(`` at ``rank``."""
    first = _operator_before(header, rank)
    if first is not None:
        symbol = header.texts[first + 1 : rank]
        if not symbol:
            return None  # operator()(...): the name is before the second pair
        word = symbol[0].isalpha()
        last = b"operator" + (b" " if word else b"") + (b" " if word else b"").join(symbol)
    else:
        first = rank - 1
        if first >= 0 and header.texts[first] in (b">", b">>"):
            first = header.before_angles(first)  # a specialisation: name<args>(
        if not header.is_name(first) or header.texts[first] in _ATTRIBUTES:
            return None
        last = header.texts[first]
        if first > 0 and header.texts[first - 1] == b"~":
            first -= 1
            last = b"~" + last
    return b"::".join((*_qualifiers(header, first), last)).decode("utf-8", "replace")


def _operator_before(header: _Header, rank: int) -> int | None:
    """Rank of the ``operator`` keyword whose name ends just before ``rank``."""
    texts = header.texts
    if b"operator" not in texts[:rank]:
        return None
    first = rank - 1 - texts[:rank][::-1].index(b"operator")
    between = texts[first + 1 : rank]
    return first if b")" not in between or between == (b"(", b")") else None


def _qualifiers(header: _Header, rank: int) -> list[bytes]:
    """``a`` and ``b`` of ``a::b<T>::name`` with ``name`` at ``rank``."""
    found: list[bytes] = []
    while rank >= 2 and header.texts[rank - 1] == b"::":  # noqa: PLR2004 - a name and its ::
        rank = header.before_angles(rank - 2)
        if not header.is_name(rank):
            break
        found.insert(0, header.texts[rank])
    return found


EntityKind = Literal["function", "record", "macro", "enum"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A named definition. ``span`` covers all of it, ``body`` the inside of its braces.

    ``name`` includes enclosing namespaces and records (``ns::f``). ``digest`` is the sha256 of its code
    tokens, so comments and layout do not change it.
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


def is_code(path: str) -> bool:
    """Whether a file is C, C++ or similar code; build files, scripts and documents are only lines."""
    return not path.endswith(_TEXT)


class ScopeMap:
    """The structure of one source text. Built once by :func:`parse_scopes`.

    A file that is not code has lines only: no tokens, no entities, and a digest of its bytes.
    """

    def __init__(self, source: SourceText) -> None:
        self.source = source
        tokens = lex(source) if is_code(source.path) else ()
        self.code, self.directives = split_directives(source, tokens)
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
        found = [each for each in self._declared if each.kind != "enum"] + list(_macros(self))
        return tuple(sorted(found, key=lambda entity: (entity.span.start, -entity.span.end)))

    @property
    def enums(self) -> tuple[Entity, ...]:
        """Enums, in order. They are not among ``entities``, because no edit of a function is in one."""
        return tuple(each for each in self._declared if each.kind == "enum")

    @property
    def definitions(self) -> tuple[Entity, ...]:
        """Entities and enums."""
        return (*self.entities, *self.enums)

    @cached_property
    def unpaired(self) -> tuple[int, ...]:
        """Positions of brackets without a partner."""
        return tuple(
            at for at, token in enumerate(self.code) if token.text in BRACKETS and at not in self.match
        )

    @cached_property
    def _declared(self) -> tuple[Entity, ...]:
        return tuple(_entities(self, 0, len(self.code), ""))

    def code_in(self, span: Span) -> range:
        """Positions of the code tokens that are completely inside ``span``."""
        first = self.first_from(span.start)
        return range(first, bisect.bisect_right(self._ends, span.end, lo=first))

    def first_from(self, offset: int) -> int:
        """Position of the first code token at or after ``offset``."""
        return bisect.bisect_left(self._starts, offset)

    @cached_property
    def _starts(self) -> list[int]:
        return [token.start for token in self.code]

    @cached_property
    def _ends(self) -> list[int]:
        return [token.end for token in self.code]

    def enclosing(self, span: Span) -> Entity | None:
        """The innermost function, record or macro that contains ``span``."""
        around = [entity for entity in self.entities if entity.span.contains(span)]
        return max(around, key=lambda entity: entity.span.start, default=None)

    def digest(self, span: Span) -> str:
        """sha256 over code tokens and directives in ``span``, independent of layout and comments."""
        text = self.source.text(span)
        if not is_code(self.source.path):
            return sha256(text)
        # Nearly all definitions of a file are equal in its next version, which the next patch makes.
        key = hashlib.blake2b(text, digest_size=32).digest()
        found = _digests.get(key)
        if found is None:
            if len(_digests) >= _MOST_DIGESTS:
                _digests.clear()
            found = _digests[key] = self._digest(span)
        return found

    def _digest(self, span: Span) -> str:
        state = hashlib.sha256()
        for text in self.texts_in(span):
            state.update(text + b"\x00")
        return state.hexdigest()

    def texts_in(self, span: Span) -> list[bytes]:
        """The code tokens and directives in ``span``, in order, as they are compared."""
        pieces = [(token.start, token.text) for token in self.tokens_in(span)]
        pieces += [
            (line.span.start, b"#" + line.condition) for line in self.directives if span.contains(line.span)
        ]
        return [text for _, text in sorted(pieces)]

    def tokens_in(self, span: Span) -> tuple[Token, ...]:
        """The code tokens that are completely inside ``span``."""
        inside = self.code_in(span)
        return self.code[inside.start : inside.stop]


_MOST_DIGESTS = 65536
_digests: dict[bytes, str] = {}  # by digest of the bytes, of which the tokens are a pure function


# Following a function reads every file of two trees, 143 each at build 6900. Most are equal in both, and all
# are read again for every set of patches.
@lru_cache(maxsize=512)
def parse_scopes(source: SourceText) -> ScopeMap:
    """Lex one file and find its structure. Raises the errors of :func:`patchkit.carry.cpp.lexer.lex`."""
    return ScopeMap(source)


def _macros(scopes: ScopeMap) -> Iterator[Entity]:
    for line in scopes.directives:
        if line.keyword != b"define" or not line.tokens:
            continue
        name = line.tokens[0]
        body_start = line.tokens[1].start if len(line.tokens) > 1 else line.span.end
        state = hashlib.sha256(line.condition)
        yield Entity(
            "macro",
            name.text.decode("utf-8", "replace"),
            line.span,
            Span(line.span.start, name.end),
            Span(name.end, name.end),
            Span(min(body_start, line.span.end), line.span.end),
            state.hexdigest(),
        )


def walk(scopes: ScopeMap, first: int, last: int) -> Iterator[tuple[int, int, Declared | None]]:
    """The declarations of one scope, positions ``[first, last)`` of the code: where each begins and ends.

    One with a body ends at its ``{``, and has what it declares; any other ends at its ``;``.
    """
    start = position = first
    while position < last:
        text = scopes.code[position].text
        closing = scopes.match.get(position, position)
        if text == b"{" and position < closing < last:
            declared = classify_header(scopes.code, scopes.match, start, position)
            yield start, position, declared
            position = closing + 1
            if declared.kind != "initializer":
                start = position
        elif text in (b"(", b"[") and closing > position:
            position = closing + 1
        else:
            if text == b";":
                yield start, position, None
            position += 1
            if text in (b";", b"}", b"{") or (text == b":" and _is_access(scopes.code, position - 2)):
                start = position


def _entities(scopes: ScopeMap, first: int, last: int, prefix: str) -> Iterator[Entity]:
    """Entities among the declarations of one scope, and in it."""
    for start, brace, declared in walk(scopes, first, last):
        if declared is not None and declared.kind in ("function", "record", "enum"):
            yield _entity(scopes, start, brace, declared, prefix)
        if declared is not None and declared.kind in ("namespace", "record"):
            inner = prefix + declared.name + "::" if declared.name else prefix
            yield from _entities(scopes, brace + 1, scopes.match[brace], inner)


def _is_access(code: tuple[Token, ...], position: int) -> bool:
    return position >= 0 and code[position].text in (b"public", b"private", b"protected")


def _entity(scopes: ScopeMap, start: int, brace: int, declared: Declared, prefix: str) -> Entity:
    code, closing = scopes.code, scopes.match[brace]
    span = Span(code[start].start, code[closing].end)
    opening = declared.parameters
    parameters = (
        Span(code[opening].start, code[scopes.match[opening]].end)
        if opening is not None and opening in scopes.match  # missing if the text lacks a bracket
        else Span(code[brace].start, code[brace].start)
    )
    return Entity(
        declared.kind if declared.kind == "record" or declared.kind == "enum" else "function",  # noqa: PLR1714 - mypy narrows this
        prefix + declared.name,
        span,
        Span(span.start, code[brace].start),
        parameters,
        Span(code[brace].end, code[closing].start),
        scopes.digest(span),
    )

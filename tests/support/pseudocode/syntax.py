"""The language of AMD's pseudocode: text to trees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


class NotUnderstood(ValueError):
    """A text that is not in the language, as some of the published ones are not."""


@dataclass(frozen=True)
class Literal:
    kind: str  # u, i, f, or x: written in hexadecimal, so a pattern where a float is made of it
    width: int
    text: str


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Typed:
    """``base.f32``."""

    base: Node
    type: str


@dataclass(frozen=True)
class Index:
    """``base[at]``: a bit, or an element of what is a list."""

    base: Node
    at: Node


@dataclass(frozen=True)
class Slice:
    """``base[high : low]``; bits are reversed where high is the lower."""

    base: Node
    high: Node
    low: Node


@dataclass(frozen=True)
class Part:
    """``base[start +: count]``."""

    base: Node
    start: Node
    count: Node


@dataclass(frozen=True)
class Cast:
    kind: str
    width: int
    value: Node


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Unary:
    operator: str
    value: Node


@dataclass(frozen=True)
class Binary:
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Choice:
    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True)
class Joined:
    """``{ high, low }``."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Assign:
    target: Node
    operator: str  # "" or that of += and the like
    value: Node


@dataclass(frozen=True)
class Declare:
    name: str
    kind: str
    width: int
    count: int | None


@dataclass(frozen=True)
class If:
    branches: tuple[tuple[Node | None, tuple[Node, ...]], ...]


@dataclass(frozen=True)
class For:
    name: str
    first: Node
    last: Node
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Break:
    pass


@dataclass(frozen=True)
class Return:
    value: Node


@dataclass(frozen=True)
class Lambda:
    name: str
    parameters: tuple[str, ...]
    body: tuple[Node, ...]


Node = (
    Literal
    | Name
    | Typed
    | Index
    | Slice
    | Part
    | Cast
    | Call
    | Unary
    | Binary
    | Choice
    | Joined
    | Assign
    | Declare
    | If
    | For
    | Break
    | Return
    | Lambda
)

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*)
    | (?P<cast>\d+'[UIFB](?=\())
    | (?P<declared>\d+'[UIFB](?=[\[;]))
    | (?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)(?:ULL|LL|U|F|L)?)
    | (?P<number>0x[0-9a-fA-F]+(?:ULL|LL|U)?|\d+\.\d+F?|\d+(?:ULL|LL|U|F)?)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<sign>\+:|\+=|-=|\*\*|<<|>>|<=|>=|<>|==|!=|&&|\|\||[-+*/%&|^~!<>=?:;,.(){}\[\]])
    """,
    re.VERBOSE,
)
_ENDS = frozenset({"endif", "else", "elsif", "endfor", ")", ""})
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "<>"),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)


@cache
def parse(text: str) -> tuple[Node, ...]:
    """The statements of a text."""
    reader = _Reader(_tokens(text))
    body = reader.statements()
    reader.expect("")
    return body


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise NotUnderstood(f"{text[at : at + 20]!r} begins no token")
        if match.lastgroup != "skip":
            found.append((match.lastgroup, match.group()))
        at = match.end()
    return found


class _Reader:
    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._tokens = [*tokens, ("end", ""), ("end", "")]
        self._at = 0

    @property
    def kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def text(self) -> str:
        return self._tokens[self._at][1]

    def take(self) -> str:
        if self.kind == "end":
            raise NotUnderstood("the text ends early")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def expect(self, text: str) -> None:
        if self.text != text:
            raise NotUnderstood(f"{self.text!r} where {text!r} is expected")
        if text:
            self._at += 1

    def accept(self, text: str) -> bool:
        if self.text != text or self.kind == "end":
            return False
        self._at += 1
        return True

    # Statements

    def statements(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while self.text not in _ENDS:
            if not self.accept(";"):
                found.append(self.statement())
        return tuple(found)

    def statement(self) -> Node:
        special = {"if": self._if, "for": self._for, "declare": self._declare, "return": self._return}
        if self.text in special:
            return special[self.text]()
        if self.accept("break"):
            return Break()
        target = self.expression()
        if self.text in {"+=", "-="}:
            return Assign(target, self.take()[0], self.expression())
        if not self.accept("="):
            return target
        if self.accept("lambda"):
            return self._lambda(target)
        return Assign(target, "", self.expression())

    def _if(self) -> Node:
        branches: list[tuple[Node | None, tuple[Node, ...]]] = []
        while self.accept("if" if not branches else "elsif"):
            condition = self.expression()
            self.expect("then")
            branches.append((condition, self.statements()))
        if self.accept("else"):
            branches.append((None, self.statements()))
        self.expect("endif")
        return If(tuple(branches))

    def _for(self) -> Node:
        self.expect("for")
        name = self.take()
        self.expect("in")
        first = self.binary(0)
        self.expect(":")
        last = self.expression()
        self.expect("do")
        body = self.statements()
        self.expect("endfor")
        return For(name, first, last, body)

    def _declare(self) -> Node:
        self.expect("declare")
        name = self.take()
        self.expect(":")
        if self.kind != "declared":
            raise NotUnderstood(f"{self.text!r} is no type")
        width, kind = self.take().split("'")
        count = None
        if self.accept("["):
            count = int(self.take())
            self.expect("]")
        return Declare(name, kind.lower(), int(width), count)

    def _return(self) -> Node:
        self.expect("return")
        return Return(self.expression())

    def _lambda(self, target: Node) -> Node:
        if not isinstance(target, Name):
            raise NotUnderstood("a lambda without a name")
        self.expect("(")
        parameters = [self.take()]
        while self.accept(","):
            parameters.append(self.take())
        self.expect(")")
        self.expect("(")
        is_block = self.text in {"if", "declare", "for"}
        body = self.statements() if is_block else (Return(self.expression()),)
        self.expect(")")
        return Lambda(target.name, tuple(parameters), body)

    # Expressions

    def expression(self) -> Node:
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        then = self.expression()
        self.expect(":")
        return Choice(condition, then, self.expression())

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.power()
        left = self.binary(level + 1)
        while self.kind == "sign" and self.text in _LEVELS[level]:
            operator = self.take()
            left = Binary(operator, left, self.binary(level + 1))
        return left

    def power(self) -> Node:
        base = self.unary()
        return Binary("**", base, self.unary()) if self.accept("**") else base

    def unary(self) -> Node:
        if self.kind == "sign" and self.text in {"-", "+", "!", "~"}:
            operator = self.take()
            return Unary(operator, self.unary())
        return self.postfix(self.primary())

    def postfix(self, base: Node) -> Node:
        while True:
            if self.accept("."):
                base = Typed(base, self.take())
            elif self.accept("["):
                base = self._bracket(base)
            else:
                return base

    def _bracket(self, base: Node) -> Node:
        first = self.expression()
        found: Node
        if self.accept(":"):
            found = Slice(base, first, self.expression())
        elif self.accept("+:"):
            found = Part(base, first, self.expression())
        else:
            found = Index(base, first)
        self.expect("]")
        return found

    def primary(self) -> Node:
        kind, text = self.kind, self.take()
        if kind in {"sized", "number"}:
            return _literal(text)
        if kind == "cast":
            width, letter = text.split("'")
            self.expect("(")
            value = self.expression()
            self.expect(")")
            return Cast(letter.lower(), int(width), value)
        if kind == "name":
            return Call(text, self._list(")")) if self.accept("(") else Name(text)
        if text == "(":
            value = self.expression()
            self.expect(")")
            return value
        if text == "{":
            return Joined(self._list("}"))
        raise NotUnderstood(f"{text!r} begins no value")

    def _list(self, end: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self.accept(end):
            if found:
                self.expect(",")
            found.append(self.expression())
        return tuple(found)


def _literal(text: str) -> Literal:
    size, _, body = text.rpartition("'")
    digits = re.sub(r"(ULL|LL|U|L)$", "", body)
    suffix = body[len(digits) :]
    is_hex = digits.startswith("0x")
    if not is_hex and (digits.endswith("F") or "." in digits):
        width = int(size) if size else 32 if digits.endswith("F") else 64
        return Literal("f", width, digits.rstrip("F"))
    width = int(size) if size else 64 if "LL" in suffix else 32
    if is_hex:
        return Literal("x", max(width, int(digits, 16).bit_length()), digits)
    return Literal("u" if "U" in suffix or size else "i", width, digits)


def walk(node: object) -> list[Node]:
    """All nodes of a tree or of statements, each before what is in it."""
    found: list[Node] = []
    if isinstance(node, tuple):
        for part in node:
            found += walk(part)
    elif hasattr(node, "__dataclass_fields__"):
        found.append(node)  # type: ignore[arg-type]
        for field in node.__dataclass_fields__:
            found += walk(getattr(node, field))
    return found

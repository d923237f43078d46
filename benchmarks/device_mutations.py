"""What can be broken in device code, one thing at a time: sites and mutants for ``device_mutants.py``.

Sites are found by tokens in bodies of ``__global__`` and ``__device__`` functions, on lines of patches. Each
mutant is an expression in the text that is false unless the mutant's number is selected at run time, so all
mutants of a candidate are in one build:

    barrier      a barrier is skipped
    fence        a fence is skipped, or orders only the waves of its block
    atomic       an atomic addition becomes a load, an addition and a store
    condition    an operand of && and ||, or a whole condition, becomes true or false
    bound        < becomes <= or loses its last value (all comparisons alike); min and max become one operand
    loop         a loop omits its first or its last iteration
    start        a value that begins with 0 or 1 begins with one more

Conditions that only the compiler evaluates (``if constexpr``, template arguments, initializers of constexpr
values) are not mutated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import Entity, ScopeMap, parse_scopes

Kind = Literal["barrier", "fence", "atomic", "condition", "bound", "loop", "start"]
KINDS: tuple[Kind, ...] = ("barrier", "fence", "atomic", "condition", "bound", "loop", "start")

HEADER = "device-mutants.cuh"
MAGIC = bytes.fromhex("8bd1f6a2530e7c19")
"""In front of the selected number in compiled code, where the tool finds it."""
CODE = """#pragma once
#if defined(__HIP_DEVICE_COMPILE__)
struct ggml_mutant_selection {
    unsigned magic[2];
    int number;
};
__constant__ ggml_mutant_selection ggml_mutant_selected = { { 0xa2f6d18bu, 0x197c0e53u }, 0 };
#define GGML_MUTANT(n) (ggml_mutant_selected.number == (n))
static __device__ inline unsigned ggml_mutant_add(unsigned * to, const unsigned value) {
    volatile unsigned * at = to;
    const unsigned before = *at;
    *at = before + value;
    return before;
}
#else
#define GGML_MUTANT(n) false
#define ggml_mutant_add(to, value) 0u
#endif
"""
_DEVICE = re.compile(rb"__global__|__device__")
_BARRIERS = frozenset({b"__syncthreads", b"__syncwarp", b"__builtin_amdgcn_s_barrier"})
_FENCES = frozenset({b"__threadfence", b"__threadfence_block", b"__builtin_amdgcn_fence"})
_LIMITS = frozenset({b"min", b"max", b"fminf", b"fmaxf"})
_COMPARED = {b"<": b">=", b"<=": b">", b">": b"<=", b">=": b"<"}
_ASSIGNS = (b"=", b"+=", b"-=", b"*=", b"/=", b"|=", b"&=")
_ENDS = frozenset({b";", b",", b"?", b":", b"return", b"{", *_ASSIGNS})
_OPERAND_ENDS = _ENDS | {b"&&", b"||"}
_START = re.compile(rb"(?:0|1)(?:\.0f|u)?")
_COMPILED = frozenset({b"constexpr", b"static_assert", b"using", b"typedef"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One mutant: ``code`` becomes ``becomes``. ``function`` contains it."""

    kind: Kind
    line: int
    function: str
    code: str
    becomes: str


@dataclass(frozen=True, slots=True)
class _Wrap:
    """Text around a span of bytes, which is empty for an insertion."""

    start: int
    end: int
    before: str
    after: str


def operands(scopes: ScopeMap, position: int, ends: frozenset[bytes]) -> Iterator[tuple[int, int]]:
    """The operands left and right of ``&&`` or ``||``, as spans of tokens; ``ends`` limit them."""
    first, last = back(scopes, position, ends), forward(scopes, position + 1, ends)
    if first < position:
        yield first, position
    if position + 1 < last:
        yield position + 1, last


def back(scopes: ScopeMap, position: int, ends: frozenset[bytes]) -> int:
    """The first token of what ends before a token."""
    code, parents = scopes.code, scopes.parents
    around = parents[position]
    first = position
    while first - 1 != (around if around is not None else -1) and not (
        parents[first - 1] == around and code[first - 1].text in ends
    ):
        first -= 1
    return first


def forward(scopes: ScopeMap, position: int, ends: frozenset[bytes]) -> int:
    """The end of what begins with a token."""
    code, parents = scopes.code, scopes.parents
    around = parents[position]
    last = position
    end = scopes.match[around] if around is not None else len(code)
    while last < end and not (parents[last] == around and code[last].text in ends):
        last += 1
    return last


@dataclass(slots=True)
class _Finder:
    scopes: ScopeMap
    data: bytes
    lines: Mapping[int, str]
    """Numbers of lines that patches wrote, with the patch."""
    first: int
    found: list[tuple[Site, str]] = field(default_factory=list)
    wraps: list[_Wrap] = field(default_factory=list)
    seen: set[tuple[int, int, str]] = field(default_factory=set)

    def find(self) -> None:
        functions = [
            one
            for one in self.scopes.entities
            if one.kind == "function" and _DEVICE.search(self.data[one.span.start : one.body.start])
        ]
        for one in functions:
            if re.search(rb"\bconstexpr\b", self.data[one.span.start : one.body.start]):
                continue
            for position, token in enumerate(self.scopes.code):
                if one.body.start <= token.start < one.body.end and not self._is_compiled(position):
                    self._look(position, one)

    # ---- Where

    def _text(self, position: int) -> bytes:
        code = self.scopes.code
        return code[position].text if 0 <= position < len(code) else b""

    def _source(self, first: int, end: int) -> str:
        code = self.scopes.code
        return self.data[code[first].start : code[end - 1].end].decode("utf-8", "replace")

    def _statement(self, position: int) -> int:
        """The first token of the statement, or of the part of a for loop's head."""
        code, parents, match = self.scopes.code, self.scopes.parents, self.scopes.match
        at = position
        around = parents[at]
        while around is not None and code[around].text != b"{":
            at, around = around, parents[around]
        while at > 0:
            before = at - 1
            if parents[before] == around and code[before].text in (b";", b":"):
                break
            if before == around or code[before].text == b"}":
                break
            at = match[before] if parents[before] != around and before in match else before
            if code[at].text == b"{":
                break
        return at

    def _is_compiled(self, position: int) -> bool:
        """Whether only the compiler evaluates it."""
        begin = self._statement(position)
        return bool(_COMPILED & {self._text(n) for n in range(begin, min(begin + 4, position + 1))})

    def _author(self, first: int, end: int) -> str | None:
        code = self.scopes.code
        begin = self.data.count(b"\n", 0, code[first].start) + 1
        last = self.data.count(b"\n", 0, code[end - 1].end) + 1
        patches = {self.lines.get(number) for number in range(begin, last + 1)}
        return patches.pop() if len(patches) == 1 else None

    # ---- Mutants

    def _add(self, kind: Kind, first: int, end: int, function: Entity, becomes: str, code: str = "") -> str:
        """Add a mutant; returns the expression that is true if it is selected, or an empty text."""
        patch = self._author(first, end)
        key = (first, end, becomes)
        if patch is None or key in self.seen:
            return ""
        self.seen.add(key)
        number = self.first + len(self.found)
        line = self.data.count(b"\n", 0, self.scopes.code[first].start) + 1
        text = " ".join((code or self._source(first, end)).split())
        site = Site(kind=kind, line=line, function=function.name, code=text, becomes=becomes)
        self.found.append((site, patch))
        return f"GGML_MUTANT({number})"

    def _wrap(self, first: int, end: int, before: str, after: str) -> None:
        code = self.scopes.code
        self.wraps.append(_Wrap(code[first].start, code[end - 1].end, before, after))

    def _look(self, position: int, function: Entity) -> None:
        text, is_call = self._text(position), self._text(position + 1) == b"("
        if text in {b"&&", b"||", b"?", b"bool"} or (text in {b"if", b"while"} and is_call):
            self._conditions(position, function)
        elif text == b"for" and is_call:
            self._loop(position, function)
        elif text in _BARRIERS | _FENCES and is_call:
            self._sync(position, function)
        elif text == b"atomicAdd" and is_call:
            end = self.scopes.match[position + 1] + 1
            given = self._source(position + 1, end)
            if mutant := self._add("atomic", position, end, function, "a load and a store"):
                self._wrap(position, end, f"({mutant} ? ggml_mutant_add{given} : ", ")")
        elif text in _LIMITS and is_call:
            self._limit(position, function)
        elif text == b"=" and self._text(position + 2) == b";":
            self._start(position, function)

    def _conditions(self, position: int, function: Entity) -> None:
        text = self._text(position)
        if text in {b"&&", b"||"}:
            for first, end in operands(self.scopes, position, _OPERAND_ENDS):
                self._condition(first, end, function, ("true" if text == b"&&" else "false",))
        elif text == b"?":
            self._condition(back(self.scopes, position, _ENDS), position, function, ("true", "false"))
        elif text == b"bool":
            if self._text(position + 2) == b"=":
                end = forward(self.scopes, position + 3, frozenset({b";"}))
                self._condition(position + 3, end, function, ("true", "false"))
        else:
            closing = self.scopes.match.get(position + 1, 0)
            if closing > position + 2:
                both = ("true", "false") if text == b"if" else ("false",)
                self._condition(position + 2, closing, function, both)

    def _condition(self, first: int, end: int, function: Entity, both: Sequence[str]) -> None:
        if b"#" in self.data[self.scopes.code[first].start : self.scopes.code[end - 1].end]:
            return
        for becomes in both:
            if mutant := self._add("condition", first, end, function, becomes):
                join = f"|| {mutant}" if becomes == "true" else f"&& !{mutant}"
                self._wrap(first, end, "((", f") {join})")
        self._bound(first, end, function)

    def _bound(self, first: int, end: int, function: Entity, *, is_loop: bool = False) -> None:
        """A comparison that is all of the span."""
        around = self.scopes.parents[first]
        texts = [self._text(n) if self.scopes.parents[n] == around else b"()" for n in range(first, end)]
        places = [first + n for n, text in enumerate(texts) if text in _COMPARED]
        if len(places) != 1 or {b"&&", b"||", b"?", b"=="} & set(texts):
            return
        at = places[0]
        left, right = self._source(first, at), self._source(at + 1, end)
        sign = self._text(at).decode()
        # By one value more, and by one value less.
        if sign in "<>":
            wider, edge = f"{sign}=", f"({left}) == ({right})"
            narrower = f"({left}) + 1 == ({right})" if sign == "<" else f"({left}) == ({right}) + 1"
            less = f"without the last {sign}"
        else:
            wider, less = f"one more {sign}", sign[0]
            edge = f"({left}) == ({right}) + 1" if sign == "<=" else f"({left}) + 1 == ({right})"
            narrower = f"({left}) == ({right})"
        if mutant := self._add("bound", first, end, function, wider):
            self._wrap(first, end, "((", f") || ({mutant} && {edge}))")
        if is_loop:  # its last iteration is a mutant of its own
            return
        if mutant := self._add("bound", first, end, function, less):
            self._wrap(first, end, "((", f") && !({mutant} && {narrower}))")

    def _loop(self, position: int, function: Entity) -> None:
        closing = self.scopes.match[position + 1]
        begin = forward(self.scopes, position + 2, frozenset({b";"}))
        middle = forward(self.scopes, begin + 1, frozenset({b";"}))
        step = [self._text(n) for n in range(middle + 1, closing)]
        if middle >= closing or self._text(closing + 1) != b"{":
            return
        if step[0] == b"++":
            name, size = step[1].decode(), "1"
        elif step[1:2] == [b"+="]:
            name, size = step[0].decode(), self._source(middle + 3, closing)
        else:
            return
        later = re.sub(rf"\b{re.escape(name)}\b", f"({name} + ({size}))", self._source(begin + 1, middle))
        self._without(position, closing, function, "without its last iteration", f"!({later})")
        equals = forward(self.scopes, position + 2, frozenset({b"="}))
        if equals < begin:
            first = f"{name} == ({self._source(equals + 1, begin)})"
            self._without(position, closing, function, "without its first iteration", first)
        if not self._is_unrolled(position):
            self._bound(begin + 1, middle, function, is_loop=True)

    def _without(self, position: int, closing: int, function: Entity, becomes: str, when: str) -> None:
        """A mutant of a loop that skips iterations."""
        inside = self.scopes.code[closing + 1].end
        if mutant := self._add("loop", position, closing + 1, function, becomes):
            self.wraps.append(_Wrap(inside, inside, f" if ({mutant} && {when}) {{ continue; }}", ""))

    def _is_unrolled(self, position: int) -> bool:
        """Whether a pragma before the loop has it unrolled: then its bound is a number for the compiler."""
        before = self.data[: self.scopes.code[position].start].rstrip().rsplit(b"\n", 1)[-1].strip()
        return before.startswith(b"#pragma unroll") and not before.endswith(b"unroll 1")

    def _sync(self, position: int, function: Entity) -> None:
        end = self.scopes.match[position + 1] + 1
        if self._text(end) != b";":
            return
        is_fence = self._text(position) in _FENCES
        kind: Kind = "fence" if is_fence else "barrier"
        if mutant := self._add(kind, position, end, function, "nothing"):
            self._wrap(position, end, f"if (!{mutant}) {{ ", "; }")
        call = self._source(position, end)
        if is_fence and '"agent"' in call:
            weaker = call.replace('"agent"', '"workgroup"')
            if mutant := self._add(kind, position, end, function, "workgroup"):
                self._wrap(position, end, f"if ({mutant}) {{ {weaker}; }} else {{ ", "; }")

    def _limit(self, position: int, function: Entity) -> None:
        end = self.scopes.match[position + 1] + 1
        comma = forward(self.scopes, position + 2, frozenset({b","}))
        if comma >= end - 1:
            return
        for first, last in ((position + 2, comma), (comma + 1, end - 1)):
            operand = self._source(first, last)
            if mutant := self._add("bound", position, end, function, " ".join(operand.split())):
                self._wrap(position, end, f"({mutant} ? ({operand}) : ", ")")

    def _start(self, position: int, function: Entity) -> None:
        around = self.scopes.parents[position]
        if (
            around is None or self._text(around) == b"("
        ):  # of a loop: its first iteration is a mutant of its own
            return
        if not _START.fullmatch(self._text(position + 1)):
            return
        literal = self._text(position + 1).decode()
        more = literal.replace("1", "2", 1) if literal.startswith("1") else literal.replace("0", "1", 1)
        before = self._source(max(self._statement(position), position - 6), position + 2)
        if mutant := self._add("start", position + 1, position + 2, function, more, before):
            self._wrap(position + 1, position + 2, f"({mutant} ? {more} : ", ")")


def mutated_text(
    path: str, data: bytes, lines: Mapping[int, str], first: int
) -> tuple[bytes, tuple[tuple[Site, str], ...]]:
    """The file with its mutants, numbered from ``first`` on, each with its patch.

    ``lines`` are the numbers of lines whose code is mutated, with the patch that wrote them.
    """
    finder = _Finder(scopes=parse_scopes(SourceText(path, data)), data=data, lines=lines, first=first)
    finder.find()
    if not finder.found:
        return data, ()
    pieces = [_Wrap(0, 0, f'#include "{HEADER}"\n', ""), *finder.wraps]
    return _wrapped(data, pieces), tuple(finder.found)


def _wrapped(data: bytes, wraps: Sequence[_Wrap]) -> bytes:
    """Text inserted around spans. At one place, inner spans end before outer ones, and begin after them."""
    inserted: list[tuple[int, int, int, int, str]] = []
    for order, one in enumerate(wraps):
        size = one.end - one.start
        if not size:
            inserted.append((one.start, 1, 0, order, one.before))
            continue
        inserted += [(one.start, 2, -size, order, one.before), (one.end, 0, size, -order, one.after)]
    pieces, at = [], 0
    for position, _, _, _, text in sorted(inserted, key=lambda one: one[:4]):
        pieces += [data[at:position], text.encode()]
        at = position
    return b"".join([*pieces, data[at:]])


def kernels_of(files: Mapping[str, bytes]) -> dict[str, frozenset[str]]:
    """For each device function of these files, the kernels that call it, itself if it is one."""
    bodies: dict[str, set[bytes]] = {}
    kernels: set[str] = set()
    for path, data in files.items():
        for one in parse_scopes(SourceText(path, data)).entities:
            head = data[one.span.start : one.body.start]
            if one.kind != "function" or not _DEVICE.search(head):
                continue
            name = one.name.rpartition("::")[2]
            text = data[one.body.start : one.body.end]
            bodies.setdefault(name, set()).update(re.findall(rb"[A-Za-z_]\w*", text))
            if b"__global__" in head:
                kernels.add(name)
    called: dict[str, set[str]] = {name: {name} if name in kernels else set() for name in bodies}
    for _ in range(len(bodies)):
        before = sum(map(len, called.values()))
        for caller, words in bodies.items():
            for name in called:
                if name.encode() in words and caller != name:
                    called[name] |= called[caller]
        if sum(map(len, called.values())) == before:
            break
    return {name: frozenset(found) for name, found in called.items()}

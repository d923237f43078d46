"""What each selector word covers. Selections are lists of spans; judging their number is not done here.

Vocabulary: see :mod:`patchkit.config.selector`. An entity of ``None`` means the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.anchors.pattern import Run, find_runs, matches_exactly, parse_pattern
from patchkit.anchors.statements import statement_around
from patchkit.config.selector import (
    After,
    Before,
    Between,
    Body,
    Call,
    CallArg,
    Condition,
    GroupLines,
    Selector,
    Statement,
    TableRow,
    TemplateParams,
    Tokens,
)
from patchkit.cxx.scopes import Entity, ScopeMap
from patchkit.source import Span

# Pragmas that govern the loop or statement behind them (clang, "Extensions for loop hint optimizations").
_TIED_PRAGMAS = frozenset(
    {(b"unroll",), (b"nounroll",), (b"omp",), (b"clang", b"loop"), (b"GCC", b"unroll"), (b"GCC", b"ivdep")}
)


def select(scopes: ScopeMap, entity: Entity | None, selector: Selector) -> list[Span]:
    """Every span ``selector`` covers in ``entity``, in order, without repeats."""
    spans = list(dict.fromkeys(_select(scopes, entity, selector)))
    return sorted(spans)


def _select(scopes: ScopeMap, entity: Entity | None, selector: Selector) -> Iterator[Span]:
    match selector:
        case Tokens() | Statement() | Call() | CallArg() | Condition():
            for domain in _domains(scopes, entity, selector.inside):
                yield from _select_code(scopes, entity, selector, domain)
        case Before() | After() | Between():
            yield from _select_around(scopes, entity, selector)
        case TemplateParams(pattern):
            header = Span(entity.header.start, entity.parameters.start) if entity else _whole(scopes)
            for run in find_runs(scopes, parse_pattern(pattern), scopes.code_in(header)):
                yield _span(scopes, run)
        case GroupLines(condition):
            yield from _group_lines(scopes, entity, condition)
        case TableRow(leading, table):
            yield from _table_rows(scopes, entity, leading, table)
        case Body():
            yield _inner_lines(scopes, entity.body) if entity is not None else _whole(scopes)


def _select_code(  # noqa: C901 - one arm per selector word
    scopes: ScopeMap,
    entity: Entity | None,
    selector: Tokens | Statement | Call | CallArg | Condition,
    domain: range,
) -> Iterator[Span]:
    match selector:
        case Tokens(pattern):
            for run in find_runs(scopes, parse_pattern(pattern), domain):
                yield _span(scopes, run)
        case Statement(pattern):
            for first, last in find_runs(scopes, parse_pattern(pattern), domain):
                yield _with_pragmas(scopes, _span(scopes, statement_around(scopes, first, last)))
        case Call(name):
            for first, _, last in _calls(scopes, entity, name, domain):
                yield _span(scopes, (first, last))
        case CallArg(pattern, call):
            wanted = parse_pattern(pattern)
            for _, opener, last in _calls(scopes, entity, call, domain):
                for argument in _arguments(scopes, opener, last):
                    if matches_exactly(scopes, wanted, argument):
                        yield _span(scopes, (argument.start, argument.stop - 1))
        case Condition(pattern):
            yield from _conditions(scopes, pattern, domain)


def _select_around(
    scopes: ScopeMap, entity: Entity | None, selector: Before | After | Between
) -> Iterator[Span]:
    match selector:
        case Before(inner):
            yield from (Span(span.start, span.start) for span in select(scopes, entity, inner))
        case After(inner):
            yield from (Span(span.end, span.end) for span in select(scopes, entity, inner))
        case Between(first, last):
            ends = select(scopes, entity, last)
            for start in select(scopes, entity, first):
                yield from (Span(start.end, end.start) for end in ends if start.end <= end.start)


def _with_pragmas(scopes: ScopeMap, span: Span) -> Span:
    """The statement with the pragmas in front of it that clang ties to it, ``#pragma unroll`` above all.

    Without them an insertion would come between the pragma and its loop, and a removal would leave
    the pragma to the next statement.
    """
    start = span.start
    for line in reversed(scopes.directives):
        if line.span.start >= start:
            continue
        words = tuple(token.text for token in line.tokens[:2])
        tied = words[:1] in _TIED_PRAGMAS or words in _TIED_PRAGMAS
        if line.keyword != b"pragma" or not tied or len(scopes.code_in(Span(line.span.end, start))):
            break
        start = line.span.start
    return Span(start, span.end)


def _inner_lines(scopes: ScopeMap, body: Span) -> Span:
    """A body without the rest of the line of its ``{`` and the indentation of its ``}``, where blank."""
    text = scopes.source.text(body)
    first, last = text.find(b"\n"), text.rfind(b"\n")
    if first == -1 or text[:first].strip() or text[last:].strip():
        return body
    return Span(body.start + first + 1, max(body.start + first + 1, body.start + last))


def _whole(scopes: ScopeMap) -> Span:
    return Span(0, len(scopes.source.data))


def _domains(scopes: ScopeMap, entity: Entity | None, inside: Selector | None) -> Iterator[range]:
    if inside is not None:
        for span in select(scopes, entity, inside):
            yield scopes.code_in(span)
    elif entity is not None:
        yield scopes.code_in(entity.span)
    else:
        yield range(len(scopes.code))


def _span(scopes: ScopeMap, run: Run) -> Span:
    return Span(scopes.code[run[0]].span.start, scopes.code[run[1]].span.end)


def _calls(
    scopes: ScopeMap, entity: Entity | None, name: str, domain: range
) -> Iterator[tuple[int, int, int]]:
    """Positions of name, ``(`` and ``)`` of each call; the entity's own declarator is no call."""
    own = entity.parameters.start if entity is not None else -1
    for run in find_runs(scopes, parse_pattern(name), domain):
        opener = run[1] + 1
        if opener < domain.stop and scopes.code[opener].text == b"<":
            opener = _after_angles(scopes, opener, domain.stop)
        if opener >= domain.stop or scopes.code[opener].text != b"(":
            continue
        last = scopes.match.get(opener)
        if last is not None and last < domain.stop and scopes.code[opener].span.start != own:
            yield run[0], opener, last


def _after_angles(scopes: ScopeMap, opener: int, stop: int) -> int:
    """Behind the ``>`` that closes the ``<`` at ``opener``; ``opener`` when this is a comparison."""
    depth, position = 0, opener
    while position < stop:
        text = scopes.code[position].text
        if text == b"<":
            depth += 1
        elif text in (b">", b">>"):
            depth -= len(text)
            if depth <= 0:
                return position + 1
        elif text in (b";", b"{", b"}", b"&&", b"||"):
            break
        elif text in (b"(", b"["):
            position = max(position, scopes.match.get(position, position))
        position += 1
    return opener


def _arguments(scopes: ScopeMap, opener: int, last: int) -> Iterator[range]:
    start = position = opener + 1
    while position < last:
        text = scopes.code[position].text
        behind = _after_angles(scopes, position, last) if text == b"<" else position
        if text == b",":
            yield range(start, position)
            start = position + 1
        position = max(behind, max(position, scopes.match.get(position, position)) + 1)
    if start < last:
        yield range(start, last)


def _conditions(scopes: ScopeMap, pattern: str, domain: range) -> Iterator[Span]:
    wanted = parse_pattern(pattern)
    for position in domain:
        if scopes.code[position].text not in (b"if", b"while"):
            continue
        opener = position + 1
        if opener < domain.stop and scopes.code[opener].text == b"constexpr":
            opener += 1
        last = scopes.match.get(opener)
        if last is None or last >= domain.stop or scopes.code[opener].text != b"(" or last == opener + 1:
            continue
        inside = range(opener + 1, last)
        if any(True for _ in find_runs(scopes, wanted, inside)):
            yield _span(scopes, (inside.start, inside.stop - 1))


def _group_lines(scopes: ScopeMap, entity: Entity | None, condition: str) -> Iterator[Span]:
    wanted = b" ".join(parse_pattern(condition).texts)
    around = entity.span if entity is not None else _whole(scopes)
    for group in scopes.groups:
        for branch in group.branches:
            if branch.directive.condition == wanted and around.contains(branch.body):
                yield branch.body


def _table_rows(scopes: ScopeMap, entity: Entity | None, leading: str, table: str) -> Iterator[Span]:
    wanted = parse_pattern(leading)
    for domain in _domains(scopes, entity, None):
        if table == "{}":
            openers = [(p, p) for p in domain if scopes.code[p].text == b"{" and p < scopes.match.get(p, p)]
        else:
            openers = [(first, opener) for first, opener, _ in _calls(scopes, entity, table, domain)]
        for first, opener in openers:
            row = range(opener + 1, scopes.match[opener])
            head = next(find_runs(scopes, wanted, row), None)
            if head is not None and head[0] == row.start:
                behind = scopes.code[head[1] + 1].text if head[1] + 1 <= row.stop else b""
                if behind in (b",", b")", b"}"):
                    yield _span(scopes, (first, scopes.match[opener]))

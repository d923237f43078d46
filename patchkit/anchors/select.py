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

__all__ = ["select"]


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
            yield entity.body if entity is not None else _whole(scopes)


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
                yield _span(scopes, statement_around(scopes, first, last))
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


def _after_angles(scopes: ScopeMap, position: int, stop: int) -> int:
    """Behind the ``>`` that closes the ``<`` at ``position``; ``stop`` when this is a comparison."""
    depth = 0
    while position < stop:
        text = scopes.code[position].text
        if text == b"<":
            depth += 1
        elif text in (b">", b">>"):
            depth -= len(text)
            if depth <= 0:
                return position + 1
        elif text in (b";", b"{", b"}", b"&&", b"||"):
            return stop
        elif text in (b"(", b"["):
            position = max(position, scopes.match.get(position, position))
        position += 1
    return stop


def _arguments(scopes: ScopeMap, opener: int, last: int) -> Iterator[range]:
    start = position = opener + 1
    angle = 0
    while position < last:
        text = scopes.code[position].text
        if text == b"," and angle == 0:
            yield range(start, position)
            start = position + 1
        elif text == b"<" and _after_angles(scopes, position, last) < last:
            position = _after_angles(scopes, position, last) - 1
        else:
            position = max(position, scopes.match.get(position, position))
        position += 1
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

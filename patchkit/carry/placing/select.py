"""The spans that each selector word covers. Their number is checked in :mod:`resolve`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.lexer import Token, TokenKind
from patchkit.carry.cpp.scopes import CLOSING, Entity, ScopeMap, is_code, parse_scopes
from patchkit.carry.placing.lines import WantedLines, rows_of
from patchkit.carry.placing.names import find_commands, find_definitions, find_includes, find_members
from patchkit.carry.placing.pattern import Run, find_runs, matches_exactly, parse_pattern
from patchkit.carry.series.selector import Selector

BraceRole = Literal["block", "lambda", "record", "value"]

_BLOCK_BEFORE = frozenset({b";", b"}", b"else", b"do", b"try"})
_CONTROLS = frozenset({b"if", b"for", b"while", b"switch", b"constexpr", b"catch"})
_TYPES = frozenset({b"struct", b"class", b"union", b"enum"})
_STOPS = frozenset({b";", b"{", b"}", b"(", b"=", b"return"})
_IN_TYPES = frozenset({b"&", b"&&", b"->", b"::", b"<", b">", b"*"})
# After one of these, parentheses contain a type: (float4){...}, a compound literal.
_LITERAL_BEFORE = frozenset({b"=", b"(", b",", b"return", b"?", b":", b"+", b"-", b"*", b"/", b"&&", b"||"})


def brace_role(  # noqa: PLR0911 - one per kind of token
    code: Sequence[Token], match: Mapping[int, int], opener: int
) -> BraceRole:
    """The role of the ``{`` at position ``opener``, judged by the tokens before it."""
    while opener > 0 and code[opener - 1].text == b"{":
        opener -= 1  # {{1, 2}} and { { x; } }: the outermost brace decides
    if opener == 0 or code[opener - 1].text in _BLOCK_BEFORE:
        return "block"
    token = code[opener - 1]
    if token.text == b":":
        return _after_colon(code, match, opener - 1)
    if token.text == b")":
        return _after_parenthesis(code, match, opener - 1)
    if token.text == b"]":
        return _after_bracket(code, match, opener - 1)
    if token.kind is TokenKind.LITERAL:
        return "block" if opener > 1 and code[opener - 2].text == b"extern" else "value"
    if token.kind in (TokenKind.IDENTIFIER, TokenKind.KEYWORD) or token.text in (b">", b">>", b"&", b"&&"):
        return _after_word(code, match, opener - 1)
    return "value"


def _after_colon(code: Sequence[Token], match: Mapping[int, int], colon: int) -> BraceRole:
    """Distinguish ``case 1: {`` from ``for (int x : {1, 2})``."""
    position = colon
    while position >= 0 and code[position].text not in (b";", b"{", b"}", b"("):
        position = min(position, match.get(position, position)) - 1
    return "value" if position >= 0 and code[position].text == b"(" else "block"


def _after_parenthesis(code: Sequence[Token], match: Mapping[int, int], closer: int) -> BraceRole:
    before = match.get(closer, closer) - 1
    if before >= 0 and code[before].text in (b">", b">>"):
        before = _before_angles(code, before)  # []<int n>(auto x) {
    if before >= 0 and code[before].text == b"]":
        return "lambda"
    return "value" if before >= 0 and code[before].text in _LITERAL_BEFORE else "block"


def _after_bracket(code: Sequence[Token], match: Mapping[int, int], closer: int) -> BraceRole:
    opener = match.get(closer, closer)
    if code[opener + 1].text == b"[" or opener == 0:
        return "block"  # an attribute: if (x) [[likely]] {
    before = code[opener - 1]
    if before.text == b"return":
        return "lambda"
    # int a[2]{1, 2} and new int[2]{1, 2} are values; a lambda's captures do not follow a name.
    is_array = before.kind is not TokenKind.PUNCTUATION or before.text in (b"]", b")", b">", b"*")
    return "value" if is_array else "lambda"


def _after_word(code: Sequence[Token], match: Mapping[int, int], last: int) -> BraceRole:
    """After a name or a type: ``struct name {``, ``f() const {``, ``[]() -> int {`` or ``name{value}``."""
    position = last
    while position >= 0 and code[position].text not in _STOPS:
        text = code[position].text
        if text in _TYPES:
            return "record"
        if text == b"namespace":
            return "block"
        if text == b")":
            opener = match.get(position, position)
            arrow = position + 1 <= last and code[position + 1].text == b"->"
            head = code[opener - 1].text if opener > 0 else b""
            if arrow or not (head in _CONTROLS or _is_expression(code, position + 1, last)):
                return _after_parenthesis(code, match, position)
            return "value"
        position = min(position, match.get(position, position)) - 1
    return "value"


def _is_expression(code: Sequence[Token], first: int, last: int) -> bool:
    """Whether there is an operator between a parenthesis and a brace: ``f(x) + int{1}``."""
    words = code[first : last + 1]
    return any(token.kind is TokenKind.PUNCTUATION and token.text not in _IN_TYPES for token in words)


def _before_angles(code: Sequence[Token], position: int) -> int:
    depth = 0
    while position >= 0:
        text = code[position].text
        depth += text.count(b">") if text in (b">", b">>") else -(text == b"<")
        position -= 1
        if depth <= 0:
            return position
    return position


_HEADS = frozenset({b"if", b"for", b"while", b"switch"})
_ACCESS = frozenset({b"public", b"private", b"protected"})


def statement_around(scopes: ScopeMap, first: int, last: int) -> tuple[int, int]:
    """First and last position of the smallest statement that contains ``first`` to ``last``.

    For a run over several statements of one block: from the first to the last of them.
    """
    start = _start(scopes, _climb(scopes, first))
    while (opener := scopes.parents[start]) is not None and scopes.match[opener] <= last:
        start = _start(scopes, _climb(scopes, opener))  # the run extends beyond the block that it begins in
    end = _end(scopes, start)
    while end < last and (following := _end(scopes, end + 1)) > end:
        end = following
    return start, max(end, last)


def starts_controlled(scopes: ScopeMap, position: int) -> bool:
    """Whether a controlled statement, or the block of a control statement, starts at ``position``."""
    if not 0 < position < len(scopes.code):
        return False
    before = scopes.code[position - 1].text
    if before == b"else":
        return scopes.code[position].text != b"if"
    return before == b"do" or (before == b")" and _is_control_head(scopes, scopes.match.get(position - 1, 0)))


def covers_controlled(scopes: ScopeMap, first: int, last: int) -> bool:
    """Whether ``first`` to ``last`` is all that a control statement controls."""
    return starts_controlled(scopes, first) and _end(scopes, first) == last


def ends_controlled(scopes: ScopeMap, first: int, last: int) -> bool:
    """Whether the statement that contains ``first`` is controlled and ends at ``last``."""
    if not 0 <= first <= last < len(scopes.code):
        return False
    start = _start(scopes, _climb(scopes, first))
    return starts_controlled(scopes, start) and _end(scopes, start) == last


def is_one_statement(text: bytes) -> bool:
    """Whether ``text`` is a single statement, so that it may replace a controlled one."""
    scopes = parse_scopes(SourceText("<text>", text))
    return bool(scopes.code) and _end(scopes, 0) == len(scopes.code) - 1


def _climb(scopes: ScopeMap, position: int) -> int:
    """The outermost bracket around ``position`` that is still inside the nearest block."""
    if scopes.code[position].text in CLOSING:
        position = scopes.match.get(position, position)
    while True:
        opener = scopes.parents[position]
        if opener is None:
            return position
        if scopes.code[opener].text == b"{" and brace_role(scopes.code, scopes.match, opener) != "value":
            return position
        position = opener


def _start(scopes: ScopeMap, position: int) -> int:
    """First position of the statement that contains ``position``, on its own nesting level."""
    if scopes.code[position].text == b"else":
        return _if_of(scopes, position)
    while position > 0:
        previous = _one_back(scopes, position)
        if previous is None:
            return position
        position = previous
    return position


def _one_back(scopes: ScopeMap, position: int) -> int | None:  # noqa: PLR0911 - one per kind of token
    """The position before ``position`` in the same statement, skipping a bracketed group as a whole."""
    before = position - 1
    text = scopes.code[before].text
    if scopes.code[position].text == b"{":  # the braces of a control statement are part of it
        if text == b"else":
            return _if_of(scopes, before)
        if text == b"do" or (text == b")" and _is_control_head(scopes, scopes.match.get(before, 0))):
            return scopes.match.get(before, position) - 1
    if text in (b";", b"{", b"else", b"do") or (text == b":" and _ends_label(scopes, before)):
        return None
    if text not in CLOSING:
        return before
    opener = scopes.match.get(before, before)
    if opener >= before or (text == b")" and _is_control_head(scopes, opener)):
        return None
    if text == b"}" and brace_role(scopes.code, scopes.match, opener) == "block":
        return _continued_head(scopes, position, opener)
    return opener


def _continued_head(scopes: ScopeMap, position: int, opener: int) -> int | None:
    """The ``do`` or ``try`` whose block ends before a ``while`` or ``catch`` at ``position``."""
    word, before = scopes.code[position].text, scopes.code[opener - 1].text if opener > 0 else b""
    if word == b"while" and before == b"do":
        return opener - 1
    if word == b"catch" and before in (b"try", b")"):
        return opener - 1 if before == b"try" else scopes.match.get(opener - 1, opener) - 1
    return None


def _if_of(scopes: ScopeMap, position: int) -> int:
    """The ``if`` to which the ``else`` at ``position`` belongs."""
    if position == 0:
        return position
    then = _start(scopes, _climb(scopes, position - 1))
    if then > 0 and scopes.code[then - 1].text == b")":
        head = scopes.match.get(then - 1, then) - 1
        return head - (scopes.code[head].text == b"constexpr")
    return then


def _ends_label(scopes: ScopeMap, colon: int) -> bool:
    if scopes.code[colon - 1].text in _ACCESS:
        return True
    position = colon - 1
    ternaries = 0
    while position >= 0 and scopes.code[position].text not in (b";", b"{", b"}"):
        text = scopes.code[position].text
        if text in (b"case", b"default"):
            return True
        ternaries += (text == b":") - (text == b"?")
        if ternaries < 0:
            return False  # the colon belongs to a ?
        position -= 1
    return False


def _is_control_head(scopes: ScopeMap, opener: int) -> bool:
    before = opener - 1
    if before > 0 and scopes.code[before].text == b"constexpr":
        before -= 1
    if before < 0 or scopes.code[before].text not in _HEADS:
        return False
    # } while (x) ends a do loop and controls nothing.
    closes = scopes.code[before].text == b"while" and scopes.code[before - 1].text == b"}" and before > 0
    return not closes or _continued_head(scopes, before, scopes.match.get(before - 1, before)) is None


def _after_head(scopes: ScopeMap, position: int) -> int:
    """The position after the parentheses of the control statement at ``position``."""
    opener = position + 1
    if opener < len(scopes.code) and scopes.code[opener].text == b"constexpr":
        opener += 1
    return max(opener, scopes.match.get(opener, opener)) + 1


def _end(scopes: ScopeMap, position: int) -> int:
    """Last position of the statement that starts at ``position``."""
    pending: list[bytes] = []  # control words whose body is being read; no recursion, as chains may be long
    while True:
        while (word := _text(scopes, position)) in _HEADS or word == b"do":
            pending.append(word)
            position = position + 1 if word == b"do" else _after_head(scopes, position)
        end = _plain_end(scopes, position)
        while pending:
            word = pending.pop()
            if word == b"do":
                end = _simple_end(scopes, end + 1)
            elif word == b"if" and _text(scopes, end + 1) == b"else":
                position = end + 2
                break
        else:
            return min(end, len(scopes.code) - 1)


def _plain_end(scopes: ScopeMap, position: int) -> int:
    text = _text(scopes, position)
    if text == b"{":
        return scopes.match.get(position, position)
    if text != b"try":
        return _simple_end(scopes, position)
    end = scopes.match.get(position + 1, position + 1)
    while _text(scopes, end + 1) == b"catch":
        body = _after_head(scopes, end + 1)
        end = scopes.match.get(body, body)
    return end


def _simple_end(scopes: ScopeMap, start: int) -> int:
    """The position of the ``;``, the end of a body, or the end of the enclosing block."""
    position = start
    while position < len(scopes.code):
        text = scopes.code[position].text
        if text == b";":
            return position
        if text == b"}":
            return max(position - 1, start)
        closer = max(position, scopes.match.get(position, position))
        if text == b"{" and brace_role(scopes.code, scopes.match, position) == "block":
            return closer
        position = closer + 1
    return len(scopes.code) - 1


def _text(scopes: ScopeMap, position: int) -> bytes:
    return scopes.code[position].text if position < len(scopes.code) else b""


# Pragmas that apply to the loop or statement after them (clang, "Extensions for loop hint optimizations").
_TIED_PRAGMAS = frozenset(
    {(b"unroll",), (b"nounroll",), (b"omp",), (b"clang", b"loop"), (b"GCC", b"unroll"), (b"GCC", b"ivdep")}
)


def select(scopes: ScopeMap, entity: Entity | None, selector: Selector) -> list[Span]:
    """Every span that ``selector`` covers in ``entity``, in order, without repetitions."""
    spans = list(dict.fromkeys(_select(scopes, entity, selector)))
    return sorted(spans)


def _select(  # noqa: C901, PLR0912 - one arm per selector word
    scopes: ScopeMap, entity: Entity | None, selector: Selector
) -> Iterator[Span]:
    match selector:
        case Selector(before=Selector() as inner):
            yield from (Span(span.start, span.start) for span in select(scopes, entity, inner))
        case Selector(after=Selector() as inner):
            yield from (Span(span.end, span.end) for span in select(scopes, entity, inner))
        case Selector(between=(first, last)):
            ends = select(scopes, entity, last)
            for start in select(scopes, entity, first):
                yield from (Span(start.end, end.start) for end in ends if start.end <= end.start)
        case Selector(first_of=(*several,)):
            found = (select(scopes, entity, each) for each in several)
            yield from next((spans for spans in found if len(spans) == 1), ())
        case Selector(template_params=str(pattern)):
            header = Span(entity.header.start, entity.parameters.start) if entity else _whole(scopes)
            for run in find_runs(scopes, parse_pattern(pattern), scopes.code_in(header)):
                yield _span(scopes, run)
        case Selector(group=str(condition)):
            yield from _group_lines(scopes, entity, condition)
        case Selector(table_row=str(leading), of=str(table)):
            yield from _table_rows(scopes, entity, leading, table)
        case Selector(lines=str()):
            yield from _whole_lines(scopes, entity, selector)
        case Selector(definition=str(name)):
            yield from find_definitions(scopes, name)
        case Selector(member=str(name), of=str(owner)):
            yield from find_members(scopes, name, owner)
        case Selector(include=str(header)):
            yield from find_includes(scopes, header)
        case Selector(cmake=str(wanted)):
            yield from find_commands(scopes.source, wanted)
        case Selector(start=True):
            yield Span(0, 0)
        case Selector(end=True):
            yield Span(len(scopes.source.data), len(scopes.source.data))
        case Selector(body=True):
            yield _inner_lines(scopes, entity.body) if entity is not None else _whole(scopes)
        case _:
            for domain in _domains(scopes, entity, selector.inside):
                yield from _select_code(scopes, entity, selector, domain)


def _select_code(  # noqa: C901, PLR0912 - one arm per selector word
    scopes: ScopeMap, entity: Entity | None, selector: Selector, domain: range
) -> Iterator[Span]:
    match selector:
        case Selector(tokens=str(pattern)):
            for run in find_runs(scopes, parse_pattern(pattern), domain):
                yield _span(scopes, run)
        case Selector(case=str(name)):
            for run in find_runs(scopes, parse_pattern(f"case {name} :"), domain):
                yield _span(scopes, run)
        case Selector(statement=str(pattern)):
            for first, last in find_runs(scopes, parse_pattern(pattern), domain):
                yield _with_pragmas(scopes, _span(scopes, statement_around(scopes, first, last)))
        case Selector(call=str(name)):
            for first, _, last in _calls(scopes, entity, name, domain):
                yield _span(scopes, (first, last))
        case Selector(call_arg=str(pattern), of=str(call)):
            wanted = parse_pattern(pattern)
            for _, opener, last in _calls(scopes, entity, call, domain):
                for argument in _arguments(scopes, opener, last):
                    if matches_exactly(scopes, wanted, argument):
                        yield _span(scopes, (argument.start, argument.stop - 1))
        case Selector(condition=str(pattern)):
            yield from _conditions(scopes, pattern, domain)
        case _:
            raise AssertionError(f"no selector word in {selector}")  # Selector rejects this


def _with_pragmas(scopes: ScopeMap, span: Span) -> Span:
    """The statement including preceding pragmas that clang applies to it, above all ``#pragma unroll``.

    Without them an insertion would separate the pragma from its loop, and a removal would leave the pragma to
    the next statement.
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
    """A body without the rest of the line of its ``{`` and the indentation of its ``}``, if blank."""
    text = scopes.source.text(body)
    first, last = text.find(b"\n"), text.rfind(b"\n")
    if first == -1 or text[:first].strip() or text[last:].strip():
        return body
    return Span(body.start + first + 1, max(body.start + first + 1, body.start + last))


def _whole_lines(scopes: ScopeMap, entity: Entity | None, selector: Selector) -> Iterator[Span]:
    wanted = WantedLines(rows_of(selector.lines), rows_of(selector.above), rows_of(selector.below))
    if selector.inside is not None:
        domains = select(scopes, entity, selector.inside)
    else:
        domains = [entity.span if entity is not None else _whole(scopes)]
    # Outside code, indentation may have a meaning, and comments are not recognised.
    code = is_code(scopes.source.path) and not selector.exact
    for domain in domains:
        for span in wanted.find(scopes.source, domain, any_indent=code):
            if not (code and _is_commented_out(scopes, span, wanted)):
                yield span


def _is_commented_out(scopes: ScopeMap, span: Span, wanted: WantedLines) -> bool:
    """Whether the wanted code is inside a comment there."""
    source = scopes.source
    first = source.line_of(span.start) - len(wanted.above)
    whole = Span(source.line_span(first).start, span.end)
    if scopes.code_in(whole) or any(whole.contains(line.span) for line in scopes.directives):
        return False
    alone = parse_scopes(SourceText(source.path, b"\n".join((*wanted.above, *wanted.lines)) + b"\n"))
    return bool(alone.code or alone.directives)


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
    return Span(scopes.code[run[0]].start, scopes.code[run[1]].end)


def _calls(
    scopes: ScopeMap, entity: Entity | None, name: str, domain: range
) -> Iterator[tuple[int, int, int]]:
    """Positions of name, ``(`` and ``)`` of each call; the entity's own declarator is not a call."""
    own = entity.parameters.start if entity is not None else -1
    for run in find_runs(scopes, parse_pattern(name), domain):
        opener = run[1] + 1
        if opener < domain.stop and scopes.code[opener].text == b"<":
            opener = _after_angles(scopes, opener, domain.stop)
        if opener >= domain.stop or scopes.code[opener].text != b"(":
            continue
        last = scopes.match.get(opener)
        if last is not None and last < domain.stop and scopes.code[opener].start != own:
            yield run[0], opener, last


def _after_angles(scopes: ScopeMap, opener: int, stop: int) -> int:
    """The position after the ``>`` that closes the ``<`` at ``opener``; ``opener`` if it is a comparison."""
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
        after = _after_angles(scopes, position, last) if text == b"<" else position
        if text == b",":
            yield range(start, position)
            start = position + 1
        position = max(after, max(position, scopes.match.get(position, position)) + 1)
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
                following = scopes.code[head[1] + 1].text if head[1] + 1 <= row.stop else b""
                if following in (b",", b")", b"}"):
                    yield _span(scopes, (first, scopes.match[opener]))

"""Edits of plain patches: the text is inserted unchanged, without a guard, for every backend."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.base.errors import AnchorError, Location, RenderError
from patchkit.base.source import SourceText, Span
from patchkit.base.text import visible
from patchkit.carry.cpp.directives import OPENING_KEYWORDS, Directive, find_groups, find_unbalanced
from patchkit.carry.cpp.lexer import Token
from patchkit.carry.cpp.scopes import CLOSING, OPENING, Entity, ScopeMap, is_code, parse_scopes
from patchkit.carry.placing.confirm import confirm_untouched
from patchkit.carry.placing.expand import Applied, Placement
from patchkit.carry.placing.lines import Shift, count_words, rows_of, shift_between
from patchkit.carry.placing.names import list_members
from patchkit.carry.placing.resolve import Anchor
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selector import Selector

_LONGEST = 100  # characters of a line of code in a message


@dataclass(frozen=True, slots=True)
class _Lines:
    """The whole lines around a span, and what else is on them: ``before`` and ``after``."""

    span: Span
    before: bytes
    after: bytes


def expand_plain(source: SourceText, anchor: Anchor, text: str | None) -> tuple[Placement, ...]:
    """Placements of one edit of a plain patch, one per span; ``text`` is None for a removal.

    A text that ends with a line break replaces whole lines, or is inserted as lines. Any other text replaces,
    precedes or follows exactly the selected tokens.

    Raises PLAIN_SHARES_LINE if whole lines would include other code, EDIT_THERE_ALREADY if upstream already
    has the lines that an edit adds.
    """
    edit = anchor.edit
    if text is not None:
        _refuse_repeated(parse_scopes(source), anchor, text)
    return tuple(
        Placement(span=span, replacement=replacement, edit=edit.id, where=edit.where)
        for span, replacement in (_expand(source, edit, each, text) for each in anchor.spans)
    )


def _expand(source: SourceText, edit: Edit, span: Span, text: str | None) -> tuple[Span, bytes]:
    at = edit.at if edit.at is not None else Selector(body=True)
    new = _shift(source, at, span).apply((text or "").encode()).replace(b"\n", source.newline)
    if at.start or at.end:
        ends = at.end and edit.verb == "remove" and source.data.endswith(b"\n")
        return (Span(span.start - len(_last_break(source)), span.end) if ends else span), new
    lines = _lines_around(source, span)
    by_line = new.endswith(b"\n") or at.lines is not None
    if edit.verb == "remove":
        alone = not (lines.before.strip() or lines.after.strip())
        return (source_lines(source, lines.span) if alone else span), b""
    if not by_line:
        if edit.verb == "insert_before":
            span = Span(span.start, span.start)
        elif edit.verb == "insert_after":
            span = Span(span.end, span.end)
        return span, new
    if edit.verb.startswith("insert"):
        return _insertion(source, edit.verb, at, lines.span, new)
    if lines.before.strip() or lines.after.strip():
        raise RenderError(
            f"edit '{edit.id}' would replace a line that has other code on it",
            code="PLAIN_SHARES_LINE",
            where=[edit.where, source.locate(span.start)],
            why="a text that ends with a line break replaces whole lines",
            hint="end the text without a line break, or select the whole line",
        )
    return lines.span, new.removesuffix(source.newline)


def _insertion(source: SourceText, verb: str, at: Selector, lines: Span, new: bytes) -> tuple[Span, bytes]:
    """Insert a text as lines of its own, before or after whole lines.

    'before' and 'after' already name an empty place, so the verb does not matter. A text that begins with an
    empty line is inserted above empty lines that precede its place.
    """
    newline = source.newline
    if at.after is not None or (verb == "insert_after" and at.before is None):
        return Span(lines.end, lines.end), newline + new.removesuffix(newline)
    row = source.line_of(lines.start) - 1
    if at.before is not None and new.startswith(newline):
        while row > 0 and not source.text(source.line_span(row)).strip():
            row -= 1
        if row > 0:
            above = source.line_end(source.line_span(row).start)
            return Span(above, above), newline + new.removesuffix(newline)
    return Span(lines.start, lines.start), new if new.endswith(b"\n") else new + newline


def _shift(source: SourceText, at: Selector, span: Span) -> Shift:
    """How much more or less the selected lines are indented than those in the edit."""
    if at.lines is None:
        return Shift()
    first, last = source.line_of(span.start), source.line_of(span.end)
    return shift_between(rows_of(at.lines), source.rows[first - 1 : last]) or Shift()


def _last_break(source: SourceText) -> bytes:
    return b"\r\n" if source.data.endswith(b"\r\n") else b"\n"


def is_blank(edit: Edit, text: str | None) -> bool:
    """Whether an edit only adds or removes empty lines, which no code depends on."""
    if edit.at is None or not is_code(edit.file):
        return False
    if edit.verb == "remove":
        return edit.at.lines is not None and not edit.at.lines.strip()
    return edit.verb in ("insert_before", "insert_after") and text is not None and not text.strip()


MIN_WORDS = 3
"""Words that lines must have to identify a place; a closing brace, for example, occurs everywhere."""


def _refuse_repeated(scopes: ScopeMap, anchor: Anchor, text: str) -> None:
    """Reject an insertion of something that the file already has at a place found by name or by lines."""
    edit = anchor.edit
    at = edit.at
    if at is None or not edit.verb.startswith("insert"):
        return
    next_to = at.before if at.before is not None else at.after
    at = next_to if next_to is not None else at
    named = any((at.definition, at.member, at.case, at.include, at.cmake, at.start, at.end))
    if not named and at.lines is None:
        return
    share = ""
    if named or next_to is not None:
        line = find_repeated(scopes, at, text.encode())
    else:
        region = anchor.entity.span if anchor.entity is not None else Span(0, len(scopes.source.data))
        place = None
        if len(anchor.spans) == 1:
            place = anchor.spans[0].end if edit.verb == "insert_after" else anchor.spans[0].start
        line = find_repeated_lines(scopes, region, text.encode(), place)
        if line is None and anchor.is_fallback and _stays_after(at, edit.verb, text.encode()):
            line, share = find_half(scopes, region, at, text.encode()), "a part of "
    if line is not None:
        raise AnchorError(
            f"upstream already has {share}what edit '{edit.id}' adds",
            code="EDIT_THERE_ALREADY",
            where=[edit.where, Location(path=scopes.source.path, line=line)],
            why="the edit would add it a second time",
            hint="compare the two; if upstream took the change, drop the edit or the patch",
        )


def find_repeated(scopes: ScopeMap, at: Selector, text: bytes) -> int | None:
    """The line at which a file already has the added text: a name that it declares, or its lines.

    Lines with too few words, such as a closing brace, are only compared at the start and end of the file.
    """
    source = scopes.source
    names = declared_names(scopes, at, text)
    existing = _existing_names(scopes, at)
    for name in names:
        if name in existing:
            return source.line_of(existing[name])
    wanted, rows = _numbered_rows(text.split(b"\n"), 1), _numbered_rows(source.rows, 1)
    last = len(rows) - len(wanted)
    places = range(last + 1)
    if not _is_distinctive(wanted):
        places = range(0, last + 1, max(last, 1)) if wanted and (at.start or at.end) else range(0)
    return _find_run(rows, wanted, places)


def _numbered_rows(rows: Sequence[bytes], first: int) -> list[tuple[int, bytes]]:
    """The non-empty lines, stripped, with their numbers."""
    return [(number, row.strip()) for number, row in enumerate(rows, first) if row.strip()]


def _is_distinctive(rows: Sequence[tuple[int, bytes]]) -> bool:
    return count_words([row for _, row in rows]) >= MIN_WORDS


def _find_run(
    rows: Sequence[tuple[int, bytes]], wanted: Sequence[tuple[int, bytes]], places: range
) -> int | None:
    """The number of the first line of the first run of the wanted lines."""
    texts = [row for _, row in wanted]
    for at in places:
        if rows[at][1] == texts[0] and [row for _, row in rows[at : at + len(texts)]] == texts:
            return rows[at][0]
    return None


def find_repeated_lines(scopes: ScopeMap, region: Span, text: bytes, place: int | None = None) -> int | None:
    """The line at which a part of a file already has what is added between two of its lines.

    Either all of its lines, if they have enough words, or a label or ``#include`` that may occur only once.
    With ``place``, the offset where it is added, labels of other switches do not count.
    """
    source = scopes.source
    lines = source.lines_of(region)
    wanted = _numbered_rows(text.split(b"\n"), 1)
    rows = _numbered_rows(source.rows[lines.start : lines.stop], lines.start + 1)
    if place is not None and is_code(source.path) and wanted and _LABEL.fullmatch(wanted[0][1]):
        switch = _block_at(scopes, place)
        rows = [
            row
            for row in rows
            if not _LABEL.fullmatch(row[1]) or _block_at(scopes, source.line_span(row[0]).start) == switch
        ]
    if _is_distinctive(wanted):
        line = _find_run(rows, wanted, range(len(rows) - len(wanted) + 1))
        if line is not None:
            return line
    if not is_code(source.path):
        return None
    once = {row for _, row in wanted if _LABEL.fullmatch(row) or _INCLUDE.fullmatch(row)}
    return next((at for at, row in rows if row in once), None)


_LABEL, _INCLUDE = re.compile(rb"case [\w:]+:.*"), re.compile(rb"#\s*include\s.*")


def _block_at(scopes: ScopeMap, offset: int) -> int | None:
    """The position of the innermost ``{`` around an offset between two lines."""
    at = scopes.first_from(offset)
    if at >= len(scopes.code):
        return None
    opener = scopes.match.get(at) if scopes.code[at].text == b"}" else scopes.parents[at]
    while opener is not None and scopes.code[opener].text != b"{":
        opener = scopes.parents[opener]
    return opener


def _stays_after(at: Selector, verb: str, text: bytes) -> bool:
    """Whether the lines that locate the edit are still adjacent after it, so that it would match again."""
    lines, above, below = rows_of(at.lines), rows_of(at.above), rows_of(at.below)
    above, below = (above, lines + below) if verb == "insert_before" else (above + lines, below)
    rows = rows_of(text.decode())
    ends = bool(above) and (above + rows)[len(rows) :] == above
    return ends or (bool(below) and (rows + below)[: len(below)] == below)


def find_half(scopes: ScopeMap, region: Span, at: Selector, text: bytes) -> int | None:
    """The line at which a part of a file has the head, or half of the lines, of the added text.

    The head is the least indented line. Lines that the selector itself uses are not counted.
    """
    source = scopes.source
    adjacent = {row.strip() for lines in (at.above, at.lines, at.below) for row in rows_of(lines)}
    own = [row for row in text.split(b"\n") if row.strip() not in adjacent and _is_distinctive([(0, row)])]
    lines = source.lines_of(region)
    numbered = _numbered_rows(source.rows[lines.start : lines.stop], lines.start + 1)
    existing = {row: number for number, row in reversed(numbered)}
    found = [row.strip() for row in own if row.strip() in existing]
    head = min(own, key=lambda row: len(row) - len(row.lstrip()), default=b"").strip()
    if head in found:
        return existing[head]
    return existing[found[0]] if found and 2 * len(found) >= len(own) else None


def declared_names(scopes: ScopeMap, at: Selector, text: bytes) -> tuple[str, ...]:
    """The names that an added text declares: members of the struct or enum, or definitions of the file.

    A function's name is followed by its parameters, to distinguish overloads.
    """
    path = scopes.source.path
    if not is_code(path):
        return ()
    if at.member is not None:
        kind = next((each.kind for each in _owners(scopes, at)), "record")
        head = b"enum added {\n" if kind == "enum" else b"struct added {\n"
        added = parse_scopes(SourceText(path, head + text + b"\n};\n"))
        return tuple(_members(added, "added"))
    return tuple(_definitions(parse_scopes(SourceText(path, text))))


def _existing_names(scopes: ScopeMap, at: Selector) -> dict[str, int]:
    """The offset of each name of the same kind in a file."""
    if not is_code(scopes.source.path):
        return {}
    return _members(scopes, at.of or "") if at.member is not None else _definitions(scopes)


def _owners(scopes: ScopeMap, at: Selector) -> list[Entity]:
    every = [each for each in scopes.definitions if each.kind in ("record", "enum")]
    return [each for each in every if each.answers_to(at.of or "")]


def _members(scopes: ScopeMap, owner: str) -> dict[str, int]:
    owners = _owners(scopes, Selector(member="any", of=owner)) if owner else []
    return {
        name.decode("utf-8", "replace"): span.start
        for each in owners
        for names, span in list_members(scopes, each)
        for name in names
    }


def _definitions(scopes: ScopeMap) -> dict[str, int]:
    found = {}
    for entity in scopes.entities:
        tokens = scopes.tokens_in(entity.parameters)
        parameters = b" ".join(token.text for token in tokens).decode("utf-8", "replace")
        if entity.kind != "macro":  # a macro may be defined twice, in different branches of an #if
            found[f"{entity.name}{parameters}"] = entity.span.start
    return found


def source_lines(source: SourceText, span: Span) -> Span:
    """The span including the line break after it, if there is one."""
    if source.data.startswith(source.newline, span.end):
        return Span(span.start, span.end + len(source.newline))
    return span


def _lines_around(source: SourceText, span: Span) -> _Lines:
    first = source.line_span(source.line_of(span.start)).start
    end = source.line_end(span.end)
    return _Lines(Span(first, end), source.data[first : span.start], source.data[span.end : end])


def confirm_plain(
    before: ScopeMap, after: ScopeMap, applied: Applied, anchors: Sequence[tuple[Anchor, Sequence[Span]]]
) -> tuple[str, ...]:
    """Check by tokens that brackets and #if lines pair as before and that other definitions are unchanged.

    Returns warnings for what cannot be decided: a bracket under an ``#if`` may have its partner under another
    one, as in upstream's own mul_mat_f (mmf.cuh of 2e1c9cd814). Raises PLAIN_UNBALANCED, TWIN_TOUCHED.
    """
    if not is_code(before.source.path):
        return ()
    stray = _stray_bracket(before, after)
    is_doubt = stray is not None and _lopsided(after) > _lopsided(before)
    directive = _stray_directive(before, after)
    if directive is not None:
        keyword = directive.keyword.decode("utf-8", "replace")
        raise _unbalanced(before, after, applied, directive.span, f"#{keyword}")
    if stray is not None and not is_doubt:
        raise _unbalanced(before, after, applied, stray.span, f"'{stray.text.decode()}'")
    confirm_untouched(before, after, applied, anchors)
    if stray is None:
        return ()
    doubt = f"{_place_of(after, stray)} has no partner, unless under another #if"
    return (f"{after.source.path}: {doubt}",)


def _unbalanced(before: ScopeMap, after: ScopeMap, applied: Applied, stray: Span, what: str) -> AnchorError:
    """The error for code without a partner: its line, then the edits that are unbalanced by themselves."""
    source, result = before.source, after.source
    line = result.line_of(stray.start)
    code = visible(result.text(result.line_span(line)).decode("utf-8", "replace").strip())[:_LONGEST]
    placed = list(zip(applied.placements, applied.spans, strict=True))
    inside = [one for one, span in placed if span.contains(stray)]
    guilty = inside or [
        one for one, _ in placed if _balance(source.text(one.span)) != _balance(one.replacement)
    ]
    guilty = guilty or list(applied.placements)
    edits = ", ".join(dict.fromkeys(f"'{one.edit}'" for one in guilty))
    found = [Location(path=result.path, line=line, label=f"with the edits: {code}")]
    for one in guilty:
        old = source.locate(one.span.start)
        found.append(Location(path=old.path, line=old.line, label=f"edit '{one.edit}' changes this line"))
    return AnchorError(
        f"{result.path} is unbalanced after the edits: {what} in line {line} has no partner",
        code="PLAIN_UNBALANCED",
        where=[*found, *dict.fromkeys(one.where for one in guilty)],
        why="all code after it would be parsed differently",
        hint=f"correct the text of {edits}",
    )


def _balance(text: bytes) -> tuple[int, ...]:
    """How many more conditional directives, and brackets of each kind, a text opens than it closes."""
    scopes = parse_scopes(SourceText("", text))
    found = Counter(token.text for token in scopes.code)
    lines = Counter(line.keyword for line in scopes.directives)
    opened = sum(lines[word] for word in OPENING_KEYWORDS) - lines[b"endif"]
    return (opened, *(found[opening] - found[closing] for opening, closing in sorted(OPENING.items())))


def _stray_bracket(before: ScopeMap, after: ScopeMap) -> Token | None:
    if len(after.unpaired) <= len(before.unpaired):
        return None
    return after.code[after.unpaired[0]]


def _place_of(after: ScopeMap, token: Token) -> str:
    return f"'{token.text.decode()}' in line {after.source.line_of(token.start)}"


def _lopsided(scopes: ScopeMap) -> int:
    """The number of ``#if`` branches that open a bracket without closing it, or the other way round."""
    brackets = OPENING.keys() | CLOSING
    count = 0
    for group in find_groups(scopes.source, scopes.directives):
        for branch in group.branches:
            inside = scopes.code_in(branch.body)
            own = [at for at in inside if scopes.code[at].text in brackets]
            # Ignore an #if around the whole file, as in a header.
            if len(inside) < len(scopes.code):
                count += any(scopes.match.get(at) not in inside for at in own)
    return count


def _stray_directive(before: ScopeMap, after: ScopeMap) -> Directive | None:
    stray = find_unbalanced(after.directives)
    if stray is None or find_unbalanced(before.directives) is not None:
        return None
    return stray

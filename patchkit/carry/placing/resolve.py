"""Find the anchor of an edit: exactly ``count`` spans in one named entity, or an error."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from patchkit.base.errors import AnchorError, Location
from patchkit.base.source import Span
from patchkit.base.text import visible
from patchkit.carry.cpp.scopes import Entity, ScopeMap
from patchkit.carry.placing.lines import WantedLines, rows_of
from patchkit.carry.placing.pattern import find_runs, parse_pattern, similar_runs
from patchkit.carry.placing.select import (
    covers_controlled,
    ends_controlled,
    select,
    starts_controlled,
    statement_around,
)
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selector import Selector

_SHOWN = 9  # places listed in a message
_LONGEST_LINE = 100  # characters of a line in a message
_MOST_MORE = 16  # tokens on each side; longer patterns are unreadable


def line_text(scopes: ScopeMap, span: Span) -> str:
    """The line on which a span begins, for messages."""
    line = scopes.source.text(scopes.source.line_span(scopes.source.line_of(span.start)))
    return line.strip().decode("utf-8", "replace")[:100]


def refuse_hazards(scopes: ScopeMap, entity: Entity | None, edit: Edit, spans: Sequence[Span]) -> None:
    """Raises ANCHOR_CROSSES_DIRECTIVE or ANCHOR_UNBRACED for the first span that is hazardous."""
    for span in spans:
        _refuse_crossing(scopes, edit, span)
    verb: str = edit.verb
    match edit.at:
        # For an empty place before or after a statement, check the statement itself.
        case Selector(after=Selector() as inner):
            verb, spans = "insert_after", select(scopes, entity, inner)
        case Selector(before=Selector() as inner):
            verb, spans = "insert_before", select(scopes, entity, inner)
        case _:
            pass
    for span in spans:
        if _is_unbraced(scopes, verb, span):
            raise AnchorError(
                f"edit '{edit.id}' would change what an if, else or loop without braces controls",
                code="ANCHOR_UNBRACED",
                where=[edit.where, scopes.source.locate(span.start, line_text(scopes, span))],
                why="without braces it controls exactly one statement",
                hint="select the whole control statement, or use change_to with a single statement",
            )


def _refuse_crossing(scopes: ScopeMap, edit: Edit, span: Span) -> None:
    for group in scopes.groups:
        lines = [*(branch.directive.span for branch in group.branches), group.endif.span]
        inside = [line for line in lines if span.contains(line)]
        if inside and len(inside) != len(lines):
            raise AnchorError(
                f"edit '{edit.id}' covers only a part of an #if group",
                code="ANCHOR_CROSSES_DIRECTIVE",
                where=[
                    edit.where,
                    scopes.source.locate(span.start, "the span begins here"),
                    scopes.source.locate(group.span.start, "the group begins here"),
                ],
                hint="select inside one branch, or the whole group",
            )


def _is_unbraced(scopes: ScopeMap, verb: str, span: Span) -> bool:
    first = scopes.first_from(span.start)
    last = scopes.first_from(span.end) - 1
    if verb == "insert_before" or not len(span):
        return starts_controlled(scopes, first)
    if verb == "insert_after":
        return ends_controlled(scopes, first, last)
    return verb == "remove" and covers_controlled(scopes, first, last)


class EntityNotFound(AnchorError):
    """No function of that name in the file, in any ``#if`` branch."""

    code = "ENTITY_NOT_FOUND"


class EntityAmbiguous(AnchorError):
    """Several functions of that name, and the edit does not say which."""

    code = "ENTITY_AMBIGUOUS"


WHOLE_FILE = "(file)"
"""The name of the entity of an edit that is in no function."""


class ErrorDetails(TypedDict, total=False):
    """The parts of an error besides its message, as in :class:`PatchkitError`."""

    code: str | None
    where: Location | Sequence[Location] | None
    why: str | None
    hint: str | None


class AnchorNotFound(AnchorError):
    """The place of an edit is not in its function or file. ``inside``: where the function begins."""

    code = "ANCHOR_NOT_FOUND"

    def __init__(
        self, message: str, *, edit: str = "", inside: Location | None = None, **details: Unpack[ErrorDetails]
    ) -> None:
        super().__init__(message, **details)
        self.edit, self.inside = edit, inside
        self._usual_hint = self.hint

    @property
    def has_usual_hint(self) -> bool:
        """Whether the hint is the one that every error of this kind has."""
        return self.hint == self._usual_hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The place of one edit. ``entity`` None means the file; ``digest`` is the entity's before the edit.

    ``is_fallback``: the place was found by an alternative of ``first_of`` other than the first.
    """

    edit: Edit
    entity: Entity | None
    spans: tuple[Span, ...]
    digest: str
    is_fallback: bool = False

    @property
    def entity_name(self) -> str:
        """The name to show to the user: the function, or the file itself."""
        return self.entity.name if self.entity is not None else WHOLE_FILE


def find_entity(scopes: ScopeMap, name: str, parameters: str | None, where: Location) -> Entity:
    """The one function called ``name`` (its last components suffice) whose parameters match.

    Raises EntityNotFound with the most similar names, or EntityAmbiguous with every match.
    """
    source = scopes.source
    functions = [entity for entity in scopes.entities if entity.kind != "record"]
    found = [entity for entity in functions if entity.answers_to(name)]
    if parameters is not None:
        wanted = parse_pattern(parameters)
        found = [
            entity
            for entity in found
            if any(True for _ in find_runs(scopes, wanted, scopes.code_in(entity.parameters)))
        ]
    if len(found) == 1:
        return found[0]
    if not found:
        close = difflib.get_close_matches(name, [entity.name for entity in functions], n=3, cutoff=0.5)
        near = [
            source.locate(entity.span.start, f"defines '{entity.name}'")
            for entity in functions
            if entity.name in close or entity.answers_to(name)
        ]
        detail = f" with parameters like '{parameters}'" if parameters is not None else ""
        raise EntityNotFound(
            f"no definition of '{name}'{detail} in {source.path}",
            where=[where, Location(path=source.path), *near],
            why="upstream renamed, moved or removed it" if not near else "these are the nearest definitions",
            hint=f"search for it in upstream's tree with: git grep -n '{name}'; then update 'function'",
        )
    raise EntityAmbiguous(
        f"{len(found)} definitions of '{name}' in {source.path}",
        where=[where, *(source.locate(entity.header.start, "one definition") for entity in found)],
        hint="add 'parameters' with tokens that only one of the parameter lists contains",
    )


def resolve_anchor(scopes: ScopeMap, edit: Edit) -> Anchor:
    """The anchor of one edit in one file.

    Raises EntityNotFound, EntityAmbiguous, ANCHOR_NOT_FOUND, ANCHOR_AMBIGUOUS, ANCHOR_CROSSES_DIRECTIVE or
    ANCHOR_UNBRACED; each has the line of patch.toml and the lines of upstream's file.
    """
    entity = None
    if edit.function is not None:
        entity = find_entity(scopes, edit.function, edit.parameters, edit.where)
    digest = entity.digest if entity is not None else ""
    if edit.digest is not None and entity is not None and edit.digest != digest:
        raise AnchorError(
            f"edit '{edit.id}' is for another version of '{entity.name}'",
            code="ENTITY_CHANGED",
            where=[edit.where, scopes.source.locate(entity.span.start, f"'{entity.name}' begins here")],
            why=f"its 'digest' is {edit.digest[:12]}, but that of the function here is {digest[:12]}",
            hint="compare the two versions; remove 'digest' from the edit, or import the change again",
        )
    if edit.at is None:
        return Anchor(edit=edit, entity=entity, spans=(), digest=digest)
    selector = _settled(scopes, entity, edit.at)
    is_fallback = edit.at.first_of is not None and selector != edit.at.first_of[0]
    edit = replace(edit, at=selector)
    _require_clear_ends(scopes, entity, edit, selector)
    spans = select(scopes, entity, selector)
    if selector.lines is None and selector.end is None:  # the last of the lines may be empty
        spans = [_without_final_newline(scopes, span) for span in spans]
    if not spans:
        raise _not_found(scopes, entity, edit, selector)
    if len(spans) != edit.count:
        raise AnchorError(
            f"edit '{edit.id}' matches {len(spans)} places in {_where(scopes, entity)}, "
            f"expected {edit.count}",
            code="ANCHOR_AMBIGUOUS",
            where=[edit.where, *_places(scopes, spans)],
            why="patchkit never chooses one of several places by itself",
            hint=_narrower(scopes, entity, selector, spans)
            or "narrow the selector with 'inside' or a longer pattern, or correct 'count'",
        )
    if selector.lines is None:  # lines are matched exactly, so they carry no such risk
        refuse_hazards(scopes, entity, edit, spans)
    return Anchor(edit=edit, entity=entity, spans=tuple(spans), digest=digest, is_fallback=is_fallback)


def _settled(scopes: ScopeMap, entity: Entity | None, selector: Selector) -> Selector:
    """The first of several selectors that matches exactly once, else the first; the others are ignored."""
    several = selector.first_of or (selector,)
    return next((each for each in several if len(select(scopes, entity, each)) == 1), several[0])


def _narrower(
    scopes: ScopeMap, entity: Entity | None, selector: Selector, spans: Sequence[Span]
) -> str | None:
    """For each of the first places a longer pattern, or the block around it, to paste into patch.toml."""
    if selector.inside is not None:
        return None
    if selector.statement is not None and entity is not None:
        named = [(span, _by_block(scopes, entity, selector, span)) for span in spans[:_SHOWN]]
        lines = [f"at = {at}  # line {scopes.source.line_of(span.start)}" for span, at in named if at]
        return "select one of them by the block that it is in:\n" + "\n".join(lines) if lines else None
    if selector.tokens is None:
        return None
    domain = scopes.code_in(entity.span) if entity is not None else range(len(scopes.code))
    lines = []
    for span in spans[:_SHOWN]:
        found = scopes.code_in(span)
        first, last = found.start, found.stop - 1
        for more in range(1, _MOST_MORE):
            low, high = max(domain.start, first - more), min(domain.stop - 1, last + more)
            text = b" ".join(scopes.code[at].text for at in range(low, high + 1)).decode("utf-8", "replace")
            if len(list(find_runs(scopes, parse_pattern(text), domain))) == 1:
                place = scopes.source.line_of(span.start)
                lines.append(f"at = {{ tokens = {json.dumps(text, ensure_ascii=False)} }}  # line {place}")
                break
    return "select one of them by the tokens around it:\n" + "\n".join(lines) if lines else None


def _by_block(scopes: ScopeMap, entity: Entity, selector: Selector, span: Span) -> Selector | None:
    """The selector limited to the smallest block whose head makes it match only this place."""
    domain = scopes.code_in(entity.span)
    opener = scopes.parents[scopes.code_in(span).start]
    while opener is not None and opener in domain:
        start, _ = statement_around(scopes, opener, opener)
        head = [scopes.code[at].text for at in range(start, opener)]
        if scopes.code[opener].text == b"{" and 0 < len(head) <= 2 * _MOST_MORE:
            text = b" ".join(head).decode("utf-8", "replace")
            narrower = replace(selector, inside=Selector(statement=text))
            found = select(scopes, entity, narrower)
            if len(found) == 1 and found[0].start == span.start:
                return narrower
        opener = scopes.parents[opener]
    return None


def _require_clear_ends(scopes: ScopeMap, entity: Entity | None, edit: Edit, selector: Selector) -> None:
    """Require that each end of a ``between`` matches exactly once, at any depth of the selector."""
    for inner in (selector.before, selector.after, selector.inside):
        if inner is not None:
            _require_clear_ends(scopes, entity, edit, inner)
    for word, end in zip(("first", "second"), selector.between or (), strict=False):
        _require_clear_ends(scopes, entity, edit, end)
        spans = select(scopes, entity, end)
        if not spans:
            raise _not_found(scopes, entity, edit, end)
        if len(spans) > 1:
            raise AnchorError(
                f"the {word} end of 'between' in edit '{edit.id}' matches {len(spans)} places",
                code="ANCHOR_AMBIGUOUS",
                where=[edit.where, *_places(scopes, spans)],
                why="patchkit never chooses one of several places by itself",
                hint="narrow that end with 'inside' or a longer pattern",
            )


def _places(scopes: ScopeMap, spans: Sequence[Span]) -> list[Location]:
    return [scopes.source.locate(span.start, line_text(scopes, span)) for span in spans]


def _without_final_newline(scopes: ScopeMap, span: Span) -> Span:
    text = scopes.source.text(span)
    return Span(span.start, span.end - (len(text) - len(text.rstrip(b"\r\n"))))


def _where(scopes: ScopeMap, entity: Entity | None) -> str:
    return f"'{entity.name}'" if entity is not None else scopes.source.path


def _not_found(scopes: ScopeMap, entity: Entity | None, edit: Edit, selector: Selector) -> AnchorError:
    source = scopes.source
    text = _pattern_text(selector)
    begins = [source.locate(entity.span.start, f"'{entity.name}' begins here")] if entity is not None else []
    candidates: list[Location] = []
    if text:
        pattern = parse_pattern(text)
        whole = range(len(scopes.code))
        for first, _ in find_runs(scopes, pattern, whole):
            offset = scopes.code[first].start
            holder = scopes.enclosing(Span(offset, offset))
            if holder is None or entity is None or holder.span != entity.span:
                candidates.append(source.locate(offset, f"the same tokens, but in {_where(scopes, holder)}"))
        domain = scopes.code_in(entity.span) if entity is not None else whole
        for first, _ in similar_runs(scopes, pattern, domain):
            span = scopes.code[first].span
            candidates.append(source.locate(span.start, "similar: " + line_text(scopes, span)))
    lines = None if text else _lines_of(selector)
    if lines is not None:
        wanted = WantedLines(rows_of(lines.lines), rows_of(lines.above), rows_of(lines.below))
        span = entity.span if entity is not None else Span(0, len(source.data))
        nearest = wanted.nearest(source, span)
        if nearest is not None:
            line, row = nearest
            found = _shown(source.text(source.line_span(line)))
            label = f"nearest place: {found or 'an empty line'}, expected {_shown(row) or 'an empty line'}"
            candidates.append(Location(path=source.path, line=line, label=label))
    compare = f"if {'the nearest place' if lines is not None else 'one of these'} is the right one"
    if not candidates:
        compare = f"nothing in {_where(scopes, entity)} is similar; if the code is somewhere else"
    path = f" of {source.path}" if entity is not None else ""
    return AnchorNotFound(
        f"no match for edit '{edit.id}' in {_where(scopes, entity)}{path}",
        edit=edit.id,
        inside=begins[0] if begins else None,
        where=[edit.where, *begins, *candidates][:9],
        why=f"the tokens '{text}' do not occur there" if text else _nothing_of(lines),
        hint=f"{compare}, change 'at' of the edit; if the patch is not needed there, end its builds",
    )


def _lines_of(selector: Selector) -> Selector | None:
    """The first selector of whole lines in a selector."""
    if selector.lines is not None:
        return selector
    several = (selector.before, selector.after, *(selector.between or ()), *(selector.first_of or ()))
    inner = (_lines_of(each) for each in several if each is not None)
    return next((each for each in inner if each is not None), None)


def _nothing_of(lines: Selector | None) -> str:
    if lines is None:
        return "the selector matches nothing"
    rows = rows_of(lines.lines)
    text = (
        f"the line '{_shown(rows[0])}'"
        if len(rows) == 1
        else f"{len(rows)} lines from '{_shown(rows[0])}' on"
    )
    above, below = (rows_of(each) for each in (lines.above, lines.below))
    where = [f"below '{_shown(above[-1])}'"] if above else []
    where += [f"above '{_shown(below[0])}'"] if below else []
    return f"it looks for {text}{', directly ' if where else ''}{' and '.join(where)}"


def _shown(row: bytes) -> str:
    text = visible(row.decode("utf-8", "replace").strip())
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}..."


def _pattern_text(selector: Selector) -> str:
    """The pattern that a person would search for."""
    match selector:
        case Selector(before=Selector() as inner) | Selector(after=Selector() as inner):
            return _pattern_text(inner)
        case Selector(between=(first, *_)) | Selector(first_of=(first, *_)):
            return _pattern_text(first)
        case Selector(table_row=str(leading), of=str(table)):
            return leading if table == "{}" else f"{table}({leading}"
        case _:
            words = (selector.tokens, selector.statement, selector.call, selector.call_arg)
            more = (selector.template_params, selector.condition, selector.group, selector.member)
            return next((word for word in (*words, *more) if word is not None), "")

"""Places that are found, and where an edit would still be wrong.

Vocabulary: a *hazard* is a place where well-formed text changes code it does not name: across a
preprocessor line, or beside a statement that an ``if`` or loop governs without braces.
"""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.anchors.select import select
from patchkit.anchors.statements import covers_controlled, ends_controlled, starts_controlled
from patchkit.config.manifest import Edit
from patchkit.config.selector import After, Before
from patchkit.cxx.scopes import Entity, ScopeMap
from patchkit.errors import AnchorError
from patchkit.source import Span


def line_text(scopes: ScopeMap, span: Span) -> str:
    """The line on which a span begins, for messages."""
    line = scopes.source.text(scopes.source.line_span(scopes.source.line_of(span.start)))
    return line.strip().decode("utf-8", "replace")[:100]


def refuse_hazards(scopes: ScopeMap, entity: Entity | None, edit: Edit, spans: Sequence[Span]) -> None:
    """Raises ANCHOR_CROSSES_DIRECTIVE or ANCHOR_UNBRACED for the first span that is hazardous."""
    for span in spans:
        _refuse_crossing(scopes, edit, span)
    match edit.at:
        # The empty place behind a statement says nothing about it any more: judge the statement.
        case After(inner):
            verb, spans = "insert_after", select(scopes, entity, inner)
        case Before(inner):
            verb, spans = "insert_before", select(scopes, entity, inner)
        case _:
            verb = edit.verb
    for span in spans:
        if _is_unbraced(scopes, verb, span):
            raise AnchorError(
                f"edit '{edit.id}' would change what an if, else or loop without braces governs",
                code="ANCHOR_UNBRACED",
                where=[edit.where, scopes.source.locate(span.start, line_text(scopes, span))],
                why="without braces only one statement is governed",
                hint="select the whole control statement, or use change_to with one statement",
            )


def _refuse_crossing(scopes: ScopeMap, edit: Edit, span: Span) -> None:
    for group in scopes.groups:
        lines = [*(branch.directive.span for branch in group.branches), group.endif.span]
        inside = [line for line in lines if span.contains(line)]
        if inside and len(inside) != len(lines):
            raise AnchorError(
                f"edit '{edit.id}' covers a part of an #if group",
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

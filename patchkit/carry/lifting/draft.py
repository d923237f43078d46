"""A draft: a future edit, with its place and its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.source import Span
from patchkit.carry.cpp.scopes import Entity, ScopeMap
from patchkit.carry.placing.resolve import find_entity
from patchkit.carry.placing.select import select
from patchkit.carry.series.patch import Verb
from patchkit.carry.series.selector import Selector

_NOWHERE = Location(path="")


class NotLifted(Exception):
    """A change that cannot become edits. Internal: callers turn it into a PatchkitError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One edit: ``text`` replaces ``span``, which ``selector`` finds in ``function``.

    An edit of whole lines has a ``verb`` and ``rows``, the lines to write; an edit of tokens always replaces.
    ``reason``: why it is placed by lines of the file and not by the name of a definition.
    """

    file: str
    function: str | None = None
    parameters: str | None = None
    selector: Selector
    span: Span
    text: bytes
    line: int
    verb: Verb = "change_to"
    rows: bytes | None = None
    reason: str = ""

    @property
    def place(self) -> str:
        """As ``file:line``."""
        return f"{self.file}:{self.line}"


def named_place(selector: Selector | None, function: str | None) -> str | None:
    """The name of the definition that an edit is in, or next to: a function, struct, enum or macro."""
    if function is not None or selector is None:
        return function
    several = selector.first_of or (selector,)
    named = [each.before or each.after or each for each in several]
    at = next((each for each in named if each.definition or each.of), named[0])
    inside = at.inside.definition if at.inside is not None else None
    return at.definition or at.of or inside


def function_names(scopes: ScopeMap, function: Entity) -> tuple[str, str | None] | None:
    """The name and, if needed, the parameters by which an edit finds a function; None if they do not."""
    tokens = scopes.tokens_in(function.parameters)
    parameters = " ".join(token.text.decode("utf-8", "replace") for token in tokens)
    for given in (None, parameters or None):
        try:
            found = find_entity(scopes, function.name, given, _NOWHERE)
        except PatchkitError:
            continue
        if found.span == function.span:
            return function.name, given
    return None


def selected_spans(scopes: ScopeMap, draft: Draft) -> list[Span]:
    """The spans that a draft's selector covers; none if its function is missing or ambiguous."""
    entity = None
    if draft.function is not None:
        try:
            entity = find_entity(scopes, draft.function, draft.parameters, _NOWHERE)
        except PatchkitError:
            return []
    return select(scopes, entity, draft.selector)


def apply_drafts(data: bytes, drafts: Sequence[Draft]) -> bytes:
    """The file with the drafts applied."""
    pieces, at = [], 0
    for draft in sorted(drafts, key=lambda each: each.span):
        pieces += [data[at : draft.span.start], draft.text]
        at = draft.span.end
    return b"".join([*pieces, data[at:]])

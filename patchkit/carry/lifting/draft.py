"""One edit to be: where it goes, and what it puts there."""

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
    """Why a change cannot become edits. Internal: turned into an error of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One edit: ``text`` takes the place of ``span``, which ``selector`` finds in ``function``.

    An edit of whole lines has a ``verb`` of its own and its ``rows``: the lines that are written; a draft of
    tokens replaces them. ``reason``: why it is placed by lines of the file, and not of something with a name.
    """

    file: str
    function: str | None
    parameters: str | None
    selector: Selector
    span: Span
    text: bytes
    line: int
    verb: Verb = "change_to"
    rows: bytes | None = None
    reason: str = ""

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"


def named_place(selector: Selector | None, function: str | None) -> str | None:
    """The name of what an edit is in, or behind: a function, a struct, an enum, a macro."""
    if function is not None or selector is None:
        return function
    several = selector.first_of or (selector,)
    named = [each.before or each.after or each for each in several]
    at = next((each for each in named if each.definition or each.of), named[0])
    inside = at.inside.definition if at.inside is not None else None
    return at.definition or at.of or inside


def function_names(scopes: ScopeMap, function: Entity) -> tuple[str, str | None] | None:
    """Name and, where needed, parameters by which an edit finds a function; None where it would not."""
    tokens = scopes.code_in(function.parameters)
    parameters = " ".join(scopes.code[at].text.decode("utf-8", "replace") for at in tokens)
    for given in (None, parameters or None):
        try:
            found = find_entity(scopes, function.name, given, _NOWHERE)
        except PatchkitError:
            continue
        if found.span == function.span:
            return function.name, given
    return None


def selected_spans(scopes: ScopeMap, draft: Draft) -> list[Span]:
    """What the selector of a draft covers; nothing where the function is not there, or not alone."""
    entity = None
    if draft.function is not None:
        try:
            entity = find_entity(scopes, draft.function, draft.parameters, _NOWHERE)
        except PatchkitError:
            return []
    return select(scopes, entity, draft.selector)


def apply_drafts(data: bytes, drafts: Sequence[Draft]) -> bytes:
    """The file with the drafts in it."""
    pieces, at = [], 0
    for draft in sorted(drafts, key=lambda each: each.span):
        pieces += [data[at : draft.span.start], draft.text]
        at = draft.span.end
    return b"".join([*pieces, data[at:]])

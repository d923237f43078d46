"""Edits as bytes: what to put where, applied all at once and reversible.

Vocabulary: a *placement* replaces one span (an empty span inserts); *applied* is the new text with
the span each placement got in it, so that it can be undone and checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.errors import AnchorError, Location
from patchkit.source import SourceText, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """``replacement`` takes the place of ``span``; ``edit`` and ``where`` say on whose behalf."""

    span: Span
    replacement: bytes
    edit: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The text after all placements; ``spans[i]`` is where ``placements[i]`` now stands."""

    before: SourceText
    after: SourceText
    placements: tuple[Placement, ...]
    spans: tuple[Span, ...]


def apply_placements(source: SourceText, placements: Sequence[Placement]) -> Applied:
    """Apply every placement; their order matters only between insertions at one offset.

    Raises EDIT_CONFLICT when two overlap, or an insertion falls inside a replaced span.
    """
    ordered = sorted(placements, key=lambda placement: placement.span)
    pieces: list[bytes] = []
    spans: list[Span] = []
    position = length = 0
    previous: Placement | None = None
    for placement in ordered:
        if previous is not None and _conflict(previous.span, placement.span):
            raise AnchorError(
                f"edits '{previous.edit}' and '{placement.edit}' overlap in {source.path}",
                code="EDIT_CONFLICT",
                where=[previous.where, placement.where, source.locate(placement.span.start)],
                hint="merge the two edits, or make their selectors disjoint",
            )
        kept = source.data[position : placement.span.start]
        pieces += [kept, placement.replacement]
        start = length + len(kept)
        length = start + len(placement.replacement)
        spans.append(Span(start, length))
        position = placement.span.end
        previous = placement
    pieces.append(source.data[position:])
    return Applied(
        before=source,
        after=SourceText(source.path, b"".join(pieces)),
        placements=tuple(ordered),
        spans=tuple(spans),
    )


def _conflict(earlier: Span, later: Span) -> bool:
    return later.start < earlier.end


def revert(applied: Applied) -> SourceText:
    """The text before, from the text after and what each placement replaced."""
    undo = [
        Placement(
            span=span,
            replacement=applied.before.text(placement.span),
            edit=placement.edit,
            where=placement.where,
        )
        for placement, span in zip(applied.placements, applied.spans, strict=True)
    ]
    return SourceText(applied.before.path, apply_placements(applied.after, undo).after.data)

"""Check that each edit is where it was meant to be, and that nothing else changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import AnchorError, Location
from patchkit.base.source import Span
from patchkit.carry.cpp.ast import ParseIssue, Pass, Tree
from patchkit.carry.cpp.doubt import Names, find_doubt, touched
from patchkit.carry.cpp.scopes import Entity, ScopeMap
from patchkit.carry.placing.expand import Applied
from patchkit.carry.placing.resolve import Anchor


class EditUnparsable(AnchorError):
    """Clang reports a syntax error that it did not report before the edit."""

    code = "EDIT_UNPARSABLE"


def confirm_entities(
    before: ScopeMap, after: ScopeMap, applied: Applied, anchors: Sequence[tuple[Anchor, Sequence[Span]]]
) -> None:
    """By tokens: the definitions are the same in the same order, and only those with an edit changed.

    ``anchors`` pairs each anchor with its spans in the text after. Raises TWIN_TOUCHED or EDIT_MISPLACED.
    """
    old = [entity for entity in before.entities if entity.kind != "macro"]
    new = [entity for entity in after.entities if entity.kind != "macro"]
    if [entity.name for entity in old] != [entity.name for entity in new]:
        changed = Counter(e.name for e in new)
        changed.subtract(Counter(e.name for e in old))
        names = sorted(name for name, count in changed.items() if count) or ["their order"]
        raise AnchorError(
            f"the edits add, remove or reorder definitions of {after.source.path}: {', '.join(names)}",
            code="TWIN_TOUCHED",
            where=[anchor.edit.where for anchor, _ in anchors],
            hint="put new definitions into a new file of the patch",
        )
    counterpart = {left.span: right for left, right in zip(old, new, strict=True)}
    named = [anchor.entity.span for anchor, _ in anchors if anchor.entity is not None]
    for left, right in zip(old, new, strict=True):
        edited = any(left.span.contains(span) for span in named)
        edited = edited or any(_strictly_in(placement.span, left.span) for placement in applied.placements)
        if not edited and left.digest != right.digest:
            raise AnchorError(
                f"'{left.name}' changed, but no edit names it",
                code="TWIN_TOUCHED",
                where=[after.source.locate(right.span.start), *(anchor.edit.where for anchor, _ in anchors)],
                hint="patchkit plan shows the place of each edit",
            )
    for anchor, spans in anchors:
        entity = anchor.entity
        if entity is None or entity.kind == "macro":
            continue  # the file as a whole needs no check, and a macro's body has no definition around it
        holder = counterpart[entity.span]
        for span in spans:
            if not holder.span.contains(_code_span(after, span)):
                raise _misplaced(after, anchor, span, "its tokens are outside")


def confirm_untouched(
    before: ScopeMap, after: ScopeMap, applied: Applied, anchors: Sequence[tuple[Anchor, Sequence[Span]]]
) -> None:
    """By tokens: every definition without an edit is unchanged; definitions may be added and removed.

    Raises TWIN_TOUCHED.
    """
    named = [anchor.entity.span for anchor, _ in anchors if anchor.entity is not None]
    kept = Counter(
        (entity.name, entity.digest)
        for entity in before.entities
        if entity.kind != "macro"
        and not any(entity.span.contains(span) for span in named)
        and not any(_meets(placement.span, entity.span) for placement in applied.placements)
    )
    kept.subtract(Counter((entity.name, entity.digest) for entity in after.entities))
    tails = {(_tail(entity.name), entity.digest) for entity in after.entities}
    for (name, digest), missing in kept.items():
        # If an edit renames a record, its members have new qualified names, but their text must be unchanged.
        if missing > 0 and not (_is_in(name, applied, before) and (_tail(name), digest) in tails):
            raise AnchorError(
                f"'{name}' changed, but no edit names it",
                code="TWIN_TOUCHED",
                where=[Location(path=after.source.path), *(anchor.edit.where for anchor, _ in anchors)],
                why="an edit may change only the function, struct or table that it names",
                hint="patchkit plan shows the place of each edit",
            )


def _tail(name: str) -> str:
    return name.rpartition("::")[2]


def _is_in(name: str, applied: Applied, before: ScopeMap) -> bool:
    """Whether a definition is a member of a record that an edit changes."""
    holder = name.rpartition("::")[0]
    records = [each for each in before.entities if each.kind == "record" and each.name == holder]
    return any(_meets(placement.span, each.span) for each in records for placement in applied.placements)


def _meets(one: Span, other: Span) -> bool:
    """Whether an edit changes bytes of a definition or inserts inside it."""
    return one.start < other.end and other.start < one.end if len(one) else _strictly_in(one, other)


def _strictly_in(inner: Span, outer: Span) -> bool:
    """Whether an edit of ``inner`` changes ``outer``; an insertion at its border does not."""
    return outer.contains(inner) and (len(inner) > 0 or outer.start < inner.start < outer.end)


def _first_place(scopes: ScopeMap, span: Span) -> int:
    """The offset of a span's first directive or code token; if that is compiled, so is the whole span."""
    places = [line.span.start for line in scopes.directives if span.contains(line.span)]
    places += [token.start for token in scopes.tokens_in(span)]
    return min(places, default=span.start)


def _code_span(scopes: ScopeMap, span: Span) -> Span:
    """From the first to the last code token in ``span``, as generated directives may precede an entity."""
    code = scopes.tokens_in(span)
    return Span(code[0].start, code[-1].end) if code else span


def confirm_passes(
    after: ScopeMap,
    anchors: Sequence[tuple[Anchor, Sequence[Span]]],
    trees_before: Mapping[tuple[Pass, str], Tree],
    trees_after: Mapping[tuple[Pass, str], Tree],
) -> tuple[tuple[str, ...], ...]:
    """By clang: no pass has a new syntax error, and the passes of an edit's side have it in its entity.

    Returns for each anchor the passes (``device gfx1151``) whose AST has its edit. It is empty for macros and
    the file as a whole, which are not in the AST.

    Raises EditUnparsable or EDIT_MISPLACED.
    """
    _refuse_new_issues(after, anchors, trees_before, trees_after)
    seen_in: list[tuple[str, ...]] = []
    for anchor, spans in anchors:
        entity = anchor.entity
        if entity is None or entity.kind == "macro":
            seen_in.append(())
            continue
        seen = []
        for (which, arch), tree in sorted(trees_after.items()):
            live = all(tree.compiles(_first_place(after, span)) for span in spans)
            if not live and which == anchor.edit.side:
                raise AnchorError(
                    f"no {which} pass for {arch} compiles the place of edit '{anchor.edit.id}'",
                    code="EDIT_DEAD",
                    where=[anchor.edit.where, after.source.locate(spans[0].start, "skipped by its #if")],
                    why="it is in a branch whose condition is false in that pass, so it would have no effect",
                    hint="select the branch that is compiled, or correct 'side'; or add the macro that the "
                    "#if tests to the guard (import and new: --macro NAME)",
                )
            if not live:
                continue
            if all(_shows(after, tree, entity, _code_span(after, span)) for span in spans):
                seen.append(f"{which} {arch}")
            elif which == anchor.edit.side:
                raise _misplaced(after, anchor, spans[0], f"clang's {which} pass for {arch} does not have it")
        _refuse_wrong_side(after, anchor, spans[0], trees_after)
        seen_in.append(tuple(seen))
    return tuple(seen_in)


def _refuse_wrong_side(
    after: ScopeMap, anchor: Anchor, span: Span, trees: Mapping[tuple[Pass, str], Tree]
) -> None:
    """Check the side by attributes; HIP compiles a constexpr function without any for both sides."""
    entity = anchor.entity
    if entity is None or entity.kind != "function" or b"constexpr" in after.source.text(entity.header):
        return
    for (which, arch), tree in trees.items():
        if which != anchor.edit.side:
            continue
        holders = [each for each in tree.definitions if each.span.contains(_code_span(after, span))]
        if holders and not any(which in each.sides for each in holders):
            raise AnchorError(
                f"edit '{anchor.edit.id}' is for the {which}, where '{entity.name}' does not run ({arch})",
                code="EDIT_WRONG_SIDE",
                where=[anchor.edit.where, after.source.locate(span.start)],
                why="its guard would always be false, so it would have no effect",
                hint=f'use side = "{"host" if which == "device" else "device"}", or another function',
            )


def _shows(after: ScopeMap, tree: Tree, entity: Entity, span: Span) -> bool:
    """Whether clang has the edit inside the entity.

    For clang a definition starts after ``[[attributes]]``, or after a first token that this pass skips. In
    these cases the entity is identified by its end.
    """
    name = entity.name.rsplit("::", maxsplit=1)[-1]
    ends = {
        each.span.end for each in after.entities if each.name == entity.name and each.header.contains(span)
    }
    return any(
        definition.name == name and (definition.span.contains(span) or definition.span.end in ends)
        for definition in tree.definitions
    )


def _misplaced(after: ScopeMap, anchor: Anchor, span: Span, how: str) -> AnchorError:
    return AnchorError(
        f"after the edits, edit '{anchor.edit.id}' is not inside '{anchor.entity_name}': {how}",
        code="EDIT_MISPLACED",
        where=[anchor.edit.where, after.source.locate(span.start, "the edit is here")],
        hint="narrow the selector; patchkit plan shows the place of each edit",
    )


def _refuse_new_issues(
    after: ScopeMap,
    anchors: Sequence[tuple[Anchor, Sequence[Span]]],
    trees_before: Mapping[tuple[Pass, str], Tree],
    trees_after: Mapping[tuple[Pass, str], Tree],
) -> None:
    """Raises EditUnparsable for the first message of clang that only the trees after the edits have.

    Guarded edits are rejected even if an undeclared name may be the cause.
    """
    for key, tree in trees_after.items():
        for issue in _new_issues(trees_before[key], tree):
            doubt = find_doubt(after, issue.offset, Names(tree))
            raise _unparsable(after, anchors, f" in the {' '.join(key)} pass", issue, doubt)


@dataclass(frozen=True, slots=True)
class NewIssue:
    """A message of clang that only the text after the edits causes.

    ``doubt`` is an undeclared name that may be the cause; ``elsewhere``: it is in a definition without an
    edit.
    """

    which: tuple[Pass, str]
    issue: ParseIssue
    doubt: str | None
    elsewhere: bool

    @property
    def is_proven(self) -> bool:
        """Whether it is certainly a syntax error of the edits, whatever declarations are missing."""
        return self.doubt is None and not self.elsewhere


def find_new_issues(
    before: ScopeMap,
    after: ScopeMap,
    spans: Sequence[Span],
    trees_before: Mapping[tuple[Pass, str], Tree],
    trees_after: Mapping[tuple[Pass, str], Tree],
) -> Iterator[NewIssue]:
    """New messages of clang after the edits; ``spans`` are those of the edits in the text after."""
    places = touched(after, spans)
    before_text = frozenset(token.text for token in before.code)
    for which, tree in trees_after.items():
        names = Names(tree, trees_before[which], before_text)
        for issue in _new_issues(trees_before[which], tree):
            elsewhere = places is not None and not any(
                place.start <= issue.offset <= place.end for place in places
            )
            yield NewIssue(which, issue, find_doubt(after, issue.offset, names), elsewhere)


def judge_new_issues(
    before: ScopeMap,
    after: ScopeMap,
    anchors: Sequence[tuple[Anchor, Sequence[Span]]],
    trees_before: Mapping[tuple[Pass, str], Tree],
    trees_after: Mapping[tuple[Pass, str], Tree],
) -> tuple[str, ...]:
    """For a plain patch: warnings of possible syntax errors; raises EditUnparsable for certain ones.

    An error is certain if every name around it is known and it is at an edit. Messages about other
    definitions may be consequences of something that clang could not parse.
    """
    spans = [span for _, spans in anchors for span in spans]
    doubtful: dict[str, None] = {}
    for found in find_new_issues(before, after, spans, trees_before, trees_after):
        if found.is_proven:
            # The GPU that a plain patch was parsed for is not named, because the patch is for every GPU.
            which = "" if found.which[0] == "host" else " in the device pass"
            raise _unparsable(after, anchors, which, found.issue, None)
        place = after.source.locate(found.issue.offset)
        text = f"clang reports '{found.issue.message}' in a definition without an edit"
        if found.doubt is not None:
            text = doubtful_message(found.issue, found.doubt)
        doubtful[f"{place}: {text}"] = None
    return tuple(doubtful)


def doubtful_message(issue: ParseIssue, doubt: str) -> str:
    """The warning for a message of clang that an undeclared name may have caused."""
    return f"clang reports '{issue.message}', perhaps because no parsed file declares '{doubt}'"


def _new_issues(old: Tree, new: Tree) -> Iterator[ParseIssue]:
    known = Counter(issue.message for issue in old.issues)
    for issue in new.issues:
        known[issue.message] -= 1
        if known[issue.message] < 0:
            yield issue


def _unparsable(
    after: ScopeMap,
    anchors: Sequence[tuple[Anchor, Sequence[Span]]],
    which: str,
    issue: ParseIssue,
    doubt: str | None,
) -> EditUnparsable:
    where = [after.source.locate(issue.offset), *(anchor.edit.where for anchor, _ in anchors)]
    if doubt is not None:
        return EditUnparsable(
            f"possible syntax error{which} after the edit: {issue.message}",
            where=where,
            why=f"the text does not parse, and no parsed file declares '{doubt}'",
            hint="correct the text, include the header that declares the name, or declare it in the patch",
        )
    return EditUnparsable(
        f"syntax error{which} after the edit: {issue.message}",
        where=where,
        why="the rendered text does not parse at its place",
        hint="patchkit plan --show-text prints the rendered edits",
    )

"""Checks that each edit is where it was meant to be, and that nothing else changed."""

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
    """Clang reports a syntax error that was not there before the edit."""

    code = "EDIT_UNPARSABLE"


def confirm_entities(
    before: ScopeMap, after: ScopeMap, applied: Applied, anchors: Sequence[tuple[Anchor, Sequence[Span]]]
) -> None:
    """By tokens: the definitions are the same in the same order, and changed only where an edit is.

    ``anchors`` pairs each anchor with its spans in the text after. Raises TWIN_TOUCHED or EDIT_MISPLACED.
    """
    old = [entity for entity in before.entities if entity.kind != "macro"]
    new = [entity for entity in after.entities if entity.kind != "macro"]
    if [entity.name for entity in old] != [entity.name for entity in new]:
        changed = Counter(e.name for e in new)
        changed.subtract(Counter(e.name for e in old))
        names = sorted(name for name, count in changed.items() if count) or ["their order"]
        raise AnchorError(
            f"the edits change which definitions {after.source.path} has: {', '.join(names)}",
            code="TWIN_TOUCHED",
            where=[anchor.edit.where for anchor, _ in anchors],
            hint="new definitions belong in a new file of ours",
        )
    counterpart = {left.span: right for left, right in zip(old, new, strict=True)}
    named = [anchor.entity.span for anchor, _ in anchors if anchor.entity is not None]
    for left, right in zip(old, new, strict=True):
        edited = any(left.span.contains(span) for span in named)
        edited = edited or any(_strictly_in(placement.span, left.span) for placement in applied.placements)
        if not edited and left.digest != right.digest:
            raise AnchorError(
                f"'{left.name}' changed although no edit names it",
                code="TWIN_TOUCHED",
                where=[after.source.locate(right.span.start), *(anchor.edit.where for anchor, _ in anchors)],
                hint="patchkit plan shows where each edit goes",
            )
    for anchor, spans in anchors:
        entity = anchor.entity
        if entity is None or entity.kind == "macro":
            continue  # the file as a whole is its own entity; a macro's body has no definition around it
        holder = counterpart[entity.span]
        for span in spans:
            if not holder.span.contains(_code_span(after, span)):
                raise _misplaced(after, anchor, span, "its tokens are not in")


def confirm_untouched(
    before: ScopeMap, after: ScopeMap, applied: Applied, anchors: Sequence[tuple[Anchor, Sequence[Span]]]
) -> None:
    """By tokens: every definition in which no edit is stands there as before, whatever else comes or goes.

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
        # A member goes by another name when an edit renames its record; its own text is what counts then.
        if missing > 0 and not (_is_in(name, applied, before) and (_tail(name), digest) in tails):
            raise AnchorError(
                f"'{name}' changed although no edit names it",
                code="TWIN_TOUCHED",
                where=[Location(path=after.source.path), *(anchor.edit.where for anchor, _ in anchors)],
                hint="patchkit plan shows where each edit goes",
            )


def _tail(name: str) -> str:
    return name.rpartition("::")[2]


def _is_in(name: str, applied: Applied, before: ScopeMap) -> bool:
    """Whether a definition is a member of a record that an edit changes."""
    holder = name.rpartition("::")[0]
    records = [each for each in before.entities if each.kind == "record" and each.name == holder]
    return any(_meets(placement.span, each.span) for each in records for placement in applied.placements)


def _meets(one: Span, other: Span) -> bool:
    """Whether an edit changes bytes of a definition, or stands between two of them."""
    return one.start < other.end and other.start < one.end if len(one) else _strictly_in(one, other)


def _strictly_in(inner: Span, outer: Span) -> bool:
    """Whether an edit of ``inner`` is one of ``outer``: what only touches its border is not."""
    return outer.contains(inner) and (len(inner) > 0 or outer.start < inner.start < outer.end)


def _first_place(scopes: ScopeMap, span: Span) -> int:
    """The first directive or code token of a span: where the preprocessor decides about all of it."""
    places = [line.span.start for line in scopes.directives if span.contains(line.span)]
    places += [scopes.code[index].span.start for index in scopes.code_in(span)]
    return min(places, default=span.start)


def _code_span(scopes: ScopeMap, span: Span) -> Span:
    """From the first to the last code token in ``span``: generated directives may precede an entity."""
    code = scopes.code_in(span)
    return Span(scopes.code[code.start].span.start, scopes.code[code.stop - 1].span.end) if code else span


def confirm_passes(
    after: ScopeMap,
    anchors: Sequence[tuple[Anchor, Sequence[Span]]],
    trees_before: Mapping[tuple[Pass, str], Tree],
    trees_after: Mapping[tuple[Pass, str], Tree],
) -> tuple[tuple[str, ...], ...]:
    """By clang: no pass has a new syntax error, and the pass of each edit's side sees it in its entity.

    Of each anchor the passes (``device gfx1151``) whose AST shows its edit; none for the file as a whole and
    for macros, which no AST has.

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
                    where=[anchor.edit.where, after.source.locate(spans[0].start, "left out by its #if")],
                    why="it stands in a branch that is false there: the edit would change nothing",
                    hint="select the branch that is compiled, or correct 'side'; or add the macro that its "
                    "#if asks for to the guard (import and new: --macro NAME)",
                )
            if not live:
                continue
            if all(_shows(after, tree, entity, _code_span(after, span)) for span in spans):
                seen.append(f"{which} {arch}")
            elif which == anchor.edit.side:
                raise _misplaced(after, anchor, spans[0], f"clang's {which} pass for {arch} does not show it")
        _refuse_wrong_side(after, anchor, spans[0], trees_after)
        seen_in.append(tuple(seen))
    return tuple(seen_in)


def _refuse_wrong_side(
    after: ScopeMap, anchor: Anchor, span: Span, trees: Mapping[tuple[Pass, str], Tree]
) -> None:
    """By the attributes; HIP compiles a constexpr function without any for both sides."""
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
                why="its guard would be false wherever the function runs",
                hint=f'side = "{"host" if which == "device" else "device"}", or another function',
            )


def _shows(after: ScopeMap, tree: Tree, entity: Entity, span: Span) -> bool:
    """Whether clang has the entity around the edit.

    clang begins a definition behind ``[[attributes]]``, and behind a first token that this pass does
    not have: there the common end identifies it.
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
        f"edit '{anchor.edit.id}' is not inside '{anchor.entity_name}' afterwards: {how}",
        code="EDIT_MISPLACED",
        where=[anchor.edit.where, after.source.locate(span.start, "the edit landed here")],
        hint="narrow the selector; patchkit plan shows where each edit goes",
    )


def _refuse_new_issues(
    after: ScopeMap,
    anchors: Sequence[tuple[Anchor, Sequence[Span]]],
    trees_before: Mapping[tuple[Pass, str], Tree],
    trees_after: Mapping[tuple[Pass, str], Tree],
) -> None:
    """Raises EditUnparsable for the first message of clang's that only the trees after the edits have.

    What is to stay inside of a guard is refused even where an unknown name may be the reason.
    """
    for key, tree in trees_after.items():
        for issue in _new_issues(trees_before[key], tree):
            doubt = find_doubt(after, issue.offset, Names(tree))
            raise _unparsable(after, anchors, f" in the {' '.join(key)} pass", issue, doubt)


@dataclass(frozen=True, slots=True)
class NewIssue:
    """A message of clang's that only the text after the edits has.

    ``doubt`` is an unknown name that may be the reason; ``elsewhere`` is a definition that no edit is in.
    """

    which: tuple[Pass, str]
    issue: ParseIssue
    doubt: str | None
    elsewhere: bool

    @property
    def is_proven(self) -> bool:
        """Whether it is a syntax error of the edits, whatever this machine does not know."""
        return self.doubt is None and not self.elsewhere


def find_new_issues(
    before: ScopeMap,
    after: ScopeMap,
    spans: Sequence[Span],
    trees_before: Mapping[tuple[Pass, str], Tree],
    trees_after: Mapping[tuple[Pass, str], Tree],
) -> Iterator[NewIssue]:
    """What clang says after the edits and did not say before; ``spans`` are theirs in the text after."""
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
    """Of a plain patch: warnings of what may be a syntax error; raises EditUnparsable for what is one.

    It is one where every name around it is known, and where the edits are: what clang says of another
    definition follows from how it went on behind what it did not understand.
    """
    spans = [span for _, spans in anchors for span in spans]
    doubtful: dict[str, None] = {}
    for found in find_new_issues(before, after, spans, trees_before, trees_after):
        if found.is_proven:
            # Which GPU a plain patch was read for is no matter of it: it is for every build.
            which = "" if found.which[0] == "host" else " in the device pass"
            raise _unparsable(after, anchors, which, found.issue, None)
        place = after.source.locate(found.issue.offset)
        told = f"clang says '{found.issue.message}' in a definition that no edit is in"
        if found.doubt is not None:
            told = doubtful_message(found.issue, found.doubt)
        doubtful[f"{place}: {told}"] = None
    return tuple(doubtful)


def doubtful_message(issue: ParseIssue, doubt: str) -> str:
    """What cannot be told about a message of clang's."""
    return f"clang says '{issue.message}', perhaps because nothing that was read declares '{doubt}'"


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
            f"perhaps a syntax error{which} after the edit: {issue.message}",
            where=where,
            why=f"it does not parse here, where nothing that was read declares '{doubt}'",
            hint="correct the text, include the header that declares the name, or declare it in the patch",
        )
    return EditUnparsable(
        f"syntax error{which} after the edit: {issue.message}",
        where=where,
        why="the rendered text does not parse where it was put",
        hint="patchkit plan --show-text prints the rendered edits",
    )

"""Changes of functions cut from upstream's history: imported, and carried to where the truth is known.

Between two neighbouring trees each function that differs is one change of its file. Lifted on the older
tree it must come out byte for byte. Each of its edits alone is then carried to the newer tree without that
edit, where the newer tree itself is the right answer; and to the newer tree, which has it already and must
refuse it. As a bump does, a result that the merge as text contradicts is no result.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.reporter import NullReporter
from patchkit.base.source import SourceText
from patchkit.carry.cpp.scopes import Entity, ScopeMap, parse_scopes
from patchkit.carry.judging.derive import merge_file, same_tokens
from patchkit.carry.lifting.draft import Draft, NotLifted, apply_drafts
from patchkit.carry.lifting.lines import lift_lines
from patchkit.carry.lifting.tokens import lift_tokens
from patchkit.carry.placing.plain import expand_plain
from patchkit.carry.placing.resolve import resolve_anchor
from patchkit.carry.series.patch import Edit


@dataclass(frozen=True)
class Change:
    """One function that two neighbouring trees have differently: the file before, with it, and newer."""

    path: str
    function: str
    old: bytes
    new: bytes
    newer: bytes
    others: tuple[bytes, ...]

    def __str__(self) -> str:
        return f"{self.function} in {self.path}"


class Carried(enum.StrEnum):
    """What became of an edit on another tree."""

    RIGHT = "right"
    CONFLICT = "conflict"
    WRONG = "wrong"


def functions(path: str, data: bytes) -> tuple[ScopeMap, dict[str, Entity]]:
    """The functions of a file whose names are theirs alone."""
    scopes = parse_scopes(SourceText(path, data))
    found = [entity for entity in scopes.entities if entity.kind == "function"]
    count = collections.Counter(entity.name for entity in found)
    return scopes, {entity.name: entity for entity in found if count[entity.name] == 1}


def changes(
    older: Mapping[str, bytes], newer: Mapping[str, bytes], before: Sequence[Mapping[str, bytes]]
) -> Iterator[Change]:
    """Every function-level change between two trees; ``before`` are the trees that are older still."""
    for path in sorted(set(older) & set(newer)):
        if older[path] == newer[path]:
            continue
        left, old = functions(path, older[path])
        right, new = functions(path, newer[path])
        others = tuple(tree[path] for tree in before if path in tree)
        for name in sorted(set(old) & set(new)):
            was, now = left.source.text(old[name].span), right.source.text(new[name].span)
            if was != now:
                made = older[path][: old[name].span.start] + now + older[path][old[name].span.end :]
                yield Change(path, name, older[path], made, newer[path], others)


def lift(change: Change, new: bytes, words: str) -> tuple[Draft, ...]:
    """The edits that make ``new`` of a change's old file, by ``lines`` or ``tokens``; raises NotLifted."""
    if words == "lines":
        return lift_lines(change.path, change.old, new)
    return lift_tokens(change.path, change.old, new, change.others)


def lifted(change: Change, words: str) -> tuple[Draft, ...] | None:
    """The edits of a change, which come out byte for byte; None when it is refused."""
    try:
        drafts = lift(change, change.new, words)
    except NotLifted:
        return None
    assert apply_drafts(change.old, drafts) == change.new
    assert all(placed(change.old, draft) is not None for draft in drafts)
    return drafts


def placed(data: bytes, draft: Draft) -> bytes | None:
    """A file with one draft in it, placed as an edit of a plain patch is; None: it is a conflict."""
    source = SourceText(draft.file, data)
    text = (draft.rows if draft.rows is not None else draft.text).decode()
    edit = Edit(
        id="carried",
        file=draft.file,
        function=draft.function,
        parameters=draft.parameters,
        at=draft.selector,
        verb=draft.verb,
        text=text if draft.verb != "remove" else None,
        where=Location(path="carried"),
    )
    try:
        anchor = resolve_anchor(parse_scopes(source), edit)
        (placement,) = expand_plain(source, anchor, edit.text)
    except PatchkitError:
        return None
    return data[: placement.span.start] + placement.replacement + data[placement.span.end :]


def carried(change: Change, words: str) -> Iterator[tuple[Carried, Carried]]:
    """For each edit of the function: what becomes of it where it is missing, and where it is there already.

    Looked at in the whole file, as a bump does: everything but the function is the newer tree's.
    """
    try:
        drafts = lift(change, change.new, words)
    except NotLifted:
        return
    for draft in drafts:
        alone = apply_drafts(change.old, [draft])
        rest = apply_drafts(change.old, [each for each in drafts if each is not draft])
        onto = _with_function(change, rest)
        if onto is None:
            continue
        try:
            again = lift(change, alone, words)
        except NotLifted:
            continue
        if len(again) == 1:
            yield (
                _judge(change, again[0], alone, onto),
                _judge(change, again[0], alone, change.newer),
            )


def _with_function(change: Change, data: bytes) -> bytes | None:
    """The newer file with the function as ``data`` has it."""
    scopes, found = functions(change.path, data)
    _, newer = functions(change.path, change.newer)
    before, old = functions(change.path, change.old)
    if change.function not in found or change.function not in newer:
        return None
    behind = scopes.source.data[found[change.function].span.end :]
    if behind != before.source.data[old[change.function].span.end :]:
        return None  # without one of the edits the braces do not pair: where the function ends nobody knows
    span = newer[change.function].span
    text = scopes.source.text(found[change.function].span)
    return change.newer[: span.start] + text + change.newer[span.end :]


def _judge(change: Change, draft: Draft, alone: bytes, onto: bytes) -> Carried:
    made = placed(onto, draft)
    if made is None:
        return Carried.CONFLICT
    if same_tokens(change.path, made, change.newer):
        return Carried.RIGHT
    merged, conflicts = merge_file(onto, change.old, alone, NullReporter())
    contradicted = conflicts == 0 and not same_tokens(change.path, made, merged)
    return Carried.CONFLICT if contradicted else Carried.WRONG

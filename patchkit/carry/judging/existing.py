"""For edits that cannot be placed: whether upstream has their code except for comments, ``#if`` or names.

Only the tokens count, in the function of the edit or, without one, in its file. What the edit adds has to be
there, and what it replaces must not be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.source import SourceText
from patchkit.base.upstreams import build_name
from patchkit.carry.cpp.lexer import Token, TokenKind
from patchkit.carry.cpp.scopes import ScopeMap, is_code, parse_scopes
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.placing.resolve import find_entity, resolve_anchor
from patchkit.carry.series.patch import Edit

_Match = Callable[[Sequence[Token], Sequence[Token]], bool]
_CODES = frozenset({"ANCHOR_NOT_FOUND", "ENTITY_NOT_FOUND"})
_WORDS = 3  # names, keywords and numbers that code needs to be recognised
_RENAMED = 12  # tokens that code needs to be recognised with other names


def add_existing(
    errors: Sequence[PatchkitError], last: Rendering, rendering: Rendering, build: int
) -> dict[str, Location]:
    """Add to the errors of edits where upstream has their code; return these places, by edit.

    ``last``: the patch on the old upstream. ``rendering``: the attempt on the new one, of ``build``.
    """
    edits = {edit.where: edit for edit in rendering.patch.edits}
    old = {edit.id: edit for edit in last.patch.edits}
    texts = {edit.id: edit.text for edit in last.placed.edits} if last.placed is not None else {}
    found: dict[str, Location] = {}
    for error in errors:
        edit = edits.get(error.where[0]) if error.where else None
        if error.code not in _CODES or edit is None or edit.id not in old or edit.id not in texts:
            continue
        if not is_code(edit.file):
            continue
        try:
            place = _find(old[edit.id], edit, texts[edit.id], last, rendering)
        except PatchkitError:
            continue  # the old edit is ambiguous without the rest of its patch
        if place is None:
            continue
        found[edit.id] = place
        error.where = (*error.where, place)
        error.hint = (
            f"compare both: if upstream's code is enough, end the edit or the patch with last = {build - 1}, "
            f"because {build_name(build)} has it"
        )
    return found


def _find(old: Edit, new: Edit, text: str, last: Rendering, rendering: Rendering) -> Location | None:
    before, now = last.before.get(old.file), rendering.before.get(new.file)
    if before is None or now is None:
        return None
    left, right = (
        parse_scopes(SourceText(path, data)) for path, data in ((old.file, before), (new.file, now))
    )
    there, here = _region(left, old), _region(right, new)
    spans = () if old.verb.startswith("insert") else resolve_anchor(left, old).spans
    removed = [left.tokens_in(span) for span in spans]
    added = parse_scopes(SourceText(new.file, text.encode())).code if old.verb != "remove" else ()
    label = f"has the code that edit '{new.id}' adds"
    if any(_places(each, here) for each in removed):
        return None
    if not added:
        # What it removes is gone; the function has to be there to say so.
        return (
            _located(right, here[0], f"lacks the code that edit '{new.id}' removes")
            if removed and here
            else None
        )
    if sum(token.kind is not TokenKind.PUNCTUATION for token in added) < _WORDS:
        return None
    matches = ((_is_same, ""), (_is_renamed, " with other names"))
    for match, how in matches if len(added) >= _RENAMED else matches[:1]:
        mine, known = _places(added, here, match), _places(added, there, match)
        if mine and (removed or len(mine) > len(known)):
            return _located(right, here[mine[0]], f"{label}{how}")
    return None


def _located(scopes: ScopeMap, token: Token, label: str) -> Location:
    return scopes.source.locate(token.start, label)


def _region(scopes: ScopeMap, edit: Edit) -> tuple[Token, ...]:
    """The tokens of the function of an edit, or of the file; none if the function is gone."""
    if edit.function is None:
        return scopes.code
    try:
        return scopes.tokens_in(find_entity(scopes, edit.function, edit.parameters, edit.where).span)
    except PatchkitError:
        return ()


def _is_same(wanted: Sequence[Token], part: Sequence[Token]) -> bool:
    return all(one.text == other.text for one, other in zip(wanted, part, strict=True))


def _is_renamed(wanted: Sequence[Token], part: Sequence[Token]) -> bool:
    """Whether the tokens are the same except for one name, or half of them, each replaced by another."""
    names: dict[bytes, bytes] = {}
    for one, other in zip(wanted, part, strict=True):
        if one.kind is not TokenKind.IDENTIFIER or other.kind is not TokenKind.IDENTIFIER:
            if one.text != other.text:
                return False
        elif names.setdefault(one.text, other.text) != other.text:
            return False
    changed = sum(one != other for one, other in names.items())
    return len({*names.values()}) == len(names) and (changed == 1 or 2 * changed <= len(names))


def _places(wanted: Sequence[Token], within: Sequence[Token], match: _Match | None = None) -> list[int]:
    """The positions at which some tokens begin."""
    compare, size = match or _is_same, len(wanted)
    starts: Iterable[int] = range(len(within) - size + 1) if size else ()
    first = wanted[0] if size else None
    return [
        at
        for at in starts
        if first is not None and within[at].kind == first.kind and compare(wanted, within[at : at + size])
    ]

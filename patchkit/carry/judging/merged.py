"""Follow edits of whole lines by git's merge, if the lines around their places changed.

An edit names lines next to its place. If upstream changes one of these, the edit fits nowhere, although the
place is not in doubt: git's merge of the edit alone has no conflict, it is in the same function as before,
and no line of either side is lost. Then the edit gets other lines that select this place. Whether the edits
select it is checked by placing them again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.reporter import Reporter
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.scopes import ScopeMap, is_code, parse_scopes
from patchkit.carry.judging.classes import Move
from patchkit.carry.judging.commute import can_follow
from patchkit.carry.judging.conflict_markers import Conflict, list_conflicts
from patchkit.carry.judging.derive import merge_file
from patchkit.carry.judging.merge import doubt_of
from patchkit.carry.judging.rendering import Rendering, only_in
from patchkit.carry.placing.expand import apply_placements
from patchkit.carry.placing.lines import (
    ENOUGH_WORDS,
    ENOUGH_WORDS_IN_FUNCTION,
    count_words,
    is_blank_edged,
    lines_selector,
    rows_of,
    selector_text,
    sides,
)
from patchkit.carry.placing.plain import expand_plain, is_blank
from patchkit.carry.placing.resolve import EntityNotFound, find_entity, resolve_anchor
from patchkit.carry.placing.select import select
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.selection import Selected
from patchkit.carry.series.selector import Selector

_LABELS = ("patch", "before", "upstream")
_NEAR = 8  # lines on each side that a selector has at most


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedPatch:
    """A patch with other lines for the edits that did not fit, and where these were and are."""

    selected: Selected
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merged:
    """A file in which git merged one edit. ``detail``: how, as text."""

    data: bytes
    detail: str


def follow_by_merge(last: Rendering, failed: Rendering, reporter: Reporter) -> MergedPatch | None:
    """The patch with new lines for each edit that does not fit; None if one of them is in doubt.

    An optional edit that is in doubt stays as it is, so it is skipped.

    Args:
        last: the patch as placed on the old upstream.
        failed: the patch on the new upstream, where it, or an optional edit of it, could not be placed.
        reporter: logs the git commands.

    Raises GitError and CacheError, as :func:`patchkit.carry.judging.derive.merge_file`.
    """
    if last.placed is None or not failed.patch.is_plain:
        return None
    was = {edit.id: edit for edit in last.patch.edits}
    # Edits for the new build only are not in the merge; the caller places them again as they are.
    begun = {(edit.id, edit.first_build) for edit in only_in(failed.patch, last.patch)}
    texts = {edit.id: edit.text for edit in last.placed.edits}
    found: dict[str, Edit] = {}
    moves: list[Move] = []
    for edit in failed.patch.edits:
        if is_blank(edit, edit.text) or (edit.id, edit.first_build) in begun:
            continue
        before = last.before.get(was[edit.id].file)
        upstream = failed.before.get(edit.file)
        if before is None or upstream is None or edit.id not in texts:
            if edit.optional:
                continue
            return None
        new = parse_scopes(SourceText(edit.file, upstream))
        text = None if edit.verb == "remove" else texts[edit.id]
        if _with_edit(new, edit, text) is not None:
            continue
        old = parse_scopes(SourceText(was[edit.id].file, before))
        followed = follow_edit(was[edit.id], edit, text, (old, new), reporter)
        if followed is None:
            if edit.optional:
                continue
            return None
        again, detail = followed
        found[edit.id] = again
        moves.append(
            Move(
                edit=edit.id,
                how="merged",
                before=_place(old, was[edit.id]),
                after=_place(new, again),
                detail=detail,
            )
        )
    if not found:
        return None
    edits = tuple(found.get(edit.id, edit) for edit in failed.patch.edits)
    patch = replace(failed.patch, edits=edits)
    return MergedPatch(selected=replace(failed.selected, patch=patch), moves=tuple(moves))


def follow_edit(
    was: Edit, edit: Edit, text: str | None, files: tuple[ScopeMap, ScopeMap], reporter: Reporter
) -> tuple[Edit, str] | None:
    """An edit with lines that select the place at which git merges it, and how; None if that is in doubt.

    ``was`` is the edit in the first of the ``files``, ``edit`` the same one in the second file, where it does
    not fit. ``text``: what it writes, None if it removes.
    """
    old, new = files
    after = _with_edit(old, was, text)
    if after is None:
        return None
    respaced = _respaced(was, edit, files)
    base, edit = respaced or (old.source, edit)
    merged = _merge(base, after, new.source, reporter, is_respaced=respaced is not None)
    again = _anchored(edit, text, new, merged.data) if merged is not None else None
    if merged is None or again is None:
        return None
    renamed = f"'{was.function}' is now '{again.function}'; " if again.function != edit.function else ""
    return again, f"{renamed}{merged.detail}"


def _respaced(was: Edit, edit: Edit, files: tuple[ScopeMap, ScopeMap]) -> tuple[SourceText, Edit] | None:
    """The old file and the edit with the new file's spaces, if only those differ from the edit's lines.

    None if no lines of the function, or more than once, are the same apart from spaces.
    """
    old, new = files
    if edit.verb not in ("change_to", "remove") or edit.at is None or edit.at.lines is None:
        return None
    spans = resolve_anchor(old, was).spans
    size = len(rows_of(edit.at.lines))
    if len(spans) != 1 or edit.function is None or not is_code(new.source.path):
        return None
    rows, first = old.source.rows, old.source.line_of(spans[0].start) - 1
    wanted = [_spaced(row) for row in rows[first : first + size]]
    domain = _domain(edit, new, None)
    found = [
        new.source.rows[at : at + size]
        for at in range(domain.start, domain.stop - size + 1)
        if [_spaced(row) for row in new.source.rows[at : at + size]] == wanted
    ]
    if len(found) != 1 or count_words(wanted) < ENOUGH_WORDS_IN_FUNCTION:
        return None
    (lines,) = found
    selector = replace(edit.at, lines=selector_text(lines))
    if selector == edit.at:
        return None
    data = b"\n".join([*rows[:first], *lines, *rows[first + size :]])
    return SourceText(old.source.path, data), replace(edit, at=selector)


def _spaced(row: bytes) -> bytes:
    """A line with one space for several, but not in its indentation. A line with a literal stays as it is."""
    return row if b'"' in row or b"'" in row else re.sub(rb"(?<=\S)[ \t]+", b" ", row.rstrip())


def _with_edit(scopes: ScopeMap, edit: Edit, text: str | None) -> bytes | None:
    """A file with one edit; None if it does not fit."""
    try:
        anchor = resolve_anchor(scopes, edit)
        return apply_placements(scopes.source, expand_plain(scopes.source, anchor, text)).after.data
    except PatchkitError:
        return None


def _place(scopes: ScopeMap, edit: Edit) -> Location:
    spans = resolve_anchor(scopes, edit).spans
    return scopes.source.locate(spans[0].start) if spans else Location(path=edit.file)


def _merge(
    base: SourceText, patched: bytes, upstream: SourceText, reporter: Reporter, *, is_respaced: bool
) -> _Merged | None:
    """The new file with the edit, if nothing about the merge is in doubt."""
    if b"\0" in base.data + patched + upstream.data or patched == base.data:
        return None
    merged, conflicts = merge_file(patched, base.data, upstream.data, reporter, _LABELS)
    detail = "upstream changed the lines next to it; git's merge has no conflict there"
    if is_respaced:
        detail = "upstream changed only spaces in its lines"
    if conflicts:
        decided = _decided(merged, upstream, is_respaced=is_respaced)
        if decided is None:
            return None
        merged, detail = decided
    if merged == upstream.data:
        return None
    doubt = doubt_of(base, SourceText(base.path, patched), upstream, SourceText(upstream.path, merged))
    return _Merged(data=merged, detail=detail) if not doubt else None


def _decided(merged: bytes, upstream: SourceText, *, is_respaced: bool) -> tuple[bytes, str] | None:
    """A merge with one conflict that has only one right result, and how it was decided; else None."""
    rows = merged.split(b"\n")
    conflicts = list(list_conflicts(rows, _LABELS))
    if len(conflicts) != 1:
        return None
    (one,) = conflicts
    beside = _beside(one) if is_respaced else None
    if beside is not None:
        detail = "upstream changed only spaces in its lines, and inserted lines next to them"
        return b"\n".join([*rows[: one.first], *beside, *rows[one.stop :]]), detail
    between = _between(one, upstream.path)
    if between is not None:
        detail = "upstream changed the code on one side of it; it is still between the same two neighbours"
        return b"\n".join([*rows[: one.first], *between, *rows[one.stop :]]), detail
    if any(row.strip() for row in one.base):
        return None
    if not can_follow(upstream, one.first, one.upstream, one.patch):
        return None
    detail = "upstream inserted lines at the same place; the lines of the patch are after them"
    return b"\n".join([*rows[: one.first], *one.upstream, *one.patch, *rows[one.stop :]]), detail


_SAME_LINE = 0.6
"""Share of characters from which a changed line counts as the same one."""
_LEAST_WORDS = 2  # of a line that can be recognised


def _beside(conflict: Conflict) -> list[bytes] | None:
    """The lines that the patch changes or removes, and those that upstream inserted directly next to them."""
    base, patch, upstream = conflict.base, conflict.patch, conflict.upstream
    size = len(base)
    if not size or len(patch) > size or len(upstream) <= size:
        return None
    if upstream[:size] == base:
        return [*patch, *upstream[size:]]
    return [*upstream[:-size], *patch] if upstream[-size:] == base else None


def _between(conflict: Conflict, path: str) -> list[bytes] | None:
    """Upstream's lines with those of the patch between the same two lines or statements as before.

    The patch only inserts lines, and upstream changed what is on one side of them: a line that is still
    similar, or one statement that it replaced by one other. The other side is outside of the conflict, so
    both have it. If upstream also inserted a line there, the order is open.
    """
    base, patch, upstream = conflict.base, conflict.patch, conflict.upstream
    size = len(patch) - len(base)
    if not base or not upstream or size <= 0:
        return None
    is_replaced = all(_is_statement(path, rows) for rows in (base, upstream))
    if patch[size:] == base and (is_replaced or _is_same_line(base[0], upstream[0])):
        return [*patch[:size], *upstream]
    if patch[: len(base)] == base and (is_replaced or _is_same_line(base[-1], upstream[-1])):
        return [*upstream, *patch[len(base) :]]
    return None


def _is_same_line(old: bytes, new: bytes) -> bool:
    """Whether a line is another version of the old one, and not a new one."""
    one, other = (row.decode("utf-8", "replace").strip() for row in (old, new))
    if not all(len(re.findall(r"\w+", side)) >= _LEAST_WORDS for side in (one, other)):
        return False
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio() >= _SAME_LINE


def _is_statement(path: str, rows: Sequence[bytes]) -> bool:
    """Whether lines of code are exactly one whole statement."""
    if not is_code(path):
        return False
    scopes = parse_scopes(SourceText(path, b"\n".join(rows) + b"\n"))
    code = scopes.code
    if not code or scopes.unpaired or scopes.directives:
        return False
    at = 0
    while at < len(code):
        text = code[at].text
        at = scopes.match.get(at, at) + 1
        following = code[at].text if at < len(code) else b""
        if text == b";" or (
            text == b"{" and following not in (b"else", b"while", b"catch", b";", b")", b",")
        ):
            return at == len(code)
    return False


def _anchored(edit: Edit, text: str | None, scopes: ScopeMap, wanted: bytes) -> Edit | None:
    """The edit with lines that select the place at which it gives ``wanted``; None if there are none."""
    if edit.count != 1 or edit.digest is not None:
        return None
    edit = _in_function(edit, scopes, wanted)
    inside = edit.at.inside if edit.at is not None else None
    if inside is not None and (inside.definition is None or len(select(scopes, None, inside)) != 1):
        inside = None
    for place, size in _places(edit, scopes.source.rows, wanted.split(b"\n")):
        for selector in _selectors(edit, scopes, (place, size), inside):
            again = replace(edit, at=selector)
            if _with_edit(scopes, again, text) == wanted:
                return again
    return None


def _in_function(edit: Edit, scopes: ScopeMap, wanted: bytes) -> Edit:
    """The edit with the name and the parameters that its function has now, if none has the old ones.

    It is the function in which the merge changes the file, which is known to be the same one.
    """
    if edit.function is None:
        return edit
    named = [each for each in scopes.definitions if each.answers_to(edit.function)]
    if named and edit.parameters is None:
        return edit
    try:
        find_entity(scopes, edit.function, edit.parameters, edit.where)
    except EntityNotFound:
        first = _first_change(scopes.source.rows, wanted.split(b"\n"))
        functions = [each for each in scopes.entities if each.kind == "function"]
        here = [each for each in named or functions if first in scopes.source.lines_of(each.span)]
        if len(here) == 1:
            name = edit.function if named else here[0].name
            tokens = [scopes.code[at].text for at in scopes.code_in(here[0].parameters)]
            parameters = b" ".join(tokens).decode("utf-8", "replace") if edit.parameters else None
            return replace(edit, function=name, parameters=parameters)
    return edit


def _first_change(rows: Sequence[bytes], new: Sequence[bytes]) -> int:
    pairs = enumerate(zip(rows, new, strict=False))
    return next((at for at, pair in pairs if pair[0] != pair[1]), min(len(rows), len(new)))


def _places(edit: Edit, rows: Sequence[bytes], new: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """First row, from 0, and number of the rows to select, for each place that may give the ``new`` rows."""
    first = _first_change(rows, new)
    if edit.verb in ("insert_before", "insert_after"):
        size = len(new) - len(rows)
        # The same insertion may begin earlier, with lines that equal those above its end.
        for at in range(first, -1, -1):
            if size <= 0 or rows[at:] != new[at + size :]:
                return
            yield (at - 1 if edit.verb == "insert_after" else at), 1
    elif edit.verb in ("change_to", "remove") and edit.at is not None and edit.at.lines is not None:
        wanted = [row.strip() for row in rows_of(edit.at.lines)]
        for at in range(first, max(-1, first - len(wanted)), -1):
            if [row.strip() for row in rows[at : at + len(wanted)]] == wanted:
                yield at, len(wanted)


def _selectors(
    edit: Edit, scopes: ScopeMap, place: tuple[int, int], inside: Selector | None
) -> Iterator[Selector]:
    """Selectors of whole lines at a place, with few lines around them first."""
    rows, (first, size) = scopes.source.rows, place
    domain = _domain(edit, scopes, inside)
    if not domain.start <= first <= first + size <= domain.stop:
        return
    enough = ENOUGH_WORDS if edit.function is None and inside is None else ENOUGH_WORDS_IN_FUNCTION
    # An insertion names the lines on both sides of it.
    least = {"insert_after": (0, 1), "insert_before": (1, 0)}.get(edit.verb, (0, 0))
    most = min(_NEAR, first - domain.start), min(_NEAR, domain.stop - first - size)
    for above, below in sides(most, least):
        near = rows[first - above : first], rows[first + size : first + size + below]
        if is_blank_edged(*near):
            continue
        lines = rows[first : first + size]
        if count_words([*near[0], *lines, *near[1]]) < enough:
            continue
        try:
            yield lines_selector(lines, near, inside, edit.at.exact if edit.at is not None else None)
        except UnicodeDecodeError:
            continue


def _domain(edit: Edit, scopes: ScopeMap, inside: Selector | None) -> range:
    """The rows of the code in which an edit is searched for."""
    source = scopes.source
    span = Span(0, len(source.data))
    if inside is not None:
        (span,) = select(scopes, None, inside)
    elif edit.function is not None:
        try:
            span = find_entity(scopes, edit.function, edit.parameters, edit.where).span
        except PatchkitError:
            return range(0)
    return source.lines_of(span)

"""Turn an anchored edit and its rendered text into guarded bytes, and insert them into the file."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.base.errors import AnchorError, Location, RenderError
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.directives import Group
from patchkit.carry.cpp.lexer import lex_pattern
from patchkit.carry.cpp.scopes import ScopeMap
from patchkit.carry.placing.guard import Guard
from patchkit.carry.placing.resolve import Anchor, find_entity
from patchkit.carry.placing.select import is_one_statement, starts_controlled
from patchkit.carry.series.patch import Alias, Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """``span`` is replaced by ``replacement``; ``edit`` and ``where`` are for error messages."""

    span: Span
    replacement: bytes
    edit: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The text after all placements; ``spans[i]`` is the new span of ``placements[i]``."""

    after: SourceText
    placements: tuple[Placement, ...]
    spans: tuple[Span, ...]


def apply_placements(source: SourceText, placements: Sequence[Placement]) -> Applied:
    """Apply every placement; their order matters only between insertions at the same offset.

    Raises EDIT_CONFLICT if two overlap, or if an insertion is inside a replaced span.
    """
    ordered = sorted(placements, key=lambda placement: placement.span)
    pieces: list[bytes] = []
    spans: list[Span] = []
    position = length = 0
    previous: Placement | None = None
    for placement in ordered:
        if previous is not None and placement.span.start < previous.span.end:
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
        after=SourceText(source.path, b"".join(pieces)),
        placements=tuple(ordered),
        spans=tuple(spans),
    )


_STEP = b"    "
_ENDIF = b"#endif"


@dataclass(frozen=True, slots=True)
class _Slot:
    """A span extended to whole lines where possible, and the text that must be written around it."""

    span: Span
    indent: bytes
    old: bytes
    lead: bytes
    tail: bytes


def guard_replacement(
    source: SourceText, span: Span, new: bytes, condition: str, refusal: Sequence[bytes] = ()
) -> tuple[Span, bytes]:
    """``#if condition / new / #else / old / #endif`` in place of ``span``; ``refusal`` follows ``new``."""
    slot = _slot(source, span)
    return slot.span, _lines(
        source, slot, [_if(condition), _indented(new, slot.indent), *refusal, b"#else", slot.old, _ENDIF]
    )


def guard_removal(source: SourceText, span: Span, condition: str) -> tuple[Span, bytes]:
    """``#if !(condition) / old / #endif`` in place of ``span``."""
    slot = _slot(source, span)
    return slot.span, _lines(source, slot, [_if(f"!({condition})"), slot.old, _ENDIF])


def guard_insertion(
    source: SourceText, span: Span, new: bytes, condition: str, refusal: Sequence[bytes] = (), *, after: bool
) -> tuple[Span, bytes]:
    """``#if condition / new / #endif`` before ``span``, or ``after`` it; ``refusal`` as above."""
    slot = _slot(source, span)
    newline = source.newline
    line = source.text(source.line_span(source.line_of(span.start)))
    # After the last code of a line the text gets the indentation of that line; elsewhere it continues the
    # line.
    indent = line[: _leading_blanks(line)] if after and not slot.tail else slot.indent
    block = [_if(condition), _indented(new, indent), *refusal, _ENDIF]
    text = newline.join(piece.replace(b"\n", newline) for piece in block)
    if after:
        if slot.tail:
            start = span.end
            return Span(start, slot.span.end), newline + text + slot.tail
        end = source.line_end(span.end)
        return Span(end, end), newline + text
    if slot.lead:
        return Span(slot.span.start, span.start), newline + text + newline + slot.indent
    return Span(slot.span.start, slot.span.start), text + newline


def _if(condition: str) -> bytes:
    return b"#if " + condition.encode()


def _lines(source: SourceText, slot: _Slot, pieces: list[bytes]) -> bytes:
    newline = source.newline
    # Only our own text gets the file's newline; the old bytes stay as they were.
    ours = [piece if piece is slot.old else piece.replace(b"\n", newline) for piece in pieces]
    return slot.lead + newline.join(ours) + slot.tail


def _slot(source: SourceText, span: Span) -> _Slot:
    first = source.line_span(source.line_of(span.start))
    before = source.data[first.start : span.start]
    after = source.data[span.end : source.line_end(span.end)]
    newline = source.newline
    if before.strip():
        indent = source.data[first.start : first.start + _leading_blanks(before)] + _STEP
        start = first.start + len(before.rstrip(b" \t"))
        old, lead = indent + source.text(span), newline
    else:
        line = source.text(first)
        indent, start = line[: _leading_blanks(line)], first.start
        old, lead = source.data[first.start : span.end], b""
    # A comment after the span stays on its line; code has to move below the directives.
    if after.strip() and not after.lstrip().startswith(b"//"):
        tail = newline + (indent if before.strip() else indent + _STEP)
        return _Slot(Span(start, span.end + _leading_blanks(after)), indent, old, lead, tail)
    old += after
    return _Slot(Span(start, span.end + len(after)), indent, old, lead, b"")


def _leading_blanks(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def _indented(text: bytes, indent: bytes) -> bytes:
    """``text`` without its common margin; lines other than directives and empty ones are indented."""
    lines = text.strip(b"\r\n").replace(b"\r\n", b"\n").split(b"\n")
    margins = [_leading_blanks(line) for line in lines if line.strip() and not line.startswith(b"#")]
    margin = min(margins, default=0)
    return b"\n".join(
        line if not line.strip() or line.startswith(b"#") else indent + line[margin:].rstrip()
        for line in lines
    )


def expand_edit(scopes: ScopeMap, anchor: Anchor, guard: Guard, text: str | None) -> tuple[Placement, ...]:
    """Placements of one edit, one per span; ``text`` is its rendered template (None for remove and alias).

    Raises HOST_GUARD_MISSING, SEVERAL_STATEMENTS, ALREADY_INCLUDED or NO_INCLUDE_BLOCK.
    """
    edit = anchor.edit
    condition = guard.device if edit.side == "device" else guard.region
    if edit.verb == "add_include":
        return (_include(scopes, anchor, condition),)
    if edit.side == "host":
        if text is None:
            raise RenderError(
                f"host edit '{edit.id}' with verb '{edit.verb}' cannot check which GPU it runs on",
                code="HOST_GUARD_MISSING",
                where=edit.where,
                why="all GPUs of a build share the host pass, so without a check other GPUs change too",
                hint="use change_to with @{ guard.host('cc') }@ in its text",
            )
        _require_host_guard(edit, guard, text)
    new = (text or "").encode()
    if edit.verb == "change_to":
        _require_one_statement(scopes, anchor, new)
    # On both sides, because the device half is often inside an #if of upstream's that is false in such a
    # pass.
    refusal = _refusal(guard) if edit.pairs else ()
    laid_out = (_expand_span(scopes.source, edit, span, new, condition, refusal) for span in anchor.spans)
    return tuple(
        Placement(span=span, replacement=replacement, edit=edit.id, where=edit.where)
        for span, replacement in laid_out
    )


def _refusal(guard: Guard) -> tuple[bytes, ...]:
    """The #error branch for device passes for no particular GPU, which would lack a pair's device half.

    At run time the host decides by the exact GPU and would use code that such a code object does not have
    (issue 25620: NaN).
    """
    if guard.generic is None:
        return ()
    archs = " or ".join(target.arch for target in guard.targets)
    why = f"the host chooses this by the exact GPU: compile for {archs}, not for a generic target or SPIR-V"
    return (b"#elif " + guard.generic.encode(), f'#error "{why}"'.encode())


def _expand_span(
    source: SourceText, edit: Edit, span: Span, new: bytes, condition: str, refusal: Sequence[bytes]
) -> tuple[Span, bytes]:
    match edit.verb:
        case "change_to":
            return guard_replacement(source, span, new, condition, refusal)
        case "remove":
            return guard_removal(source, span, condition)
        case "use_alias":
            return span, (edit.alias or "").encode()
        case _:
            # 'before' and 'after' already name an empty place, so the verb does not matter.
            at_end, at_start = (edit.at.after, edit.at.before) if edit.at is not None else (None, None)
            after = at_end is not None or (edit.verb == "insert_after" and at_start is None)
            return guard_insertion(source, span, new, condition, refusal, after=after)


def expand_alias(scopes: ScopeMap, alias: Alias, guard: Guard, device: str) -> Placement:
    """The definition of an alias before its function; ``device`` is its rendered expression.

    Raises ALIAS_UNUSABLE if the name occurs in the file, ALIAS_UNUSABLE, and the errors of ``find_entity``.
    """
    name = alias.name.encode()
    _require_free_name(scopes, alias, name)
    for meaning in (device.strip(), alias.upstream):
        if not meaning or "\n" in meaning or meaning.endswith("\\"):
            raise RenderError(
                f"alias '{alias.name}' must expand to one line of tokens",
                code="ALIAS_UNUSABLE",
                where=alias.where,
                why=f"its expansion is {meaning!r}",
                hint="shorten the expression, or define it in a new file of the patch",
            )
    entity = find_entity(scopes, alias.function, None, alias.where)
    start = entity.span.start
    line = scopes.source.line_span(scopes.source.line_of(start))
    newline = scopes.source.newline
    # If the line has other code or the end of a comment before it, the definition goes on new lines after
    # that.
    shared = bool(scopes.source.data[line.start : start].strip())
    offset = start if shared else line.start
    text = newline.join(
        [
            *([b""] if shared else []),
            b"#if " + guard.device.encode(),
            b"#define " + name + b" " + device.strip().encode(),
            b"#else",
            b"#define " + name + b" " + alias.upstream.encode(),
            b"#endif",
            b"",
        ]
    )
    span = Span(offset, offset)
    return Placement(span=span, replacement=text, edit=f"alias {alias.name}", where=alias.where)


def _require_free_name(scopes: ScopeMap, alias: Alias, name: bytes) -> None:
    tokens = [*scopes.code, *(token for line in scopes.directives for token in line.tokens)]
    taken = next((token for token in tokens if token.text == name), None)
    if taken is not None:
        raise AnchorError(
            f"'{alias.name}' is already used in {scopes.source.path}",
            code="ALIAS_UNUSABLE",
            where=[alias.where, scopes.source.locate(taken.start)],
        )


def _require_one_statement(scopes: ScopeMap, anchor: Anchor, new: bytes) -> None:
    for span in anchor.spans:
        if starts_controlled(scopes, scopes.first_from(span.start)) and b";" in new:
            if is_one_statement(new):
                continue
            raise RenderError(
                f"edit '{anchor.edit.id}' puts several statements where only one is controlled",
                code="SEVERAL_STATEMENTS",
                where=[anchor.edit.where, scopes.source.locate(span.start)],
                why="the if, else or loop there has no braces, so it would control only the first statement",
                hint="put braces around the text",
            )


def _require_host_guard(edit: Edit, guard: Guard, text: str) -> None:
    # Compared by tokens, so that mentioning the guard in a comment is not enough.
    code = b" ".join(token.text for token in lex_pattern(text)) + b" "
    missing = [t.arch for t in guard.targets if b"GGML_CUDA_CC_OFFSET_AMD + 0x%x " % t.cc not in code]
    if missing:
        raise RenderError(
            f"host edit '{edit.id}' renders without the host guard of {', '.join(missing)}",
            code="HOST_GUARD_MISSING",
            where=edit.where,
            why="all GPUs of a build share the host pass, so without a check other GPUs change too",
            hint="use @{ guard.host('cc') }@ in its template",
        )


def _include(scopes: ScopeMap, anchor: Anchor, condition: str) -> Placement:
    """After the file's last include, or before the include that the edit names in ``at``."""
    source, edit = scopes.source, anchor.edit
    header = (edit.header or "").encode()
    lines = [line for line in scopes.directives if line.keyword == b"include" and line.tokens]
    for line in lines:
        if b"".join(token.text for token in line.tokens).strip(b'"<>') == header:
            raise AnchorError(
                f"{source.path} already includes {edit.header}",
                code="ALREADY_INCLUDED",
                where=[edit.where, source.locate(line.span.start)],
                hint="drop the patch, or rename its header",
            )
    for named in anchor.spans:  # one at most
        span, text = guard_insertion(source, named, b'#include "' + header + b'"', condition, after=False)
        return Placement(span=span, replacement=text, edit=edit.id, where=edit.where)
    return _include_below(scopes, header, condition, edit.id, edit.where)


def expand_switch_include(
    scopes: ScopeMap, header: str, guard: Guard, where: Location
) -> tuple[Placement, ...]:
    """The include of the run-time switches, unless an earlier patch with the same guard has added it.

    ``header`` is its path in the tree. Raises NO_INCLUDE_BLOCK.
    """
    source = scopes.source
    name = posixpath.relpath(header, posixpath.dirname(source.path)).encode()
    blocks = [
        group.branches[0].body
        for group in scopes.groups
        if source.text(group.branches[0].directive.span) == _if(guard.region)
    ]
    for line in scopes.directives:
        is_it = line.keyword == b"include" and [token.text for token in line.tokens] == [b'"' + name + b'"']
        if is_it and any(block.contains(line.span) for block in blocks):
            return ()
    return (_include_below(scopes, name, guard.region, "the include of the run-time switches", where),)


def _include_below(scopes: ScopeMap, header: bytes, condition: str, edit: str, where: Location) -> Placement:
    """The include of a header after the file's last include at the top.

    If an earlier patch with the same condition has added a block there, it goes in that block.
    """
    source = scopes.source
    lines = [line for line in scopes.directives if line.keyword == b"include" and line.tokens]
    groups = [group for group in scopes.groups if not _is_include_guard(scopes, group)]
    # An include after the first definition inserts code and is not part of the block at the top.
    top = min((e.span.start for e in scopes.entities if e.kind != "macro"), default=len(source.data))
    block = [
        line.span
        for line in lines
        if line.span.start < top
        and line.tokens[0].text.startswith(b'"')
        and not any(group.span.contains(line.span) for group in groups)
    ]
    if not block:
        raise AnchorError(
            f'{source.path} has no unconditional #include "..." after which to add the header',
            code="NO_INCLUDE_BLOCK",
            where=[where, source.locate(0)],
            hint="use insert_before with a selector",
        )
    line = b'#include "' + header + b'"'
    last = source.line_end(block[-1].end)
    opening = source.newline + _if(condition)
    if source.data.startswith(opening + source.newline + b"#include ", last):  # of an earlier patch
        span, text = Span(last + len(opening), last + len(opening)), source.newline + line
    else:
        span, text = guard_insertion(source, block[-1], line, condition, after=True)
    return Placement(span=span, replacement=text, edit=edit, where=where)


def _is_include_guard(scopes: ScopeMap, group: Group) -> bool:
    """``#ifndef X`` directly followed by ``#define X``, which never hides the rest of the file."""
    opening = group.branches[0].directive
    following = next((line for line in scopes.directives if line.span.start > opening.span.start), None)
    return (
        opening.keyword == b"ifndef"
        and len(group.branches) == 1
        and following is not None
        and following.keyword == b"define"
        and [token.text for token in following.tokens[:1]] == [token.text for token in opening.tokens]
        and not scopes.code_in(Span(0, opening.span.start))
    )

"""From an anchored edit and its rendered text to placements.

Vocabulary: *expanding* wraps the text in the generated guard of the edit's side. An alias is
expanded twice: its definition once, in front of its function, and its name at every place.
"""

from __future__ import annotations

from patchkit.anchors.resolve import Anchor, find_entity
from patchkit.anchors.statements import is_one_statement, starts_controlled
from patchkit.config.manifest import Alias, Edit
from patchkit.config.selector import After, Before
from patchkit.cxx.directives import Group
from patchkit.cxx.lexer import lex_pattern
from patchkit.cxx.scopes import ScopeMap
from patchkit.edits.guard import Guard
from patchkit.edits.layout import guard_insertion, guard_removal, guard_replacement
from patchkit.edits.model import Placement
from patchkit.errors import AnchorError, Location, RenderError
from patchkit.source import Span


def expand_edit(scopes: ScopeMap, anchor: Anchor, guard: Guard, text: str | None) -> tuple[Placement, ...]:
    """Placements of one edit, one per span; ``text`` is its rendered template (None for remove and alias).

    Raises HOST_GUARD_MISSING, SEVERAL_STATEMENTS, ALREADY_INCLUDED or NO_INCLUDE_BLOCK.
    """
    edit = anchor.edit
    condition = guard.device if edit.side == "device" else guard.region
    if edit.verb == "add_include":
        return (_include(scopes, edit, condition),)
    if edit.side == "host":
        if text is None:
            raise RenderError(
                f"host edit '{edit.id}' with verb '{edit.verb}' cannot ask which GPU it runs on",
                code="HOST_GUARD_MISSING",
                where=edit.where,
                why="the host pass is shared by every GPU of a build: without it other GPUs change too",
                hint="use change_to with @{ guard.host('cc') }@ in its text",
            )
        _require_host_guard(edit, guard, text)
    new = (text or "").encode()
    if edit.verb == "change_to":
        _require_one_statement(scopes, anchor, new)
    return tuple(
        _place(edit.id, edit.where, *_expand_span(scopes, edit, span, new, condition))
        for span in anchor.spans
    )


def _expand_span(scopes: ScopeMap, edit: Edit, span: Span, new: bytes, condition: str) -> tuple[Span, bytes]:
    source = scopes.source
    match edit.verb:
        case "change_to":
            return guard_replacement(source, span, new, condition)
        case "remove":
            return guard_removal(source, span, condition)
        case "use_alias":
            return span, (edit.alias or "").encode()
        case _:
            # 'before' and 'after' name a place by themselves: the verb adds nothing to it.
            behind = isinstance(edit.at, After) or (
                edit.verb == "insert_after" and not isinstance(edit.at, Before)
            )
            return guard_insertion(source, span, new, condition, behind=behind)


def expand_alias(scopes: ScopeMap, alias: Alias, guard: Guard, device: str) -> Placement:
    """The definition of an alias in front of its function; ``device`` is its rendered expression.

    Raises ALIAS_TAKEN when the name occurs in the file, ALIAS_NOT_ONE_LINE, and what ``find_entity`` raises.
    """
    name = alias.name.encode()
    _require_free_name(scopes, alias, name)
    for meaning in (device.strip(), alias.upstream):
        if not meaning or "\n" in meaning or meaning.endswith("\\"):
            raise RenderError(
                f"alias '{alias.name}' must stand for one line of tokens",
                code="ALIAS_NOT_ONE_LINE",
                where=alias.where,
                why=f"it reads {meaning!r}",
                hint="shorten the expression, or give it a name in a new file of ours",
            )
    entity = find_entity(scopes, alias.function, None, alias.where)
    start = entity.span.start
    line = scopes.source.line_span(scopes.source.line_of(start))
    newline = scopes.source.newline
    # Something else on that line, or the end of a comment: the definition gets lines of its own behind it.
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
    return _place(f"alias {alias.name}", alias.where, Span(offset, offset), text)


def _require_free_name(scopes: ScopeMap, alias: Alias, name: bytes) -> None:
    tokens = [*scopes.code, *(token for line in scopes.directives for token in line.tokens)]
    taken = next((token for token in tokens if token.text == name), None)
    if taken is not None:
        raise AnchorError(
            f"'{alias.name}' is already used in {scopes.source.path}",
            code="ALIAS_TAKEN",
            where=[alias.where, scopes.source.locate(taken.span.start)],
            hint="choose another alias name",
        )


def _require_one_statement(scopes: ScopeMap, anchor: Anchor, new: bytes) -> None:
    for span in anchor.spans:
        if starts_controlled(scopes, scopes.first_from(span.start)) and b";" in new:
            if is_one_statement(new):
                continue
            raise RenderError(
                f"edit '{anchor.edit.id}' puts several statements where one is governed",
                code="SEVERAL_STATEMENTS",
                where=[anchor.edit.where, scopes.source.locate(span.start)],
                why="the if, else or loop there has no braces: only the first would be governed",
                hint="put the text in braces",
            )


def _place(name: str, where: Location, span: Span, replacement: bytes) -> Placement:
    return Placement(span=span, replacement=replacement, edit=name, where=where)


def _require_host_guard(edit: Edit, guard: Guard, text: str) -> None:
    # Compared by tokens: a comment that mentions the guard guards nothing.
    code = b" ".join(token.text for token in lex_pattern(text)) + b" "
    missing = [t.arch for t in guard.targets if b"GGML_CUDA_CC_OFFSET_AMD + 0x%x " % t.cc not in code]
    if missing:
        raise RenderError(
            f"host edit '{edit.id}' renders without the host guard of {', '.join(missing)}",
            code="HOST_GUARD_MISSING",
            where=edit.where,
            why="the host pass is shared by every GPU of a build: without it other GPUs change too",
            hint="use @{ guard.host('cc') }@ in its template",
        )


def _include(scopes: ScopeMap, edit: Edit, condition: str) -> Placement:
    source = scopes.source
    header = (edit.header or "").encode()
    lines = [line for line in scopes.directives if line.keyword == b"include" and line.tokens]
    for line in lines:
        if b"".join(token.text for token in line.tokens).strip(b'"<>') == header:
            raise AnchorError(
                f"{source.path} already includes {edit.header}",
                code="ALREADY_INCLUDED",
                where=[edit.where, source.locate(line.span.start)],
                hint="drop the patch, or rename our header",
            )
    groups = [group for group in scopes.groups if not _is_include_guard(scopes, group)]
    # Below the first definition an include is code, not part of the block at the top.
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
            f'{source.path} has no unconditional #include "..." to put ours behind',
            code="NO_INCLUDE_BLOCK",
            where=[edit.where, source.locate(0)],
            hint="use insert_before with an anchor of your own",
        )
    span, text = guard_insertion(source, block[-1], b'#include "' + header + b'"', condition, behind=True)
    return _place(edit.id, edit.where, span, text)


def _is_include_guard(scopes: ScopeMap, group: Group) -> bool:
    """``#ifndef X`` directly followed by ``#define X``: true whenever the file is read at all."""
    opening = group.branches[0].directive
    behind = next((line for line in scopes.directives if line.span.start > opening.span.start), None)
    return (
        opening.keyword == b"ifndef"
        and len(group.branches) == 1
        and behind is not None
        and behind.keyword == b"define"
        and [token.text for token in behind.tokens[:1]] == [token.text for token in opening.tokens]
        and not scopes.code_in(Span(0, opening.span.start))
    )

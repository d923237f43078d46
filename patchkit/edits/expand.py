"""From an anchored edit and its rendered text to placements.

Vocabulary: *expanding* wraps the text in the generated guard of the edit's side. An alias is
expanded twice: its definition once, in front of its function, and its name at every place.
"""

from __future__ import annotations

from patchkit.anchors.resolve import Anchor, find_entity
from patchkit.config.manifest import Alias, Edit
from patchkit.cxx.scopes import ScopeMap
from patchkit.edits.guard import Guard
from patchkit.edits.layout import guard_insertion, guard_removal, guard_replacement
from patchkit.edits.model import Placement
from patchkit.errors import AnchorError, Location, RenderError
from patchkit.source import Span

__all__ = [
    "AliasTaken",
    "AlreadyIncluded",
    "HostGuardMissing",
    "NoIncludeBlock",
    "expand_alias",
    "expand_edit",
]


class HostGuardMissing(RenderError):
    """A host edit whose text does not ask which GPU it runs on would change every GPU's host code."""

    code = "HOST_GUARD_MISSING"


class AlreadyIncluded(AnchorError):
    """The header is included already: the patch, or something like it, is in this tree."""

    code = "ALREADY_INCLUDED"


class NoIncludeBlock(AnchorError):
    """The file has no unconditional ``#include`` line behind which ours could go."""

    code = "NO_INCLUDE_BLOCK"


class AliasTaken(AnchorError):
    """Upstream's file already uses the alias's name."""

    code = "ALIAS_TAKEN"


def expand_edit(scopes: ScopeMap, anchor: Anchor, guard: Guard, text: str | None) -> tuple[Placement, ...]:
    """Placements of one edit, one per span; ``text`` is its rendered template (None for remove and alias).

    Raises HostGuardMissing, AlreadyIncluded or NoIncludeBlock.
    """
    edit = anchor.edit
    condition = guard.device if edit.side == "device" else guard.region
    if edit.verb == "add_include":
        return (_include(scopes, edit, condition),)
    if edit.side == "host" and text is not None:
        _require_host_guard(edit, guard, text)
    new = (text or "").encode()
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
            return guard_insertion(source, span, new, condition, behind=edit.verb == "insert_after")


def expand_alias(scopes: ScopeMap, alias: Alias, guard: Guard, device: str) -> Placement:
    """The definition of an alias in front of its function; ``device`` is its rendered expression.

    Raises AliasTaken when the name occurs in the file, and what ``find_entity`` raises.
    """
    name = alias.name.encode()
    taken = next((token for token in scopes.code if token.text == name), None)
    if taken is not None or any(entity.name == alias.name for entity in scopes.entities):
        offset = taken.span.start if taken is not None else 0
        raise AliasTaken(
            f"'{alias.name}' is already used in {scopes.source.path}",
            where=[alias.where, scopes.source.locate(offset)],
            hint="choose another alias name",
        )
    entity = find_entity(scopes, alias.function, None, alias.where)
    line = scopes.source.line_span(scopes.source.line_of(entity.span.start))
    newline = scopes.source.newline
    text = newline.join(
        [
            b"#if " + guard.device.encode(),
            b"#define " + name + b" " + device.strip().encode(),
            b"#else",
            b"#define " + name + b" " + alias.upstream.encode(),
            b"#endif",
            b"",
        ]
    )
    return _place(f"alias {alias.name}", alias.where, Span(line.start, line.start), text)


def _place(name: str, where: Location, span: Span, replacement: bytes) -> Placement:
    return Placement(span=span, replacement=replacement, edit=name, where=where)


def _require_host_guard(edit: Edit, guard: Guard, text: str) -> None:
    missing = [t.arch for t in guard.targets if f"GGML_CUDA_CC_OFFSET_AMD + 0x{t.cc:x}" not in text]
    if missing:
        raise HostGuardMissing(
            f"host edit '{edit.id}' renders without the host guard of {', '.join(missing)}",
            where=edit.where,
            why="the host pass is shared by every GPU of a build: without it other GPUs change too",
            hint="use @{ guard.host('cc') }@ in its template",
        )


def _include(scopes: ScopeMap, edit: Edit, condition: str) -> Placement:
    source = scopes.source
    header = (edit.header or "").encode()
    last: Span | None = None
    for line in scopes.directives:
        if line.keyword != b"include" or not line.tokens:
            continue
        if line.tokens[0].text.strip(b'"') == header:
            raise AlreadyIncluded(
                f"{source.path} already includes {edit.header}",
                where=[edit.where, source.locate(line.span.start)],
                hint="drop the patch, or rename our header",
            )
        conditional = any(group.span.contains(line.span) for group in scopes.groups)
        if line.tokens[0].text.startswith(b'"') and not conditional:
            last = line.span
    if last is None:
        raise NoIncludeBlock(
            f'{source.path} has no unconditional #include "..." to put ours behind',
            where=[edit.where, source.locate(0)],
            hint="use insert_before with an anchor of your own",
        )
    span, text = guard_insertion(source, last, b'#include "' + header + b'"', condition, behind=True)
    return _place(edit.id, edit.where, span, text)

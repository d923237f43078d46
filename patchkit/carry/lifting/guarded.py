"""Turn drafts into guarded edits, for some GPUs only.

Device code gets the preprocessor guard that every patch has. One host pass serves all GPUs of a build, so
host code checks the GPU at run time: a number, a condition or an initialiser becomes ``gpu ? (new) : (old)``,
a statement ``if (gpu) { new } else { old }``. The text has both sides, and the selector names every token of
the old one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.directives import find_unbalanced
from patchkit.carry.cpp.lexer import lex_pattern
from patchkit.carry.cpp.scopes import Entity, ScopeMap, parse_scopes
from patchkit.carry.lifting.draft import Draft, NotLifted
from patchkit.carry.lifting.tokens import spelled
from patchkit.carry.placing.select import brace_role, select, statement_around
from patchkit.carry.series.patch import Verb
from patchkit.carry.series.selector import Selector

Side = Literal["host", "device"]

_LONGEST = (
    80  # tokens of a statement that is written as a whole; a longer one is hard to read in two versions
)
_ANY_GPU = "ggml_cuda_info().devices[ggml_cuda_get_device()].cc"
_HEADS = (b"if", b"while")
_INCLUDE = re.compile(rb'\s*#[ \t]*include[ \t]+"([A-Za-z0-9_.+/-]+)"[ \t]*')
_NUMBER = re.compile(rb"[0-9][0-9a-zA-Z.]*")
_CONSTANT = frozenset({b"constexpr", b"static_assert", b"enum", b"template", b"case"})
_TYPES = frozenset({b"const", b"constexpr", b"static", b"auto", b"using", b"typedef", b"struct", b"enum"})
_NO_TYPES = frozenset({b"return", b"goto", b"delete", b"throw", b"else", b"case"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewText:
    """A draft as an edit: ``text`` is a template; or, for an added include, ``header`` is its name.

    ``plain``: the text without a GPU check. ``side`` is None in a plain patch.
    """

    draft: Draft
    side: Side | None
    text: str = ""
    plain: bytes = b""
    header: str | None = None
    verb: Verb = "change_to"

    @property
    def checks_gpu(self) -> bool:
        """Whether the text checks at run time which GPU it runs on."""
        return "guard.host" in self.text


def escape_template(text: str) -> str:
    """Escape template delimiters, so that the text renders to itself."""
    text = re.sub(r"@(?=[{%#])", '@{ "@" }@', text)
    return re.sub(r"(?m)^([ \t]*)//(?=%)", r'\1@{ "//" }@', text)


def guard_draft(source: SourceText, draft: Draft) -> tuple[NewText, ...]:
    """Turn a draft for the file ``source`` into edits of a guarded patch.

    Raises NotLifted with the reason if the edit has to be written by hand.
    """
    scopes = parse_scopes(source)
    where = f"{draft.file}:{draft.line}"
    if draft.function is None:
        headers = _added_includes(source, draft)
        if not headers:
            raise NotLifted(f"{where}: move code outside of functions to a new file and include that")
        return tuple(NewText(draft=draft, side="host", header=header) for header in headers)
    around = [each for each in scopes.entities if each.kind != "record" and each.span.contains(draft.span)]
    entity = max(around, key=lambda each: each.span.start)
    side = _side(source, entity, where)
    if draft.rows is not None or draft.verb == "remove":
        if side == "host":
            return (_host_lines(_Site(scopes, entity, draft, side), where),)
        for text in (source.text(draft.span), draft.text):
            if find_unbalanced(parse_scopes(SourceText(draft.file, text)).directives) is not None:
                raise NotLifted(
                    f"{where}: an unpaired preprocessor line (#if, #else, #endif) cannot be put inside the "
                    "#if of the guard"
                )
        rows = _escaped(draft.rows or b"")
        return (NewText(draft=draft, side=side, text=rows, plain=draft.text, verb=draft.verb),)
    site = _Site(scopes, entity, draft, side)
    return (_device_edit(site) if side == "device" else _host_edit(site, where),)


def _side(source: SourceText, entity: Entity, where: str) -> Side:
    header = source.text(entity.header)
    device = b"__device__" in header or b"__global__" in header
    if entity.kind == "macro":
        raise NotLifted(f"{where}: a macro is neither host nor device code; edit the code that uses it")
    if b"__host__" in header or (b"constexpr" in header and not device):
        raise NotLifted(
            f"{where}: '{entity.name}' runs on host and device, which must change together; "
            "write a pair of edits (docs/reference/patches.md)"
        )
    return "device" if device else "host"


def _added_includes(source: SourceText, draft: Draft) -> list[str]:
    """The headers, if a draft only adds includes and removes nothing."""
    old, added = source.text(draft.span).split(b"\n"), []
    for line in draft.text.split(b"\n"):
        if old and line == old[0]:
            old.pop(0)
        elif (found := _INCLUDE.fullmatch(line.rstrip(b"\r"))) is not None:
            added.append(found[1].decode())
        else:
            return []
    return added if not old else []


@dataclass(frozen=True)
class _Site:
    """A draft in its function, and the ways to write it as a guarded edit."""

    scopes: ScopeMap
    entity: Entity
    draft: Draft
    side: Side

    @cached_property
    def core(self) -> tuple[tuple[int, int], bytes]:
        """The changed tokens (first and last position; last < first for an insertion) and the new bytes."""
        first, last = _positions(self.scopes, self.draft.span)
        changed = parse_scopes(SourceText(self.draft.file, self.draft.text))
        start, stop = 0, len(changed.code)
        while first <= last and start < stop and self.scopes.code[first].text == changed.code[start].text:
            first, start = first + 1, start + 1
        while first <= last and start < stop and self.scopes.code[last].text == changed.code[stop - 1].text:
            last, stop = last - 1, stop - 1
        new = b"" if start == stop else changed.source.text(_span(changed, start, stop - 1))
        return (first, last), new

    @property
    def inserts_statements(self) -> bool:
        """Whether whole statements are inserted between existing ones."""
        (first, last), new = self.core
        if last >= first or first == 0 or not new.rstrip().endswith((b";", b"}")):
            return False
        before = self.scopes.code[first - 1].text
        if before == b"{":
            return brace_role(self.scopes.code, self.scopes.match, first - 1) != "value"
        return before in (b";", b"}", b":")  # also after a label

    def insertion(self, form: tuple[str, str]) -> NewText | None:
        """Insert the new statements, wrapped in the two pieces of ``form``, before the next statement."""
        (position, _), new = self.core
        _, last = _positions(self.scopes, self.draft.span)
        selector = self._selector((position, last), self.draft) if position <= last else None
        if selector is None:
            return None
        draft = replace(self.draft, selector=selector, span=_span(self.scopes, position, last))
        text = form[0] + self._laid_out(new, draft.span, form[0]) + form[1]
        return NewText(draft=draft, side=self.side, text=text, plain=new, verb="insert_before")

    def replacement(self, part: tuple[int, int], form: tuple[str, str, str | None]) -> NewText | None:
        """Replace ``part`` with ``form[0] + new text + form[1] + old text + form[2]``.

        Without the old text if ``form[2]`` is None. Returns None if the part cannot be selected.
        """
        (first, last), new = self.core
        code, data = self.scopes.code, self.scopes.source.data
        start, end = code[part[0]].start, code[part[1]].end
        if last >= first:
            at, stop = code[first].start, code[last].end
        elif first > part[1]:  # an insertion after the part
            at = stop = code[part[1]].end
            new = self._gap_before(new) + new
        else:
            at = stop = code[first].start
            new += self._gap_after(new)
        if not start <= at <= stop <= end:
            return None
        changed = data[start:at] + new + data[stop:end]
        outer = _positions(self.scopes, self.draft.span)
        window = (min(outer[0], part[0]), max(outer[1], part[1]))
        selector = self._selector(part, _widened(self.scopes, self.draft, window))
        if selector is None:
            return None
        span = Span(start, end)
        text = form[0] + self._laid_out(changed, span, form[0]) + form[1]
        if form[2] is not None:
            text += self._laid_out(data[start:end], span, form[0]) + form[2]
        draft = replace(self.draft, selector=selector, span=span)
        return NewText(draft=draft, side=self.side, text=text, plain=changed)

    def _gap_before(self, new: bytes) -> bytes:
        """The whitespace before an insertion."""
        head = self.draft.text.partition(new)[0]
        return head[len(head.rstrip()) :]

    def _gap_after(self, new: bytes) -> bytes:
        tail = self.draft.text.partition(new)[2]
        return tail[: len(tail) - len(tail.lstrip())]

    def _laid_out(self, code: bytes, span: Span, before: str) -> str:
        """Code as a template without the indentation of its place, indented once if it goes into a block."""
        text = _dedented(self.scopes.source, span, _unlined(code))
        if not before.endswith("{\n"):
            return text
        lines = text.split("\n")
        return "\n".join(f"    {line}" if line and not line.startswith("#") else line for line in lines)

    def _selector(self, part: tuple[int, int], window: Draft | None) -> Selector | None:
        """Select the tokens of ``part`` inside those of ``window``; None if they are not unique."""
        span = _span(self.scopes, *part)
        tokens = [self.scopes.code[at].text for at in range(part[0], part[1] + 1)]
        pattern = spelled(self.scopes.source.text(span), tokens)
        if pattern is None or window is None or _has_directive(self.scopes, span):
            return None
        selector = Selector(tokens=pattern, inside=Selector(tokens=window.selector.tokens))
        return selector if select(self.scopes, self.entity, selector) == [span] else None


def _device_edit(site: _Site) -> NewText:
    """Insert whole statements on their own; otherwise replace the whole statement around, if it is short."""
    (first, last), _ = site.core
    edit = site.insertion(("", "")) if site.inserts_statements else None
    if edit is None:
        around = statement_around(site.scopes, min(first, last), max(first, last))
        if around[1] - around[0] <= _LONGEST:
            edit = site.replacement(around, ("", "", None))
    if edit is None:
        draft = site.draft
        text = _dedented(site.scopes.source, draft.span, _escaped(draft.text))
        edit = NewText(draft=draft, side="device", text=text, plain=draft.text)
    return edit


def _host_edit(site: _Site, where: str) -> NewText:
    """The draft with a GPU check around the number, condition, initialiser or statements that change."""
    gpu = f"@{{ guard.host('{_capability(site)}') }}@"
    edit = _as_expression(site, gpu)
    if edit is not None:
        return edit
    scopes, ((first, last), new) = site.scopes, site.core
    if site.inserts_statements:
        _refuse_declarations(new, where)
        _refuse_labels(new, where)
        edit = site.insertion((f"if {gpu} {{\n", "\n}"))
    else:
        around = statement_around(scopes, min(first, last), max(first, last))
        if around[1] - around[0] > _LONGEST:
            raise NotLifted(f"{where}: the statement around it is too long to be duplicated")
        _refuse_declarations(scopes.source.text(_span(scopes, *around)), where)
        _refuse_labels(scopes.source.text(_span(scopes, *around)), where)
        edit = site.replacement(around, (f"if {gpu} {{\n", "\n} else {\n", "\n}"))
        _refuse_declarations(edit.plain if edit is not None else b"", where)
        _refuse_labels(edit.plain if edit is not None else b"", where)
    if edit is None:
        raise NotLifted(f"{where}: the statement is not unique, or has a preprocessor line in it")
    return edit


def _host_lines(site: _Site, where: str) -> NewText:
    """Put whole lines of host code, which must be whole statements, into a branch for the GPU."""
    draft, scopes = site.draft, site.scopes
    new, old = draft.rows or b"", b""
    if not draft.verb.startswith("insert"):
        old = scopes.source.text(draft.span)
    first = scopes.first_from(draft.span.start)
    before = scopes.code[first - 1].text if first else b""
    is_block = before != b"{" or brace_role(scopes.code, scopes.match, first - 1) != "value"
    if before not in (b";", b"{", b"}", b":") or not is_block:
        raise NotLifted(f"{where}: not a whole statement, so no GPU check can be put around it")
    for text in (new, old):
        if not _is_statements(text):
            raise NotLifted(
                f"{where}: no GPU check can be put around a preprocessor line or a comment"
                if _has_no_statements(text)
                else f"{where}: not a whole statement, so no GPU check can be put around it"
            )
        _refuse_declarations(text, where)
        _refuse_labels(text, where)
    gpu = f"@{{ guard.host('{_capability(site)}') }}@"
    new_text, old_text = (_in_block(_escaped(text)) for text in (new, old))
    if new and old:
        laid = f"if {gpu} {{\n{new_text}}} else {{\n{old_text}}}\n"
    else:
        laid = f"if {gpu if new else f'(!{gpu})'} {{\n{new_text or old_text}}}\n"
    verb: Verb = draft.verb if draft.verb != "remove" else "change_to"
    return NewText(draft=draft, side="host", text=laid, plain=new, verb=verb)


def _is_statements(text: bytes) -> bool:
    """Whether a text is empty, or consists of whole statements without preprocessor lines."""
    scopes = parse_scopes(SourceText("<text>", text))
    if not text.strip():
        return True
    if scopes.directives or not scopes.code or scopes.code[-1].text not in (b";", b"}"):
        return False
    return scopes.code[0].text not in (b"else", b"catch") and not scopes.unpaired


def _has_no_statements(text: bytes) -> bool:
    """Whether a text has preprocessor lines, or no code at all."""
    scopes = parse_scopes(SourceText("<text>", text))
    return bool(scopes.directives) or not scopes.code


def _in_block(text: str) -> str:
    """Indent lines for a block and end them with a line break; an empty text stays empty."""
    lines = text.removesuffix("\n").split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    laid = (f"    {line[margin:]}" if line.strip() else "" for line in lines)
    return "".join(f"{line}\n" for line in laid) if text.strip() else ""


def _as_expression(site: _Site, gpu: str) -> NewText | None:
    core, new = site.core
    if _is_number(site.scopes, core, new):
        return site.replacement(core, (f"({gpu} ? ", " : ", ")"))
    for find in (_condition, _initialiser):
        part = find(site.scopes, *core) if new.strip() else None
        if part is not None:
            return site.replacement(part, (f"{gpu} ? (", ") : (", ")"))
    return None


def _capability(site: _Site) -> str:
    """An expression for the compute capability: upstream's own ``cc`` if it is in scope."""
    text = site.scopes.source.data[site.entity.parameters.start : site.draft.span.start]
    return "cc" if re.search(rb"\bint\s+cc\b", text) else _ANY_GPU


def _is_number(scopes: ScopeMap, core: tuple[int, int], new: bytes) -> bool:
    """Whether the change replaces one number by another in an expression that is evaluated at run time."""
    first, last = core
    if first != last or not all(map(_NUMBER.fullmatch, (scopes.code[first].text, new))):
        return False
    before, after = scopes.code[first - 1].text, scopes.code[last + 1].text
    start, _ = statement_around(scopes, first, last)
    # int x[256], f<256>() and case 256: need a constant, which a run-time check is not.
    words = {scopes.code[at].text for at in range(start, first)}
    return not (words & _CONSTANT or before in (b"<", b"[", b"case") or after in (b">", b"]", b":"))


def _condition(scopes: ScopeMap, first: int, last: int) -> tuple[int, int] | None:
    """The condition of the innermost ``if`` or ``while`` whose parentheses contain the positions."""
    # For an insertion look at the token before it: the one after it may be the closing parenthesis.
    opener = last if last < first and scopes.code[last].text == b"(" else scopes.parents[min(first, last)]
    while opener is not None:
        head = opener - 1
        if scopes.code[opener].text == b"(" and head >= 0 and scopes.code[head].text in _HEADS:
            close = scopes.match[opener]
            return (opener + 1, close - 1) if last < close and first <= close else None
        if scopes.code[opener].text == b"{" and brace_role(scopes.code, scopes.match, opener) != "value":
            return None
        opener = scopes.parents[opener]
    return None


def _initialiser(scopes: ScopeMap, first: int, last: int) -> tuple[int, int] | None:
    """The value in the declaration ``type name = value;`` that contains the positions."""
    start, end = statement_around(scopes, min(first, last), max(first, last))
    text = scopes.source.text(_span(scopes, start, end))
    if scopes.code[end].text != b";" or not declares(text) or b"constexpr" in text:
        return None
    position = start
    while position < end and scopes.code[position].text != b"=":
        position = max(position, scopes.match.get(position, position)) + 1
    value = range(position + 1, end)
    level = scopes.parents[start]
    commas = any(scopes.code[at].text == b"," and scopes.parents[at] == level for at in value)
    inside = value and value.start <= first <= end and last < end
    return (value.start, value.stop - 1) if inside and not commas else None


def declares(text: bytes) -> bool:
    """Whether a statement starts with a declaration (a type and a name), whose name later code may use."""
    words = [token.text for token in lex_pattern(text.decode("utf-8", "replace"))]
    if not words or words[0] in _NO_TYPES:
        return False
    if words[0] in _TYPES:
        return True
    depth = names = 0
    for word in words:
        if word == b"<":
            depth += 1
        elif word in (b">", b">>"):
            depth -= len(word)
        elif depth <= 0 and re.fullmatch(rb"[A-Za-z_]\w*", word):
            names += 1
        elif depth <= 0 and word == b"::":
            names -= 1
        elif depth <= 0 and word not in (b"*", b"&"):
            break
    return names > 1


def _refuse_declarations(text: bytes, where: str) -> None:
    """Refuse declarations: inside the braces of a branch their names are not visible to the code after it."""
    scopes = parse_scopes(SourceText("<text>", text))
    position = 0
    while position < len(scopes.code):
        first, last = statement_around(scopes, position, position)
        if declares(scopes.source.text(_span(scopes, first, last))):
            raise NotLifted(
                f"{where}: host code that declares names cannot be put into a branch for the GPU, because "
                "the names would not be visible after it; write it as an expression"
            )
        position = max(last, position) + 1


def _refuse_labels(text: bytes, where: str) -> None:
    """Refuse labels of a switch: a jump to a label inside a branch for the GPU would skip the check."""
    scopes = parse_scopes(SourceText("<text>", text))
    for at, token in enumerate(scopes.code):
        after = scopes.code[at + 1].text if at + 1 < len(scopes.code) else b""
        if scopes.parents[at] is None and (
            token.text == b"case" or (token.text, after) == (b"default", b":")
        ):
            raise NotLifted(
                f"{where}: a switch label cannot be put into a branch for the GPU; "
                "change the statements after it, or the condition of an if before the switch"
            )


def _positions(scopes: ScopeMap, span: Span) -> tuple[int, int]:
    positions = scopes.code_in(span)
    return positions.start, positions.stop - 1


def _span(scopes: ScopeMap, first: int, last: int) -> Span:
    return Span(scopes.code[first].start, scopes.code[last].end)


def _has_directive(scopes: ScopeMap, span: Span) -> bool:
    return any(span.contains(line.span) for line in scopes.directives)


def _widened(scopes: ScopeMap, draft: Draft, window: tuple[int, int]) -> Draft | None:
    """The draft with more of upstream's tokens in its selector; None if they cannot be selected."""
    span = _span(scopes, *window)
    if not span.contains(draft.span) or _has_directive(scopes, span):
        return None
    tokens = [scopes.code[at].text for at in range(window[0], window[1] + 1)]
    pattern = spelled(scopes.source.text(span), tokens)
    return replace(draft, selector=Selector(tokens=pattern)) if pattern is not None else None


def _escaped(text: bytes) -> str:
    return escape_template(text.decode("utf-8").replace("\r\n", "\n"))


def _unlined(text: bytes) -> str:
    """Escaped code, with a line break after a ``//`` comment at its end so that no code joins the comment."""
    ends = b"//" in text.rpartition(b"\n")[2]
    return _escaped(text + (b"\n" if ends else b""))


def _dedented(source: SourceText, span: Span, text: str) -> str:
    """Remove the indentation of the line where the edit begins from all lines but the first."""
    line = source.text(source.line_span(source.line_of(span.start)))
    indent = line[: len(line) - len(line.lstrip(b" \t"))].decode()
    return text.replace(f"\n{indent}", "\n") if indent else text

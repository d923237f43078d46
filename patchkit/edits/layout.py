"""Wrapping rendered text in a generated ``#if``, line by line, without touching a byte around it.

Vocabulary: a span is *split off* when other code shares its lines: the directives get lines of
their own and the rest of the line continues below them, indented one step.
"""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.source import SourceText, Span

_STEP = b"    "
_ENDIF = b"#endif"


@dataclass(frozen=True, slots=True)
class _Slot:
    """A span widened to whole lines where possible, and what must be written around it."""

    span: Span
    indent: bytes
    old: bytes
    lead: bytes
    tail: bytes


def guard_replacement(source: SourceText, span: Span, new: bytes, condition: str) -> tuple[Span, bytes]:
    """``#if condition / new / #else / old / #endif`` in place of ``span``."""
    slot = _slot(source, span)
    return slot.span, _lines(
        source, slot, [_if(condition), _indented(new, slot.indent), b"#else", slot.old, _ENDIF]
    )


def guard_removal(source: SourceText, span: Span, condition: str) -> tuple[Span, bytes]:
    """``#if !(condition) / old / #endif`` in place of ``span``."""
    slot = _slot(source, span)
    return slot.span, _lines(source, slot, [_if(f"!({condition})"), slot.old, _ENDIF])


def guard_insertion(
    source: SourceText, span: Span, new: bytes, condition: str, *, behind: bool
) -> tuple[Span, bytes]:
    """``#if condition / new / #endif`` in front of ``span``, or ``behind`` it."""
    slot = _slot(source, span)
    newline = source.newline
    line = source.text(source.line_span(source.line_of(span.start)))
    # Behind the last code of a line the text begins a line like that one; elsewhere it continues it.
    indent = line[: _leading_blanks(line)] if behind and not slot.tail else slot.indent
    block = [_if(condition), _indented(new, indent), _ENDIF]
    text = newline.join(piece.replace(b"\n", newline) for piece in block)
    if behind:
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
    # Only our own text is converted to the file's newline; the old bytes go back as they were.
    ours = [piece if piece is slot.old else piece.replace(b"\n", newline) for piece in pieces]
    return slot.lead + newline.join(ours) + slot.tail


def _slot(source: SourceText, span: Span) -> _Slot:
    first = source.line_span(source.line_of(span.start))
    before = source.data[first.start : span.start]
    after = source.data[span.end : source.line_end(span.end)]
    newline = source.newline
    if before.strip():
        indent = source.data[first.start : first.start + _leading_blanks(before)] + _STEP
        start = span.start - _trailing_blanks(before)
        old, lead = indent + source.text(span), newline
    else:
        line = source.text(first)
        indent, start = line[: _leading_blanks(line)], first.start
        old, lead = source.data[first.start : span.end], b""
    # A comment behind the span stays on its line; only code has to move below the directives.
    if after.strip() and not after.lstrip().startswith(b"//"):
        tail = newline + (indent if before.strip() else indent + _STEP)
        return _Slot(Span(start, span.end + _leading_blanks(after)), indent, old, lead, tail)
    old += after
    return _Slot(Span(start, span.end + len(after)), indent, old, lead, b"")


def _leading_blanks(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def _trailing_blanks(line: bytes) -> int:
    return len(line) - len(line.rstrip(b" \t"))


def _indented(text: bytes, indent: bytes) -> bytes:
    """``text`` without its common margin, every line but directives and empty ones indented."""
    lines = text.strip(b"\r\n").replace(b"\r\n", b"\n").split(b"\n")
    margins = [_leading_blanks(line) for line in lines if line.strip() and not line.startswith(b"#")]
    margin = min(margins, default=0)
    return b"\n".join(
        line if not line.strip() or line.startswith(b"#") else indent + line[margin:].rstrip()
        for line in lines
    )

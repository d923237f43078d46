"""The text of ``patchkit explain --path``.

Vocabulary: types for which the same happens share a *block*; names of kernels that differ only in the type
they read (``dequantize_...``) count as the same there, and are in full in the JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from patchkit.flow.explain_path import Line, PathReport, Span

_WIDTH = 96


def path_lines(report: PathReport) -> Iterator[str]:
    """The report, line by line."""
    from patchkit.flow.explain_path import NOT_KNOWN

    yield f"which kernels run, {report.branch} (build {report.build})"
    yield f"with {report.tools}"
    for gpu, mine in groupby(report.lines, key=lambda line: line.gpu):
        kept = list(mine)
        changed = sum(line.is_changed for line in kept)
        yield ""
        yield f"{gpu}: {len(kept)} operations and types; the patches change the kernels of {changed}"
        for op in dict.fromkeys(line.op for line in kept):
            yield from _operation(op, [line for line in kept if line.op == op])
    yield ""
    yield from (f"remark: {remark}" for remark in report.remarks)
    yield "not known from host code:"
    yield from (f"  {each}" for each in NOT_KNOWN)


def _operation(op: str, lines: list[Line]) -> Iterator[str]:
    sizes = ", ".join(dict.fromkeys(line.sizes for line in lines))
    yield ""
    yield f"  {op} ({sizes}), by tokens in the batch"
    blocks: dict[object, list[Line]] = {}
    for line in lines:
        alike = tuple(span.alike for span in line.after), tuple(span.alike for span in line.before)
        blocks.setdefault(alike, []).append(line)
    for block in blocks.values():
        first = block[0]
        separator = ", " if " " in first.what else " "
        yield from _wrapped(separator.join(line.what for line in block))
        yield from _spans(first.after)
        if first.is_changed:
            yield "      before the patches:"
            yield from _spans(first.before)


def _wrapped(text: str) -> Iterator[str]:
    words, current = text.split(" "), ""
    for word in words:
        if current and len(current) + len(word) >= _WIDTH:
            yield f"    {current}"
            current = ""
        current = f"{current} {word}".strip()
    yield f"    {current}"


def _spans(spans: tuple[Span, ...]) -> Iterator[str]:
    for span in spans:
        (low, high), route, precision = span.alike
        batch = f"{low}" if low == high else f"{low}-{high}"
        yield f"      {batch:>8}  {', '.join(route) or 'not supported: the CPU computes it'}"
        yield from (f"                {each}" for each in precision)

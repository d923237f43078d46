"""Findings of the emulated GPU's checks as blocks of a report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from patchkit.base.digests import sha256
from patchkit.base.report.blocks import Block, Finding, Place, Row, Table, columns
from patchkit.base.text import counted
from patchkit.gpu.emulated.findings import Call, Instruction, Suppression
from patchkit.gpu.emulated.findings import Finding as Found
from patchkit.gpu.emulated.names import read_name

_SHOWN_FRAMES = 4
_COLUMNS = columns("kind", "source", "kernel", "what~", "launched from~", "times #")


def finding_blocks(
    found: Sequence[Found], suppressed: Sequence[tuple[Found, Suppression]], root: Path
) -> tuple[Block, ...]:
    """The findings, a table of them, and the suppressed ones; paths below ``root`` are made relative."""
    return (
        Table(
            name="findings",
            caption="Findings",
            columns=_COLUMNS,
            rows=tuple(Row(cells=_cells(one)) for one in found),
        ),
        Table(
            name="known",
            caption="Suppressed",
            columns=(*_COLUMNS, *columns("reason~", "link")),
            rows=tuple(Row(cells=(*_cells(one), why.reason, why.link)) for one, why in suppressed),
        ),
        *(finding_block(one, root) for one in found),
    )


def finding_block(one: Found, root: Path | None = None) -> Finding:
    """One finding with its source lines, kernel, block, wave, and the host calls that launched it."""
    return Finding(
        code=one.kind,
        message=one.title,
        places=tuple(_places(one, root)),
        why="\n".join(_circumstances(one)),
        level="note" if one.is_note else "error",
        fingerprint=_fingerprint(one),
    )


def _places(one: Found, root: Path | None) -> Iterator[Place]:
    yield from _instruction(one.at, one.at.text, root)
    if one.other is not None:
        yield from _instruction(one.other, f"{one.other.text} (the other)", root)


def _instruction(at: Instruction, label: str, root: Path | None) -> Iterator[Place]:
    if at.file is None:
        yield Place(path=at.place, label=label, is_file=False)
    else:
        yield Place(path=_near(at.file, root), line=at.line, label=label)
    for file, line in at.inlined_at:
        yield Place(path=_near(file, root), line=line, label="inlined at")


def _near(file: str, root: Path | None) -> str:
    """The path relative to the root if it is inside, because viewers resolve paths in the repository."""
    if root is not None:
        with contextlib.suppress(ValueError):
            return Path(file).relative_to(root).as_posix()
    return file


def _circumstances(one: Found) -> Iterator[str]:
    more = f", at {one.instructions} instructions" if one.instructions > 1 else ""
    often = f"{counted(one.times, 'time')}{more}"
    block = ", ".join(str(number) for number in one.block or ())
    place = f"kernel {read_name(one.kernel)}, block ({block}), wave {one.wave}; " if one.kernel else ""
    yield f"{place}{often}"
    caller = "launched from" if one.kernel else "requested in"
    other = "accessed by the program in" if one.is_of_program else "the other was requested in"
    for words, calls in ((caller, one.called_from), (other, one.other_called_from)):
        if calls:
            yield f"{words} {shown_calls(calls)}"


def shown_calls(calls: Sequence[Call]) -> str:
    """The innermost calls, in one line."""
    return ", ".join(map(str, calls[:_SHOWN_FRAMES]))


def _cells(one: Found) -> tuple[str, ...]:
    source = ", inlined at ".join(one.at.places)
    other = "" if one.other is None else f"; the other: {', inlined at '.join(one.other.places)}"
    calls = shown_calls(one.called_from)
    if one.is_of_program and one.other_called_from:
        calls = f"{shown_calls(one.other_called_from)}; the operation: {calls}"
    kind = f"{one.kind} (note)" if one.is_note else one.kind
    return (kind, source, str(read_name(one.kernel)), f"{one.title}{other}", calls, str(one.times))


def _fingerprint(one: Found) -> str:
    places = [*one.at.places, "" if one.other is None else one.other.place]
    return sha256("\n".join([one.kind, one.kernel, *places]).encode("utf-8", "replace"))

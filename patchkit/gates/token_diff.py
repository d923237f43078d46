"""Where two preprocessed texts differ, as tokens with the places they come from.

Vocabulary: a *run* is a stretch of tokens that one side has instead of a stretch of the other; its places
are those of the first token behind the line markers that clang writes (``# 12 "file"``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from patchkit.cxx.lexer import TokenKind, lex
from patchkit.errors import Location
from patchkit.source import SourceText

_MARKER = re.compile(rb'^#\s+(\d+)\s+"((?:[^"\\\n]|\\.)*)"[^\n]*$', re.MULTILINE)
_SMALL = 4000  # tokens per side that difflib may compare in well under a second
_SHOWN = 14  # tokens of a run that a message shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """``before`` became ``after``, both as text; ``old`` and ``new`` are where (None: end of the unit)."""

    before: str
    after: str
    old: Location | None
    new: Location | None


def differing_runs(before: bytes, after: bytes, *, most: int) -> tuple[Run, ...]:
    """The first ``most`` runs; none when the tokens are the same."""
    old, new = (tuple(_tokens(text)) for text in _from_difference(before, after))
    head = _common([text for text, _ in old], [text for text, _ in new])
    tail = _common([text for text, _ in reversed(old[head:])], [text for text, _ in reversed(new[head:])])
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if not left and not right:
        return ()
    behind = (old[len(old) - tail :][:1], new[len(new) - tail :][:1])
    if max(len(left), len(right)) > _SMALL:
        return (_run(left, right, *behind),)
    runs = []
    matcher = difflib.SequenceMatcher(None, [t for t, _ in left], [t for t, _ in right], autojunk=False)
    for tag, at, until, start, stop in matcher.get_opcodes():
        if tag != "equal":
            following = (left[until : until + 1] or behind[0], right[stop : stop + 1] or behind[1])
            runs.append(_run(left[at:until], right[start:stop], *following))
            if len(runs) == most:
                break
    return tuple(runs)


def _from_difference(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Both without what is the same up to the last line marker before they differ: most of a unit."""
    start = end = 0
    for one, other in zip(before.splitlines(keepends=True), after.splitlines(keepends=True), strict=False):
        if one != other:
            break
        if _MARKER.match(one):
            start = end
        end += len(one)
    return before[start:], after[start:]


# A token and how to find its place: only those of a difference are asked for it, out of half a million.
_Placed = tuple[bytes, Callable[[], Location | None]]


def _run(
    left: Sequence[_Placed],
    right: Sequence[_Placed],
    after_left: Sequence[_Placed],
    after_right: Sequence[_Placed],
) -> Run:
    return Run(
        before=_text(left),
        after=_text(right),
        old=next((place() for _, place in (*left, *after_left)), None),
        new=next((place() for _, place in (*right, *after_right)), None),
    )


def _text(tokens: Sequence[_Placed]) -> str:
    shown = b" ".join(text for text, _ in tokens[:_SHOWN]).decode("utf-8", "replace")
    return shown + (f" ... ({len(tokens)} tokens)" if len(tokens) > _SHOWN else "")


def _common(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _tokens(text: bytes) -> Iterator[_Placed]:
    """Every token with its place; markers themselves are none."""
    source = SourceText("<preprocessed>", text)
    markers = [(found.start(), found.end(), found) for found in _MARKER.finditer(text)]
    at = 0
    for token in lex(source):
        start = token.span.start
        if token.kind is TokenKind.COMMENT:
            continue
        while at < len(markers) and markers[at][0] <= start:
            at += 1
        if at and start < markers[at - 1][1]:
            continue
        yield token.text, partial(_place, source, markers[at - 1] if at else None, start)


def _place(
    source: SourceText, marker: tuple[int, int, re.Match[bytes]] | None, offset: int
) -> Location | None:
    if marker is None:
        return None
    _, end, found = marker
    # The marker names the line that follows it.
    line = int(found[1]) + source.line_of(offset) - source.line_of(end) - 1
    return Location(path=_fold(found[2].decode("utf-8", "replace")), line=line)


def _fold(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] not in {"", ".."}:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)

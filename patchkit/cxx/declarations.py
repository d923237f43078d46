"""What the tokens before a ``{`` at declaration level declare: a function, record, namespace or a value.

Vocabulary: *top-level* tokens of a header are those outside brackets and outside the angle brackets
of a leading ``template<...>``. The function's name is what stands before its last parenthesised
group, so attribute macros with arguments (``__launch_bounds__(...)``) do not hide it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.cxx.lexer import Token, TokenKind

__all__ = ["Declared", "classify_header"]

# What may stand before parentheses in a function header without being its name.
_NOT_NAMES = frozenset(
    {b"noexcept", b"decltype", b"alignas", b"requires", b"throw", b"__attribute__", b"explicit"}
)
_RECORDS = frozenset({b"struct", b"class", b"union", b"enum"})


@dataclass(frozen=True, slots=True)
class Declared:
    """``parameters`` is the position of a function's ``(`` and ``None`` for everything else."""

    kind: Literal["function", "record", "namespace", "initializer", "other"]
    name: str
    parameters: int | None = None


def classify_header(code: Sequence[Token], match: Mapping[int, int], start: int, brace: int) -> Declared:
    """What ``code[start:brace]`` followed by ``{`` declares."""
    top = list(_top_level(code, match, start, brace))
    texts = [code[i].text for i in top]
    if b"=" in texts and b"operator" not in texts:
        return Declared("initializer", "")
    if b"namespace" in texts:
        spaces = [t for t in texts if t not in (b"namespace", b"inline", b"::")]
        return Declared("namespace", b"::".join(spaces).decode())
    if texts[:1] == [b"extern"] and b"(" not in texts:
        return Declared("namespace", "")
    function = _function(code, top, texts)
    if function is not None:
        return function
    for rank, text in enumerate(texts):
        if text in _RECORDS:
            names = [t for t in texts[rank + 1 :] if t not in _RECORDS]
            name = names[0].decode() if names and names[0] != b":" else "(anonymous)"
            return Declared("record" if text != b"enum" else "other", name)
    return Declared("other", "")


def _top_level(code: Sequence[Token], match: Mapping[int, int], start: int, brace: int) -> Iterator[int]:
    position = start
    while position < brace:
        text = code[position].text
        if text == b"template":
            position = _after_angles(code, match, position + 1, brace)
            continue
        yield position
        if text in (b"(", b"[", b"{") and position < match.get(position, position) < brace:
            position = match[position]
            yield position
        position += 1


def _after_angles(code: Sequence[Token], match: Mapping[int, int], position: int, brace: int) -> int:
    depth = 0
    while position < brace:
        text = code[position].text
        if text in (b"(", b"["):
            position = max(position, match.get(position, position))
        elif text == b"<":
            depth += 1
        elif text in (b">", b">>"):
            depth -= len(text)
            if depth <= 0:
                return position + 1
        elif depth == 0:
            return position
        position += 1
    return position


def _function(code: Sequence[Token], top: Sequence[int], texts: Sequence[bytes]) -> Declared | None:
    found: Declared | None = None
    for rank, text in enumerate(texts):
        if found is not None and text in (b"->", b":"):
            break  # a trailing return type or a constructor's initialisers
        if text != b"(" or rank == 0:
            continue
        name = _name_before(code, top, texts, rank)
        if name is not None:
            found = Declared("function", name, top[rank])
    return found


def _name_before(code: Sequence[Token], top: Sequence[int], texts: Sequence[bytes], rank: int) -> str | None:
    for back in range(rank - 1, max(-1, rank - 4), -1):
        if texts[back] == b"operator":
            return "operator" + b"".join(texts[back + 1 : rank]).decode()
    last = rank - 1
    if texts[last] == b">":  # a specialisation: name<args>(
        depth = 0
        while last >= 0:
            depth += texts[last] == b">"
            depth -= texts[last] == b"<"
            last -= 1
            if depth == 0:
                break
    if last < 0 or code[top[last]].kind is not TokenKind.IDENTIFIER or texts[last] in _NOT_NAMES:
        return None
    name = [texts[last]]
    while last > 1 and texts[last - 1] == b"::":
        last -= 2
        name.insert(0, texts[last])
    return b"::".join(name).decode("utf-8", "replace")

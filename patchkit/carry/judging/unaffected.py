"""Whether a change of upstream can affect how clang parses code that did not change.

clang accepted a plain patch on the old upstream. If the functions that it edits are as before, the new
upstream can only break it by changing what their words mean: a macro, a type, a template, or the ``#if``
lines around them. A bump then need not parse the patched file again, which was the largest part of its time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from patchkit.base.errors import PatchkitError
from patchkit.base.source import SourceText, Span
from patchkit.carry.cpp.ast import declared_words
from patchkit.carry.cpp.directives import MIDDLE_KEYWORDS, OPENING_KEYWORDS
from patchkit.carry.cpp.doubt import KEYWORDS, touched
from patchkit.carry.cpp.scopes import Entity, ScopeMap, is_code, parse_scopes
from patchkit.carry.judging.drift import Statement, list_statements
from patchkit.carry.placing.place import PlacedEdit
from patchkit.carry.placing.tree import UpstreamFiles

_WORD = re.compile(rb"[A-Za-z_]\w*")
_MACRO = re.compile(rb"#[ \t]*define[ \t]+([A-Za-z_]\w*)((?:\\\r?\n|[^\n])*)")
_CONDITIONS = frozenset({*OPENING_KEYWORDS, *MIDDLE_KEYWORDS, b"endif"})
_IGNORED = frozenset({b"define", b"include", *_CONDITIONS})  # compared in another way

Words = frozenset[bytes]


class Unaffected:
    """Decides for the edits of one patch. ``old`` and ``new``: upstream's files then and now.

    ``new`` has the changes of the patches before this one. ``last``: the edits as placed on ``old``.
    """

    def __init__(self, last: Sequence[PlacedEdit], old: UpstreamFiles, new: UpstreamFiles) -> None:
        self._last = {edit.id: edit for edit in last}
        self._old, self._new = old, new

    def __call__(self, placed: Sequence[PlacedEdit], after: ScopeMap, spans: Sequence[Span]) -> bool:
        """Whether clang parses the edited definitions of a file as it did with the old upstream.

        ``after``: the file with the edits; ``spans``: their places in it.
        """
        if not all(_is_as_before(self._last.get(edit.id), edit) for edit in placed):
            return False
        places = touched(after, spans)
        if places is None:
            return False
        path = after.source.path
        visible = self._new.visible(path)
        words: set[bytes] = set()
        for place in places:
            words |= set(_WORD.findall(after.source.text(place)))
        changed = self._changed_words(path, visible)
        return changed is not None and changed.isdisjoint(_with_macros(words, visible.values()))

    def _changed_words(self, path: str, visible: Mapping[str, bytes]) -> Words | None:
        """The words that upstream declares differently in the file or its includes; None if unknown."""
        before, now = self._old.visible(path), self._new.fresh().visible(path)
        found: set[bytes] = set()
        for name in {*before, *now, *visible}:
            old, new = self._old.unpatched(name), self._new.unpatched(name)
            if (name in before) != (name in now):  # upstream includes it only now, or no longer
                found |= _words(old or b"") | _words(new or b"")
            if old == new:
                continue
            if old is None or new is None:
                found |= _words(old or b"") | _words(new or b"")
                continue
            several = _declared_differently(name, old, new)
            if several is None:
                return None
            found |= several
        return frozenset(found)


def _is_as_before(last: PlacedEdit | None, now: PlacedEdit) -> bool:
    return (
        last is not None
        and (last.file, last.entity, last.entity_digest) == (now.file, now.entity, now.entity_digest)
        and (last.verb, last.text, last.at) == (now.verb, now.text, now.at)
    )


def _with_macros(words: Iterable[bytes], files: Iterable[bytes]) -> set[bytes]:
    """The words, and those of the macros among them, recursively."""
    macros: dict[bytes, set[bytes]] = {}
    for data in files:
        for name, several in _macros(data):
            macros.setdefault(name, set()).update(several)
    found, waiting = set[bytes](), [*words]
    while waiting:
        word = waiting.pop()
        if word not in found:
            found.add(word)
            waiting += macros.get(word, ())
    return found


@lru_cache(maxsize=1024)
def _macros(data: bytes) -> tuple[tuple[bytes, Words], ...]:
    return tuple((name, _words(rest)) for name, rest in _MACRO.findall(data))


def _words(data: bytes) -> Words:
    return frozenset(_WORD.findall(data))


@lru_cache(maxsize=256)
def _declared_differently(path: str, old: bytes, new: bytes) -> Words | None:
    """The words that two versions of a file declare differently; None if its ``#if`` lines differ.

    The inside of a function declares nothing for others, so only its head counts.
    """
    if not is_code(path) or b"\0" in old + new:
        return _words(old) | _words(new)
    try:
        before, after = (parse_scopes(SourceText(path, data)) for data in (old, new))
        if not _same_conditions(before, after):
            return None
        found: set[bytes] = set()
        for one, other in ((before, after), (after, before)):
            found |= _only_in(one, other)
    except (PatchkitError, RecursionError):
        return None
    return frozenset(found)


def _only_in(one: ScopeMap, other: ScopeMap) -> set[bytes]:
    """The words that are declared in the parts of one version that the other one does not have."""
    found: set[bytes] = set()
    there = Counter(_key(other, each) for each in _outer(other))
    for each in _outer(one):
        key = _key(one, each)
        if there[key]:
            there[key] -= 1
            continue
        found |= {word.encode() for word in each.name.split("::")}
        if each.kind != "function":
            found |= _declared(one.source.text(each.span))
        if each.kind == "enum":
            found |= _words(one.source.text(each.span))
    texts = Counter(statement.text for statement in _between(other))
    for statement in _between(one):
        if texts[statement.text]:
            texts[statement.text] -= 1
            continue
        written = one.source.text(statement.span)
        if statement.text.startswith("# "):
            keyword = statement.text[2:].split(" ", 1)[0].encode()
            found |= set() if keyword in _IGNORED else _words(one.source.data)
        elif b"{" in written or b"}" in written:
            found |= _words(written)
        else:
            found |= _declared(written)
    return found


def _declared(text: bytes) -> Words:
    return declared_words(text).difference(KEYWORDS)  # 'typedef int x' looks like a declaration of 'int', too


def _key(scopes: ScopeMap, each: Entity) -> tuple[str, ...]:
    """A function by its head, and anything else by its whole text."""
    return each.kind, each.name, scopes.digest(each.header) if each.kind == "function" else each.digest


def _outer(scopes: ScopeMap) -> list[Entity]:
    """The definitions that are not inside another one."""
    found: list[Entity] = []
    for each in sorted(scopes.definitions, key=lambda each: (each.span.start, -each.span.end)):
        if not found or each.span.start >= found[-1].span.end:
            found.append(each)
    return found


def _between(scopes: ScopeMap) -> Sequence[Statement]:
    """The statements outside of definitions."""
    return list_statements(
        scopes, Span(0, len(scopes.source.data)), [each.span for each in _outer(scopes)]
    ).statements


def _same_conditions(one: ScopeMap, other: ScopeMap) -> bool:
    """Whether the ``#if`` lines outside of definitions, and what is between them, are the same.

    Definitions that only one version has do not count. Inside of a definition, the lines have to pair.
    """
    outlines = [_outline(scopes) for scopes in (one, other)]
    if None in outlines:
        return False
    counts = [Counter(outline) for outline in outlines if outline is not None]
    rows = [
        [row for row in outline or () if row[0] == "#" or counts[0][row] == counts[1][row]]
        for outline in outlines
    ]
    return rows[0] == rows[1]


def _outline(scopes: ScopeMap) -> list[tuple[str, str]] | None:
    """The definitions and the ``#if`` lines between them; None if those inside of one do not pair."""
    rows: list[tuple[int, tuple[str, str]]] = []
    outer = _outer(scopes)
    lines = [line for line in scopes.directives if line.keyword in _CONDITIONS]
    for each in outer:
        inside = [line for line in lines if each.span.contains(line.span)]
        depth = 0
        for line in inside:
            depth += (line.keyword in OPENING_KEYWORDS) - (line.keyword == b"endif")
            if depth < 0:
                return None
        if depth:
            return None
        rows.append((each.span.start, (each.kind, each.name)))
        lines = [line for line in lines if line not in inside] if inside else lines
    rows += [(line.span.start, ("#", line.condition.decode("utf-8", "replace"))) for line in lines]
    return [row for _, row in sorted(rows)]

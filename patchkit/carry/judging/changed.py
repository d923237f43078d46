"""Compare two versions of a change (for example of a pull request) function by function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from patchkit.base.errors import PatchkitError
from patchkit.base.source import SourceText, Span
from patchkit.base.text import one_line
from patchkit.carry.cpp.scopes import Entity, ScopeMap, is_code, parse_scopes
from patchkit.carry.judging.drift import Statement, align, list_statements

MOST_FILES = 300
"""Files per change. A change with more is not read: it is a merge, or consists of generated files."""
_MOST_BYTES = 4_000_000  # per file; the largest source of build 11549 has below 1 MB
_MOST_ALIGNED = 4000  # statements per function: comparing takes quadratic time
_MOST_KEPT, _LONGEST_KEPT = 200, 2000  # statements of each side in a report, characters of one
_SHOWN = 12  # statements of each side
_LONGEST = 160  # characters of one


How = Literal["also changed", "changed otherwise", "no longer changed"]


class Versions(NamedTuple):
    """One file before and after a change; None if it does not exist."""

    path: str
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionChange:
    """Statements that a change removes and adds; ``function`` is empty outside of functions."""

    file: str
    function: str
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The function and its file."""
        return f"{self.function} in {self.file}" if self.function else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A function that two versions of a change edit differently.

    ``removed``: statements that only the older version results in; ``added``: only the newer one.
    """

    how: How
    place: str
    removed: tuple[str, ...]
    added: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """As text, cut to a readable length."""
        yield f"{self.how}: {one_line(self.place)}"
        for sign, texts in (("-", self.removed), ("+", self.added)):
            yield from (f"  {sign} {_cut(text)}" for text in texts[:_SHOWN])
            if len(texts) > _SHOWN:
                yield f"  {sign} ... and {len(texts) - _SHOWN} more"


def _cut(text: str) -> str:
    shown = one_line(text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."


def function_changes(files: Iterable[Versions]) -> tuple[FunctionChange, ...]:
    """The statements that a change removes and adds, by file and function; ignores comments, whitespace."""
    return tuple(change for versions in files for change in _of_file(versions))


def compare_changes(old: Iterable[Versions], new: Iterable[Versions]) -> tuple[Difference, ...]:
    """The functions in which a newer version of a change differs from the older one."""
    before = {(each.file, each.function): each for each in function_changes(old)}
    after = {(each.file, each.function): each for each in function_changes(new)}
    found = []
    for key in sorted({*before, *after}):
        was, now = (each.get(key, FunctionChange(file=key[0], function=key[1])) for each in (before, after))
        if was == now:
            continue
        how: How = "changed otherwise"
        if key not in before or key not in after:
            how = "also changed" if key in after else "no longer changed"
        found.append(
            Difference(
                how=how,
                place=now.place,
                removed=_kept([*_without(was.added, now.added), *_without(now.removed, was.removed)]),
                added=_kept([*_without(now.added, was.added), *_without(was.removed, now.removed)]),
            )
        )
    return tuple(found)


def _kept(texts: list[str]) -> tuple[str, ...]:
    """Limit the number and length of statements in a report, as they come from untrusted code."""
    hidden = len(texts) - _MOST_KEPT
    return (
        *(text[:_LONGEST_KEPT] for text in texts[:_MOST_KEPT]),
        *([f"... and {hidden} more"] * (hidden > 0)),
    )


def _without(texts: tuple[str, ...], others: tuple[str, ...]) -> Iterator[str]:
    """Multiset difference: ``texts`` minus ``others``, in order."""
    left = Counter(others)
    for text in texts:
        if left[text]:
            left[text] -= 1
        else:
            yield text


def _of_file(versions: Versions) -> Iterator[FunctionChange]:
    before, after = (_by_function(versions.path, data) for data in (versions.before, versions.after))
    for function in dict.fromkeys([*before, *after]):
        old, new = before.get(function, ()), after.get(function, ())
        if old == new:
            continue
        removed, added = _unequal(old, new)
        yield FunctionChange(
            file=versions.path,
            function=function,
            removed=tuple(old[rank] for rank in removed),
            added=tuple(new[rank] for rank in added),
        )


def added_statements(old: ScopeMap | None, new: ScopeMap) -> tuple[Statement, ...]:
    """The statements of a file that are not in its old version, by function; all if it has none."""
    if old is None:
        return tuple(each for several in _statements(new).values() for each in several)
    same = _same_functions(old, new)
    after, before = _statements(new, same), _statements(old, same)
    found: list[Statement] = []
    for function, several in after.items():
        was = [each.text for each in before.get(function, ())]
        _, ranks = _unequal(was, [each.text for each in several])
        found += [several[rank] for rank in ranks]
    return tuple(found)


def _same_functions(old: ScopeMap, new: ScopeMap) -> frozenset[str]:
    """The names of functions whose definitions have the same tokens, in the same order, in both versions."""
    before, after = (
        {name: [each.digest for each in several] for name, several in _functions(scopes).items()}
        for scopes in (old, new)
    )
    return frozenset(name for name, digests in after.items() if before.get(name) == digests)


def _functions(scopes: ScopeMap) -> dict[str, list[Entity]]:
    found: dict[str, list[Entity]] = {}
    for each in scopes.entities:
        if each.kind == "function":
            found.setdefault(each.name, []).append(each)
    return found


def _unequal(old: Sequence[str], new: Sequence[str]) -> tuple[list[int], list[int]]:
    """Ranks of what only one side has.

    Long lists are not aligned: all between their equal ends counts as changed.
    """
    first = next((at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), None)
    first = min(len(old), len(new)) if first is None else first
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    changed: tuple[tuple[range, range], ...] = ((range(len(old)), range(len(new))),)
    if max(len(old), len(new)) <= _MOST_ALIGNED:
        changed = align(old, new).changed
    removed = [first + rank for before, _ in changed for rank in before]
    return removed, [first + rank for _, after in changed for rank in after]


def _by_function(path: str, data: bytes | None) -> Mapping[str, tuple[str, ...]]:
    """The statements of each function; if the file is not code or cannot be parsed, its lines."""
    if data is None:
        return {}
    if b"\0" in data or len(data) > _MOST_BYTES:
        return {"": (f"{len(data)} bytes, not read",)}
    if is_code(path):
        try:
            found = _statements(parse_scopes(SourceText(path, data)))
            return {name: tuple(each.text for each in several) for name, several in found.items()}
        except (PatchkitError, RecursionError):
            pass
    return {"": tuple(line.decode("utf-8", "replace") for line in data.split(b"\n"))}


def _statements(scopes: ScopeMap, without: Collection[str] = ()) -> Mapping[str, list[Statement]]:
    """The statements of each function; those outside of functions have no name.

    ``without``: names of functions to skip, because reading statements is slow.
    """
    found: dict[str, list[Statement]] = {}
    functions = sorted(
        (each for each in scopes.entities if each.kind == "function"), key=lambda each: each.span.start
    )
    skipped = [each.span for each in functions if each.name in without]
    at = 0
    for statement in list_statements(scopes, Span(0, len(scopes.source.data)), skipped).statements:
        while at < len(functions) and functions[at].span.end <= statement.span.start:
            at += 1
        inside = at < len(functions) and functions[at].span.contains(statement.span)
        found.setdefault(functions[at].name if inside else "", []).append(statement)
    return found

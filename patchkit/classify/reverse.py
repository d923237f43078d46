"""Taking the last rendering out of a new upstream, the whole series from its end to its beginning.

Vocabulary: a *step* is one patch of the last rendering; a step is *in* upstream when taking it out by
``git merge-file`` changes upstream and meets no conflict. A change can be in with our guards or *bare*,
without them: upstream would hardly take them. That something could be taken out proves nothing yet:
the caller puts it in again by structure and asks whether upstream's code comes back.

Never patch by patch: where patches overlap, the earlier one cannot be taken out before the later one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.classify.threeway import merge_file, same_tokens
from patchkit.cxx.directives import Group
from patchkit.cxx.scopes import parse_scopes
from patchkit.report import Reporter
from patchkit.source import SourceText

Form = Literal["guarded", "bare"]
_Read = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One patch: its files before and after (those it adds: after only) and the guards' ``conditions``."""

    id: str
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    conditions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOut:
    """The new upstream without what was in; ``files`` has None for a file that is gone then."""

    files: Mapping[str, bytes | None]
    found: tuple[tuple[str, Form], ...]


def take_out(steps: Sequence[Step], upstream: Mapping[str, bytes], reporter: Reporter) -> TakenOut:
    """Take every step that is in out of ``upstream``, last step first.

    Raises what :func:`patchkit.classify.threeway.merge_file` raises.
    """
    current: dict[str, bytes | None] = {}
    found: list[tuple[str, Form]] = []
    conditions = frozenset(condition for step in steps for condition in step.conditions)

    def read(path: str) -> bytes | None:
        return current[path] if path in current else upstream.get(path)

    for step in reversed(steps):
        forms: tuple[Form, ...] = ("guarded", "bare")
        for form in forms:
            without = _without(step, form, conditions, read, reporter)
            if without:
                current |= without
                found.append((step.id, form))
                break
    return TakenOut(files=current, found=tuple(reversed(found)))


def _without(
    step: Step, form: Form, conditions: frozenset[str], read: _Read, reporter: Reporter
) -> dict[str, bytes | None] | None:
    """The files of upstream without this step; None when it is not in, or not as a whole."""
    changed: dict[str, bytes | None] = {}
    for path, after in step.after.items():
        ours = read(path)
        if ours is None:
            return None
        before = step.before.get(path)
        if before is None:
            expected = bare(path, after, conditions) if form == "bare" else after
            if not same_tokens(path, ours, expected):
                return None
            changed[path] = None
            continue
        if form == "bare":
            after, before = bare(path, after, conditions), bare(path, before, conditions)  # noqa: PLW2901
        merged, conflicts = merge_file(ours, after, before, reporter)
        if conflicts or merged == ours:
            return None
        changed[path] = merged
    return changed or None


def bare(path: str, data: bytes, conditions: frozenset[str]) -> bytes:
    """A file with the text of our generated regions in the place of the regions.

    ``#if condition`` keeps its first branch, ``#if !(condition)`` its second or nothing; others stay.
    """
    wanted = {_spelled(f"#if {text}") for text in conditions}
    unwanted = {_spelled(f"#if !({text})") for text in conditions}
    while True:
        source = SourceText(path, data)
        for group in parse_scopes(source).groups:
            condition = b"#" + group.branches[0].directive.condition
            if condition in wanted:
                keep = source.text(group.branches[0].body)
            elif condition in unwanted:
                keep = source.text(group.branches[1].body) if len(group.branches) > 1 else b""
            else:
                continue
            data = _replaced(source, group, keep)
            break
        else:
            return data


def _replaced(source: SourceText, group: Group, keep: bytes) -> bytes:
    first = source.line_span(source.line_of(group.span.start)).start
    last = source.line_span(source.line_of(group.endif.span.end)).end
    return source.data[:first] + keep + source.data[last:]


def _spelled(line: str) -> bytes:
    (directive,) = parse_scopes(SourceText("condition", line.encode() + b"\n")).directives
    return b"#" + directive.condition

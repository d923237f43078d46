"""Merge patches as text: to check the result of placing, and to revert from upstream what it already has.

The whole series is reverted in reverse order, because of two overlapping patches the earlier one can only be
reverted after the later one.
"""

from __future__ import annotations

import difflib
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from patchkit.base.files import disk_errors
from patchkit.base.reporter import Reporter
from patchkit.base.source import SourceText, Span
from patchkit.base.text import counted
from patchkit.carry.cpp.directives import Group
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.judging.classes import Agreement
from patchkit.carry.judging.commute import can_follow
from patchkit.carry.judging.line_diff import compare_lines
from patchkit.carry.placing.tree import EXECUTABLE, REGULAR
from patchkit.carry.upstream.git import Git

_MOST_CONFLICTS = 127  # git merge-file returns the number of conflicts up to this, and errors above it
_SHOWN = 40  # lines of a difference


def merge_file(
    ours: bytes, base: bytes, theirs: bytes, reporter: Reporter, labels: tuple[str, str, str] | None = None
) -> tuple[bytes, int]:
    """The merged bytes and the number of conflicts.

    ``labels``: names of the three versions, for conflict markers that show all three (diff3); None for
    markers that show two.

    Raises GIT_FAILED for errors other than conflicts, CacheError if temporary files cannot be written.
    """
    if base in (ours, theirs):
        return (theirs if ours == base else ours), 0
    with (
        disk_errors(Path(tempfile.gettempdir()), "writing temporary files"),
        tempfile.TemporaryDirectory(prefix="patchkit-merge-") as folder,
    ):
        names = []
        for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
            (Path(folder) / name).write_bytes(data)
            names.append(str(Path(folder) / name))
        git = Git(reporter=reporter)
        options = [word for label in labels or () for word in ("-L", label)]
        args = ("merge-file", "-p", "-q", *(["--diff3", *options] if labels else ()), *names)
        done = git.attempt(*args)
        if not 0 <= done.status <= _MOST_CONFLICTS:
            raise git.failure(args, done)
        return done.stdout, done.status


def compare_derivations(
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    current: Mapping[str, bytes],
    structural: Mapping[str, bytes],
    reporter: Reporter,
    incomplete: Collection[str] = (),
    decided: Collection[str] = (),
) -> Agreement:
    """Compare the result of placing by structure with the text merge of the last rendering.

    Args:
        before: edited files of the old upstream without the patch, without those that it adds.
        after: the same files with the patch, and those that it adds.
        current: edited files of the new upstream without the patch.
        structural: the same files after placing by structure.
        reporter: logs the git commands.
        incomplete: files without some of the edits that ``after`` has; the two results have to differ there.
        decided: files with other edits on the new upstream than on the old one, so they may differ.
    """
    lines: list[str] = []
    order: list[str] = []
    differing: dict[str, bytes] = {}
    for path in sorted({*after, *structural}):
        base, ours = before.get(path), current.get(path)
        is_in_one = path not in after or path not in structural or (base is None) != (ours is None)
        if is_in_one or path in incomplete:
            skipped = "not compared, because an optional edit was skipped"
            why = skipped if path in incomplete else "only one of the two derivations changes it"
            lines.append(f"{path}: {why}")
            continue
        if base is None or ours is None:
            # A file that the patch adds is not merged with anything. Its text may depend on the other patches
            # that are applied: the header with the run-time switches lists them.
            continue
        if b"\0" in ours and ours != base != after[path]:
            merged, conflicts = ours, 1  # git cannot merge binary files
        else:
            merged, conflicts = merge_file(ours, base, after[path], reporter)
        if conflicts:
            lines.append(f"{path}: the textual merge has {counted(conflicts, 'conflict')}")
        elif same_tokens(path, merged, structural[path]):
            continue
        elif differ_in_order(path, merged, structural[path]):
            order.append(f"{path}: in another order than by merging as text; both are right")
        elif path in decided:
            lines.append(f"{path}: not compared, because it has other edits on this build")
        else:
            differing[path] = structural[path]
            lines += _difference(path, merged, structural[path])
    if differing:
        return Agreement(verdict="differ", lines=tuple(lines), differing=differing)
    return Agreement(verdict="does not apply" if lines else "agree", lines=tuple(lines or order))


def same_tokens(path: str, one: bytes, other: bytes) -> bool:
    """Whether two versions of a file have the same tokens; whitespace and comments are ignored."""
    if one == other:
        return True
    if b"\0" in one or b"\0" in other:
        return False  # binary, so every byte counts
    texts = (SourceText(path, one), SourceText(path, other))
    digests = {parse_scopes(text).digest(Span(0, len(text.data))) for text in texts}
    return len(digests) == 1


def _difference(path: str, textual: bytes, structural: bytes) -> list[str]:
    rows = list(
        difflib.unified_diff(
            textual.decode("utf-8", "replace").splitlines(),
            structural.decode("utf-8", "replace").splitlines(),
            f"{path} (textual merge)",
            f"{path} (by structure)",
            lineterm="",
            n=2,
        )
    )
    return rows[:_SHOWN] + ([f"... and {len(rows) - _SHOWN} lines more"] if len(rows) > _SHOWN else [])


def differ_in_order(path: str, one: bytes, other: bytes) -> bool:
    """Whether two versions of a file differ only in the order of insertions that may be in any order."""
    rows = [[row for row in data.split(b"\n") if row.strip()] for data in (one, other)]
    blocks = compare_lines(*rows)
    if not blocks or len(blocks) % 2:
        return False
    text = SourceText(path, b"\n".join(rows[0]) + b"\n")
    for first, second in zip(blocks[::2], blocks[1::2], strict=True):
        gone, new = (first, second) if first.new == first.new_end else (second, first)
        moved = rows[0][gone.old : gone.old_end]
        if gone.new != gone.new_end or new.old != new.old_end or moved != rows[1][new.new : new.new_end]:
            return False
        low, high = sorted((first.old_end, second.old))
        between = rows[0][low:high]
        if not can_follow(text, low, between, moved):
            return False
    return True


Form = Literal["guarded", "bare"]
_Read = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One patch: its files before and after (added ones only after) and the ``conditions`` of its guards.

    ``gone``, ``renamed``, ``replaced`` and ``modes`` are as in :class:`PlacedPatch`. ``before`` has a renamed
    file under both names.
    """

    id: str
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    conditions: tuple[str, ...]
    gone: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    modes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertedTree:
    """The new upstream with the patches that it already has (``found``) reverted.

    ``files``: the changed files, None for those that no longer exist. ``modes``: the modes that changed.
    """

    files: Mapping[str, bytes | None]
    found: tuple[tuple[str, Form], ...]
    modes: Mapping[str, str] = field(default_factory=dict)


def revert_steps(
    steps: Sequence[Step],
    upstream: Mapping[str, bytes],
    reporter: Reporter,
    mode: Callable[[str], str] = lambda _: REGULAR,
) -> RevertedTree:
    """Revert every step that ``upstream`` already has, last step first. ``mode`` gives the mode of a file.

    Raises what :func:`patchkit.carry.judging.derive.merge_file` raises.
    """
    current: dict[str, bytes | None] = {}
    found: list[tuple[str, Form]] = []
    modes: dict[str, str] = {}
    conditions = frozenset(condition for step in steps for condition in step.conditions)

    def read(path: str) -> bytes | None:
        return current[path] if path in current else upstream.get(path)

    for step in reversed(steps):
        forms: tuple[Form, ...] = ("guarded", "bare")
        has_modes = all(modes.get(path, mode(path)) == wanted for path, wanted in step.modes.items())
        for form in forms if has_modes else ():
            without = _without(step, form, conditions, read, reporter)
            if without:
                current |= without
                modes |= _modes_before(step)
                found.append((step.id, form))
                break
    return RevertedTree(files=current, found=tuple(reversed(found)), modes=modes)


def _modes_before(step: Step) -> dict[str, str]:
    """The original modes of upstream's files whose mode a step changes."""
    other = {REGULAR: EXECUTABLE, EXECUTABLE: REGULAR}
    return {
        path: other[mode]
        for path, mode in step.modes.items()
        if path in step.before and path not in step.renamed
    }


def _without(
    step: Step, form: Form, conditions: frozenset[str], read: _Read, reporter: Reporter
) -> dict[str, bytes | None] | None:
    """Upstream's files with this step reverted; None if upstream does not have it, or not all of it."""
    kept = {path: data for path in (*step.gone, *step.after) if (data := read(path)) is not None}
    if kept.keys() != step.after.keys():
        return None
    removed = [path for path in step.gone if path not in step.renamed.values()]
    changed: dict[str, bytes | None] = {path: step.before.get(path) for path in removed}
    for path, after in step.after.items():
        ours = kept[path]
        before = step.before.get(path)
        if path in step.renamed or path in step.replaced or (path in step.modes and before == after):
            whole = _whole_without(step, path, ours, reporter)
            if whole is None:
                return None
            changed |= whole
            continue
        if before is None:
            expected = bare(path, after, conditions) if form == "bare" else after
            if not same_tokens(path, ours, expected):
                return None
            changed[path] = None
            continue
        if form == "bare":
            after, before = bare(path, after, conditions), bare(path, before, conditions)  # noqa: PLW2901
        merged, conflicts = (ours, 1) if b"\0" in ours else merge_file(ours, after, before, reporter)
        if conflicts or merged == ours:
            return None
        changed[path] = merged
    return changed or None


def _whole_without(step: Step, path: str, ours: bytes, reporter: Reporter) -> dict[str, bytes | None] | None:
    """The same for a file that the step renames, replaces, or only changes the mode of."""
    before, after = step.before[path], step.after[path]
    if path in step.replaced:
        return {path: before} if ours == after else None
    if path not in step.renamed:
        return {path: ours}  # the caller has compared its mode
    if not _is_alike(ours, after):
        return None
    merged, conflicts = merge_file(ours, after, before, reporter) if b"\0" not in ours else (ours, 0)
    if conflicts or (merged == ours and after != before):
        return None
    return {path: None, step.renamed[path]: merged}


def _is_alike(one: bytes, other: bytes) -> bool:
    """Whether two files share half of their lines, which is git's threshold for a rename."""
    lines = [Counter(data.split(b"\n")) for data in (one, other)]
    return one == other or 2 * (lines[0] & lines[1]).total() >= max(each.total() for each in lines)


def has_change(
    path: str, ours: bytes | None, before: bytes | None, after: bytes | None, reporter: Reporter
) -> bool:
    """Whether upstream's file has the whole change: reverting and applying it again as text gives the file.

    ``before`` is None if the change adds the file, ``after`` if it removes it.
    Raises what :func:`merge_file` raises.
    """
    if ours is None or after is None:
        return ours is None and after is None
    if before is None or b"\0" in ours + before + after:
        return same_tokens(path, ours, after)
    without, conflicts = merge_file(ours, after, before, reporter)
    if conflicts or without == ours:
        return False
    again, conflicts = merge_file(without, before, after, reporter)
    return not conflicts and same_tokens(path, again, ours)


def bare(path: str, data: bytes, conditions: frozenset[str]) -> bytes:
    """A file with our generated guards removed, so that only the guarded text remains.

    ``#if condition`` is replaced by its first branch, ``#if !(condition)`` by its second one, if any. Other
    directives are kept.
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

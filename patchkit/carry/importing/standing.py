"""Find which patches of a queue require which: guess from the lines that a change touches, then try with git.

Each line of a file has an *owner*, the patch that wrote it, and so has each cut, a place where a patch
removed lines. What a change requires is guessed from the owners of its lines and of three lines around, and
then tested: on a tree with only those patches it must apply and do the same, and without any one of them it
must fail or do something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchkit.base.errors import AnchorError, Location, PatchkitError, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.source import SourceText
from patchkit.base.text import visible
from patchkit.carry.cpp.scopes import parse_scopes
from patchkit.carry.importing.diffs import not_placed
from patchkit.carry.importing.hunks import (
    FilePart,
    RenumberedDiff,
    named_paths,
    parse_diff,
    renumber_diff,
    stripped,
)
from patchkit.carry.importing.queue_sources import QueuedChange
from patchkit.carry.judging.derive import merge_file
from patchkit.carry.judging.merge import doubt_of
from patchkit.carry.lifting.change import MovedHunk
from patchkit.carry.placing.resolve import resolve_anchor
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.treepath import fault_of_path
from patchkit.carry.upstream.git import Git

_HUNK = re.compile(rb"@@ -([0-9]+)(?:,([0-9]+))? \+[0-9]+(?:,([0-9]+))? @@")
_PLAIN_DIFF = ("--no-renames", "--no-ext-diff", "--no-textconv")
_CONTEXT = 3  # lines of context that git diff writes and git apply requires
_NEAR = 12  # lines around an edit's place that are searched for the owner of the tokens in its selector


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedChange:
    """A change with corrected line numbers, and the ``tree`` after it.

    ``moved`` and ``is_exact``: as in :class:`patchkit.carry.importing.hunks.RenumberedDiff`.
    """

    change: QueuedChange
    tree: str
    moved: tuple[MovedHunk, ...]
    is_exact: bool


@dataclass(slots=True)
class Trees:
    """Applies changes to trees with git, in one index. ``at``: the tree that is in the index."""

    git: Git
    at: str = ""
    contents: dict[tuple[str, str], bytes | None] = field(default_factory=dict)

    def place(self, tree: str, change: QueuedChange) -> PlacedChange:
        """Apply a change to a tree, with every hunk at the place found by :func:`renumber_diff`.

        Raises IMPORT_AMBIGUOUS, IMPORT_OTHER_FUNCTION, and the errors of :func:`not_placed` if git refuses
        it.
        """
        parts = parse_diff(change.data)
        self._refuse_bare(tree, change, parts)
        paths = [path for path in named_paths(parts, change.strip) if fault_of_path(path) is None]
        names = [f"{tree}:{path}".encode("utf-8", "surrogateescape") for path in paths]
        found = zip(paths, self.git.objects(names), strict=True)
        files = {path: blob.data for path, blob in found if blob is not None and blob.kind == "blob"}
        renumbered = renumber_diff(change.data, change.strip, files, change.where)
        exact = replace(change, data=renumbered.data)
        result, stderr = self.apply(tree, exact)
        if result is None:
            raise not_placed(change.name, stderr, change.where)
        self._compare(tree, result, renumbered, change, parts)
        return PlacedChange(change=exact, tree=result, moved=renumbered.moved, is_exact=renumbered.is_exact)

    def _compare(
        self,
        before: str,
        after: str,
        renumbered: RenumberedDiff,
        change: QueuedChange,
        parts: Sequence[FilePart],
    ) -> None:
        """Raise if git has put a hunk at another place than the one that was chosen."""
        regular = [
            each
            for each in self.git.changes(before, after)
            if each.modes[1].startswith("100")
            and each.ids[0] != each.ids[1]
            and fault_of_path(each.path) is None
        ]
        found = self.git.objects(each.ids[1].encode() for each in regular)
        result = {each.path: blob.data for each, blob in zip(regular, found, strict=True) if blob is not None}
        wrong = {
            path for path in result.keys() & renumbered.files.keys() if result[path] != renumbered.files[path]
        }
        binary = {stripped(name, change.strip) for part in parts if part.is_binary for name in part.heads}
        wrong |= {each.path for each in regular if each.letter == "M"} - renumbered.files.keys() - binary
        if wrong:
            raise UsageError(
                f"git and patchkit parse {change.name} differently, in {', '.join(sorted(wrong))}",
                code="IMPORT_NOTHING",
                where=change.where,
                why="so the places of its hunks are uncertain",
                hint="make the diff again, with git diff or git format-patch",
            )

    def _refuse_bare(self, tree: str, change: QueuedChange, parts: Sequence[FilePart]) -> None:
        """Raise if the path of a new file has no a/ or b/, so that -p1 would remove a folder of upstream."""
        new = [
            part.new
            for part in parts
            if part.old == "/dev/null" and part.new is not None and change.strip == 1
        ]
        tops = {name.partition("/")[0] for name in new if "/" in name}
        names = [f"{tree}:{top}".encode("utf-8", "surrogateescape") for top in sorted(tops)]
        if any(found is not None and found.kind == "tree" for found in self.git.objects(names) if names):
            raise AnchorError(
                f"the paths in {change.name} do not start with a/ and b/",
                code="IMPORT_NOT_APPLYING",
                where=change.where,
                why=f"'{visible(new[0])}' would become '{visible(stripped(new[0], 1) or '')}'",
                hint="add -p0 to the command, or after its name in a series file, to use the paths unchanged",
            )

    def apply(
        self, tree: str, change: QueuedChange, paths: Iterable[str] | None = None, *, backwards: bool = False
    ) -> tuple[str | None, str]:
        """The tree with the change (or its part for ``paths``), or None and git's error output."""
        if self.at != tree:
            self.git.run("read-tree", tree)
            self.at = tree
        only = [f"--include={path}" for path in paths or ()]
        way = ("--reverse",) if backwards else ()
        args = ("apply", "--cached", "--whitespace=nowarn", f"-p{change.strip}", *way, *only, "-")
        done = self.git.attempt(*args, stdin=change.data)
        if done.status != 0:
            return None, done.stderr
        self.at = self.git.run("write-tree").decode("ascii").strip()
        return self.at, ""

    def read(self, tree: str, path: str) -> bytes | None:
        """The content of a file in a tree; None if there is none."""
        if (tree, path) not in self.contents:
            (found,) = self.git.objects([f"{tree}:{path}".encode()])
            is_file = found is not None and found.kind == "blob"
            self.contents[tree, path] = found.data if found is not None and is_file else None
        return self.contents[tree, path]

    def write(self, tree: str, files: Mapping[str, bytes]) -> str:
        """The tree with new content for some files."""
        self.git.run("read-tree", tree)
        modes = {each.partition(b"\t")[2]: each[:6] for each in self.git.run("ls-files", "-sz").split(b"\0")}
        lines = []
        for path, data in files.items():
            sha = self.git.run("hash-object", "-w", "--stdin", stdin=data).strip()
            name = path.encode()
            lines.append(b"%s %s\t%s\0" % (modes.get(name, b"100644"), sha, name))
        self.git.run("update-index", "-z", "--add", "--index-info", stdin=b"".join(lines))
        self.at = self.git.run("write-tree").decode("ascii").strip()
        return self.at

    def carry_over(self, tree: str, before: str, after: str, reporter: Reporter) -> str | None:
        """``tree`` with the difference of two other trees, merged by git; None if that is not clear.

        It is clear if git merges every file without conflicts and no change goes to another function.
        """
        files: dict[str, bytes] = {}
        for each in self.git.changes(before, after):
            ours, base, theirs = (self.read(one, each.path) for one in (tree, before, after))
            if each.letter == "A" and ours is None and theirs is not None:
                files[each.path] = theirs
                continue
            if each.letter != "M" or ours is None or base is None or theirs is None:
                return None
            merged, conflicts = merge_file(ours, base, theirs, reporter)
            texts = [SourceText(each.path, data) for data in (base, theirs, ours, merged)]
            if conflicts or doubt_of(*texts):
                return None
            files[each.path] = merged
        return self.write(tree, files)

    def diff(self, before: str, after: str) -> bytes:
        """The diff between two trees, for git apply."""
        return self.git.run("diff-tree", "-r", "-p", "--binary", "--full-index", *_PLAIN_DIFF, before, after)

    def hunks(self, before: str, after: str, context: int) -> dict[str, list[tuple[int, int, int]]]:
        """By path: first and last old line (from 0, last exclusive), and the number of new lines."""
        args = ("diff-tree", "-r", "-p", f"-U{context}", *_PLAIN_DIFF)
        found: dict[str, list[tuple[int, int, int]]] = {}
        path = ""
        for line in self.git.run(*args, before, after).split(b"\n"):
            if line.startswith(b"diff --git "):
                path = line.split(b" ")[2][2:].decode("utf-8", "replace")
                found[path] = []
            elif (hunk := _HUNK.match(line)) is not None:
                first, old, new = int(hunk[1]), int(hunk[2] or 1), int(hunk[3] or 1)
                start = first - 1 if old else first
                found[path].append((start, start + old, new))
        return found


@dataclass(slots=True)
class _Lines:
    """The owners of a file's lines, and of the cuts before each line and after the last."""

    owners: list[str | None]
    cuts: list[frozenset[str]]


@dataclass(slots=True)
class _Owners:
    """The owners of all lines so far, by path; ``touched``: all patches that changed a path in any way."""

    files: dict[str, _Lines] = field(default_factory=dict)
    touched: dict[str, list[str]] = field(default_factory=dict)

    def write(
        self, patch: str, path: str, before: bytes | None, hunks: Sequence[tuple[int, int, int]]
    ) -> None:
        self.touched.setdefault(path, []).append(patch)
        known = self.files.get(path)
        if known is None or before is None:
            count = _count(before)
            known = self.files[path] = _Lines([None] * count, [frozenset()] * (count + 1))
        for start, end, count in reversed(hunks):
            cuts = known.cuts[start : end + 1] or [frozenset()]
            known.owners[start:end] = [patch] * count
            known.cuts[start : end + 1] = (
                [cuts[0], *[frozenset[str]()] * (count - 1), cuts[-1]]
                if count
                else [frozenset[str]({patch}).union(*cuts)]
            )

    def under(self, path: str, hunks: Iterable[tuple[int, int, int]]) -> Iterator[str]:
        known = self.files.get(path)
        if known is None:
            return
        for start, end, _ in hunks:
            yield from (owner for owner in known.owners[start:end] if owner is not None)
            for cut in known.cuts[start + 1 : end] if end > start else known.cuts[start : start + 1]:
                yield from cut


def _count(data: bytes | None) -> int:
    return len(data.split(b"\n")) - data.endswith(b"\n") if data else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """An imported patch: its change, which paths of the change belong to it, and what it requires."""

    patch: str
    change: QueuedChange
    paths: tuple[str, ...]
    requires: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Queue:
    """The imported patches, in order, on the tree ``base``."""

    trees: Trees
    base: str
    reporter: Reporter
    entries: dict[str, QueueEntry] = field(default_factory=dict)
    owners: _Owners = field(default_factory=_Owners)

    def add(self, new: QueueEntry, before: str, after: str, old: Mapping[str, bytes | None]) -> None:
        """Add a patch that turned the tree ``before``, with the files ``old``, into ``after``."""
        hunks = self.trees.hunks(before, after, 0)
        for path in new.paths:
            self.owners.write(new.patch, path, old.get(path), hunks.get(path, ()))
        self.entries[new.patch] = new

    def touching(self, paths: Iterable[str]) -> list[str]:
        """The patches that touch any of the paths, in order."""
        found = {patch for path in paths for patch in self.owners.touched.get(path, ())}
        return [patch for patch in self.entries if patch in found]

    def requirements(
        self,
        change: QueuedChange,
        paths: Sequence[str],
        before: str,
        after: str,
        edits: Sequence[tuple[Edit, Sequence[Location]]],
    ) -> tuple[tuple[str, str], ...]:
        """The smallest set of patches that a change to some paths requires, each with the reason.

        ``before`` and ``after``: the trees before and after it. ``edits``: its edits, each with its places.
        """
        candidates = self.touching(paths)
        if not candidates:
            return ()
        why: dict[str, str] = {}
        for path, hunks in self.trees.hunks(before, after, _CONTEXT).items():
            if path in paths:
                for patch in self.owners.under(path, hunks):
                    why.setdefault(patch, f"it changes lines of {path} that '{patch}' wrote or cut")
        step = _Step(self, change, tuple(paths), before, after)
        needed = self._least([patch for patch in candidates if patch in why])
        if not step.works_on(self._closure(needed)):
            needed = self._least(candidates)
        needed = [patch for patch in needed if not step.works_on(self._without(candidates, patch))]
        if not step.works_on(self._closure(needed)):
            needed = self._least(candidates)
        for patch in needed:
            why.setdefault(patch, f"without '{patch}' it does not apply, or has another result")
        for patch, reason in self._anchored(step, edits, needed):
            why.setdefault(patch, reason)
            needed.append(patch)
        return tuple((patch, why[patch]) for patch in self._least(needed))

    def _anchored(
        self, step: _Step, edits: Sequence[tuple[Edit, Sequence[Location]]], needed: Sequence[str]
    ) -> Iterator[tuple[str, str]]:
        """Patches whose tokens an edit's selector needs, although git's diff does not."""
        tree = self.tree_of(self._closure(needed), step.paths)
        for edit, places in edits:
            data = self.trees.read(tree, edit.file) if tree is not None else None
            if data is None or data == self.trees.read(step.before, edit.file):
                continue
            if _has_place(edit, data):
                continue
            lines = [each.line for each in places if each.line is not None]
            around = [(max(0, line - 1 - _NEAR), line + _NEAR, 0) for line in lines]
            near = self._least({*self.owners.under(edit.file, around)} or self.touching([edit.file]))
            alone = [patch for patch in near if self._has_place_with(edit, [*needed, patch], step.paths)]
            for patch in alone[:1] or near:
                yield patch, f"edit '{edit.id}' is identified by code of '{patch}' in {edit.file}"

    def _has_place_with(self, edit: Edit, patches: Sequence[str], paths: Sequence[str]) -> bool:
        tree = self.tree_of(self._closure(patches), paths)
        data = self.trees.read(tree, edit.file) if tree is not None else None
        return data is not None and _has_place(edit, data)

    def _closure(self, patches: Iterable[str]) -> set[str]:
        found: set[str] = set()
        waiting = list(patches)
        while waiting:
            patch = waiting.pop()
            if patch not in found:
                found.add(patch)
                waiting += [name for name, _ in self.entries[patch].requires]
        return found

    def _without(self, patches: Iterable[str], excluded: str) -> set[str]:
        """The patches and all that they require, except ``excluded`` and those that require it."""
        return {each for each in self._closure(patches) if excluded not in self._closure([each])}

    def _least(self, patches: Iterable[str]) -> list[str]:
        """The patches in order, without those that another one of them requires anyway."""
        named = set(patches)
        implied = {below for each in named for below in self._closure([each]) if below != each}
        return [patch for patch in self.entries if patch in named - implied]

    def tree_of(self, patches: set[str], paths: Iterable[str]) -> str | None:
        """The base with the changes of these patches to the paths; None if they do not apply."""
        wanted = set(paths)
        tree: str | None = self.base
        for each in self.entries.values():
            shared = [path for path in each.paths if path in wanted]
            if each.patch in patches and shared and tree is not None:
                tree, _ = self.trees.apply(tree, each.change, shared)
        return tree


def _has_place(edit: Edit, data: bytes) -> bool:
    try:
        resolve_anchor(parse_scopes(SourceText(edit.file, data)), edit)
    except PatchkitError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Step:
    """One change of the queue, to be tried on other trees than the one that it was made for."""

    queue: Queue
    change: QueuedChange
    paths: tuple[str, ...]
    before: str
    after: str

    def works_on(self, patches: set[str]) -> bool:
        """Whether the change applies on only these patches, and does the same as in the queue."""
        trees = self.queue.trees
        tree = self.queue.tree_of(patches, self.paths)
        result = trees.apply(tree, self.change, self.paths)[0] if tree is not None else None
        return (
            result is not None and tree is not None and all(self._same(tree, result, p) for p in self.paths)
        )

    def _same(self, tree: str, result: str, path: str) -> bool:
        """Whether git's merge of the change in the queue gives the same file there."""
        names = [f"{each}:{path}".encode() for each in (tree, self.before, self.after, result)]
        blobs = self.queue.trees.git.objects(names)
        ours, base, theirs, found = (each.data if each is not None else None for each in blobs)
        if base is None or theirs is None or ours is None:
            return (ours, theirs) == (base, found)
        merged, conflicts = merge_file(ours, base, theirs, self.queue.reporter)
        return not conflicts and merged == found

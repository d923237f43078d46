"""Which patches of a queue stand on which: told by whose lines a change touches, and measured with git.

Each line of a file has an *owner*, the patch that wrote it, and so has each cut, where a patch took lines
away. What a change needs of them is guessed from its own lines and three around, and then tried: on a tree of
those patches alone it must apply and do the same, and with any one of them left out it must fail, or do
something else.
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
    Settled,
    named_paths,
    parse_diff,
    settle_diff,
    stripped,
)
from patchkit.carry.importing.queue_sources import QueuedChange
from patchkit.carry.judging.derive import merge_file
from patchkit.carry.lifting.change import MovedHunk
from patchkit.carry.placing.resolve import resolve_anchor
from patchkit.carry.series.patch import Edit
from patchkit.carry.series.treepath import fault_of_path
from patchkit.carry.upstream.git import Git

_HUNK = re.compile(rb"@@ -([0-9]+)(?:,([0-9]+))? \+[0-9]+(?:,([0-9]+))? @@")
_PLAIN_DIFF = ("--no-renames", "--no-ext-diff", "--no-textconv")
_CONTEXT = 3  # lines: what git diff writes, and git apply asks for
_NEAR = 12  # lines around an edit's place in which the tokens that tell it apart are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedChange:
    """A change, with the numbers of the places that its hunks have, and the ``tree`` that it makes.

    ``moved`` and ``is_exact`` as in :class:`patchkit.carry.importing.hunks.Settled`.
    """

    change: QueuedChange
    tree: str
    moved: tuple[MovedHunk, ...]
    is_exact: bool


@dataclass(slots=True)
class Trees:
    """Trees that git makes of changes, in one index. ``at`` is the tree that is in it."""

    git: Git
    at: str = ""

    def place(self, tree: str, change: QueuedChange) -> PlacedChange:
        """The change on a tree, every hunk where :func:`settle_diff` has it.

        Raises IMPORT_AMBIGUOUS, IMPORT_OTHER_FUNCTION, and as :func:`not_placed`: git refuses it.
        """
        parts = parse_diff(change.data)
        self._refuse_bare(tree, change, parts)
        paths = [path for path in named_paths(parts, change.strip) if fault_of_path(path) is None]
        names = [f"{tree}:{path}".encode("utf-8", "surrogateescape") for path in paths]
        found = zip(paths, self.git.objects(names), strict=True)
        files = {path: blob.data for path, blob in found if blob is not None and blob.kind == "blob"}
        settled = settle_diff(change.data, change.strip, files, change.where)
        exact = replace(change, data=settled.data)
        made, said = self.apply(tree, exact)
        if made is None:
            raise not_placed(change.name, said, change.where)
        self._compare(tree, made, settled, change, parts)
        return PlacedChange(change=exact, tree=made, moved=settled.moved, is_exact=settled.is_exact)

    def _compare(
        self, before: str, after: str, settled: Settled, change: QueuedChange, parts: Sequence[FilePart]
    ) -> None:
        """Raise where git has put a hunk into another place than it was told to."""
        regular = [
            each
            for each in self.git.changes(before, after)
            if each.modes[1].startswith("100")
            and each.ids[0] != each.ids[1]
            and fault_of_path(each.path) is None
        ]
        found = self.git.objects(each.ids[1].encode() for each in regular)
        made = {each.path: blob.data for each, blob in zip(regular, found, strict=True) if blob is not None}
        wrong = {path for path in made.keys() & settled.made.keys() if made[path] != settled.made[path]}
        binary = {stripped(name, change.strip) for part in parts if part.is_binary for name in part.heads}
        wrong |= {each.path for each in regular if each.letter == "M"} - settled.made.keys() - binary
        if wrong:
            raise UsageError(
                f"git reads {change.name} in another way than patchkit, in {', '.join(sorted(wrong))}",
                code="IMPORT_NO_DIFF",
                where=change.where,
                why="so nothing tells where its hunks go",
                hint="make the diff again, with git diff or git format-patch",
            )

    def _refuse_bare(self, tree: str, change: QueuedChange, parts: Sequence[FilePart]) -> None:
        """Raise where taking a/ and b/ off would take a folder of upstream's off the path of a new file."""
        new = [
            part.new
            for part in parts
            if part.old == "/dev/null" and part.new is not None and change.strip == 1
        ]
        tops = {name.partition("/")[0] for name in new if "/" in name}
        names = [f"{tree}:{top}".encode("utf-8", "surrogateescape") for top in sorted(tops)]
        if any(found is not None and found.kind == "tree" for found in self.git.objects(names) if names):
            raise AnchorError(
                f"{change.name} has paths without a/ and b/ in front",
                code="IMPORT_NOT_APPLYING",
                where=change.where,
                why=f"'{visible(new[0])}' would become '{visible(stripped(new[0], 1) or '')}'",
                hint="-p0 takes the paths as they are: add it to the command, or behind its name in a series",
            )

    def apply(
        self, tree: str, change: QueuedChange, paths: Iterable[str] | None = None, *, backwards: bool = False
    ) -> tuple[str | None, str]:
        """The tree with the change, or what it does to some ``paths``; None, and what git says of it."""
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
        """A file of a tree."""
        (found,) = self.git.objects([f"{tree}:{path}".encode()])
        return found.data if found is not None and found.kind == "blob" else None

    def write(self, tree: str, files: Mapping[str, bytes]) -> str:
        """The tree with other content of some files."""
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

    def diff(self, before: str, after: str) -> bytes:
        """What git apply makes the second tree of the first by."""
        return self.git.run("diff-tree", "-r", "-p", "--binary", "--full-index", *_PLAIN_DIFF, before, after)

    def hunks(self, before: str, after: str, context: int) -> dict[str, list[tuple[int, int, int]]]:
        """By path: where lines of the old version begin and end, from 0, and how many take their place."""
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
    """The owners of a file's lines, and of the cuts in front of each line and behind the last."""

    owners: list[str | None]
    cuts: list[frozenset[str]]


@dataclass(slots=True)
class _Owners:
    """Who wrote what so far, by path; ``touched`` are all patches that changed a path in any way."""

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
class Standing:
    """One patch that is in: a change, with those of its paths that are this patch's, and what it requires."""

    patch: str
    change: QueuedChange
    paths: tuple[str, ...]
    requires: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Queue:
    """The patches that are in, in order, on the tree ``base``."""

    trees: Trees
    base: str
    reporter: Reporter
    standing: dict[str, Standing] = field(default_factory=dict)
    owners: _Owners = field(default_factory=_Owners)

    def add(self, new: Standing, before: str, after: str, old: Mapping[str, bytes | None]) -> None:
        """One more patch: it made the tree ``after`` of ``before``, whose files are ``old``."""
        hunks = self.trees.hunks(before, after, 0)
        for path in new.paths:
            self.owners.write(new.patch, path, old.get(path), hunks.get(path, ()))
        self.standing[new.patch] = new

    def touching(self, paths: Iterable[str]) -> list[str]:
        """The patches that touch any of the paths, in order."""
        found = {patch for path in paths for patch in self.owners.touched.get(path, ())}
        return [patch for patch in self.standing if patch in found]

    def requirements(
        self,
        change: QueuedChange,
        paths: Sequence[str],
        before: str,
        after: str,
        edits: Sequence[tuple[Edit, Sequence[Location]]],
    ) -> tuple[tuple[str, str], ...]:
        """The patches that a change to some paths stands on, the fewest, each with why.

        ``before`` and ``after`` are the trees around it; ``edits`` what became of it, each with its places.
        """
        candidates = self.touching(paths)
        if not candidates:
            return ()
        why: dict[str, str] = {}
        for path, hunks in self.trees.hunks(before, after, _CONTEXT).items():
            if path in paths:
                for patch in self.owners.under(path, hunks):
                    why.setdefault(patch, f"its lines of {path} are those that '{patch}' left")
        step = _Step(self, change, tuple(paths), before, after)
        needed = self._least([patch for patch in candidates if patch in why])
        if not step.works_on(self._closure(needed)):
            needed = self._least(candidates)
        needed = [patch for patch in needed if not step.works_on(self._without(candidates, patch))]
        if not step.works_on(self._closure(needed)):
            needed = self._least(candidates)
        for patch in needed:
            why.setdefault(patch, f"without '{patch}' it does not apply, or does something else")
        for patch, reason in self._anchored(step, edits, needed):
            why.setdefault(patch, reason)
            needed.append(patch)
        return tuple((patch, why[patch]) for patch in self._least(needed))

    def _anchored(
        self, step: _Step, edits: Sequence[tuple[Edit, Sequence[Location]]], needed: Sequence[str]
    ) -> Iterator[tuple[str, str]]:
        """Patches whose tokens an edit names, where git's diff does not need them."""
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
                yield patch, f"edit '{edit.id}' is told apart by what '{patch}' left in {edit.file}"

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
                waiting += [name for name, _ in self.standing[patch].requires]
        return found

    def _without(self, patches: Iterable[str], left_out: str) -> set[str]:
        """Those of the patches, and all they require, that can be there without this one."""
        return {each for each in self._closure(patches) if left_out not in self._closure([each])}

    def _least(self, patches: Iterable[str]) -> list[str]:
        """In order, without what another one of them requires anyway."""
        named = set(patches)
        implied = {below for each in named for below in self._closure([each]) if below != each}
        return [patch for patch in self.standing if patch in named - implied]

    def tree_of(self, patches: set[str], paths: Iterable[str]) -> str | None:
        """The base with what these patches do to the paths; None where that cannot be."""
        wanted = set(paths)
        tree: str | None = self.base
        for each in self.standing.values():
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
    """One change of the queue, to be tried on other trees than the one it was made for."""

    queue: Queue
    change: QueuedChange
    paths: tuple[str, ...]
    before: str
    after: str

    def works_on(self, patches: set[str]) -> bool:
        """Whether the change applies where only these patches are, and does what it does in the queue."""
        trees = self.queue.trees
        tree = self.queue.tree_of(patches, self.paths)
        made = trees.apply(tree, self.change, self.paths)[0] if tree is not None else None
        return made is not None and tree is not None and all(self._same(tree, made, p) for p in self.paths)

    def _same(self, tree: str, made: str, path: str) -> bool:
        """Whether git's merge of what the change does in the queue gives the same there."""
        names = [f"{each}:{path}".encode() for each in (tree, self.before, self.after, made)]
        blobs = self.queue.trees.git.objects(names)
        ours, base, theirs, found = (each.data if each is not None else None for each in blobs)
        if base is None or theirs is None or ours is None:
            return (ours, theirs) == (base, found)
        merged, conflicts = merge_file(ours, base, theirs, self.queue.reporter)
        return not conflicts and merged == found

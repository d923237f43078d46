"""Apply the changes of a queue to trees with git, exactly, and merge them onto other trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchkit.base.errors import AnchorError, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.source import SourceText
from patchkit.base.text import visible
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
from patchkit.carry.series.treepath import fault_of_path
from patchkit.carry.upstream.git import Git


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
    """Applies changes to trees with git, in one index. ``at``: the tree that is in the index.

    ``contents``: files that were read, by tree and path.
    """

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

    def apply(self, tree: str, change: QueuedChange, *, backwards: bool = False) -> tuple[str | None, str]:
        """The tree with the change, or None and git's error output."""
        if self.at != tree:
            self.git.run("read-tree", tree)
            self.at = tree
        way = ("--reverse",) if backwards else ()
        args = ("apply", "--cached", "--whitespace=nowarn", f"-p{change.strip}", *way, "-")
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

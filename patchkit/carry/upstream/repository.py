"""A git repository: find, read, verify and write its objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import GitError, Location
from patchkit.base.reporter import Reporter
from patchkit.carry.series.git_object import object_id
from patchkit.carry.upstream.git import Git, damaged

# Attributes in an upstream tree could change bytes in git (line endings, keyword expansion, filters).
# info/attributes overrides every .gitattributes, also in worktrees.
ATTRIBUTES = (
    b"* -text -eol -ident -filter -working-tree-encoding -export-ignore -export-subst"
    b" !diff !merge !whitespace\n"
)


_WORD = re.compile(r"\w+|[^\w\s]")
_HIT = re.compile(r"([^\0]+)\0([0-9]+)\0(.*)", re.DOTALL)  # an output line of git grep -nz


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One file of a tree. ``mode`` is git's, as text: 100644, 100755, 120000 (link) or 160000 (submodule)."""

    mode: str
    sha: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository at ``path``; the other fields as in :class:`patchkit.carry.upstream.git.Git`.

    ``parses`` is the folder next to it with cached clang parses of its files; None: no cache.
    """

    path: Path
    reporter: Reporter
    work_tree: Path | None = None
    keep_open: tuple[int, ...] = ()
    untrusted: bool = False
    writes_to: Path | None = None
    parses: Path | None = None

    @property
    def git(self) -> Git:
        """Git bound to this repository."""
        return Git(
            reporter=self.reporter,
            git_dir=self.path,
            work_tree=self.work_tree,
            keep_open=self.keep_open,
            untrusted=self.untrusted,
            writes_to=self.writes_to,
        )

    def borrowing(self, objects: Path) -> Git:
        """Git bound to this repository, which also reads the objects in another repository's folder."""
        return replace(self.git, borrows=objects)

    def resolve(self, *names: str) -> tuple[str | None, ...]:
        """The object id of each name (``<commit>^{tree}`` and so on); None for those that do not exist."""
        out = self.git.run("cat-file", "--batch-check=%(objectname)", stdin=_lines(names))
        answers = out.decode("utf-8", "surrogateescape").splitlines()
        return tuple(None if " " in answer else answer for answer in answers)

    def has_object(self, name: str) -> bool:
        """Whether the repository has the object."""
        return self.resolve(name)[0] is not None

    def tree_of(self, commit: str) -> str:
        """Object id of a commit's tree.

        Raises:
            GIT_OBJECT_MISSING: the repository has no such commit.
        """
        (tree,) = self.resolve(f"{commit}^{{tree}}")
        if tree is None:
            raise self.missing(commit)
        return tree

    def list_files(self, treeish: str, prefix: str = "") -> tuple[TreeEntry, ...]:
        """The files of a tree in git's order: all of them, or those in a folder.

        Raises:
            GIT_OBJECT_MISSING: the repository has no such tree.
        """
        selected = ("--", prefix) if prefix else ()
        return self._list_tree("-r", treeish, *selected)

    def find_entries(self, treeish: str, paths: Sequence[str]) -> dict[str, TreeEntry]:
        """The entry at each of the paths, including folders (mode 040000); absent paths are omitted.

        Raises:
            GIT_OBJECT_MISSING: the repository has no such tree.
        """
        if not paths:
            return {}
        # For a folder and a file in it, git lists the whole folder; -t includes the folder itself.
        wanted = frozenset(paths)
        listed = self._list_tree("-t", treeish, "--", *paths)
        return {entry.path: entry for entry in listed if entry.path in wanted}

    def read_blobs(self, treeish: str, paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of files of one tree, read by one process.

        Raises:
            GIT_OBJECT_MISSING: a path does not exist, or is not a file.
            ObjectDamaged: the content of a file does not match its id.
        """
        wanted = tuple(dict.fromkeys(paths))
        for path in wanted:
            if "\n" in path:  # would be read as two requests
                raise GitError(
                    f"cannot read {path!r} in {treeish[:12]}",
                    code="GIT_OBJECT_MISSING",
                    where=Location(path=path),
                    why="its name has a line break, which patchkit does not read",
                    hint="rename the file in a commit of your clone",
                )
        blobs: dict[str, bytes] = {}
        found = self.git.objects(git_path(f"{treeish}:{path}") for path in wanted)
        for path, blob in zip(wanted, found, strict=True):
            if blob is None or blob.kind != "blob":
                entry = self.find_entries(treeish, [path]).get(path)
                if entry is not None and entry.mode.startswith("1") and entry.mode != "160000":
                    raise damaged(self.path, f"the object {entry.sha} ({path}) cannot be read")
                raise _no_file(self.path, treeish, path)
            if not blob.is_whole:
                raise damaged(self.path, f"the content of {path} does not match its id {blob.id}")
            blobs[path] = blob.data
        return blobs

    def search(
        self, treeish: str, texts: Sequence[str], prefix: str = ""
    ) -> dict[str, tuple[tuple[str, int], ...]]:
        """The lines in a tree's files that contain some texts: path and line number, from 1, by text.

        With ``prefix``, only files in that folder are searched. Whitespace and indentation are ignored.
        """
        wanted = {text: " ".join(_WORD.findall(text)) for text in texts}
        patterns = [_pattern(words) for words in wanted.values() if words]
        if not patterns:
            return dict.fromkeys(texts, ())
        # From stdin: the lines of a large patch are longer than a command line may be.
        where = ("--", prefix) if prefix else ()
        args = ("grep", "-n", "-z", "-I", "-E", "-f", "-", treeish, *where)
        stdin = "".join(f"{pattern}\n" for pattern in patterns).encode("utf-8", "surrogateescape")
        done = self.git.attempt(*args, stdin=stdin)
        if done.status not in (0, 1):  # 1: no match
            raise self.git.failure(args, done)
        found: dict[str, list[tuple[str, int]]] = {text: [] for text in texts}
        for row in done.stdout.decode("utf-8", "surrogateescape").split("\n"):
            hit = _HIT.fullmatch(row.removeprefix(f"{treeish}:"))
            line = " ".join(_WORD.findall(hit[3])) if hit is not None else ""
            for text, words in wanted.items():
                if hit is not None and words and f" {words} " in f" {line} ":
                    found[text].append((hit[1], int(hit[2])))
        return {text: tuple(places) for text, places in found.items()}

    def write_object(self, kind: str, data: bytes) -> str:
        """Store one object and return its id; git checks that it is a valid ``kind``."""
        out = self.git.run("hash-object", "-t", kind, "-w", "--stdin", stdin=data)
        return out.decode("ascii").strip()

    def missing(self, name: str) -> GitError:
        """The error for an object that the repository must have."""
        return GitError(
            f"the cache has no object {name}",
            code="GIT_OBJECT_MISSING",
            where=Location(path=str(self.path)),
            hint="patchkit doctor checks the cache",
        )

    def _list_tree(self, *args: str) -> tuple[TreeEntry, ...]:
        finished = self.git.attempt("ls-tree", "-z", "--full-tree", *args)
        if finished.status != 0:
            if "Not a valid object name" in finished.stderr or "not a tree object" in finished.stderr:
                raise self.missing(next(arg for arg in args if not arg.startswith("-")))
            raise self.git.failure(("ls-tree", *args), finished)
        return tuple(_parse_entry(line) for line in finished.stdout.split(b"\0") if line)


def verify_objects(repository: Repository, ids: Iterable[str]) -> None:
    """Read and hash objects, in one process.

    Raises:
        ObjectDamaged: an object is missing or does not match its id.
    """
    wanted = tuple(dict.fromkeys(ids))
    for sha, found in zip(wanted, repository.git.objects(sha.encode() for sha in wanted), strict=True):
        if found is None:
            raise damaged(repository.path, f"the object {sha} is missing")
        if object_id(found.kind, found.data) != sha:
            raise damaged(repository.path, f"the content of the object {sha} does not match its id")


def verify_range(repository: Repository, base: str, tip: str) -> None:
    """Verify everything that ``base..tip`` adds, and the files that it replaces.

    Raises:
        ObjectDamaged: an object does not match its id.
    """
    added = repository.git.run("rev-list", "--objects", "--no-object-names", f"{base}..{tip}").decode()
    replaced = [each.ids[0] for each in repository.git.changes(base, tip) if each.letter != "A"]
    heads = [sha for sha in repository.resolve(base, tip) if sha is not None]
    verify_objects(repository, [*heads, *added.split(), *replaced])


def _pattern(words: str) -> str:
    """An extended regular expression for words with any whitespace between them."""
    return "[[:space:]]*".join(
        re.sub(r"[.*+?(){|$]", r"[\g<0>]", re.sub(r"[\[\\^]", r"\\\g<0>", word)) for word in words.split(" ")
    )


def git_path(path: str) -> bytes:
    """The path of a tree entry, as bytes."""
    return path.encode("utf-8", "surrogateescape")


def _no_file(repository: Path, treeish: str, path: str) -> GitError:
    return GitError(
        f"there is no file {path} in {treeish[:12]}",
        code="GIT_OBJECT_MISSING",
        where=Location(path=path),
        hint=f"to list its files: git --git-dir={repository} ls-tree -r --name-only {treeish[:12]}",
    )


def _lines(names: Iterable[str]) -> bytes:
    return b"".join(git_path(name) + b"\n" for name in names)


def _parse_entry(line: bytes) -> TreeEntry:
    head, _, path = line.partition(b"\t")
    mode, _, sha = head.decode("ascii").split(" ")
    return TreeEntry(mode=mode, sha=sha, path=path.decode("utf-8", "surrogateescape"))

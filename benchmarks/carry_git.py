"""git for carry_queues.py, and the plain tools with which it compares patchkit.

Everything works on the objects of one bare repository, without a work tree and without the user's settings.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_WHEN = "1700000000 +0000"  # fixed, so that the same tree gives the same commit and results are reused
_GIT, _PATCH = shutil.which("git") or "git", shutil.which("patch") or "patch"
_PLAIN_S = 60.0
_NONE = "0" * 40
_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A tool's result for a patch on a commit: the new commit, or None and the reason."""

    commit: str | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """One place where two trees differ; ``heading`` is the definition above it, as git reports it."""

    path: str
    line: int
    heading: str
    removed: tuple[bytes, ...]
    added: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """A bare repository."""

    path: Path

    def git(self, *args: str, stdin: bytes | None = None, index: Path | None = None) -> bytes:
        """The output of a git command; raises if it fails."""
        done = self.attempt(*args, stdin=stdin, index=index)
        if done.returncode != 0:
            message = done.stderr.decode("utf-8", "replace").strip()
            raise RuntimeError(f"git {' '.join(args)}: {message}")
        return done.stdout

    def attempt(
        self, *args: str, stdin: bytes | None = None, index: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """A git command that may fail."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
        for who in ("AUTHOR", "COMMITTER"):
            environment |= {f"GIT_{who}_NAME": "bench", f"GIT_{who}_EMAIL": "bench@localhost"}
            environment[f"GIT_{who}_DATE"] = _WHEN
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        return subprocess.run(
            [_GIT, "--git-dir", str(self.path), *args],
            input=stdin if stdin is not None else b"",
            env=environment,
            check=False,
            capture_output=True,
            timeout=600,
        )

    def text(self, *args: str) -> str:
        """The output of a git command, without trailing newlines."""
        return self.git(*args).decode("utf-8", "replace").rstrip("\n")

    def commit_of(self, name: str) -> str | None:
        """The id of a commit, or None if there is none of that name."""
        done = self.attempt("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return done.stdout.decode().strip() or None

    def tree_of(self, commit: str) -> str:
        """The id of a commit's tree."""
        return self.text("rev-parse", f"{commit}^{{tree}}")

    def commit(self, tree: str, parent: str) -> str:
        """Create the commit of a tree; the same tree and parent give the same commit."""
        return self.text("commit-tree", tree, "-p", parent, "-m", "bench")

    def diff(self, before: str, after: str) -> bytes:
        """The diff for other tools, with full blob ids for three-way merges."""
        return self.git("diff", "--binary", "--full-index", "--no-renames", "--no-ext-diff", before, after)

    def paths(self, before: str, after: str) -> tuple[str, ...]:
        """The files that differ."""
        out = self.git("diff", "--name-only", "-z", "--no-renames", before, after)
        return tuple(path.decode("utf-8", "surrogateescape") for path in out.split(b"\0") if path)

    def touched(self, commit: str, paths: Sequence[str]) -> str:
        """The tree entries of some files as text, equal if the files are equal."""
        return self.text("ls-tree", commit, "--", *paths) if paths else ""

    def read(self, commit: str, paths: Iterable[str]) -> dict[str, bytes]:
        """The contents of files, without those that the commit does not have."""
        found = {}
        for path in paths:
            done = self.attempt("cat-file", "blob", f"{commit}:{path}")
            if done.returncode == 0:
                found[path] = done.stdout
        return found

    def bring(self, other: Store, blobs: Iterable[str]) -> None:
        """Copy blobs from another repository."""
        for sha in blobs:
            if sha != _NONE and self.attempt("cat-file", "-e", sha).returncode != 0:
                self.git("hash-object", "-w", "--stdin", stdin=other.git("cat-file", "blob", sha))

    def hunks(self, before: str, after: str) -> tuple[Hunk, ...]:
        """Every place where two trees differ."""
        out = self.git(
            "-c", "core.quotePath=false", "diff", "-U0", "--no-renames", "--no-ext-diff", before, after
        )
        found: list[Hunk] = []
        path, head = "", (0, "")
        removed: list[bytes] = []
        added: list[bytes] = []
        is_open = False

        def close() -> None:
            if is_open:
                found.append(
                    Hunk(path=path, line=head[0], heading=head[1], removed=tuple(removed), added=tuple(added))
                )

        for line in out.split(b"\n"):
            begins = _HUNK.match(line)
            if line.startswith(b"diff --git "):
                close()
                is_open = False
                path = line.decode("utf-8", "replace").rpartition(" b/")[2]
            elif begins:
                close()
                is_open, removed, added = True, [], []
                head = (int(begins[1]), begins[5].decode("utf-8", "replace").strip())
            elif is_open and line.startswith(b"-"):
                removed.append(line[1:])
            elif is_open and line.startswith(b"+"):
                added.append(line[1:])
        close()
        return tuple(found)


def git_apply(store: Store, diff: bytes, target: str, *ways: str) -> Applied:
    """``git apply``, exact; with ``-3`` by a three-way merge if that fails."""
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
        index = Path(folder) / "index"
        store.git("read-tree", target, index=index)
        done = store.attempt("apply", "--cached", "--whitespace=nowarn", *ways, "-", stdin=diff, index=index)
        if done.returncode != 0:
            lines = done.stderr.decode("utf-8", "replace").splitlines()
            errors = [line for line in lines if line.startswith("error:")] or lines or ["no reason given"]
            return Applied(commit=None, why=errors[0])
        tree = store.git("write-tree", index=index).decode().strip()
    return Applied(commit=store.commit(tree, target))


def cherry_pick(store: Store, base: str, after: str, target: str) -> Applied:
    """``git cherry-pick`` of a change: git's three-way merge of trees, which follows renamed files."""
    ours, theirs, before = (store.tree_of(each) for each in (target, after, base))
    root = store.text("commit-tree", before, "-m", "bench")
    sides = [store.commit(tree, root) for tree in (ours, theirs)]
    done = store.attempt("merge-tree", "--write-tree", "--name-only", *sides)
    if done.returncode == 0:
        return Applied(commit=store.commit(done.stdout.decode().split("\n", 1)[0], target))
    if done.returncode != 1:
        raise RuntimeError(f"git merge-tree: {done.stderr.decode('utf-8', 'replace').strip()}")
    paths = done.stdout.decode("utf-8", "replace").split("\n\n", 1)[0].split("\n")[1:]
    return Applied(commit=None, why=f"conflicts in {', '.join(paths)}")


def git_am(store: Store, base: str, after: str, target: str) -> Applied:
    """``git am -3``: the diff as it is, and a three-way merge if it does not apply."""
    exact = git_apply(store, store.diff(base, after), target)
    return exact if exact.commit is not None else cherry_pick(store, base, after, target)


def patch_fuzzy(store: Store, diff: bytes, target: str, paths: Iterable[str]) -> Applied:
    """``patch -p1 -F3``, as many packagers use it; a file that is empty afterwards counts as removed."""
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
        root = Path(folder) / "tree"
        root.mkdir()
        wanted = tuple(paths)
        for path, data in store.read(target, wanted).items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        argv = [_PATCH, "-p1", "-F3", "--batch", "--forward", "--no-backup-if-mismatch", "-d", str(root)]
        try:
            done = subprocess.run(argv, input=diff, check=False, capture_output=True, timeout=_PLAIN_S)
        except subprocess.TimeoutExpired:
            return Applied(commit=None, why="over time")
        if done.returncode != 0:
            lines = done.stdout.decode("utf-8", "replace").splitlines()
            failed = [line for line in lines if "FAILED" in line or "can't" in line.lower()] or lines or [""]
            return Applied(commit=None, why=failed[0])
        contents = {path: (root / path).read_bytes() for path in wanted if (root / path).is_file()}
        return Applied(commit=write_files(store, target, wanted, contents))


def write_files(store: Store, target: str, paths: Iterable[str], contents: Mapping[str, bytes]) -> str:
    """Create a commit with these files; ``paths`` that are not in ``contents`` are removed. Modes stay."""
    entries: dict[str, list[str]] = {}
    for path in paths:
        if path in contents:
            sha = store.git("hash-object", "-w", "--stdin", stdin=contents[path]).decode().strip()
            mode = store.text("ls-tree", "--format=%(objectmode)", target, "--", path) or "100644"
            entries[path] = [mode, sha]
        else:
            entries[path] = ["0", _NONE]
    return with_entries(store, target, entries)


def with_entries(store: Store, target: str, entries: Mapping[str, Sequence[str]]) -> str:
    """Create a commit with changed entries, by mode and blob; a blob of zeros removes a file."""
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
        index = Path(folder) / "index"
        store.git("read-tree", target, index=index)
        lines = [f"{mode if sha != _NONE else '0'} {sha}\t{path}\n" for path, (mode, sha) in entries.items()]
        text = "".join(lines).encode("utf-8", "surrogateescape")
        store.git("update-index", "--index-info", stdin=text, index=index)
        return store.commit(store.git("write-tree", index=index).decode().strip(), target)

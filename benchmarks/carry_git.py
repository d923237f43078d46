"""What carry_queues.py asks of git, and the plain tools that it compares patchkit with.

All of it works on the objects of one bare repository: no work tree, and no setting of the user's.
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

_WHEN = "1700000000 +0000"  # the same tree gives the same commit, so that results are found again
_GIT, _PATCH = shutil.which("git") or "git", shutil.which("patch") or "patch"
_PLAIN_S = 60.0
_NONE = "0" * 40
_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a tool made of a patch on a commit: another commit, or None and why not."""

    commit: str | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """One place where two trees differ; ``heading`` is the definition above it, as git tells it."""

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
        """The output of a git command that must work."""
        done = self.attempt(*args, stdin=stdin, index=index)
        if done.returncode != 0:
            told = done.stderr.decode("utf-8", "replace").strip()
            raise RuntimeError(f"git {' '.join(args)}: {told}")
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
        """The output of a git command, without the line break at its end."""
        return self.git(*args).decode("utf-8", "replace").rstrip("\n")

    def commit_of(self, name: str) -> str | None:
        """The id of a commit, None where there is none of that name."""
        done = self.attempt("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return done.stdout.decode().strip() or None

    def tree_of(self, commit: str) -> str:
        """The id of its tree."""
        return self.text("rev-parse", f"{commit}^{{tree}}")

    def commit(self, tree: str, parent: str) -> str:
        """A commit of a tree, always the same one."""
        return self.text("commit-tree", tree, "-p", parent, "-m", "bench")

    def diff(self, before: str, after: str) -> bytes:
        """As patches are written for other tools: with the full names of blobs, for three-way merges."""
        return self.git("diff", "--binary", "--full-index", "--no-renames", "--no-ext-diff", before, after)

    def paths(self, before: str, after: str) -> tuple[str, ...]:
        """The files that differ."""
        out = self.git("diff", "--name-only", "-z", "--no-renames", before, after)
        return tuple(path.decode("utf-8", "surrogateescape") for path in out.split(b"\0") if path)

    def touched(self, commit: str, paths: Sequence[str]) -> str:
        """The entries of some files, as one text: the same where the files are the same."""
        return self.text("ls-tree", commit, "--", *paths) if paths else ""

    def read(self, commit: str, paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of files; those that a commit does not have are left out."""
        found = {}
        for path in paths:
            done = self.attempt("cat-file", "blob", f"{commit}:{path}")
            if done.returncode == 0:
                found[path] = done.stdout
        return found

    def bring(self, other: Store, blobs: Iterable[str]) -> None:
        """Have the blobs of another repository here, too."""
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


def git_apply(store: Store, diff: bytes, target: str, *ways: str) -> Made:
    """``git apply``, exactly; with ``-3`` by a merge of three where that fails."""
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
        index = Path(folder) / "index"
        store.git("read-tree", target, index=index)
        done = store.attempt("apply", "--cached", "--whitespace=nowarn", *ways, "-", stdin=diff, index=index)
        if done.returncode != 0:
            lines = done.stderr.decode("utf-8", "replace").splitlines()
            told = [line for line in lines if line.startswith("error:")] or lines or ["no reason given"]
            return Made(commit=None, why=told[0])
        tree = store.git("write-tree", index=index).decode().strip()
    return Made(commit=store.commit(tree, target))


def patch_fuzzy(store: Store, diff: bytes, target: str, paths: Iterable[str]) -> Made:
    """``patch -p1 -F3``, as many packagers run it; a file that is empty afterwards is gone."""
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
            return Made(commit=None, why="over time")
        if done.returncode != 0:
            told = done.stdout.decode("utf-8", "replace").splitlines()
            failed = [line for line in told if "FAILED" in line or "can't" in line.lower()] or told or [""]
            return Made(commit=None, why=failed[0])
        made = {path: (root / path).read_bytes() for path in wanted if (root / path).is_file()}
        return Made(commit=write_files(store, target, wanted, made))


def write_files(store: Store, target: str, paths: Iterable[str], made: Mapping[str, bytes]) -> str:
    """A commit with these files; those of ``paths`` that are not in ``made`` go. Modes stay."""
    entries: dict[str, list[str]] = {}
    for path in paths:
        if path in made:
            sha = store.git("hash-object", "-w", "--stdin", stdin=made[path]).decode().strip()
            mode = store.text("ls-tree", "--format=%(objectmode)", target, "--", path) or "100644"
            entries[path] = [mode, sha]
        else:
            entries[path] = ["0", _NONE]
    return with_entries(store, target, entries)


def with_entries(store: Store, target: str, entries: Mapping[str, Sequence[str]]) -> str:
    """A commit with other files, by mode and blob; a blob of zeros takes a file away."""
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
        index = Path(folder) / "index"
        store.git("read-tree", target, index=index)
        lines = [f"{mode if sha != _NONE else '0'} {sha}\t{path}\n" for path, (mode, sha) in entries.items()]
        text = "".join(lines).encode("utf-8", "surrogateescape")
        store.git("update-index", "--index-info", stdin=text, index=index)
        return store.commit(store.git("write-tree", index=index).decode().strip(), target)

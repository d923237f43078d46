"""What a pull request changes, and which part of the project each changed path is in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from patchkit.base.errors import GitError, Location, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import TEXTS, is_editor_file
from patchkit.base.upstreams import llama_cpp
from patchkit.carry.upstream.git import Change, Git
from patchkit.carry.upstream.repository import Repository

RepositoryKind = Literal["patchkit", "fork"]

_SERIES_MARKS = ("patches/upstream.lock", "arch_profiles")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """A pull request. ``behind``: commits of the base that the head does not have."""

    repository: Repository
    kind: RepositoryKind
    base: str
    head: str
    fork_point: str
    behind: int
    changes: tuple[Change, ...]


def read_pull(folder: Path, base: str, head: str, reporter: Reporter) -> Pull:
    """Resolve both names in the repository that contains ``folder`` and list the changes.

    Raises:
        GATE_REPOSITORY_UNKNOWN: the folder is not in a repository.
        GATE_REPOSITORY_UNKNOWN: a name is not a commit here.
        GATE_REPOSITORY_UNKNOWN: the histories are unrelated, or a shallow clone ends too early.
        GATE_REPOSITORY_UNKNOWN: the head is neither this project nor llama.cpp.
        GitError: git failed.
    """
    repository = Repository(path=_git_dir(folder, reporter), reporter=reporter)
    commits = tuple(_commit(repository, name, option) for name, option in ((base, "base"), (head, "head")))
    point = _fork_point(repository, *commits)
    kind = _kind(repository, commits[1])
    count = repository.git.run("rev-list", "--count", f"{point}..{commits[0]}")
    return Pull(
        repository=repository,
        kind=kind,
        base=commits[0],
        head=commits[1],
        fork_point=point,
        behind=int(count),
        changes=repository.git.changes(point, commits[1]),
    )


def _git_dir(folder: Path, reporter: Reporter) -> Path:
    found = Git(reporter=reporter).attempt("-C", str(folder), "rev-parse", "--absolute-git-dir")
    if found.status != 0:
        raise GitError(
            f"{folder} is not in a git repository",
            code="GATE_REPOSITORY_UNKNOWN",
            where=Location(path=str(folder)),
            why=found.stderr.strip() or None,
            hint="name the clone: --repo DIR",
        )
    return Path(found.stdout.decode("utf-8", "surrogateescape").rstrip("\n"))


def _commit(repository: Repository, name: str, option: str) -> str:
    # The batch protocol of git takes one object per line; a leading dash is not an option there.
    commit = None if not name or "\n" in name else repository.resolve(f"{name}^{{commit}}")[0]
    if commit is None:
        raise GitError(
            f"--{option} '{name}' is not a commit of this repository",
            code="GATE_REPOSITORY_UNKNOWN",
            where=Location(path=str(repository.path)),
            why="no branch, tag or commit here has that name, or it was not fetched",
            hint=f"git fetch origin {name}, or give the full commit hash",
        )
    return commit


def _fork_point(repository: Repository, base: str, head: str) -> str:
    found = repository.git.attempt("merge-base", base, head)
    if found.status != 0:
        raise GitError(
            f"{base[:12]} and {head[:12]} have no common commit here",
            code="GATE_REPOSITORY_UNKNOWN",
            where=Location(path=str(repository.path)),
            why=found.stderr.strip() or "their histories are unrelated, or the clone is shallow",
            hint="git fetch --unshallow (in GitHub Actions: fetch-depth: 0)",
        )
    return found.stdout.decode("ascii").split("\n")[0]


def _kind(repository: Repository, head: str) -> RepositoryKind:
    upstream = llama_cpp()
    of_fork = (upstream.ggml_options, upstream.gpu_folder)
    marks = repository.find_entries(head, [*_SERIES_MARKS, *of_fork])
    if all(mark in marks for mark in _SERIES_MARKS):
        return "patchkit"
    if all(mark in marks for mark in of_fork):
        return "fork"
    raise UsageError(
        f"{head[:12]} is neither patchkit nor llama.cpp",
        code="GATE_REPOSITORY_UNKNOWN",
        where=Location(path=str(repository.path)),
        why=f"it lacks {', '.join(_SERIES_MARKS)} of patchkit, and {', '.join(of_fork)} of llama.cpp",
        hint="name the clone: --repo DIR",
    )


Part = Literal["profile", "patch", "template", "rules", "lock", "evidence", "catalogue", "docs", "code"]

SERIES_PARTS: frozenset[Part] = frozenset({"profile", "patch", "template", "rules", "lock", "evidence"})

_PLAIN_FILES = frozenset({"100644", "100755"})
_TEXTS = (".md", ".rst", ".txt", ".png", ".svg")
_DOCUMENTS = ("LICENSE", "NOTICE", "AUTHORS")


def part_of(change: Change) -> Part:
    """The part of a path. A README in a patch's folder is part of the patch: the lock covers every file."""
    path = PurePosixPath(change.path)
    top = path.parts[0]
    if top == "templates":  # except patchkit's own texts, which no candidate depends on
        return "code" if path.parts[1:2] == (TEXTS,) else "template"
    if top == "arch_profiles":
        return "profile" if path.suffix == ".toml" else "code"
    if top == "patches":
        return _of_patches(path)
    if top == "evidence" and path.suffix == ".json":
        return "evidence"
    mode = change.modes[0 if change.letter == "D" else 1]
    if mode in _PLAIN_FILES and _is_document(path):
        return "docs"
    return "code"


def _of_patches(path: PurePosixPath) -> Part:
    if len(path.parts) > 2:  # noqa: PLR2004 - patches/<folder>/<file>
        return "docs" if is_editor_file(path) else "patch"
    named: dict[str, Part] = {
        "upstream.lock": "lock",
        "series.toml": "rules",
        "upstreams.toml": "catalogue",
    }
    return named.get(path.name, "code")  # schemas are generated from the code


def _is_document(path: PurePosixPath) -> bool:
    top = path.parts[0]
    if len(path.parts) == 1:
        return path.suffix == ".md" or path.name.startswith(_DOCUMENTS)
    return top in ("docs", "evidence") and path.suffix in _TEXTS

"""Find the project of a commit in the user's clone: which one it is, and where it keeps ggml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import GitError, Location, UsageError
from patchkit.base.upstreams import Upstream, find_projects, load_upstreams, recognise
from patchkit.carry.onto.releases import is_llama_cpp
from patchkit.carry.upstream.clone import Clone, Commit, open_clone, read_commit, read_file

_SUBMODULE = "160000"
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectCommit:
    """A commit with a copy of ggml, and the project that it belongs to.

    ``above``: the commit that the user named, if ggml is a submodule of it; ``clone`` and ``commit`` are
    then the submodule's.
    """

    clone: Clone
    commit: Commit
    project: Upstream
    names: frozenset[str]
    above: str | None = None

    @property
    def is_llama_cpp(self) -> bool:
        """Whether the commit is of llama.cpp or a fork of it, so that its history has llama.cpp's builds."""
        return not self.project.root and is_llama_cpp(self.clone, self.commit.sha)


def find_project(directory: Path, revision: str, clone: Clone, folders: Sequence[str]) -> ProjectCommit:
    """The project of a commit, and its submodule's commit if ggml is one.

    ``directory``: the user's folder in the clone. It selects one of several copies of ggml.
    ``folders``: those that the series patches, as in llama.cpp.

    Raises:
        ONTO_NO_COMMIT, CLONE_UNUSABLE: the clone or the submodule cannot be used.
        ONTO_NOT_LLAMA_CPP: the commit has no copy of ggml.
        ONTO_SEVERAL: it has several.
    """
    commit = read_commit(clone, revision)
    entries = clone.refs.list_files(commit.sha)
    names = frozenset(entry.path for entry in entries)
    found = _below(find_projects(names), clone, directory)
    if len(found) > 1 and not any(each.root == "" for each in found):
        raise UsageError(
            f"{commit.sha[:12]} of {clone.top} has several copies of ggml",
            code="ONTO_SEVERAL",
            where=[Location(path=each.gpu_folder, label=each.name) for each in found[:_SHOWN]],
            hint=f"name the folder of one: --repo {clone.top / found[0].root}",
        )
    if found:
        return ProjectCommit(clone=clone, commit=commit, project=_chosen(found), names=names)
    submodules = {entry.path: entry.sha for entry in entries if entry.mode == _SUBMODULE}
    known = next((each for each in load_upstreams() if names.intersection(each.identity)), None)
    if known is not None and known.submodule in submodules:
        return _in_submodule(clone, commit, known, submodules[known.submodule])
    refuse_no_ggml(clone, commit, known, folders)
    return ProjectCommit(clone=clone, commit=commit, project=recognise(names), names=names)


def project_of(clone: Clone, commit: Commit) -> ProjectCommit:
    """The project of a commit, of several copies of ggml the first; llama.cpp if it has none."""
    names = frozenset(entry.path for entry in clone.refs.list_files(commit.sha))
    found = find_projects(names)
    project = _chosen(found) if found else recognise(names)
    return ProjectCommit(clone=clone, commit=commit, project=project, names=names)


def _chosen(found: Sequence[Upstream]) -> Upstream:
    """The project at the top of the repository, else the first."""
    return next((each for each in found if each.root == ""), found[0])


def _below(found: tuple[Upstream, ...], clone: Clone, directory: Path) -> tuple[Upstream, ...]:
    """Those of several projects that contain the user's folder or are in it; all if none is."""
    try:
        here = directory.resolve().relative_to(clone.top.resolve()).as_posix()
    except ValueError:
        return found
    if len(found) < 2 or here == ".":  # noqa: PLR2004
        return found
    inside = f"{here}/"
    near = tuple(each for each in found if inside.startswith(each.root) or each.root.startswith(inside))
    return near or found


def _in_submodule(clone: Clone, commit: Commit, project: Upstream, sha: str) -> ProjectCommit:
    """The commit of ggml that a commit of the project names, in the submodule's own repository."""
    folder = clone.top / str(project.submodule)
    try:
        inner = open_clone(folder, clone.reporter)
        if inner.common == clone.common:  # the folder is empty, so git finds the repository around it
            raise _no_submodule(clone, commit, project, sha, None)
        below = read_commit(inner, sha)
    except (GitError, UsageError) as error:
        if error.code == "ONTO_NO_SUBMODULE":
            raise
        raise _no_submodule(clone, commit, project, sha, error.message) from error
    clone.reporter.info(f"ggml is a submodule of {project.name}: working on {sha[:12]} in {inner.top}")
    names = frozenset(entry.path for entry in inner.refs.list_files(below.sha))
    found = find_projects(names)
    if not found:
        refuse_no_ggml(inner, below, None, ())
    return ProjectCommit(clone=inner, commit=below, project=found[0], names=names, above=commit.sha)


def _no_submodule(clone: Clone, commit: Commit, project: Upstream, sha: str, why: str | None) -> UsageError:
    return UsageError(
        f"{commit.sha[:12]} of {clone.top} has ggml as a submodule, and its commit {sha[:12]} is not here",
        code="ONTO_NO_SUBMODULE",
        where=Location(path=str(clone.top / str(project.submodule))),
        why=why,
        hint=f"fetch it: {clone.command} submodule update --init {project.submodule}",
    )


def refuse_no_ggml(clone: Clone, commit: Commit, project: Upstream | None, folders: Sequence[str]) -> None:
    """Refuse a commit without the folders that the series patches. Raises ONTO_NOT_LLAMA_CPP."""
    names = [folder.rstrip("/") for folder in folders]
    if names and any(clone.ask("cat-file", "-t", f"{commit.sha}:{name}") == ("tree",) for name in names):
        return
    fetched = read_file(clone, commit, project.fetches.file) if project and project.fetches else None
    if project is not None and fetched is not None:
        build = fetched.decode("utf-8", "replace").strip()[:60]
        raise UsageError(
            f"{commit.sha[:12]} of {clone.top} has no copy of ggml",
            code="ONTO_NOT_LLAMA_CPP",
            where=Location(path=project.fetches.file if project.fetches else ""),
            why=f"the build of {project.name} fetches llama.cpp {build}",
            hint=f"use patchkit on a clone of llama.cpp: --repo DIR --onto {build}",
        )
    missing = " and no ".join(names) or "ggml with GPU kernels"
    raise UsageError(
        f"{commit.sha[:12]} of {clone.top} does not look like llama.cpp or another project on ggml",
        code="ONTO_NOT_LLAMA_CPP",
        where=Location(path=str(clone.top)),
        why=f"it has no folder {missing}" if names else f"it has no {missing}",
        hint="name your clone with --repo DIR, and the commit in it with --onto REV",
    )

"""A commit of the user's clone as a pin: which one is meant, and the upstream build it stands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.config.lock import Lock, Pin
from patchkit.config.manifest import Patch
from patchkit.errors import Location, UsageError
from patchkit.fetch.cache import open_cache
from patchkit.flow.apply import candidate_ref
from patchkit.flow.bump_target import catalogue_pins
from patchkit.flow.onto.build import BuildFound, by_version, find_build, ggml_version, require_one
from patchkit.flow.records import recall
from patchkit.flow.upstream import OPTIONS_FILE
from patchkit.flow.workspace import Workspace
from patchkit.vcs.clone import Clone, Commit, open_clone, read_commit, read_file
from patchkit.vcs.environment import IDENTITY_EMAIL
from patchkit.vcs.refs import list_refs


@dataclass(frozen=True, slots=True, kw_only=True)
class Onto:
    """A commit of the user's clone: any revision that git reads there.

    ``as_build`` is the user's word for the upstream build below it.
    """

    revision: str
    directory: Path
    as_build: int | None = None


def pin_of(clone: Clone, commit: Commit, build: int) -> Pin:
    """The commit as a pin, taken to stand on that upstream build."""
    return Pin(
        build=build,
        commit=commit.sha,
        tree=commit.tree,
        committed=commit.date,
        commit_object=commit.raw,
        sources=(),
        clone=clone.top,
    )


def find_onto_pin(onto: Onto, workspace: Workspace, archs: Sequence[str]) -> Pin:
    """The pin of a commit, as the candidate for ``archs`` on it was made.

    That candidate's own last commit means the same: HEAD is there after the branch was merged. Without a
    candidate it is a pin on which none can be found. Raises what reading the clone raises.
    """
    clone = open_clone(onto.directory, workspace.reporter)
    commit = read_commit(clone, onto.revision)
    repository = open_cache(workspace.cache_root).peek(workspace.reporter)
    refs = list_refs(repository, "refs") if repository is not None else {}
    wanted = candidate_ref(tuple(sorted(set(archs))), f"onto-{commit.sha[:12]}")
    folder = wanted.rpartition("/")[0]
    own = [ref for ref in refs if ref.startswith(f"{folder}/onto-") and refs[ref] == commit.sha]
    for ref in (wanted, *own):
        made = recall(repository, ref, refs) if repository is not None else None
        if made is not None and made.commit is not None:
            base = commit if made.commit == commit.sha else read_commit(clone, made.commit)
            return replace(pin_of(clone, base, made.build), followed=made.followed)
    return pin_of(clone, commit, onto.as_build or 0)


def build_of(
    onto: Onto, clone: Clone, commit: Commit, lock: Lock, workspace: Workspace, patches: Sequence[Patch]
) -> BuildFound:
    """The upstream build, as far as it must be known to tell which of the patches are for it.

    Raises ONTO_BUILD_UNKNOWN, and the errors of reading the catalogue of upstreams.
    """
    pins = (*lock.pins, *catalogue_pins(workspace.series.patches / "upstreams.toml"))
    version = ggml_version(read_file(clone, commit, OPTIONS_FILE) or b"")
    if onto.as_build is not None:
        likely = by_version(version, pins) if version is not None else None
        if likely is not None and not likely.has(onto.as_build):
            workspace.reporter.warn(f"--as-build b{onto.as_build}, but {likely.told} is of {likely}")
        return BuildFound(low=onto.as_build, high=onto.as_build, told=f"b{onto.as_build}, as you said")
    return require_one(find_build(clone, commit, version, pins), patches, clone, commit)


def refuse_other_code(clone: Clone, commit: Commit, revision: str, folders: Sequence[str]) -> None:
    """Refuse a commit of something else than llama.cpp, and one that is patched already.

    Raises ONTO_NOT_LLAMA_CPP, ONTO_PATCHED.
    """
    names = [folder.rstrip("/") for folder in folders]
    if not any(clone.ask("cat-file", "-t", f"{commit.sha}:{name}") == ("tree",) for name in names):
        raise UsageError(
            f"{commit.sha[:12]} of {clone.top} has none of the folders that are patched",
            code="ONTO_NOT_LLAMA_CPP",
            where=Location(path=str(clone.top)),
            why=f"it has no {' and no '.join(names)}",
            hint="--repo DIR names your clone of llama.cpp, --onto REV the commit in it",
        )
    made = _made_by_patchkit(commit)
    if made is None:
        return
    base = commit
    while _made_by_patchkit(base) is not None:
        base = read_commit(clone, f"{base.sha}^")
    raise UsageError(
        f"'{revision}' has patchkit's commits already; the last is '{made}'",
        code="ONTO_PATCHED",
        where=Location(path=str(clone.top)),
        why=f"they stand on {base.sha[:12]}",
        hint=f"to make them anew: --onto {base.sha[:12]} --replace, from another branch than the one to move",
    )


def _made_by_patchkit(commit: Commit) -> str | None:
    """The patch that a commit is of; None for a commit of anybody else."""
    head, _, message = commit.raw.partition(b"\n\n")
    if f"<{IDENTITY_EMAIL}>".encode() not in head.rpartition(b"\ncommitter ")[2]:
        return None
    found = [line[13:] for line in message.split(b"\n") if line.startswith(b"Patchkit-Id: ")]
    return found[0].decode("utf-8", "replace") if found else None

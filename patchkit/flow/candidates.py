"""The candidates in the cache: which there are, and the commits of one.

Vocabulary: a *candidate* is a branch that ``apply`` made, ``candidate/<arch[+arch]>/b<build>``; its
*base* is the pinned upstream commit, which a ref of its own keeps; its *commits* are one per patch,
each naming its patch in a ``Patchkit-Id`` trailer (none at all when no patch is for these GPUs).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.config.lock import load_lock
from patchkit.errors import GitError, Location, PatchkitError
from patchkit.flow.apply import candidate_ref
from patchkit.flow.workspace import Workspace
from patchkit.vcs.refs import list_refs
from patchkit.vcs.repository import Repository, open_repository

__all__ = [
    "Candidate",
    "CandidateBroken",
    "CandidateCommit",
    "CandidateMissing",
    "find_candidate",
    "is_candidate",
    "made_for",
    "read_candidate",
]

_REF = re.compile(r"refs/heads/candidate/(?P<archs>[^/]+)/b(?P<build>[0-9]+)")
_PIN = "refs/patchkit/pin/b"
# Fields end in NUL: a subject may hold anything else.
_FORMAT = (
    "%H%x00%s%x00%(trailers:key=Patchkit-Id,valueonly,separator=%x2C)%x00"
    "%(trailers:key=Patchkit-Profile,valueonly,separator=%x2C)%x00"
)
_FIELDS = 4


class CandidateMissing(GitError):
    """There is no candidate for these GPUs and this pin."""

    code = "CANDIDATE_MISSING"


class CandidateBroken(GitError):
    """A candidate branch does not stand on the pin, or is not for the GPUs, that it is named after."""

    code = "CANDIDATE_BROKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCommit:
    """One patch as a commit; ``id`` is the patch's."""

    id: str
    commit: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate branch; ``base`` and ``tip`` are commit ids, ``commits`` in order from the base."""

    ref: str
    archs: tuple[str, ...]
    build: int
    base: str
    tip: str
    commits: tuple[CandidateCommit, ...]

    @property
    def branch(self) -> str:
        """The short name, as ``git fetch`` takes it."""
        return self.ref.removeprefix("refs/heads/")


def is_candidate(ref: str) -> bool:
    """Whether the full name of a ref is that of a candidate."""
    return _REF.fullmatch(ref) is not None


def find_candidate(workspace: Workspace, archs: Sequence[str], build: int) -> tuple[Repository, Candidate]:
    """The candidate of these GPUs on this build, and the repository that holds it.

    Raises:
        CandidateMissing: ``apply`` has not made it.
        CandidateBroken: it does not stand on its pin.
    """
    path = workspace.cache_root / "upstream.git"
    repository = open_repository(path, workspace.reporter)
    ref = candidate_ref(tuple(sorted(set(archs))), build)
    refs = list_refs(repository, "refs") if repository is not None else {}
    if repository is None or ref not in refs:
        words = [f"--arch {shlex.quote(arch)}" for arch in archs] + _pin_option(workspace, build)
        raise _missing(path, ref, list(filter(is_candidate, refs)), " ".join(words))
    return repository, read_candidate(repository, ref, refs)


def _pin_option(workspace: Workspace, build: int) -> list[str]:
    """What ``apply`` needs besides the GPU; nothing where the lock cannot be read: apply will say that."""
    try:
        is_default = load_lock(workspace.series.lock).pin(None).build == build
    except PatchkitError:
        is_default = True
    return [] if is_default else [f"--upstream b{build}"]


def made_for(workspace: Workspace, build: int) -> tuple[tuple[str, ...], ...]:
    """The GPUs of each candidate there is on this build, by its name; sorted. None without a cache."""
    repository = open_repository(workspace.cache_root / "upstream.git", workspace.reporter)
    names = map(_REF.fullmatch, list_refs(repository, "refs") if repository is not None else {})
    return tuple(
        sorted(tuple(one["archs"].split("+")) for one in names if one and int(one["build"]) == build)
    )


def read_candidate(repository: Repository, ref: str, refs: dict[str, str]) -> Candidate:
    """One candidate, given all refs of the repository; raises CandidateBroken."""
    name = _REF.fullmatch(ref)
    if name is None:
        raise ValueError(f"not the ref of a candidate: {ref}")
    base, tip = refs.get(f"{_PIN}{name['build']}"), refs[ref]
    if base is None:
        raise _broken(repository, ref, f"the cache has no pin b{name['build']}")
    out = repository.git.run("log", "-z", "--reverse", f"--format={_FORMAT}", f"{base}..{tip}", "--")
    fields = out.decode("utf-8", "surrogateescape").split("\0")
    # "-z" adds an empty field after each commit's own.
    rows = [fields[at : at + _FIELDS] for at in range(0, len(fields) - _FIELDS, _FIELDS + 1)]
    if any(not patch for _, _, patch, _ in rows) or (not rows and tip != base):
        raise _broken(repository, ref, "it has commits that no patch made")
    archs = tuple(name["archs"].split("+"))
    others = {entry.split()[0] for row in rows for entry in row[3].split(",") if entry.strip()} - {*archs}
    if others:
        raise _broken(repository, ref, f"its commits are for {', '.join(sorted(others))}")
    return Candidate(
        ref=ref,
        archs=archs,
        build=int(name["build"]),
        base=base,
        tip=tip,
        commits=tuple(
            CandidateCommit(id=patch.strip(), commit=sha, subject=subject) for sha, subject, patch, _ in rows
        ),
    )


def _missing(path: Path, ref: str, existing: Sequence[str], options: str) -> CandidateMissing:
    others = ", ".join(name.removeprefix("refs/heads/") for name in existing)
    return CandidateMissing(
        f"there is no {ref.removeprefix('refs/heads/')} yet",
        where=Location(path=str(path)),
        why=f"the candidates made so far: {others}" if others else "no candidate was made so far",
        hint=f"patchkit apply {options}",
    )


def _broken(repository: Repository, ref: str, why: str) -> CandidateBroken:
    return CandidateBroken(
        f"{ref.removeprefix('refs/heads/')} is not a candidate that patchkit made",
        where=Location(path=str(repository.path)),
        why=why,
        hint="patchkit apply makes it anew",
    )

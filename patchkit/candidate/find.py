"""The candidates in the cache: which there are, and the commits of one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import GitError, Location, PatchkitError
from patchkit.candidate.apply import candidate_ref
from patchkit.candidate.following import followed_series
from patchkit.candidate.records import Made, Wish, digest_of, digest_today, recall, shown_path
from patchkit.candidate.workspace import Workspace
from patchkit.series.catalogue import load_series
from patchkit.series.lock import Pin, load_lock
from patchkit.series.profile import load_profile
from patchkit.series.selection import select_patches
from patchkit.upstream.refs import list_refs
from patchkit.upstream.repository import Repository, open_repository

_REF = re.compile(r"refs/heads/candidate/(?P<archs>[^/]+)/(?P<pin>b(?P<build>[0-9]+)|onto-[0-9a-f]{12})")
_PIN = "refs/patchkit/pin/"
# Fields end in NUL: a subject may hold anything else.
_FORMAT = (
    "%H%x00%s%x00%(trailers:key=Patchkit-Id,valueonly,separator=%x2C)%x00"
    "%(trailers:key=Patchkit-Profile,valueonly,separator=%x2C)%x00"
)
_FIELDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCommit:
    """One patch as a commit; ``id`` is the patch's."""

    id: str
    commit: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate branch; ``base`` and ``tip`` are commit ids, ``commits`` in order from the base.

    ``pin`` is the name of what it stands on. ``made`` is None when no record says how it was made.
    """

    ref: str
    archs: tuple[str, ...]
    pin: str
    build: int
    base: str
    tip: str
    commits: tuple[CandidateCommit, ...]
    made: Made | None = None

    @property
    def branch(self) -> str:
        """The short name, as ``git fetch`` takes it."""
        return self.ref.removeprefix("refs/heads/")


def is_candidate(ref: str) -> bool:
    """Whether the full name of a ref is that of a candidate."""
    return _REF.fullmatch(ref) is not None


def find_candidate(workspace: Workspace, archs: Sequence[str], pin: Pin) -> tuple[Repository, Candidate]:
    """The candidate of these GPUs on this pin, and the repository that holds it.

    Raises:
        CANDIDATE_MISSING: ``apply`` has not made it.
        CANDIDATE_BROKEN: it does not stand on its pin.
    """
    ref = candidate_ref(tuple(sorted(set(archs))), pin.name)
    named = [f"--arch {shlex.quote(arch)}" for arch in archs]
    return _open(workspace, ref, lambda: " ".join(named + _pin_option(workspace, pin)))


def named_candidate(workspace: Workspace, branch: str) -> tuple[Repository, Candidate]:
    """The candidate of a branch, by its short name; raises as :func:`find_candidate`."""
    return _open(workspace, f"refs/heads/{branch}", lambda: "--arch GFX")


def _open(workspace: Workspace, ref: str, options: Callable[[], str]) -> tuple[Repository, Candidate]:
    """The candidate at a ref; ``options`` are those of the ``apply`` that would make it."""
    path = workspace.cache_root / "upstream.git"
    repository = open_repository(path, workspace.reporter)
    refs = list_refs(repository, "refs") if repository is not None else {}
    if repository is None or ref not in refs:
        raise _missing(path, ref, list(filter(is_candidate, refs)), options())
    return repository, read_candidate(repository, ref, refs)


def _pin_option(workspace: Workspace, pin: Pin) -> list[str]:
    """What ``apply`` needs besides the GPU; nothing where the lock cannot be read: apply will say that."""
    try:
        is_default = load_lock(workspace.series.lock).pin(None) == pin
    except PatchkitError:
        is_default = True
    return [] if is_default else [pin.option]


def made_for(workspace: Workspace, pin: Pin) -> tuple[tuple[str, ...], ...]:
    """The GPUs of each candidate there is on this pin, by its name; sorted. None without a cache."""
    repository = open_repository(workspace.cache_root / "upstream.git", workspace.reporter)
    names = map(_REF.fullmatch, list_refs(repository, "refs") if repository is not None else {})
    return tuple(sorted(tuple(one["archs"].split("+")) for one in names if one and one["pin"] == pin.name))


def read_candidate(repository: Repository, ref: str, refs: dict[str, str]) -> Candidate:
    """One candidate, given all refs of the repository; raises CANDIDATE_BROKEN."""
    name = _REF.fullmatch(ref)
    if name is None:
        raise ValueError(f"not the ref of a candidate: {ref}")
    base, tip = refs.get(f"{_PIN}{name['pin']}"), refs[ref]
    if base is None:
        raise _broken(repository, ref, f"the cache has no pin {name['pin']}")
    made = recall(repository, ref, refs)
    if made is None and name["build"] is None:
        raise _broken(repository, ref, "there is no record of how it was made")
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
        pin=name["pin"],
        build=int(name["build"]) if made is None or name["build"] is not None else made.build,
        base=base,
        tip=tip,
        commits=tuple(
            CandidateCommit(id=patch.strip(), commit=sha, subject=subject) for sha, subject, patch, _ in rows
        ),
        made=made if made is not None and made.tip == tip else None,
    )


def check_candidate(workspace: Workspace, candidate: Candidate, pin: Pin, wish: Wish) -> None:
    """Whether the candidate is of the series in use, and has the patches of the wish, if that names any.

    Raises CANDIDATE_OTHER_SERIES, and the errors of reading series and profiles.
    """
    ids = tuple(commit.id for commit in candidate.commits)
    made = candidate.made
    chosen = Wish(with_=made.with_, without=made.without, only=made.only) if made is not None else Wish()
    archs = " ".join(f"--arch {arch}" for arch in candidate.archs)
    options = f"{archs} {pin.option}{(wish or chosen).options}"
    known = made.inputs if made is not None else _recorded(workspace, candidate, ids)
    if known is None or known != digest_today(workspace.series, candidate.archs, ids):
        own = shown_path(workspace.series.root)
        other = made.series if made is not None else own
        why = "its profiles, patches or templates changed since"
        if other != own:
            why = f"it was made from the series in {other}"
        raise GitError(
            f"{candidate.branch} is not what this series gives",
            code="CANDIDATE_OTHER_SERIES",
            where=Location(path=str(workspace.series.root)),
            why=why if known is not None else "there is no record of the files that it was made from",
            hint=f"patchkit apply {options}",
        )
    if wish:
        series = followed_series(load_series(workspace.series.patches), pin)
        profiles = [load_profile(workspace.series.profiles, arch) for arch in candidate.archs]
        wanted = tuple(
            each.patch.id
            for each in select_patches(
                series, profiles, pin.build, only=wish.only, without=wish.without, with_=wish.with_
            )
            if each.targets
        )
        if wanted != ids:
            raise GitError(
                f"{candidate.branch} was made with other patches",
                code="CANDIDATE_OTHER_SERIES",
                where=Location(path=candidate.ref),
                why=f"asked for: {', '.join(wanted) or 'none'}; it has: {', '.join(ids) or 'none'}",
                hint=f"patchkit apply {options}",
            )
    elif chosen:
        workspace.reporter.info(f"{candidate.branch} was made with{chosen.options}")


def _recorded(workspace: Workspace, candidate: Candidate, ids: Sequence[str]) -> str | None:
    """The digest of the inputs that the lock has for this very commit, which a bump may have made."""
    result = load_lock(workspace.series.lock).result(candidate.build, candidate.archs, ids)
    return digest_of(result.inputs) if result is not None and result.commit == candidate.tip else None


def _missing(path: Path, ref: str, existing: Sequence[str], options: str) -> GitError:
    others = ", ".join(name.removeprefix("refs/heads/") for name in existing)
    return GitError(
        f"there is no {ref.removeprefix('refs/heads/')} yet",
        code="CANDIDATE_MISSING",
        where=Location(path=str(path)),
        why=f"the candidates made so far: {others}" if others else "no candidate was made so far",
        hint=f"patchkit apply {options}",
    )


def _broken(repository: Repository, ref: str, why: str) -> GitError:
    return GitError(
        f"{ref.removeprefix('refs/heads/')} is not a candidate that patchkit made",
        code="CANDIDATE_BROKEN",
        where=Location(path=str(repository.path)),
        why=why,
        hint="patchkit apply makes it anew",
    )

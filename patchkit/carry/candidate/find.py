"""Find a candidate in the cache, and check whether it belongs to the series in use."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from patchkit.base.errors import GitError, Location, PatchkitError
from patchkit.base.series_folder import arch_options
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Wish, excluded_edits, load_decision
from patchkit.carry.candidate.inputs import digest_of, digest_today
from patchkit.carry.candidate.record import (
    CANDIDATE_REF,
    UNPROVEN,
    Candidate,
    CandidateCommit,
    candidate_ref,
    is_candidate,
    read_record,
    shown_path,
)
from patchkit.carry.series.lock import Pin, PinWanted, load_lock
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.refs import list_refs
from patchkit.carry.upstream.repository import Repository

_PIN = "refs/patchkit/pin/"
# Fields end in NUL, because a subject may contain anything else.
_FORMAT = (
    "%H%x00%s%x00%(trailers:key=Patchkit-Id,valueonly,separator=%x2C)%x00"
    "%(trailers:key=Patchkit-Profile,valueonly,separator=%x2C)%x00"
)
_FIELDS = 4


def find_candidate(
    workspace: Workspace, archs: Sequence[str], upstream: PinWanted
) -> tuple[Repository, Candidate]:
    """The candidate for these GPUs on the given pin, or on a pin of the lock, and its repository.

    If there is only one that is marked as unproven, that is it.

    Raises:
        ConfigError: the lock is invalid, or has no such pin.
        CANDIDATE_MISSING: ``apply`` has not made it.
        CANDIDATE_STALE: it is not based on its pin.
    """
    pin = upstream if isinstance(upstream, Pin) else load_lock(workspace.series.lock).pin(upstream)
    ref = candidate_ref(tuple(sorted(set(archs))), pin.name, unproven=pin.unproven)
    named = arch_options(map(shlex.quote, archs), workspace.series.profiles)
    return _open(workspace, ref, lambda: " ".join(named + _pin_option(workspace, pin)))


def named_candidate(workspace: Workspace, branch: str) -> tuple[Repository, Candidate]:
    """The candidate with this short branch name; raises as :func:`find_candidate`."""
    return _open(workspace, f"refs/heads/{branch}", lambda: "--arch GFX")


def _open(workspace: Workspace, ref: str, options: Callable[[], str]) -> tuple[Repository, Candidate]:
    """The candidate at a ref; ``options`` are those of the ``apply`` command that would make it."""
    cache = open_cache(workspace.cache_root)
    repository = cache.peek(workspace.reporter)
    refs = list_refs(repository, "refs") if repository is not None else {}
    plain = ref.removesuffix(UNPROVEN)
    ref = next((each for each in (ref, plain, f"{plain}{UNPROVEN}") if each in refs), ref)
    if repository is None or ref not in refs:
        others = ", ".join(name.removeprefix("refs/heads/") for name in filter(is_candidate, refs))
        raise GitError(
            f"there is no {ref.removeprefix('refs/heads/')} yet",
            code="CANDIDATE_MISSING",
            where=Location(path=str(cache.upstream)),
            why=f"existing candidates: {others}" if others else "there are no candidates yet",
            hint=f"patchkit apply {options()}".rstrip(),
        )
    return repository, read_candidate(repository, ref, refs)


def _pin_option(workspace: Workspace, pin: Pin) -> list[str]:
    """The pin's option for ``apply``; none for the default, or if the lock is invalid (apply reports it)."""
    try:
        is_default = load_lock(workspace.series.lock).pin(None) == pin
    except PatchkitError:
        is_default = True
    return [] if is_default else [pin.option]


def candidate_archs(workspace: Workspace, pin: Pin) -> tuple[tuple[str, ...], ...]:
    """The GPUs of each candidate on this pin, sorted. Empty without a cache."""
    repository = open_cache(workspace.cache_root).peek(workspace.reporter)
    names = map(CANDIDATE_REF.fullmatch, list_refs(repository, "refs") if repository is not None else {})
    found = {tuple(one["archs"].split("+")) for one in names if one and one["pin"] == pin.name}
    return tuple(sorted(found))


def read_candidate(repository: Repository, ref: str, refs: Mapping[str, str]) -> Candidate:
    """One candidate, given all refs of the repository; raises CANDIDATE_STALE."""
    name = CANDIDATE_REF.fullmatch(ref)
    if name is None:
        raise ValueError(f"not the ref of a candidate: {ref}")

    def broken(why: str) -> GitError:
        return GitError(
            f"{ref.removeprefix('refs/heads/')} is not a candidate that patchkit made",
            code="CANDIDATE_STALE",
            where=Location(path=str(repository.path)),
            why=why,
            hint="make it again with patchkit apply",
        )

    base, tip = refs.get(f"{_PIN}{name['pin']}"), refs[ref]
    if base is None:
        raise broken(f"the cache has no pin {name['pin']}")
    record = read_record(repository, ref, refs)
    if record is None and name["build"] is None:
        raise broken("there is no record of how it was made")
    out = repository.git.run("log", "-z", "--reverse", f"--format={_FORMAT}", f"{base}..{tip}", "--")
    fields = out.decode("utf-8", "surrogateescape").split("\0")
    # "-z" adds an empty field after each commit's own.
    rows = [fields[at : at + _FIELDS] for at in range(0, len(fields) - _FIELDS, _FIELDS + 1)]
    if any(not patch for _, _, patch, _ in rows) or (not rows and tip != base):
        raise broken("it has commits that no patch made")
    archs = tuple(name["archs"].split("+"))
    others = {entry.split()[0] for row in rows for entry in row[3].split(",") if entry.strip()} - {*archs}
    if others:
        raise broken(f"its commits are for {', '.join(sorted(others))}")
    return Candidate(
        ref=ref,
        archs=archs,
        pin=name["pin"],
        build=int(name["build"]) if record is None or name["build"] is not None else record.build,
        base=base,
        tip=tip,
        commits=tuple(
            CandidateCommit(id=patch.strip(), commit=sha, subject=subject) for sha, subject, patch, _ in rows
        ),
        record=record if record is not None and record.tip == tip else None,
    )


def check_candidate(workspace: Workspace, candidate: Candidate, pin: Pin, wish: Wish) -> None:
    """Check that the candidate belongs to the series in use, and has the patches that the wish names, if any.

    Raises CANDIDATE_STALE, and the errors of reading series and profiles.
    """
    record = candidate.record
    chosen = Wish()
    if record is not None:
        chosen = Wish(with_=record.with_, without=record.without, only=record.only)
    words = ["patchkit apply", *arch_options(candidate.archs, workspace.series.profiles), pin.option]
    again = f"{' '.join(words)}{(chosen if wish.is_empty else wish).options}"
    known = record.inputs if record is not None else _recorded(workspace, candidate)
    if known is None or known != digest_today(workspace.series, candidate.archs, candidate.ids):
        own = shown_path(workspace.series.root)
        other = record.series if record is not None else own
        why = "its profiles, patches or templates have changed since"
        if other != own:
            why = f"it was made from the series in {other}"
        raise GitError(
            f"{candidate.branch} is not the candidate of this series",
            code="CANDIDATE_STALE",
            where=Location(path=str(workspace.series.root)),
            why=why if known is not None else "there is no record of the files that it was made from",
            hint=again,
        )
    if not wish.is_empty:
        decision = load_decision(wish.request(candidate.archs, pin), workspace)
        wanted = decision.ids
        edits = [{*excluded_edits(each.without)} for each in (decision, chosen)]
        if wanted != candidate.ids or edits[0] != edits[1]:
            raise GitError(
                f"{candidate.branch} was made with other patches",
                code="CANDIDATE_STALE",
                where=Location(path=candidate.ref),
                why=f"requested: {', '.join(wanted) or 'none'}; it has: {', '.join(candidate.ids) or 'none'}",
                hint=again,
            )
    elif not chosen.is_empty:
        workspace.reporter.info(f"{candidate.branch} was made with{chosen.options}")


def _recorded(workspace: Workspace, candidate: Candidate) -> str | None:
    """The digest of the inputs that the lock records for this commit, which a bump may have made."""
    result = load_lock(workspace.series.lock).result(candidate.pin, candidate.archs, candidate.ids)
    return digest_of(result.inputs) if result is not None and result.commit == candidate.tip else None

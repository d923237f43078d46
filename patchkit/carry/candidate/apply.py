"""Make a candidate: plan, commits, and a single ref update, before which nothing is visible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from patchkit.base.errors import InterruptNote, UsageError
from patchkit.base.text import counted
from patchkit.base.upstreams import llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Decision, Request, excluded_edits, load_decision
from patchkit.carry.candidate.handover import Handover, hand_over
from patchkit.carry.candidate.known import find_known, make_record
from patchkit.carry.candidate.listing import Available, find_available
from patchkit.carry.candidate.lock import (
    changed_inputs,
    check_result,
    refuse_changed,
    write_result,
)
from patchkit.carry.candidate.record import Candidate, CandidateRecord, record_ref, write_record
from patchkit.carry.placing.tree import declares_option
from patchkit.carry.series.fault import FaultHere, check_faults
from patchkit.carry.series.lock import Result, load_lock
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.checkout import check_out
from patchkit.carry.upstream.pin import obtain
from patchkit.carry.upstream.refs import read_ref, update_refs
from patchkit.carry.upstream.remote import upstream_url
from patchkit.carry.upstream.repository import Repository

_LOCK_STATES = {
    "recorded": "as the lock records",
    "not recorded": "not recorded in the lock",
    "unlocked": "differs from the lock on request",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReport:
    """The result of ``apply``. ``unchanged``: the branch was already there. ``cmake`` configures a build.

    For a candidate without commits ``handover`` is None, and ``available`` lists where there are patches.
    """

    json_keys: ClassVar = (
        "branch=candidate.ref base=candidate.base releases=decision.pin.releases archs=candidate.archs "
        "commits=candidate.commits tree checkout handover unchanged lock_state cmake skipped available "
        "opt_in trust=decision.trust more_trust=decision.more_trust faults=decision.faults"
    )

    candidate: Candidate
    decision: Decision
    tree: str
    checkout: Path | None
    handover: Handover | None
    unchanged: bool
    lock_state: str
    cmake: list[str]
    available: Available | None

    @property
    def skipped(self) -> dict[str, str]:
        """Patches that are not applied, with the reason."""
        return {each.patch.id: each.reason for each in self.decision.selected if not each.targets}

    @property
    def opt_in(self) -> tuple[str, ...]:
        """Its patches that these GPUs get only on request."""
        return self.decision.opted_in(self.candidate.ids)


def run_apply(request: Request, workspace: Workspace, *, checkout: Path | None) -> ApplyReport:
    """Make or confirm the candidate branch, and a repository with it if ``checkout`` names a folder.

    A build that the lock does not have is found as for a bump. The name of the branch ends in ``-unproven``
    if no bump has compared the patches with the build, or if the one that did ran no gates.

    The branch moves last, so a failing checkout leaves it where it was. Raises an ErrorGroup of all errors in
    the plan, FAULT_UNMENDED, FAULT_BAD, LOCK_INPUTS_CHANGED, LOCK_MISMATCH, REF_MOVED, and the errors of
    fetching, git and the disk. After any exception the branch is either unchanged or complete; a
    KeyboardInterrupt has a note that says which.
    """
    cache = open_cache(workspace.cache_root)
    request = _with_pin(request, workspace)  # before the cache is held, because that holds it too
    with InterruptNote("no branch was moved") as note, cache.hold(workspace.reporter) as repository:
        lock = load_lock(workspace.series.lock)
        decision = load_decision(request, workspace, lock)
        decision.warn(workspace.reporter)
        decision.warn_of_faults(workspace.reporter)
        refuse_faults(decision, decision.faults, request)
        base = obtain(
            decision.pin,
            cache=cache,
            source=request.source,
            upstream_url=request.upstream_url,
            reporter=workspace.reporter,
        )
        recorded = lock.result(decision.pin.name, decision.archs, decision.ids)
        if excluded_edits(decision.without):
            recorded = None  # the lock has the result with all edits
        known = find_known(decision, recorded, base, repository, workspace, unlocked=request.unlocked)
        if known is not None:
            (candidate, result), state = known, "recorded"
            old: str | None = candidate.tip
        else:
            candidate, result, state = _write(
                decision, base, recorded, repository, workspace, unlocked=request.unlocked
            )
            old = read_ref(repository, candidate.ref)
        if checkout is not None:
            workspace.reporter.step(f"checking out {checkout}")
            note.text = f"{candidate.branch} was not moved; {checkout} may be incomplete"
            check_out(
                repository,
                candidate.tip,
                checkout,
                branch=candidate.branch,
                origin=upstream_url(decision.pin),
                kept=workspace.series.folders,
            )
        handover = hand_over(repository, decision.pin, base=base, ref=candidate.ref, tip=candidate.tip)
        if known is None:
            note.text = f"{candidate.branch} is either unchanged or complete at {candidate.tip[:12]}"
            record = make_record(decision, decision.pin, result, workspace, unlocked=request.unlocked)
            move_candidate(repository, candidate, old, record)
        note.text = f"{candidate.branch} is complete at {candidate.tip[:12]}"
        cmake = cmake_command(decision, candidate, checkout, repository)
    return ApplyReport(
        candidate=candidate,
        decision=decision,
        tree=result.tree,
        checkout=checkout,
        handover=handover,
        unchanged=old == candidate.tip,
        lock_state=_LOCK_STATES[state],
        cmake=cmake,
        available=None
        if candidate.commits
        else find_available(workspace.series, decision.archs, decision.pin.build),
    )


def _with_pin(request: Request, workspace: Workspace) -> Request:
    """The request, with a pin from the remote or the catalogue if the lock does not have the build."""
    try:
        load_lock(workspace.series.lock).pin(request.upstream)
    except UsageError as error:
        if error.code != "PIN_UNKNOWN":
            raise
        # Imported here, because a second apply needs no remote.
        from patchkit.carry.candidate.target import with_target  # noqa: PLC0415

        return with_target(request, workspace)
    return request


def refuse_faults(decision: Decision, found: Iterable[FaultHere], request: Request) -> None:
    """Raise FAULT_UNMENDED for faults that were not accepted, FAULT_BAD for unknown accepted ids.

    A request for plain patches only is never rejected for faults of GPUs, only warned.
    """
    found = () if decision.is_plain else found
    check_faults(decision.series.faults, found, decision.pin.build, request.accept_faults)


def _write(
    decision: Decision,
    base: str,
    recorded: Result | None,
    repository: Repository,
    workspace: Workspace,
    *,
    unlocked: bool,
) -> tuple[Candidate, Result, str]:
    """Write the commits of a decision; returns them, their result and its state compared to the lock."""
    # Imported here, because a second apply places nothing, and importing libclang and jinja2 would be a third
    # of its time.
    from patchkit.carry.candidate.plan import place  # noqa: PLC0415

    plan = place(decision, base, workspace, repository)
    candidate, result = write_result(plan, repository, workspace.series)
    if recorded is None:
        return candidate, result, "not recorded"
    changed = changed_inputs(result.inputs, recorded.inputs, workspace.series)
    if not changed:
        check_result(recorded, result)
        return candidate, result, "recorded"
    if (recorded.tree, recorded.commit) == (result.tree, result.commit):
        # For example, an edit was added for later builds, and the result for this build is the same.
        workspace.reporter.warn(
            f"{counted(len(changed), 'file')} changed since the lock was written, but the candidate is still "
            "the recorded one; to record the files: patchkit lock --all"
        )
        return candidate, result, "recorded"
    if not unlocked:
        refuse_changed(recorded, result, changed)
    return *write_result(plan, repository, workspace.series, unlocked=True), "unlocked"


def move_candidate(
    repository: Repository, candidate: Candidate, old: str | None, record: CandidateRecord
) -> None:
    """Update a candidate branch and its record in one step; raises REF_MOVED."""
    name = record_ref(candidate.ref)
    moves = {
        candidate.ref: (candidate.tip, old),
        name: (write_record(repository, record), read_ref(repository, name)),
    }
    moves = {name: move for name, move in moves.items() if move[0] != move[1]}
    if moves:
        update_refs(repository, moves)


def cmake_command(
    decision: Decision, candidate: Candidate, source: Path | None, repository: Repository
) -> list[str]:
    """The configure command for these GPUs: the profiles' options, with their targets joined.

    Options of ggml that upstream's CMake file does not declare are omitted, because CMake warns about unused
    options. If there is no such file, all are kept.
    """
    base = candidate.base
    project = decision.pin.project or llama_cpp()
    file = project.ggml_options
    declared = repository.read_blobs(base, [file])[file] if repository.find_entries(base, [file]) else None
    options: dict[str, str] = {}
    patches = (each.patch for each in decision.selected if each.patch.id in candidate.ids)
    macros = {macro for patch in patches for macro in patch.macros}
    for profile in decision.profiles:
        for name, value in profile.cmake_options(macros):
            if name.startswith("GGML_") and declared is not None and not declares_option(name, declared):
                continue
            joined = name == "GPU_TARGETS" and name in options
            options[name] = f"{options[name]};{value}" if joined else value
    where = str(source / project.root) if source is not None else "llama.cpp"
    build = f"{where}/build-{'+'.join(decision.archs)}"
    return ["cmake", "-S", where, "-B", build, *(f"-D{name}={value}" for name, value in options.items())]

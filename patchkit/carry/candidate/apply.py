"""Making the candidate: plan, commits, one ref update. Until that update nothing is visible."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import InterruptNote
from patchkit.base.plain import plain
from patchkit.base.text import counted
from patchkit.base.upstreams import recognise
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.commit import write_plan
from patchkit.carry.candidate.handover import Handover, hand_over
from patchkit.carry.candidate.known import find_known, make_record
from patchkit.carry.candidate.listing import Available, find_available
from patchkit.carry.candidate.lock import (
    check_result,
    find_changed,
    is_recorded,
    make_result,
    read_inputs,
    refuse_changed,
)
from patchkit.carry.candidate.plan import Choice, Plan, Request, choose, obtain_base, place
from patchkit.carry.candidate.record import Candidate, Record, record_ref, write_record
from patchkit.carry.placing.tree import declares_option
from patchkit.carry.series.fault import check_faults
from patchkit.carry.series.lock import Result
from patchkit.carry.series.selection import opted_in
from patchkit.carry.series.trust import DEFAULT_TRUST
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.checkout import check_out
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
    """What ``apply`` did. ``unchanged``: the branch already was at its tip. ``cmake`` configures a build.

    ``handover`` is None for a candidate without commits, ``available`` then says where there are patches.
    """

    candidate: Candidate
    choice: Choice
    tree: str
    checkout: Path | None
    handover: Handover | None
    unchanged: bool
    lock_state: str
    cmake: list[str]
    available: Available | None

    @property
    def skipped(self) -> dict[str, str]:
        """Patches that are not in, with the reason."""
        return {each.patch.id: each.reason for each in self.choice.selected if not each.targets}

    @property
    def opt_in(self) -> tuple[str, ...]:
        """Its patches that these GPUs get only when they are asked for."""
        choice = self.choice
        return opted_in(choice.series, choice.profiles, self.candidate.ids, choice.pin.build)

    def as_json(self) -> dict[str, object]:
        """As ``apply`` shows it."""
        return {
            "branch": self.candidate.ref,
            "base": self.candidate.base,
            "releases": list(self.choice.pin.releases),
            "archs": list(self.candidate.archs),
            "commits": plain(self.candidate.commits),
            "tree": self.tree,
            "checkout": plain(self.checkout),
            "handover": plain(self.handover),
            "unchanged": self.unchanged,
            "lock_state": self.lock_state,
            "cmake": self.cmake,
            "skipped": [{"id": patch, "reason": reason} for patch, reason in self.skipped.items()],
            "available": plain(self.available),
            "opt_in": list(self.opt_in),
            "trust": self.choice.request.trust or DEFAULT_TRUST,
            "more_trust": plain(self.choice.more_trust),
            "faults": plain(self.choice.faults),
        }


def run_apply(request: Request, workspace: Workspace, *, checkout: Path | None) -> ApplyReport:
    """Make or confirm the candidate branch, and a repository with it where ``checkout`` names a folder.

    The branch moves last: a checkout that fails leaves it where it was. Raises an ErrorGroup of
    everything the plan found, FAULT_UNMENDED, FAULT_UNKNOWN, LOCK_INPUTS_CHANGED, LOCK_MISMATCH, REF_MOVED,
    and the errors of fetching, git and the disk. Whatever is raised, the branch is where it was or complete;
    a KeyboardInterrupt has a note that says which.
    """
    cache = open_cache(workspace.cache_root)
    with InterruptNote("no branch was moved") as note, cache.hold(workspace.reporter) as repository:
        choice = choose(request, workspace)
        choice.warn_of_faults(workspace.reporter)
        refuse_faults(choice)
        base = obtain_base(choice, workspace, cache)
        known = find_known(choice, base, repository, workspace)
        if known is not None:
            (candidate, result), state = known, "recorded"
            old: str | None = candidate.tip
        else:
            candidate, result, state = _write(place(choice, base, workspace, cache), repository, workspace)
            old = read_ref(repository, candidate.ref)
        if checkout is not None:
            workspace.reporter.step(f"checking out {checkout}")
            note.text = f"{candidate.branch} was not moved, {checkout} may be unfinished"
            check_out(
                repository,
                candidate.tip,
                checkout,
                branch=candidate.branch,
                origin=upstream_url(choice.pin),
                kept=workspace.series.folders,
            )
        handover = hand_over(repository, choice.pin, base=base, ref=candidate.ref, tip=candidate.tip)
        if known is None:
            note.text = f"{candidate.branch} is where it was, or complete at {candidate.tip[:12]}"
            move_candidate(repository, candidate, old, make_record(choice, result, workspace))
        note.text = f"{candidate.branch} is complete at {candidate.tip[:12]}"
        cmake = cmake_command(choice, checkout, repository, base)
    return ApplyReport(
        candidate=candidate,
        choice=choice,
        tree=result.tree,
        checkout=checkout,
        handover=handover,
        unchanged=old == candidate.tip,
        lock_state=_LOCK_STATES[state],
        cmake=cmake,
        available=None
        if candidate.commits
        else find_available(workspace.series, choice.archs, choice.pin.build),
    )


def refuse_faults(choice: Choice) -> None:
    """Raise FAULT_UNMENDED for what nobody accepted, FAULT_UNKNOWN for what nobody knows.

    No fault of a GPU is in the way of who asks for plain patches alone: they are warned.
    """
    found = () if choice.is_plain else choice.faults
    check_faults(choice.series.faults, found, choice.pin.build, choice.request.accept_faults)


def _write(plan: Plan, repository: Repository, workspace: Workspace) -> tuple[Candidate, Result, str]:
    """The commits of a plan, the result they are, and how that stands to the lock."""
    plan.check()
    series = workspace.series
    inputs = read_inputs(plan, series)
    changed = find_changed(plan, inputs, series)
    candidate, tree = write_plan(plan, repository)
    result = make_result(plan, inputs, tree=tree, commit=candidate.tip)
    if not changed:
        check_result(plan, result, series)
        return candidate, result, "not recorded" if changed is None else "recorded"
    if is_recorded(plan, result):
        # As where an edit was added for builds after this one: what the lock decides is as it was.
        workspace.reporter.warn(
            f"{counted(len(changed), 'file')} changed since the lock was written, and the candidate is the "
            "one that it records; patchkit lock --all records the files"
        )
        return candidate, result, "recorded"
    if not plan.request.unlocked:
        refuse_changed(plan, inputs, changed)
    candidate, tree = write_plan(plan, repository, unlocked=True)
    return candidate, make_result(plan, inputs, tree=tree, commit=candidate.tip), "unlocked"


def move_candidate(repository: Repository, candidate: Candidate, old: str | None, record: Record) -> None:
    """Put a candidate branch and its record in their places, in one step; raises REF_MOVED."""
    name = record_ref(candidate.ref)
    moves = {
        candidate.ref: (candidate.tip, old),
        name: (write_record(repository, record), read_ref(repository, name)),
    }
    moves = {name: move for name, move in moves.items() if move[0] != move[1]}
    if moves:
        update_refs(repository, moves)


def cmake_command(choice: Choice, source: Path | None, repository: Repository, base: str) -> list[str]:
    """The configure command for these GPUs: the profiles' options, their targets joined.

    Options of ggml that upstream's file of options at ``base`` does not have are left out: CMake warns of
    what nobody reads. Where there is no such file, all stay.
    """
    file = recognise(lambda path: path in repository.find_entries(base, [path])).ggml_options
    has_file = file in repository.find_entries(base, [file])
    declared = repository.read_blobs(base, [file])[file] if has_file else None
    options: dict[str, str] = {}
    macros = {macro for each in choice.selected if each.targets for macro in each.patch.macros}
    for profile in choice.profiles:
        for name, value in profile.cmake_options(macros):
            if name.startswith("GGML_") and declared is not None and not declares_option(name, declared):
                continue
            joined = name == "GPU_TARGETS" and name in options
            options[name] = f"{options[name]};{value}" if joined else value
    where = str(source) if source is not None else "llama.cpp"
    build = f"{where}/build-{'+'.join(choice.archs)}"
    return ["cmake", "-S", where, "-B", build, *(f"-D{name}={value}" for name, value in options.items())]

"""Making the candidate: plan, commits, one ref update. Until that update nothing is visible."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import InterruptNote
from patchkit.base.plain import plain
from patchkit.candidate.commit import write_plan
from patchkit.candidate.handover import Handover, hand_over, upstream_url
from patchkit.candidate.listing import Available, find_available
from patchkit.candidate.lock import check_inputs, check_result, digest_of, make_result, read_inputs
from patchkit.candidate.plan import Plan, Request, make_plan
from patchkit.candidate.record import Candidate, Record, record_ref, shown_path, write_record
from patchkit.candidate.workspace import Workspace
from patchkit.edits.tree import OPTIONS_FILE, declares_option
from patchkit.series.selection import opted_in
from patchkit.upstream.cache import open_cache
from patchkit.upstream.checkout import checkout as check_out
from patchkit.upstream.refs import read_ref, update_refs
from patchkit.upstream.repository import Repository

_LOCK_STATES = {
    "recorded": "as the lock records",
    "not recorded": "not recorded in the lock",
    "unlocked": "differs from the lock on request",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What ``apply`` did. ``unchanged``: the branch already was at its tip. ``cmake`` configures a build.

    ``handover`` is None for a candidate without commits, ``available`` then says where there are patches.
    """

    candidate: Candidate
    plan: Plan
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
        return {patch.id: patch.reason for patch in self.plan.patches if patch.state == "skipped"}

    @property
    def opt_in(self) -> tuple[str, ...]:
        """Its patches that these GPUs get only when they are asked for."""
        return opted_in(self.plan.profiles, self.candidate.ids)

    def as_json(self) -> dict[str, object]:
        """As ``apply`` shows it."""
        return {
            "branch": self.candidate.ref,
            "base": self.candidate.base,
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
        }


def run_apply(request: Request, workspace: Workspace, *, checkout: Path | None) -> Applied:
    """Make or confirm the candidate branch, and a repository with it where ``checkout`` names a folder.

    The branch moves last: a checkout that fails leaves it where it was. Raises an ErrorGroup of
    everything the plan found, LOCK_INPUTS_CHANGED, LOCK_MISMATCH, REF_MOVED, and the errors of fetching,
    git and the disk. Whatever is raised, the branch is where it was or complete; a KeyboardInterrupt
    has a note that says which.
    """
    cache = open_cache(workspace.cache_root)
    with InterruptNote("no branch was moved") as note, cache.hold(workspace.reporter) as repository:
        plan = make_plan(request, workspace, cache)
        plan.check()
        inputs = read_inputs(plan, workspace.series)
        state = check_inputs(plan, inputs, unlocked=request.unlocked)
        declared = declared_options(repository, plan.base)
        candidate, tree = write_plan(plan, repository, unlocked=state == "unlocked")
        check_result(plan, make_result(plan, inputs, tree=tree, commit=candidate.tip))
        old = read_ref(repository, candidate.ref)
        if checkout is not None:
            workspace.reporter.step(f"checking out {checkout}")
            note.text = f"{candidate.branch} was not moved, {checkout} may be unfinished"
            series = workspace.series
            check_out(
                repository,
                candidate.tip,
                checkout,
                branch=candidate.branch,
                origin=upstream_url(plan.pin),
                kept=(series.patches, series.templates, series.profiles),
            )
        handover = hand_over(repository, plan.pin, base=plan.base, ref=candidate.ref, tip=candidate.tip)
        note.text = f"{candidate.branch} is where it was, or complete at {candidate.tip[:12]}"
        move_candidate(repository, candidate, old, make_record(plan, candidate, workspace, inputs))
        note.text = f"{candidate.branch} is complete at {candidate.tip[:12]}"
    return Applied(
        candidate=candidate,
        plan=plan,
        tree=tree,
        checkout=checkout,
        handover=handover,
        unchanged=old == candidate.tip,
        lock_state=_LOCK_STATES[state],
        cmake=cmake_command(plan, checkout, declared),
        available=None if candidate.commits else find_available(workspace.series, plan.archs, plan.pin.build),
    )


def make_record(
    plan: Plan,
    candidate: Candidate,
    workspace: Workspace,
    inputs: dict[str, str],
    branch: str | None = None,
) -> Record:
    """The record of a candidate that was just made from ``inputs`` (sha256 by path).

    ``branch`` is that of the user's clone, for a candidate on a commit of it.
    """
    pin, request = plan.pin, plan.request
    return Record(
        tip=candidate.tip,
        build=pin.build,
        archs=plan.archs,
        patches=candidate.ids,
        inputs=digest_of(inputs),
        series=shown_path(workspace.series.root),
        with_=request.with_,
        without=request.without,
        only=request.only,
        unlocked=request.unlocked,
        commit=pin.commit if pin.clone is not None else None,
        clone=shown_path(pin.clone) if pin.clone is not None else None,
        branch=branch,
        followed=pin.followed,
    )


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


def declared_options(repository: Repository, commit: str) -> bytes | None:
    """Upstream's file of options; None where a tree has none."""
    if OPTIONS_FILE not in repository.find_entries(commit, [OPTIONS_FILE]):
        return None
    return repository.read_blobs(commit, [OPTIONS_FILE])[OPTIONS_FILE]


def cmake_command(plan: Plan, source: Path | None, declared: bytes | None = None) -> list[str]:
    """The configure command for these GPUs: the profiles' options, their targets joined.

    Options of ggml that ``declared``, upstream's file of options, does not have are left out: CMake warns of
    what nobody reads.
    """
    options: dict[str, str] = {}
    macros = {macro for selected, _ in plan.steps for macro in selected.patch.guard_macros}
    for profile in plan.profiles:
        for name, value in profile.cmake_options(macros):
            if name.startswith("GGML_") and declared is not None and not declares_option(name, declared):
                continue
            joined = name == "GPU_TARGETS" and name in options
            options[name] = f"{options[name]};{value}" if joined else value
    where = str(source) if source is not None else "llama.cpp"
    build = f"{where}/build-{'+'.join(plan.archs)}"
    return ["cmake", "-S", where, "-B", build, *(f"-D{name}={value}" for name, value in options.items())]

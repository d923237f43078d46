"""Making the candidate: plan, commits, one ref update. Until that update nothing is visible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import ErrorGroup
from patchkit.candidate.available import Available, find_available
from patchkit.candidate.handover import Handover, hand_over, upstream_url
from patchkit.candidate.known import find_known
from patchkit.candidate.locking import check_inputs, check_result, make_result, read_inputs
from patchkit.candidate.plan import (
    Choice,
    Plan,
    Request,
    choose,
    commit_message,
    commit_subject,
    obtain_base,
    place,
)
from patchkit.candidate.records import Made, make_record, record_ref, write_record
from patchkit.candidate.workspace import Workspace
from patchkit.edits.tree import OPTIONS_FILE, declares_option
from patchkit.series.patch import Patch
from patchkit.series.profile import ArchProfile
from patchkit.series.selection import opted_in
from patchkit.upstream.cache import open_cache
from patchkit.upstream.checkout import checkout as check_out
from patchkit.upstream.commits import NewCommit, write_commits
from patchkit.upstream.refs import read_ref, update_refs
from patchkit.upstream.repository import Repository

_LOCK_STATES = {
    "recorded": "as the lock records",
    "not recorded": "not recorded in the lock",
    "unlocked": "differs from the lock on request",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedCommit:
    """One patch as a commit."""

    id: str
    commit: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The candidate. ``unchanged``: the branch already was at its tip. ``cmake`` configures a build.

    ``handover`` is None for a candidate without commits.
    """

    branch: str
    base: str
    archs: tuple[str, ...]
    commits: tuple[AppliedCommit, ...]
    tree: str
    checkout: Path | None
    handover: Handover | None
    unchanged: bool
    lock_state: str
    cmake: list[str]
    skipped: tuple[tuple[str, str], ...]
    available: Available | None = None
    opt_in: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "branch": self.branch,
            "base": self.base,
            "archs": list(self.archs),
            "commits": [
                {"id": made.id, "commit": made.commit, "subject": made.subject} for made in self.commits
            ],
            "tree": self.tree,
            "checkout": str(self.checkout) if self.checkout is not None else None,
            "handover": self.handover.as_json() if self.handover is not None else None,
            "unchanged": self.unchanged,
            "lock_state": self.lock_state,
            "cmake": self.cmake,
            "skipped": [{"id": patch, "reason": reason} for patch, reason in self.skipped],
            "available": self.available.as_json() if self.available is not None else None,
            "opt_in": list(self.opt_in),
        }


def candidate_ref(archs: tuple[str, ...], pin: str) -> str:
    """Full ref name of the candidate of these GPUs (sorted) on the pin of this name."""
    return f"refs/heads/candidate/{'+'.join(archs)}/{pin}"


def run_apply(request: Request, workspace: Workspace, *, checkout: Path | None) -> Applied:
    """Make or confirm the candidate branch, and a repository with it where ``checkout`` names a folder.

    The branch moves last: a checkout that fails leaves it where it was. Raises an ErrorGroup of
    everything the plan found, LOCK_INPUTS_CHANGED, LOCK_MISMATCH, REF_MOVED, and the errors of fetching,
    git and the disk. Whatever is raised, the branch is where it was or complete; a KeyboardInterrupt
    has a note that says which.
    """
    cache = open_cache(workspace.cache_root)
    stage = _Stage("no branch was moved")
    with stage.noted(), cache.hold(workspace.reporter) as repository:
        choice = choose(request, workspace)
        base = obtain_base(choice, workspace, cache)
        ref = candidate_ref(choice.archs, choice.pin.name)
        known = _find(choice, base, ref, repository, workspace)
        written = known or _write(place(choice, base, workspace, cache), repository, workspace)
        declared = declared_options(repository, base)
        commits = written.commits
        tip = commits[-1].commit if commits else base
        branch = ref.removeprefix("refs/heads/")
        old = tip if known is not None else read_ref(repository, ref)
        if checkout is not None:
            workspace.reporter.step(f"checking out {checkout}")
            stage.text = f"{branch} was not moved, {checkout} may be unfinished"
            series = workspace.series
            kept = (series.patches, series.templates, series.profiles)
            origin = upstream_url(choice.pin)
            check_out(repository, tip, checkout, branch=branch, origin=origin, kept=kept)
        handover = hand_over(repository, choice.pin, base=base, ref=ref, tip=tip)
        if known is None:
            made = make_record(
                choice.request,
                choice.pin,
                workspace,
                tip=tip,
                patches=[each.id for each in commits],
                inputs=written.inputs,
            )
            stage.text = f"{branch} is where it was, or complete at {tip[:12]}"
            move_candidate(repository, ref, old, made)
        stage.text = f"{branch} is complete at {tip[:12]}"
    return Applied(
        branch=ref,
        base=base,
        archs=choice.archs,
        commits=commits,
        tree=written.tree,
        checkout=checkout,
        handover=handover,
        unchanged=old == tip,
        lock_state=_LOCK_STATES[written.lock_state],
        cmake=cmake_command(
            choice.profiles,
            [selected.patch for selected in choice.selected if selected.targets],
            checkout,
            declared,
        ),
        skipped=tuple((each.patch.id, each.reason) for each in choice.selected if not each.targets),
        available=None if commits else find_available(workspace.series, choice.archs, choice.pin.build),
        opt_in=opted_in(choice.profiles, [each.id for each in commits]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The commits of a candidate, in the cache. ``inputs``: sha256 by path of what they were made from."""

    commits: tuple[AppliedCommit, ...]
    tree: str
    inputs: Mapping[str, str]
    lock_state: str


def _find(
    choice: Choice, base: str, ref: str, repository: Repository, workspace: Workspace
) -> _Written | None:
    known = find_known(choice, base, ref, repository, workspace)
    if known is None:
        return None
    patches = [selected for selected in choice.selected if selected.targets]
    commits = tuple(
        AppliedCommit(id=selected.patch.id, commit=commit, subject=commit_subject(selected))
        for selected, commit in zip(patches, known.commits, strict=True)
    )
    return _Written(commits=commits, tree=known.tree, inputs=known.inputs, lock_state="recorded")


def _write(plan: Plan, repository: Repository, workspace: Workspace) -> _Written:
    if plan.errors:
        raise ErrorGroup("the series cannot be applied", plan.errors)
    inputs = read_inputs(plan, workspace.series)
    state = check_inputs(plan, inputs, unlocked=plan.request.unlocked)
    commits, tree = write_plan(plan, repository, unlocked=state == "unlocked")
    tip = commits[-1].commit if commits else plan.base
    check_result(plan, make_result(plan, inputs, tree=tree, commit=tip))
    return _Written(commits=commits, tree=tree, inputs=inputs, lock_state=state)


def move_candidate(repository: Repository, ref: str, old: str | None, made: Made) -> None:
    """Put a candidate branch and its record in their places, in one step; raises REF_MOVED."""
    record = record_ref(ref)
    moves = {
        ref: (made.tip, old),
        record: (write_record(repository, made), read_ref(repository, record)),
    }
    moves = {name: move for name, move in moves.items() if move[0] != move[1]}
    if moves:
        update_refs(repository, moves)


@dataclass(slots=True)
class _Stage:
    """What is true if the work is interrupted now."""

    text: str

    @contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt as stop:
            stop.add_note(self.text)
            raise


def write_plan(
    plan: Plan, repository: Repository, *, unlocked: bool
) -> tuple[tuple[AppliedCommit, ...], str]:
    """Write the commits of a plan without moving any ref; returns them and the tree of the last."""
    new = [
        NewCommit(message=commit_message(plan, selected, placed, unlocked=unlocked), changes=placed.changes)
        for selected, placed in plan.steps
    ]
    if not new:
        return (), repository.tree_of(plan.base)
    written = write_commits(repository, plan.base, new, date=plan.pin.committed)
    made = tuple(
        AppliedCommit(id=selected.patch.id, commit=each.commit, subject=commit_subject(selected))
        for (selected, _), each in zip(plan.steps, written, strict=True)
    )
    return made, written[-1].tree


def declared_options(repository: Repository, commit: str) -> bytes | None:
    """Upstream's file of options; None where a tree has none."""
    if OPTIONS_FILE not in repository.find_entries(commit, [OPTIONS_FILE]):
        return None
    return repository.read_blobs(commit, [OPTIONS_FILE])[OPTIONS_FILE]


def cmake_command(
    profiles: Sequence[ArchProfile],
    patches: Iterable[Patch],
    source: Path | None,
    declared: bytes | None = None,
) -> list[str]:
    """The configure command for these GPUs: the profiles' options, their targets joined.

    Options of ggml that ``declared``, upstream's file of options, does not have are left out: CMake warns of
    what nobody reads.
    """
    options: dict[str, str] = {}
    macros = {macro for patch in patches for macro in patch.guard_macros}
    for profile in profiles:
        for name, value in profile.cmake_options(macros):
            if name.startswith("GGML_") and declared is not None and not declares_option(name, declared):
                continue
            joined = name == "GPU_TARGETS" and name in options
            options[name] = f"{options[name]};{value}" if joined else value
    where = str(source) if source is not None else "llama.cpp"
    build = f"{where}/build-{'+'.join(profile.arch for profile in profiles)}"
    return ["cmake", "-S", where, "-B", build, *(f"-D{name}={value}" for name, value in options.items())]

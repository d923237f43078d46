"""A fork of llama.cpp that carries a candidate: check that it is exactly what the series gives."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence

from patchkit.base.errors import ErrorGroup, GateError, GitError, Location, PatchkitError
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.plan import Plan
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.selection import opted_in
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import find_pinned
from patchkit.carry.upstream.repository import Repository
from patchkit.prove.pulls.changes import Pull
from patchkit.prove.pulls.first_look import FirstLook
from patchkit.prove.pulls.judge import GateRuns, WrittenCandidate, make_candidate, not_run, run_needed
from patchkit.prove.pulls.needs import every_gate
from patchkit.prove.pulls.verdict import CandidateVerdict, Finding, GateRow, PullVerdict
from patchkit.prove.verify.hardware import Hardware

_FORMAT = (
    "--format=%(trailers:key=Patchkit-Id,valueonly,separator=%x2C)%x00"
    "%(trailers:key=Patchkit-Profile,valueonly,separator=%x2C)"
)
_SHOWN = 20


def judge_fork(
    look: FirstLook,
    workspace: Workspace,
    *,
    environ: Mapping[str, str],
    hardware: Callable[[Sequence[str]], Hardware] | None,
) -> PullVerdict:
    """Regenerate the head's candidate, compare, and run the gates if the pull request changes it.

    Raises:
        GATE_FORK_WRONG: the head carries no candidate, or is not based on a pin of the lock.
        ConfigError, SourceError, GitError, CacheError: the candidate cannot be made here.
    """
    pull, request = look.pull, look.request
    carried = _find_carried(pull, workspace)
    written = make_candidate(carried, workspace)
    if isinstance(written, Plan):
        raise ErrorGroup("the candidate that the fork carries cannot be regenerated", written.errors)
    cache = open_cache(workspace.cache_root).peek(workspace.reporter)
    if cache is None:
        raise AssertionError("the candidate was written into it")
    there, here = _files(pull.repository, pull.head), _files(cache, written.candidate.tip)
    differing = [path for path in sorted({*there, *here}) if there.get(path) != here.get(path)]
    ours = {path for _, placed in written.plan.steps for path in (*placed.changes, *placed.gone)}
    own = [path for path in differing if path not in ours and _is_own(path, request.own_files)]
    problems: list[PatchkitError] = []
    for path in [path for path in differing if path not in own][:_SHOWN]:
        if path in ours:
            theirs = pull.repository.read_blobs(pull.head, [path])[path] if path in there else b""
            problems.append(_not_regenerated(path, theirs, written))
        else:
            what = "adds" if path not in here else "lacks" if path not in there else "changes"
            problems.append(_stray(path, what))
    ran = GateRuns(rows=_needs(pull, written))
    if problems:  # the gates would check something other than the fork
        ran = GateRuns(rows=not_run(ran.rows, "the head differs from what the series gives"))
    elif not request.explain:
        ran = run_needed(
            ran.rows,
            written,
            workspace,
            full=request.full,
            environ=environ,
            hardware=hardware(written.plan.archs) if hardware else None,
        )
    problems += [problem for problem, _ in ran.problems]
    pin, branch = written.plan.pin, written.candidate.branch
    judged = CandidateVerdict(
        name=f"{'+'.join(carried.archs)} on {pin.name}",
        archs=carried.archs,
        build=pin.build,
        patches=carried.only,
        reasons=(f"the fork carries {len(carried.only)} patches on {pin.name}",),
        tree_before=None,
        tree=written.result.tree,
        rows=ran.rows,
        evidence=ran.evidence,
    )
    note = f"{len(own)} files are the fork's own and were not checked: {', '.join(own[:_SHOWN])}"
    return PullVerdict(
        pull=pull,
        parts={},
        judged=(judged,),
        findings=tuple(Finding(problem=problem, target=branch) for problem in problems),
        attention=(note,) if own else (),
        own_tests="not needed",
        explained=request.explain,
    )


def _find_carried(pull: Pull, workspace: Workspace) -> Request:
    """A request for exactly the patches that the fork carries, as in gate anchors."""
    lock = load_lock(workspace.series.lock)
    cached = open_cache(workspace.cache_root).peek(workspace.reporter)
    for pin in sorted(lock.pins, key=lambda pin: -pin.build):
        known = find_pinned(cached, pin) if cached is not None else None
        base = known or pin.commit
        if base is None or not pull.repository.has_object(base):
            continue
        if pull.repository.git.is_ancestor(base, pull.head):
            out = pull.repository.git.run("log", "--reverse", _FORMAT, f"{base}..{pull.head}", "--")
            rows = [line.split("\0") for line in out.decode("utf-8", "replace").splitlines() if "\0" in line]
            patches = tuple(dict.fromkeys(row[0].strip() for row in rows if row[0].strip()))
            entries = [entry for row in rows for entry in row[1].split(",") if entry.strip()]
            archs = tuple(sorted({entry.split()[0] for entry in entries}))
            if patches and archs:
                profiles = [load_profile(workspace.series.profiles, arch) for arch in archs]
                series = load_series(workspace.series.patches)
                with_ = opted_in(series, profiles, patches, pin.build)
                return Request(archs=archs, upstream=pin.name, only=patches, with_=with_)
    raise GitError(
        f"{pull.head[:12]} contains no candidate on a pin of the lock",
        code="GATE_FORK_WRONG",
        where=Location(path=str(pull.repository.path)),
        why=f"pins: {', '.join(pin.name for pin in lock.pins)}; "
        "the commits of a candidate have a trailer Patchkit-Id",
        hint="--head must contain the candidate; a shallow clone needs the history down to the pin",
    )


def _files(repository: Repository, commit: str) -> dict[str, tuple[str, str]]:
    return {entry.path: (entry.mode, entry.sha) for entry in repository.list_files(commit)}


def _is_own(path: str, own_files: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in own_files)


def _stray(path: str, what: str) -> GateError:
    return GateError(
        f"the fork {what} {path}, which no patch touches",
        code="GATE_FORK_WRONG",
        where=Location(path=path),
        why="it is not part of the candidate, so no gate checks it",
        hint="make it a patch of the series, or declare it as the fork's own: --own PATTERN",
    )


def _not_regenerated(path: str, theirs: bytes, written: WrittenCandidate) -> GateError:
    mine, other = written.files.get(path, b"").split(b"\n"), theirs.split(b"\n")
    line = next(
        (at for at, pair in enumerate(zip(mine, other, strict=False), start=1) if pair[0] != pair[1]),
        min(len(mine), len(other)),
    )
    patches = ", ".join(
        selected.patch.id
        for selected, placed in written.plan.steps
        if path in {*placed.changes, *placed.gone}
    )
    given = mine[line - 1].decode("utf-8", "replace").strip()[:120]
    if path not in written.files:
        given = "no such file"
    elif mine == other:
        given = f"mode {written.plan.modes.get(path, 'unchanged from upstream')}"
    return GateError(
        f"{path} differs from what the series gives",
        code="GATE_FORK_WRONG",
        where=Location(path=path, line=line, label=patches),
        why=f"the series gives: {given or 'an empty line'}",
        hint="change the patch in the series, and carry the result of patchkit apply",
    )


def _needs(pull: Pull, written: WrittenCandidate) -> tuple[GateRow, ...]:
    """All gates, unless the fork point has the same files."""
    changed = {change.path for change in pull.changes}
    ours = {path for _, placed in written.plan.steps for path in (*placed.changes, *placed.gone)}
    built = [
        path for path in changed if path in ours or path.startswith(written.plan.decision.series.folders)
    ]
    if not built:
        return every_gate("not needed", "all files of the patches are the same as at the fork point")
    return every_gate("would run", f"{len(built)} files of the candidate changed")

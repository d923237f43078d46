"""A fork of llama.cpp that carries our branch: is it what the series gives, and nothing else?"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import ErrorGroup, GateError, GitError, Location
from patchkit.candidate.plan import Request
from patchkit.candidate.workspace import Workspace
from patchkit.gates.hardware import Hardware
from patchkit.gates.registry import gate_names
from patchkit.publish.range_proof import RangeProofFailed, prove_range
from patchkit.pull.changes import Pull
from patchkit.pull.judge import Made, Need, Ran, make_candidate, run_needed
from patchkit.pull.verdict import Finding, GateRow, Judged, RowState, Verdict
from patchkit.series.catalogue import load_series
from patchkit.series.lock import Lock, Pin, load_lock
from patchkit.series.profile import load_profile
from patchkit.upstream.cache import open_cache
from patchkit.upstream.pin import find_pinned
from patchkit.upstream.repository import Repository

_FORMAT = (
    "--format=%(trailers:key=Patchkit-Id,valueonly,separator=%x2C)%x00"
    "%(trailers:key=Patchkit-Profile,valueonly,separator=%x2C)"
)
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    """Our commits in the fork."""

    pin: Pin
    base: str
    archs: tuple[str, ...]
    patches: tuple[str, ...]


def judge_fork(
    pull: Pull,
    workspace: Workspace,
    *,
    own_files: Sequence[str],
    explain: bool,
    full: bool,
    environ: Mapping[str, str],
    hardware: Callable[[Sequence[str]], Hardware] | None,
) -> Verdict:
    """Regenerate the candidate that the head carries, compare, and run the gates if the pull changes it.

    Raises:
        GATE_FORK_WITHOUT_BRANCH: the head carries none, or stands on no pin of the lock.
        ConfigError, SourceError, GitError, CacheError: the candidate cannot be made here.
    """
    lock = load_lock(workspace.series.lock)
    carried = _find_carried(pull, lock, workspace)
    made = make_candidate(_request(carried, workspace), workspace)
    if made.candidate is None or made.result is None:
        raise ErrorGroup("the candidate that the fork carries cannot be made", made.plan.errors)
    cache = open_cache(workspace.cache_root).peek(workspace.reporter)
    if cache is None:
        raise AssertionError("the candidate was written into it")
    findings = [
        Finding(problem=problem, target=made.candidate.branch)
        for problem in _differences(pull.repository, pull.head, cache, made, own_files)
    ]
    try:
        prove_range(cache, load_series(workspace.series.patches), made.candidate, made.candidate)
    except RangeProofFailed as error:
        findings.append(Finding(problem=error, target=made.candidate.branch))
    ran = _run(_needs(pull, made), made, workspace, findings, _How(explain, full, environ, hardware))
    findings += [Finding(problem=problem, target=made.candidate.branch) for problem, _ in ran.problems]
    judged = Judged(
        name=f"{'+'.join(carried.archs)} on {carried.pin.name}",
        archs=carried.archs,
        build=carried.pin.build,
        patches=carried.patches,
        reasons=(f"the fork carries {len(carried.patches)} patches on {carried.pin.name}",),
        tree_before=None,
        tree=made.result.tree,
        rows=ran.rows,
        evidence=ran.evidence,
    )
    return Verdict(
        pull=pull,
        parts={},
        judged=(judged,),
        findings=tuple(findings),
        attention=tuple(_own_changes(pull, made, cache, own_files)),
        own_tests="not needed",
        explained=explain,
    )


@dataclass(frozen=True, slots=True)
class _How:
    explain: bool
    full: bool
    environ: Mapping[str, str]
    hardware: Callable[[Sequence[str]], Hardware] | None


def _run(
    needs: Sequence[Need], made: Made, workspace: Workspace, findings: Sequence[Finding], how: _How
) -> Ran:
    """The gates, which would judge something else than the fork when there are findings already."""
    if made.candidate is None:
        raise AssertionError("compared before")
    if findings or how.explain:
        state: RowState = "not run" if findings else "would run"
        why = "the head is not what the series gives" if findings else None
        rows = [
            GateRow(gate=need.gate, state=state, why=why or need.why)
            if need.needed
            else GateRow(gate=need.gate, state="not needed", why=need.why)
            for need in needs
        ]
        return Ran(rows=tuple(rows))
    return run_needed(
        needs,
        made.candidate,
        workspace,
        upstream=made.plan.pin.name,
        full=how.full,
        environ=how.environ,
        hardware=how.hardware(made.plan.archs) if how.hardware else None,
    )


def _find_carried(pull: Pull, lock: Lock, workspace: Workspace) -> _Carried:
    cached = open_cache(workspace.cache_root).peek(workspace.reporter)
    for pin in sorted(lock.pins, key=lambda pin: -pin.build):
        known = find_pinned(cached, pin) if cached is not None else None
        base = known.commit if known is not None else pin.commit
        if base is None or not pull.repository.has_object(base):
            continue
        if pull.repository.git.attempt("merge-base", "--is-ancestor", base, pull.head).status == 0:
            out = pull.repository.git.run("log", "--reverse", _FORMAT, f"{base}..{pull.head}", "--")
            rows = [line.split("\0") for line in out.decode("utf-8", "replace").splitlines() if "\0" in line]
            patches = tuple(row[0].strip() for row in rows if row[0].strip())
            entries = [entry for row in rows for entry in row[1].split(",") if entry.strip()]
            archs = tuple(sorted({entry.split()[0] for entry in entries}))
            if patches and archs:
                return _Carried(pin=pin, base=base, archs=archs, patches=tuple(dict.fromkeys(patches)))
    raise GitError(
        f"{pull.head[:12]} carries no candidate on a pin of the lock",
        code="GATE_FORK_WITHOUT_BRANCH",
        where=Location(path=str(pull.repository.path)),
        why=f"pins: {', '.join(pin.name for pin in lock.pins)}; our commits have a trailer Patchkit-Id",
        hint="give --head the branch that carries ours; a shallow clone needs the history down to the pin",
    )


def _request(carried: _Carried, workspace: Workspace) -> Request:
    """As the anchors gate asks: exactly these patches."""
    profiles = [load_profile(workspace.series.profiles, arch) for arch in carried.archs]
    opted = tuple(
        name
        for name in carried.patches
        if not any(name in profile.patches_by_default("on") for profile in profiles)
    )
    return Request(archs=carried.archs, upstream=carried.pin.name, only=carried.patches, with_=opted)


def _differences(
    fork: Repository, head: str, cache: Repository, made: Made, own_files: Sequence[str]
) -> Iterator[GateError]:
    """Every path that is not as regenerated, but for the fork's own."""
    there, here, differing = _compare(fork, head, cache, made)
    shown = 0
    for path in differing:
        ours = path in made.files
        if not ours and _is_own(path, own_files):
            continue
        shown += 1
        if shown > _SHOWN:
            break
        if ours:
            theirs = fork.read_blobs(head, [path])[path] if path in there else b""
            yield _not_regenerated(path, theirs, made)
        else:
            what = "adds" if path not in here else "lacks" if path not in there else "changes"
            yield GateError(
                f"the fork {what} {path}, which no patch touches",
                code="GATE_FORK_STRAY",
                where=Location(path=path),
                why="the gates say nothing of it: it is not in the candidate",
                hint="make it a patch of the series, or name it as the fork's own: --own PATTERN",
            )


def _compare(
    fork: Repository, head: str, cache: Repository, made: Made
) -> tuple[set[str], set[str], list[str]]:
    tip = made.candidate.tip if made.candidate is not None else made.plan.base
    there = {entry.path: (entry.mode, entry.sha) for entry in fork.list_files(head)}
    here = {entry.path: (entry.mode, entry.sha) for entry in cache.list_files(tip)}
    differing = [path for path in sorted({*there, *here}) if there.get(path) != here.get(path)]
    return set(there), set(here), differing


def _is_own(path: str, own_files: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in own_files)


def _not_regenerated(path: str, theirs: bytes, made: Made) -> GateError:
    mine, other = made.files[path].split(b"\n"), theirs.split(b"\n")
    line = next(
        (at for at, pair in enumerate(zip(mine, other, strict=False), start=1) if pair[0] != pair[1]),
        min(len(mine), len(other)),
    )
    patches = ", ".join(selected.patch.id for selected, placed in made.plan.steps if path in placed.changes)
    given = mine[line - 1].decode("utf-8", "replace").strip()[:120]
    return GateError(
        f"{path} is not what the series gives",
        code="GATE_FORK_NOT_REGENERATED",
        where=Location(path=path, line=line, label=patches),
        why=f"the series gives: {given or 'an empty line'}",
        hint="change the patch in the series, and carry what patchkit apply makes of it",
    )


def _own_changes(pull: Pull, made: Made, cache: Repository, own_files: Sequence[str]) -> Iterator[str]:
    _, _, differing = _compare(pull.repository, pull.head, cache, made)
    own = [path for path in differing if path not in made.files and _is_own(path, own_files)]
    if own:
        yield f"{len(own)} files are the fork's own and were not looked at: {', '.join(own[:_SHOWN])}"


def _needs(pull: Pull, made: Made) -> tuple[Need, ...]:
    """All gates, unless the fork point carries the very same files."""
    changed = {change.path for change in pull.changes}
    if made.result is None:
        raise AssertionError("judged after it was made")
    built = [path for path in changed if path in made.files or path.startswith(made.plan.series.folders)]
    if not built:
        why = "nothing that the patches touch differs from the fork point"
        return tuple(Need(gate=gate, needed=False, why=why) for gate in gate_names())
    why = f"{len(built)} files of the candidate changed"
    return tuple(Need(gate=gate, needed=True, why=why) for gate in gate_names())

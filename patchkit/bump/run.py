"""Following upstream: from what the lock records to another pin, all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from patchkit.base.errors import PatchkitError, UsageError
from patchkit.bump.candidates import Candidates, Work, make, regenerate
from patchkit.bump.history import Asked, with_commits
from patchkit.bump.request import BumpRequest, Row, check_series, find_rows
from patchkit.bump.staging import name_series, open_stage, publish, recover, undone
from patchkit.bump.target import find_target_pin, own_pin
from patchkit.candidate.find import Candidate
from patchkit.candidate.workspace import Workspace
from patchkit.gates.verify import Report, run_verify
from patchkit.series.catalogue import load_series
from patchkit.series.lock import Lock, Pin, load_lock, write_lock
from patchkit.upstream.cache import Cache, open_cache
from patchkit.upstream.pin import pin_ref
from patchkit.upstream.refs import read_ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Bump:
    """The whole bump; ``lock`` is the lock as it now is, or would have become.

    ``newer``: GPUs that were not followed, because the lock has them at pins newer than the target only.
    """

    request: BumpRequest
    old: Pin
    new: Pin
    state: Literal["done", "blocked", "refuted", "fewer"]
    made: tuple[Candidates, ...]
    lock: Lock
    newer: tuple[tuple[str, ...], ...] = ()


def run_bump(
    request: BumpRequest,
    workspace: Workspace,
    environ: Mapping[str, str],
    *,
    check: Callable[[Pin], None] | None = None,
    finish: Callable[[Bump], None] | None = None,
) -> Bump:
    """Bump. A bump that is blocked, refuted or fewer is returned, not raised; then nothing was changed.

    ``check`` hears of the new pin before the work, and ends the bump by raising. ``finish`` is the last act
    of a bump that is done, and undoes it by raising: by default the lock of the series is replaced; who
    gives another one puts ``Bump.lock`` where it belongs.

    Raises what finding the target, fetching, planning and the gates raise, BUMP_GATES_NEEDED, PIN_DIFFERS and
    BUMP_SERIES_CHANGED. Whatever is raised, KeyboardInterrupt included, lock and branches are as they were.
    """
    cache = open_cache(workspace.cache_root)
    before = workspace.series.lock.read_bytes()
    lock = load_lock(workspace.series.lock)
    old = lock.pin(None)
    with cache.hold(workspace.reporter) as repository:
        recover(cache, repository, workspace.reporter)
    check_series(request, workspace.series, lock)
    told = _look_up(request, workspace, lock, cache)
    new = own_pin(lock, told)
    rows = find_rows(request, lock, new.build, workspace.series)
    if check is not None:
        check(new)
    with cache.hold(workspace.reporter) as repository:
        had = read_ref(repository, pin_ref(new))
    next_lock = _with_pin(lock, new, keep_default=request.keep_default)
    with (
        undone(cache, workspace.reporter, pin_ref(new), had) as outcome,
        _stage(workspace, cache, next_lock) as stage,
    ):
        work = Work(
            request=request,
            workspace=workspace,
            stage=stage,
            cache=cache,
            lock=lock,
            old=old,
            new=new,
            told=told,
            environ=environ,
        )
        bump, refs = _work(work, rows.followed, next_lock)
        bump = replace(bump, newer=rows.newer)
        for problem in _problems(bump):
            name_series(problem, stage=stage.series.root, series=workspace.series)
        if bump.state == "done":
            with cache.hold(workspace.reporter) as repository:
                last = finish or (lambda done: write_lock(workspace.series.lock, done.lock))
                publish(cache, repository, workspace.series, stage.series, refs, before, lambda: last(bump))
            outcome.kept = True
    return bump


def _look_up(request: BumpRequest, workspace: Workspace, lock: Lock, cache: Cache) -> Pin:
    return find_target_pin(
        request.to,
        lock=lock,
        catalogue=workspace.series.patches / "upstreams.toml",
        source=request.source,
        upstream_url=request.upstream_url,
        cache=cache,
        reporter=workspace.reporter,
    )


@contextmanager
def _stage(workspace: Workspace, cache: Cache, lock: Lock) -> Iterator[Workspace]:
    with open_stage(workspace.series, cache, lock) as series:
        yield replace(workspace, series=series)


def _problems(bump: Bump) -> Iterator[PatchkitError]:
    for made in bump.made:
        for verdict in made.verdicts:
            yield from verdict.problems
        for gate in made.report.gates if made.report is not None else ():
            yield from gate.result.problems


def _with_pin(lock: Lock, pin: Pin, *, keep_default: bool) -> Lock:
    pins = lock.pins if pin in lock.pins else (*lock.pins, pin)
    return replace(lock, default=lock.default if keep_default else pin.build, pins=pins)


def _work(work: Work, rows: Sequence[Row], lock: Lock) -> tuple[Bump, dict[str, str]]:
    """All rows are classified before the first is made: gates take long, and one row can end it all."""
    made: list[Candidates] = []
    refs: dict[str, str] = {}
    for row in rows:
        with work.cache.hold(work.workspace.reporter) as repository:
            made.append(regenerate(work, row, repository))
    work.trees.clear()
    state = _state(made)
    if state == "done":
        _refuse_unproven_drift(work, made)
        for number, one in enumerate(made):
            with work.cache.hold(work.workspace.reporter) as repository:
                lock, candidate, done = make(work, one, lock, repository)
            made[number] = replace(done, report=_verified(work, candidate)) if work.request.verify else done
            if one.row.branch and done.tip is not None:
                refs[f"refs/heads/{one.branch}"] = done.tip
        state = _state(made)
    told = tuple(_with_commits(work, one) for one in made)
    return Bump(request=work.request, old=work.old, new=work.new, state=state, made=told, lock=lock), refs


def _state(made: Sequence[Candidates]) -> Literal["done", "blocked", "refuted", "fewer"]:
    if any(one.blocked for one in made):
        return "blocked"
    if any(one.unproven for one in made):
        return "fewer"
    failed = any(one.report is not None and one.report.failed for one in made)
    return "refuted" if failed else "done"


def _refuse_unproven_drift(work: Work, made: Sequence[Candidates]) -> None:
    drifted = {verdict.id: verdict for one in made for verdict in one.drifted}
    if drifted and not work.request.verify:
        raise UsageError(
            f"{len(drifted)} patches edit functions that changed upstream: the gates are needed",
            code="BUMP_GATES_NEEDED",
            why=", ".join(
                f"{name}: {', '.join(drift.entity for drift in each.drift)}" for name, each in drifted.items()
            ),
            hint="leave out --no-verify",
        )


def _with_commits(work: Work, one: Candidates) -> Candidates:
    base = work.lock.pin(one.row.builds[-1])
    asked = Asked(
        old=base if base.build != work.new.build else work.old,
        new=work.told,
        source=work.request.source,
        upstream_url=work.request.upstream_url,
        folders=load_series(work.stage.series.patches).folders,
    )
    verdicts, told = with_commits(one.verdicts, asked, work.cache, work.workspace.reporter)
    return replace(one, verdicts=verdicts, history=told)


def _verified(work: Work, candidate: Candidate) -> Report:
    return run_verify(
        work.stage,
        archs=candidate.archs,
        upstream=work.new.name,
        only=(),
        full=False,
        environ=work.environ,
        candidate=candidate,
    )

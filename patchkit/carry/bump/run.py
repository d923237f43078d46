"""Run a bump: move every variant of the lock to another pin, or change nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from patchkit.base.errors import InterruptNote, PatchkitError, UsageError
from patchkit.base.text import counted
from patchkit.base.workspace import Workspace
from patchkit.carry.bump.commit import check_branch, check_committed, commit_lock
from patchkit.carry.bump.history import with_commits
from patchkit.carry.bump.proof import Prove
from patchkit.carry.bump.report import Bump, State, bump_message
from patchkit.carry.bump.request import BumpRequest, Variant, check_series, find_variants
from patchkit.carry.bump.successor import Successor, Work, make, regenerate, settle
from patchkit.carry.candidate.staging import name_series, open_stage, publish, put_back_ref, recover
from patchkit.carry.candidate.target import find_target_pin, own_pin
from patchkit.carry.judging.classes import GOOD
from patchkit.carry.judging.judge import SeriesJudge
from patchkit.carry.remotes.run import fetch_following, imported_pulls, read_following
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.fault import refused_faults
from patchkit.carry.series.lock import Lock, load_lock, write_lock
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.pin import pin_ref
from patchkit.carry.upstream.refs import read_ref


def run_bump(request: BumpRequest, workspace: Workspace, now: dt.datetime, prove: Prove) -> Bump:
    """Run a bump. A state other than ``done`` is returned, not raised, and means that nothing was changed.

    The lock of the series is replaced last; with ``request.commit`` it goes to a branch instead. ``prove``
    runs on each candidate unless the request skips the gates.

    Raises what finding the target, fetching, planning and the gates raise, PIN_DIFFERS and
    BUMP_SERIES_UNUSABLE; with ``request.commit`` what :mod:`patchkit.carry.bump.commit` raises. After any
    exception, KeyboardInterrupt included, lock and branches are unchanged.
    """
    series, reporter = workspace.series, workspace.reporter
    if request.commit:
        check_committed(series, reporter)  # fail before the long work, not after it
    cache = open_cache(workspace.cache_root)
    before = series.lock.read_bytes()
    lock = load_lock(series.lock)
    with cache.hold(reporter) as repository:
        recover(cache, repository, reporter)
    check_series(request, series, lock)
    target = find_target_pin(
        request.to,
        lock=lock,
        catalogue=series.catalogue,
        source=request.source,
        upstream_url=request.upstream_url,
        cache=cache,
        reporter=reporter,
    )
    new = replace(own_pin(lock, target), unproven=request.accept_not_run)
    variants, newer = find_variants(request, lock, new, series)
    branch = f"bump/{new.name}"
    if request.commit:
        check_branch(series, branch, reporter)
    with cache.hold(reporter) as repository:
        previous = read_ref(repository, pin_ref(new))
    known = load_series(series.patches)
    if request.is_offline:
        following = read_following(known, new, cache, reporter)
    else:
        following = fetch_following(known, new, cache, reporter, now)
    next_lock = replace(
        lock,
        default=lock.default if request.keep_default else new.name,
        pins=lock.with_pin(new).pins,
    )
    with (
        InterruptNote("lock and branches are unchanged"),
        ExitStack() as undo,
        open_stage(series, cache, next_lock) as stage,
    ):
        undo.callback(_put_back_pin, cache, workspace, pin_ref(new), previous)
        work = Work(
            request=request,
            workspace=workspace,
            stage=replace(workspace, series=stage),
            cache=cache,
            lock=lock,
            old=lock.pin(None),
            new=new,
            target=target,
            prove=prove,
            pulls=imported_pulls(known, series.patches, cache, reporter),
        )
        state, successors, next_lock = _work(work, variants, next_lock)
        bump = Bump(
            request=request,
            old=work.old,
            new=new,
            state=state,
            successors=successors,
            lock=next_lock,
            newer=newer,
            following=following,
            drifted=_gates_needed(successors) if state == "unverified" else None,
        )
        for problem in _problems(bump):
            name_series(problem, stage=stage.root, series=series)
        if state != "done":
            return bump

        def finish() -> None:
            nonlocal bump
            if not request.commit:
                write_lock(series.lock, bump.lock)
                return
            committed = commit_lock(
                series,
                bump.lock,
                branch=branch,
                message=bump_message(bump),
                date=new.committed,
                reporter=reporter,
            )
            bump = replace(bump, committed=committed)

        refs = {
            one.candidate.ref: one.candidate.tip
            for one in successors
            if one.variant.branch and one.candidate is not None
        }
        with cache.hold(reporter) as repository:
            publish(cache, repository, series, stage, refs, before, finish)
        undo.pop_all()
    return bump


def _put_back_pin(cache: Cache, workspace: Workspace, ref: str, previous: str | None) -> None:
    with cache.hold(workspace.reporter) as repository:
        put_back_ref(repository, ref, previous)


def _problems(bump: Bump) -> Iterator[PatchkitError]:
    for successor in bump.successors:
        for verdict in successor.verdicts:
            yield from verdict.problems
        for gate in successor.report.gates if successor.report is not None else ():
            yield from gate.problems


def _work(work: Work, variants: Sequence[Variant], lock: Lock) -> tuple[State, tuple[Successor, ...], Lock]:
    """Classify all variants before making the first: gates take long, and one conflict blocks all."""
    with work.cache.hold(work.workspace.reporter) as repository:
        series = load_series(work.stage.series.patches)
        judge = SeriesJudge(workspace=work.stage, repository=repository, series=series, trees={})
        successors = [regenerate(work, variant, judge) for variant in variants]
    accepted = work.request.accept_faults
    state = _state(successors, accepted)
    if (
        state == "done"
        and work.request.no_verify
        and not work.request.accept_not_run
        and _drifted(successors)
    ):
        state = "unverified"
    if state == "done":
        lock, successors = settle(successors, lock, work.new.name)
        for number, one in enumerate(successors):
            with work.cache.hold(work.workspace.reporter) as repository:
                lock, done = make(work, one, lock, repository)
            successors[number] = done if work.request.skips_gates else _verified(work, done)
        state = _state(successors, accepted)
    return state, tuple(_with_commits(work, one) for one in successors), lock


def _state(successors: Sequence[Successor], accepted: Sequence[str]) -> State:
    if any(one.blocked or one.missing for one in successors):
        return "blocked"
    if any(refused_faults(one.faults, accepted) for one in successors):
        return "faulty"
    if any(one.unproven for one in successors):
        return "fewer"
    failed = any(one.report is not None and one.report.failed for one in successors)
    return "refuted" if failed else "done"


def _drifted(successors: Sequence[Successor]) -> dict[str, str]:
    """The patches for which upstream changed a function that they edit or use, with the names of these."""
    return {
        verdict.id: ", ".join(
            [each.entity for each in verdict.drift] + [each.name for each in verdict.declarations]
        )
        for one in successors
        for verdict in one.verdicts
        if verdict.patch_class in GOOD and (verdict.drift or verdict.declarations)
    }


def _gates_needed(successors: Sequence[Successor]) -> UsageError:
    drifted = _drifted(successors)
    return UsageError(
        f"code that {counted(len(drifted), 'patch edits or uses', 'patches edit or use')} changed upstream: "
        "the gates must run",
        code="BUMP_GATES_NEEDED",
        why=", ".join(f"{name}: {entities}" for name, entities in drifted.items()),
        hint="run again without --no-verify, or with --accept-not-run for unproven branches",
    )


def _with_commits(work: Work, one: Successor) -> Successor:
    base = one.variant.pins[-1]
    verdicts, history = with_commits(
        one.verdicts,
        work.request,
        base if base.name != work.new.name else work.old,
        work.target,
        work.cache,
        load_series(work.stage.series.patches),
        work.workspace.reporter,
    )
    return replace(one, verdicts=verdicts, history=history)


def _verified(work: Work, one: Successor) -> Successor:
    if one.candidate is None:
        raise AssertionError("a successor without a candidate cannot be verified")
    return replace(one, report=work.prove(work.stage, one.candidate, work.new))

"""Following upstream: from the lock's default pin to another one, all of it or nothing.

Vocabulary: a bump is *done* when lock and branches moved; *blocked* when a person has to look at a patch
first; *refuted* when a gate failed. Only a bump that is done changes anything that a person sees: the
work is done on a stage (:mod:`patchkit.flow.staging`), and its candidate is commits that no ref names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from patchkit.classify.model import Classified
from patchkit.config.lock import Followed, Lock, Pin, load_lock
from patchkit.config.lock_text import write_lock
from patchkit.config.profile import load_profile
from patchkit.config.series import load_series
from patchkit.errors import ErrorGroup, PatchkitError, UsageError
from patchkit.fetch.cache import Cache, open_cache
from patchkit.fetch.pin import obtain, pin_ref
from patchkit.flow.apply import candidate_ref, write_plan
from patchkit.flow.bump_history import Asked, with_commits
from patchkit.flow.bump_request import BumpRequest, arch_sets, check_series
from patchkit.flow.bump_target import find_target_pin, own_pin
from patchkit.flow.candidates import Candidate, read_candidate
from patchkit.flow.classifying import Comparison, classify_series
from patchkit.flow.following import followed_by, select_on
from patchkit.flow.locking import make_result, read_inputs
from patchkit.flow.plan import Request, plan_with
from patchkit.flow.rendering import render_series
from patchkit.flow.staging import name_series, open_stage, publish, recover, undone
from patchkit.flow.upstream import read_upstream
from patchkit.flow.verify import Report, run_verify
from patchkit.flow.workspace import Workspace
from patchkit.vcs.refs import read_ref
from patchkit.vcs.repository import Repository

__all__ = ["Bump", "Candidates", "GatesNeeded", "run_bump"]

_DROPPED = frozenset({"upstreamed", "superseded", "retired"})


class GatesNeeded(UsageError):
    """``--no-verify``, although a function that a patch edits changed upstream."""

    code = "BUMP_GATES_NEEDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What the bump made for one set of GPUs; ``report`` is None when the gates were left out.

    ``followed``: functions that are not where patch.toml says, with the place the lock has from now on.
    ``history``: whether upstream's commits were asked for, and why not.
    """

    archs: tuple[str, ...]
    verdicts: tuple[Classified, ...]
    blocked: tuple[str, ...]
    branch: str
    tip: str | None
    tree: str | None
    patches: tuple[str, ...]
    report: Report | None
    followed: tuple[Followed, ...]
    history: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bump:
    """The whole bump; ``lock`` is the text of the lock as it now is, or would have become."""

    old: Pin
    new: Pin
    state: Literal["done", "blocked", "refuted"]
    made: tuple[Candidates, ...]
    lock: Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What all steps need; ``stage`` is the workspace whose series is the stage's.

    ``told`` is the new pin as its source tells it: ``new`` is the lock's own where that has this tree.
    """

    request: BumpRequest
    workspace: Workspace
    stage: Workspace
    cache: Cache
    old: Pin
    new: Pin
    told: Pin
    environ: Mapping[str, str]


def run_bump(
    request: BumpRequest,
    workspace: Workspace,
    environ: Mapping[str, str],
    *,
    check: Callable[[Pin], None] | None = None,
    finish: Callable[[Bump], None] | None = None,
) -> Bump:
    """Bump. A bump that is blocked or refuted is returned, not raised; then nothing was changed.

    ``check`` hears of the new pin before the work, and ends the bump by raising. ``finish`` is the last act
    of a bump that is done, and undoes it by raising: by default the lock of the series is replaced; who
    gives another one puts ``Bump.lock`` where it belongs.

    Raises what finding the target, fetching, planning and the gates raise, GatesNeeded, PinDiffers and
    SeriesChanged. Whatever is raised, KeyboardInterrupt included, lock and branches are as they were.
    """
    cache = open_cache(workspace.cache_root)
    before = workspace.series.lock.read_bytes()
    lock = load_lock(workspace.series.lock)
    old = lock.pin(None)
    with cache.hold(workspace.reporter) as repository:
        recover(cache, repository, workspace.reporter)
    sets = arch_sets(request, lock)
    check_series(request, workspace.series, sets, old)
    told = _look_up(request, workspace, lock, cache)
    new = own_pin(lock, told)
    if check is not None:
        check(new)
    with cache.hold(workspace.reporter) as repository:
        had = read_ref(repository, pin_ref(new))
    next_lock = _with_pin(lock, new, keep_default=request.keep_default)
    with (
        undone(cache, workspace.reporter, pin_ref(new), had) as outcome,
        _stage(workspace, cache, next_lock) as stage,
    ):
        work = _Work(
            request=request,
            workspace=workspace,
            stage=stage,
            cache=cache,
            old=old,
            new=new,
            told=told,
            environ=environ,
        )
        bump, refs = _work(work, sets, next_lock)
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


def _work(work: _Work, sets: Sequence[tuple[str, ...]], lock: Lock) -> tuple[Bump, dict[str, str]]:
    made: list[Candidates] = []
    refs: dict[str, str] = {}
    for archs in sets:
        candidate: Candidate | None = None
        with work.cache.hold(work.workspace.reporter) as repository:
            for pin in (work.old, work.new):
                obtain(
                    pin,
                    cache=work.cache,
                    source=work.request.source if pin is work.new is work.told else "auto",
                    upstream_url=work.request.upstream_url if pin.commit is not None else None,
                    fetched=work.told.commit if pin is work.new else None,
                    reporter=work.workspace.reporter,
                )
            one = _regenerate(work, archs, repository)
            if not one.blocked:
                lock, candidate, one = _make(work, one, lock, repository)
        if candidate is not None and work.request.verify:
            one = replace(one, report=_verified(work, candidate))
        made.append(one)
        if one.tip is not None:
            refs[f"refs/heads/{one.branch}"] = one.tip
    made = [_with_commits(work, one) for one in made]
    failed = any(one.report is not None and one.report.failed for one in made)
    blocked = any(one.blocked for one in made)
    state: Literal["done", "blocked", "refuted"] = "blocked" if blocked else "refuted" if failed else "done"
    return Bump(old=work.old, new=work.new, state=state, made=tuple(made), lock=lock), refs


def _regenerate(work: _Work, archs: tuple[str, ...], repository: Repository) -> Candidates:
    """Every patch on the new upstream, classified against its rendering on the old one."""
    series = load_series(work.stage.series.patches)
    profiles = tuple(load_profile(work.stage.series.profiles, arch) for arch in archs)

    def rendered(pin: Pin) -> Comparison:
        commit = obtain(pin, cache=work.cache, reporter=work.workspace.reporter).commit
        return Comparison(
            series=work.stage.series,
            build=pin.build,
            chosen=select_on(series, profiles, pin, work.request.with_),
            files=read_upstream(repository, commit, series.folders),
            last={},
            reporter=work.workspace.reporter,
        )

    old = rendered(work.old)
    last = render_series(old.chosen, old.files, work.stage.series)
    known = {each.patch.id: each for each in last if each.placed is not None}
    verdicts, renderings = classify_series(replace(rendered(work.new), last=known))
    blocked = tuple(_blocked(work, verdicts))
    drifted = [verdict for verdict in verdicts if verdict.drift]
    if drifted and not blocked and not work.request.verify:
        raise GatesNeeded(
            f"{len(drifted)} patches edit functions that changed upstream: the gates are needed",
            why=", ".join(
                f"{each.id}: {', '.join(drift.entity for drift in each.drift)}" for each in drifted
            ),
            hint="leave out --no-verify",
        )
    return Candidates(
        archs=archs,
        verdicts=verdicts,
        blocked=blocked,
        branch=candidate_ref(archs, work.new.name).removeprefix("refs/heads/"),
        tip=None,
        tree=None,
        patches=(),
        report=None,
        followed=followed_by(series, renderings),
        history="",
    )


def _with_commits(work: _Work, one: Candidates) -> Candidates:
    asked = Asked(
        old=work.old,
        new=work.told,
        source=work.request.source,
        upstream_url=work.request.upstream_url,
        folders=load_series(work.stage.series.patches).folders,
    )
    verdicts, told = with_commits(one.verdicts, asked, work.cache, work.workspace.reporter)
    return replace(one, verdicts=verdicts, history=told)


def _blocked(work: _Work, verdicts: Sequence[Classified]) -> Iterator[str]:
    """What a person has to do first, one sentence for each patch."""
    series = load_series(work.stage.series.patches)
    for verdict in verdicts:
        patch = series.patch(verdict.id)
        if patch is None:
            continue
        if verdict.patch_class == "conflict":
            yield f"{verdict.id}: {verdict.reason}"
        elif verdict.patch_class in _DROPPED and patch.builds.covers(work.new.build):
            yield (
                f"{verdict.id}: {verdict.patch_class} ({verdict.reason}): "
                f"end it with [builds] last = {work.old.build} in patches/{patch.folder}/patch.toml"
            )


def _make(
    work: _Work, one: Candidates, lock: Lock, repository: Repository
) -> tuple[Lock, Candidate, Candidates]:
    """The commits of the candidate, its result in the lock of the stage, and no ref."""
    lock = lock.with_followed(work.new.build, one.followed)
    write_lock(work.stage.series.lock, lock)
    request = Request(archs=one.archs, upstream=work.new.name, with_=work.request.with_)
    plan = plan_with(request, work.stage, work.cache)
    if plan.errors:
        raise ErrorGroup("the series cannot be applied", plan.errors)
    commits, tree = write_plan(plan, repository, unlocked=False)
    tip = commits[-1].commit if commits else plan.base
    inputs = read_inputs(plan, work.stage.series)
    lock = lock.with_result(make_result(plan, inputs, tree=tree, commit=tip))
    write_lock(work.stage.series.lock, lock)
    ref = candidate_ref(one.archs, work.new.name)
    candidate = read_candidate(repository, ref, {ref: tip, pin_ref(work.new): plan.base})
    patches = tuple(made.id for made in commits)
    return lock, candidate, replace(one, tip=tip, tree=tree, patches=patches)


def _verified(work: _Work, candidate: Candidate) -> Report:
    return run_verify(
        work.stage,
        archs=candidate.archs,
        upstream=work.new.name,
        only=(),
        full=False,
        environ=work.environ,
        candidate=candidate,
    )

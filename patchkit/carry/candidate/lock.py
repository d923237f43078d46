"""The result of a plan: its commits, its inputs, and how it compares to the lock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from patchkit.base.errors import ConfigError, InternalError, Location
from patchkit.base.files import file_sha256
from patchkit.base.series_folder import SeriesDir
from patchkit.base.text import counted
from patchkit.carry.candidate.commit import write_plan
from patchkit.carry.candidate.inputs import RULES, hash_inputs
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Lock, Result, ResultKey, load_lock, replace_results
from patchkit.carry.series.profile import load_profiles, targets_of
from patchkit.carry.upstream.repository import Repository

if TYPE_CHECKING:
    from patchkit.carry.candidate.plan import Plan

_SHOWN = 8


def write_result(
    plan: Plan, repository: Repository, series: SeriesDir, *, unlocked: bool = False
) -> tuple[Candidate, Result]:
    """Write the commits of a plan and return them with their result; no ref moves, and no lock is written.

    Raises LOCK_INPUT_UNUSABLE, and as :func:`patchkit.carry.candidate.commit.write_plan`.
    """
    plan.check()
    folders = [selected.patch.folder for selected, _ in plan.steps]
    inputs = hash_inputs(plan.decision.profiles, folders, series)
    candidate, tree = write_plan(plan, repository, unlocked=unlocked)
    rendered: dict[str, str] = {}
    entities: dict[str, str] = {}
    for selected, placed in plan.steps:
        rendered |= {f"{selected.patch.id}/{name}": digest for name, digest in placed.rendered.items()}
        # For an entity that several patches edit, keep the digest from the first, which saw upstream's
        # version.
        entities = dict(placed.entities) | entities
    result = Result(
        pin=plan.pin.name,
        build=plan.pin.build,
        archs=plan.archs,
        patches=plan.ids,
        tree=tree,
        commit=candidate.tip,
        inputs=inputs,
        rendered=dict(sorted(rendered.items())),
        entities=dict(sorted(entities.items())),
    )
    return candidate, result


def refuse_changed(recorded: Result, result: Result, changed: Sequence[str]) -> None:
    """Raises LOCK_INPUTS_CHANGED, which lists the files."""
    then = recorded.inputs
    raise ConfigError(
        f"{counted(len(changed), 'file')} changed since the lock was written",
        code="LOCK_INPUTS_CHANGED",
        where=[Location(path=name, label=difference(name, result.inputs, then)) for name in changed[:_SHOWN]],
        why="they give another candidate than the one that the lock records",
        hint="record them: patchkit lock --all; or apply anyway, with a trailer in the commits: --unlocked",
    )


def changed_inputs(now: Mapping[str, str], then: Mapping[str, str], series: SeriesDir) -> list[str]:
    """The inputs that differ from the recorded ones; earlier versions hashed series.toml as raw bytes."""
    changed = [name for name in sorted({*now, *then}) if now.get(name) != then.get(name)]
    if changed == [RULES] and then.get(RULES) == file_sha256(series.root / RULES):
        return []
    return changed


def difference(name: str, now: Mapping[str, str], then: Mapping[str, str]) -> str:
    """How an input differs from the recorded one: new, gone, or both digests."""
    if name not in then:
        return "new"
    if name not in now:
        return "gone"
    return f"sha256 {now[name][:12]}, recorded {then[name][:12]}"


def check_result(recorded: Result, result: Result) -> None:
    """Raises LOCK_MISMATCH, naming both hashes, if the lock records another outcome of the same inputs."""
    for what, now, then in (
        ("tree", result.tree, recorded.tree),
        ("commit", result.commit, recorded.commit),
    ):
        if now != then:
            raise InternalError(
                f"the candidate's {what} is {now}, but the lock records {then}",
                code="LOCK_MISMATCH",
                where=recorded.where,
                why="the inputs are the recorded ones, so this patchkit renders or commits differently",
                hint="if you changed patchkit itself, review the difference and run patchkit lock --all",
            )


def holding_results(lock: Lock, patch: str, series: SeriesDir) -> frozenset[ResultKey]:
    """The results that include a patch and whose input files are all as recorded."""
    found = set()
    known = {each.id: each.folder for each in load_series(series.patches).patches}
    profiles = set(targets_of(series.profiles))
    for result in lock.results:
        if patch not in result.patches or not profiles.issuperset(result.archs):
            continue
        if not known.keys() >= set(result.patches):
            continue
        if not changed_inputs(_inputs_of(result, known, series), result.inputs, series):
            found.add(result.key)
    return frozenset(found)


def renew_inputs(keys: Collection[ResultKey], series: SeriesDir) -> tuple[Result, ...]:
    """Record the current files of these results, leaving trees and commits; writes the lock once.

    The caller must have shown that the changes in the files do not affect these builds. The next apply
    compares tree and commit with the recorded ones, as always.

    Raises LOCK_CHANGED, LOCK_INPUT_UNUSABLE, CacheError.
    """
    before = series.lock.read_bytes()
    lock = load_lock(series.lock)
    known = {each.id: each.folder for each in load_series(series.patches).patches}
    results, renewed = [], []
    for result in lock.results:
        new = result
        if result.key in keys:
            new = replace(result, inputs=_inputs_of(result, known, series))
            renewed.append(new)
        results.append(new)
    if renewed:
        replace_results(series.lock, before, results)
    return tuple(renewed)


def _inputs_of(result: Result, known: Mapping[str, str], series: SeriesDir) -> dict[str, str]:
    profiles = load_profiles(series.profiles, result.archs)
    return hash_inputs(profiles, [known[name] for name in result.patches], series)

"""The result of a plan: what it was made of, compared with the lock, or recorded in the lock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from patchkit.base.errors import (
    ConfigError,
    ErrorGroup,
    InternalError,
    Location,
    PatchkitError,
    UsageError,
)
from patchkit.base.files import file_sha256
from patchkit.base.plain import fields_of
from patchkit.base.series_folder import SeriesDir, is_plain
from patchkit.base.text import counted
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.commit import write_plan
from patchkit.carry.candidate.inputs import RULES, hash_inputs, left_out_on
from patchkit.carry.candidate.plan import Plan, Request, make_plan
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Lock, Result, load_lock, record_result, replace_results
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import load_profiles, targets_of
from patchkit.carry.series.selection import opted_in, select_patches
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import SourceWanted
from patchkit.carry.upstream.repository import Repository

_SHOWN = 8
_Key = tuple[int, tuple[str, ...], tuple[str, ...]]


def read_inputs(plan: Plan, series: SeriesDir) -> dict[str, str]:
    """sha256 of every file the steps of a plan were made from, by path below the series folder.

    Raises LOCK_INPUT_UNUSABLE.
    """
    return hash_inputs(plan.profiles, [selected.patch.folder for selected, _ in plan.steps], series)


def make_result(plan: Plan, inputs: Mapping[str, str], *, tree: str, commit: str) -> Result:
    """The record of a result."""
    rendered: dict[str, str] = {}
    entities: dict[str, str] = {}
    for selected, placed in plan.steps:
        rendered |= {f"{selected.patch.id}/{name}": digest for name, digest in placed.rendered.items()}
        # The first patch that edits an entity saw it as upstream has it.
        entities = dict(placed.entities) | entities
    return Result(
        build=plan.pin.build,
        archs=plan.archs,
        patches=plan.ids,
        tree=tree,
        commit=commit,
        inputs=dict(inputs),
        rendered=dict(sorted(rendered.items())),
        entities=dict(sorted(entities.items())),
    )


def find_changed(plan: Plan, inputs: Mapping[str, str], series: SeriesDir) -> list[str] | None:
    """The files that are not as the lock records them of this result; None where it records none.

    What is made on a commit of the user's clone stands in no lock.
    """
    recorded = plan.lock.result(plan.pin.build, plan.archs, plan.ids)
    if recorded is None or plan.pin.clone is not None:
        return None
    return changed_inputs(inputs, recorded.inputs, series)


def is_recorded(plan: Plan, result: Result) -> bool:
    """Whether the lock records this tree and this commit, of whatever files."""
    recorded = plan.lock.result(*result.key)
    return recorded is not None and (recorded.tree, recorded.commit) == (result.tree, result.commit)


def refuse_changed(plan: Plan, inputs: Mapping[str, str], changed: Sequence[str]) -> None:
    """Raises LOCK_INPUTS_CHANGED, which lists the files."""
    recorded = plan.lock.result(plan.pin.build, plan.archs, plan.ids)
    then = recorded.inputs if recorded is not None else {}
    raise ConfigError(
        f"the lock records another state of {counted(len(changed), 'file')}",
        code="LOCK_INPUTS_CHANGED",
        where=[Location(path=name, label=difference(name, inputs, then)) for name in changed[:_SHOWN]],
        why="the lock decides the bytes of a candidate, and these give others",
        hint="record it: patchkit lock --all; or once, with a trailer in the commits: --unlocked",
    )


def changed_inputs(now: Mapping[str, str], then: Mapping[str, str], series: SeriesDir) -> list[str]:
    """Those that are not as recorded; earlier versions took the rules as they are written."""
    changed = [name for name in sorted({*now, *then}) if now.get(name) != then.get(name)]
    if changed == [RULES] and then.get(RULES) == file_sha256(series.root / RULES):
        return []
    return changed


def difference(name: str, now: Mapping[str, str], then: Mapping[str, str]) -> str:
    """How an input stands to what is recorded of it; both digests where it has two."""
    if name not in then:
        return "new"
    if name not in now:
        return "gone"
    return f"sha256 {now[name][:12]}, recorded {then[name][:12]}"


def check_result(plan: Plan, result: Result, series: SeriesDir) -> None:
    """Raises LOCK_MISMATCH, naming both hashes, when the lock records another outcome of the same inputs."""
    recorded = plan.lock.result(*result.key)
    if plan.pin.clone is not None or recorded is None:
        return
    if changed_inputs(result.inputs, recorded.inputs, series):
        return
    for what, now, then in (
        ("tree", result.tree, recorded.tree),
        ("commit", result.commit, recorded.commit),
    ):
        if now != then:
            raise InternalError(
                f"the candidate's {what} is {now}, the lock records {then}",
                code="LOCK_MISMATCH",
                where=recorded.where,
                why="the inputs are the recorded ones, so this patchkit renders or commits differently",
                hint="if you changed patchkit itself, review the difference and run patchkit lock --all",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A result as the lock has it now; ``changed``: it said something else before.

    ``was``: the patches of the result whose place this one takes.
    """

    result: Result
    changed: bool
    was: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """As ``lock`` shows it."""
        return {
            **fields_of(self.result, "inputs", "rendered", "entities", "where"),
            "patches_before": list(self.was),
            "changed": self.changed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocked:
    """Every result of the lock; ``dropped`` names those of GPUs that have no profile any more."""

    results: tuple[Recorded, ...]
    dropped: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the lock file was replaced."""
        return bool(self.dropped) or any(each.changed for each in self.results)

    def as_json(self) -> dict[str, object]:
        """As ``lock --all`` shows it."""
        return fields_of(self) | {"changed": self.changed}


def relock(request: Request, workspace: Workspace) -> Recorded:
    """Make the commits of a request and record them; no branch moves.

    Raises what planning raises, and PATCH_UNDOCUMENTED; the lock is replaced as a whole or not at all.
    """
    cache = open_cache(workspace.cache_root)
    with cache.hold(workspace.reporter) as repository:
        plan = make_plan(request, workspace, cache)
        result = _make(plan, workspace, repository)
    changed = record_result(workspace.series.lock, plan.pin, result)
    return Recorded(result=result, changed=changed, was=result.patches)


def relock_all(workspace: Workspace, *, source: SourceWanted, upstream_url: str | None) -> Relocked:
    """Make every result of the lock anew, and replace the lock once, when all of them are made.

    ``source`` and ``upstream_url`` are for pins that are not cached, as in a Request.

    Raises:
        ErrorGroup: the errors of all results that cannot be made; the lock is as it was.
        LOCK_EMPTY: there is no result.
        LOCK_CHANGED: somebody else changed the lock meanwhile.
        PATCH_UNDOCUMENTED: a patch of a result does not say everything yet.
        PatchkitError: what planning raises.
    """
    path = workspace.series.lock
    lock = load_lock(path)
    if not lock.results:
        raise UsageError(
            "the lock records nothing that could be recorded anew",
            code="LOCK_EMPTY",
            where=Location(path=lock.path),
            hint="patchkit lock"
            if is_plain(workspace.series.profiles)
            else "name a GPU: patchkit lock --arch gfx1151",
        )
    before = path.read_bytes()
    known = set(targets_of(workspace.series.profiles))
    kept = [result for result in lock.results if known.issuperset(result.archs)]
    requests = [
        replace(_request_of(result, lock, workspace), source=source, upstream_url=upstream_url)
        for result in kept
    ]
    made = _make_all(requests, workspace)
    made_by_key: dict[_Key, tuple[Result, Result]] = {}
    for old, new in zip(kept, made, strict=True):
        if new.key not in made_by_key or new.key == old.key:  # a change can make two results one
            made_by_key[new.key] = (old, new)
    results = [made_by_key[key] for key in sorted(made_by_key)]
    if [new for _, new in results] != sorted(lock.results, key=lambda each: each.key):
        replace_results(path, before, [new for _, new in results])
    return Relocked(
        results=tuple(Recorded(result=new, changed=old != new, was=old.patches) for old, new in results),
        dropped=tuple(result.name for result in lock.results if result not in kept),
    )


def _request_of(result: Result, lock: Lock, workspace: Workspace) -> Request:
    """What has to be asked for today to get the result anew."""
    series = load_series(workspace.series.patches)
    profiles = load_profiles(workspace.series.profiles, result.archs)
    known = [patch for patch in result.patches if series.patch(patch) is not None]
    with_ = opted_in(series, profiles, known, result.build)
    left_out = left_out_on(lock.pin(result.build), result.archs, series, workspace.series, named=with_)
    chosen = select_patches(series, profiles, result.build, with_=with_, left_out=left_out)
    today = tuple(each.patch.id for each in chosen if each.targets)
    # Where the lock has what the GPUs get today beside it, the rest was left out on purpose.
    is_part = today != result.patches and lock.result(result.build, result.archs, today) is not None
    return Request(
        archs=result.archs,
        upstream=f"b{result.build}",
        with_=with_,
        without=tuple(patch for patch in today if is_part and patch not in result.patches),
    )


def _make_all(requests: Sequence[Request], workspace: Workspace) -> list[Result]:
    cache = open_cache(workspace.cache_root)
    made: list[Result] = []
    errors: list[PatchkitError] = []
    failed: list[str] = []
    with cache.hold(workspace.reporter) as repository:
        for number, request in enumerate(requests, start=1):
            name = f"{request.upstream} {'+'.join(request.archs)}"
            workspace.reporter.step(f"{name}, {number} of {len(requests)}")
            plan = make_plan(request, workspace, cache)
            if plan.errors:
                errors += plan.errors
                failed.append(name)
            else:
                made.append(_make(plan, workspace, repository))
    if errors:
        raise ErrorGroup(f"nothing was recorded: the series cannot be applied on {', '.join(failed)}", errors)
    return made


def check_documented(patches: Iterable[Patch]) -> None:
    """Raises PATCH_UNDOCUMENTED, with the lines to add, for every patch that does not say what others need.

    While a patch is being written it may lack them; what is recorded or published is for other people.
    """
    errors = [
        ConfigError(
            f"patch '{patch.id}' does not say everything yet",
            code="PATCH_UNDOCUMENTED",
            where=patch.where,
            why="what is recorded or published is for people who did not write it",
            hint="add to its patch.toml, above the first table:\n" + "\n".join(patch.undocumented),
        )
        for patch in patches
        if patch.undocumented
    ]
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup("patches do not say everything yet", errors)


def holding_results(lock: Lock, patch: str, series: SeriesDir) -> frozenset[_Key]:
    """The results with a patch whose files are as they were recorded."""
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


def renew_inputs(keys: Collection[_Key], series: SeriesDir) -> tuple[Result, ...]:
    """Record the files of these results as they are now; trees and commits stay. Replaces the lock once.

    For whoever has proven that what changed in them says nothing else of these builds: the next apply
    compares tree and commit with what is recorded, as always.

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


def _make(plan: Plan, workspace: Workspace, repository: Repository) -> Result:
    check_documented(selected.patch for selected, _ in plan.steps)
    candidate, tree = write_plan(plan, repository)
    return make_result(plan, read_inputs(plan, workspace.series), tree=tree, commit=candidate.tip)

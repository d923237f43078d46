"""The successor of a candidate on the new pin: classify its patches there, then commit them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from patchkit.base.series_folder import arch_options
from patchkit.base.workspace import Workspace
from patchkit.carry.bump.proof import Proof, Prove
from patchkit.carry.bump.request import BumpRequest, Variant
from patchkit.carry.candidate.decision import Request, Wish
from patchkit.carry.candidate.inputs import digest_of_patch
from patchkit.carry.candidate.lock import write_result
from patchkit.carry.candidate.plan import make_plan
from patchkit.carry.candidate.record import Candidate, candidate_ref
from patchkit.carry.judging.changed import Versions
from patchkit.carry.judging.classes import DROPPED, GOOD, Classified
from patchkit.carry.judging.judge import SeriesJudge
from patchkit.carry.judging.rendering import Rendering, followed_by
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.fault import FaultHere
from patchkit.carry.series.lock import DroppedPatch, Followed, FollowedEdit, Lock, Pin, write_lock
from patchkit.carry.series.switches import has_switch
from patchkit.carry.upstream.cache import Cache
from patchkit.carry.upstream.pin import obtain
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A patch that the candidate no longer has, and why.

    ``proven``: upstream made it unnecessary. ``accepted``: excluded by name with ``--without``. ``dropped``:
    excluded by ``--drop-conflicts``. ``unproven``: lost for any other reason.
    """

    id: str
    how: Literal["proven", "accepted", "dropped", "unproven"]
    why: str


def find_losses(
    patches_before: Sequence[str],
    verdicts: Sequence[Classified],
    series: Series,
    *,
    without: Collection[str],
    dropped: Collection[str],
    drops_all: bool = False,
) -> tuple[Loss, ...]:
    """Every loss, in the order of ``patches_before`` and then of ``dropped``.

    ``without``: excluded by name. ``dropped``: excluded by ``--drop-conflicts``; with ``drops_all`` every
    unproven loss counts as dropped.
    """
    known = {verdict.id: verdict for verdict in verdicts}
    kept = {verdict.id for verdict in verdicts if verdict.patch_class in GOOD}.difference(dropped)
    proven = _proven(known, series)
    patches = {patch.id: patch for patch in series.patches}
    if not any(has_switch(patches[name]) for name in kept):  # the switches have no effect of their own
        unneeded = (patch.id for patch in series.patches if patch.switches is not None)
        proven |= dict.fromkeys(unneeded, "no applied patch has a run-time switch")
    found: list[Loss] = []
    for name in dict.fromkeys([*patches_before, *dropped]):
        state = known[name].patch_class if name in known else None
        if name in kept or (state == "conflict" and name not in dropped):
            continue  # a conflict blocks the bump, so the patch is not lost yet
        why = known[name].reason if name in known else "the series no longer has this patch"
        if name in proven:
            found.append(Loss(id=name, how="proven", why=proven[name]))
        elif name in without:
            found.append(Loss(id=name, how="accepted", why=why))
        else:
            is_dropped = drops_all or name in dropped
            found.append(Loss(id=name, how="dropped" if is_dropped else "unproven", why=why))
    return tuple(found)


def _proven(known: Mapping[str, Classified], series: Series) -> dict[str, str]:
    """Why each patch is no longer needed: by its own class, or because one that it requires is retired."""
    found = {
        name: f"{verdict.patch_class}: {verdict.reason}"
        for name, verdict in known.items()
        if verdict.patch_class in DROPPED
    }
    ended = {name for name in found if known[name].patch_class == "retired"}
    more = True
    while more:
        more = False
        for patch in series.patches:
            if patch.id in found or known[patch.id].patch_class != "out of range":
                continue
            needed = next((each for each in patch.requires if each.patch in ended), None)
            if needed is not None:
                found[patch.id] = f"requires '{needed.patch}', which is retired: {needed.why}"
                ended.add(patch.id)
                more = True
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """A variant on the new pin. ``report`` is None if the gates were not run.

    ``patches_before``: its patches before the bump; ``losses``: those of them that it no longer has.
    ``blocked``: what to fix first; ``missing``: names that placed patches use and upstream removed.
    ``offered``: opt-in patches at the new pin, filled only if no patch is left. ``apply_args``: the command
    that makes the same candidate. ``followed``: functions and edits that are not where patch.toml has them,
    with their new place, which goes into the lock. ``candidate`` is None until the commits are written.
    ``history``: whether upstream's history was searched, or why not. ``faults``: known faults of the new
    build.
    ``dropped``: patches that ``--drop-conflicts`` excluded, as recorded in the lock.
    """

    json_keys: ClassVar = (
        "archs=variant.archs with=variant.with_ compared_with=compared_with branch=own_branch "
        "made_by=command tip=candidate.tip tree before=patches_before applied=patches lost=losses dropped "
        "opt_in=offered blocked missing faults history followed patches=verdicts gates=report"
    )

    variant: Variant
    verdicts: tuple[Classified, ...]
    blocked: tuple[str, ...]
    missing: tuple[str, ...]
    patches_before: tuple[str, ...]
    losses: tuple[Loss, ...]
    offered: tuple[str, ...]
    branch: str
    apply_args: tuple[str, ...]
    followed: tuple[Followed | FollowedEdit, ...]
    faults: tuple[FaultHere, ...]
    dropped: tuple[DroppedPatch, ...] = ()
    candidate: Candidate | None = None
    tree: str | None = None
    report: Proof | None = None
    history: str = ""

    @property
    def compared_with(self) -> tuple[int, ...]:
        """The builds whose results the lock has for the variant."""
        return tuple(pin.build for pin in self.variant.pins)

    @property
    def patches(self) -> tuple[str, ...]:
        """The ids of the candidate's patches."""
        return self.candidate.ids if self.candidate is not None else ()

    @property
    def dropped_losses(self) -> tuple[str, ...]:
        """Patches that ``--drop-conflicts`` excluded without proof that they are unnecessary."""
        return tuple(loss.id for loss in self.losses if loss.how == "dropped")

    @property
    def unproven(self) -> tuple[str, ...]:
        """Patches that were lost without a proof or a request."""
        return tuple(loss.id for loss in self.losses if loss.how == "unproven")

    @property
    def own_branch(self) -> str | None:
        """The name of its branch; None if the variant has none."""
        return self.branch if self.variant.branch else None

    @property
    def command(self) -> str:
        """The command that makes this candidate again."""
        return shlex.join(self.apply_args)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The inputs of every step of a bump. ``stage``: the workspace with the stage (the copy) as its series.

    ``target`` is the new pin as its source reported it; ``new`` is the lock's own pin if that has the same
    tree. ``pulls``: for patches imported from a pull request, the files of that pull request as imported.
    """

    request: BumpRequest
    workspace: Workspace
    stage: Workspace
    cache: Cache
    lock: Lock
    old: Pin
    new: Pin
    target: Pin
    prove: Prove
    pulls: Mapping[str, tuple[Versions, ...]]

    def obtain(self, pin: Pin) -> str:
        """The commit of a pin, in the cache; raises as :func:`patchkit.carry.upstream.pin.obtain`."""
        return obtain(
            pin,
            cache=self.cache,
            source=self.request.source if pin is self.new is self.target else "auto",
            upstream_url=self.request.upstream_url if pin.commit is not None else None,
            fetched=self.target.commit if pin is self.new else None,
            reporter=self.workspace.reporter,
        )


def regenerate(work: Work, variant: Variant, judge: SeriesJudge) -> Successor:
    """Classify every patch on the new upstream, compared with its last rendering on the variant's pins."""
    series = judge.series
    last: dict[str, Rendering] = {}
    for pin in variant.compared:  # renderings on newer pins replace older ones
        then = judge.decide(pin, variant.archs, Wish(with_=variant.with_), as_recorded=pin is not work.new)
        last |= judge.render(then, judge.read(work.obtain(pin)))
    wish = Wish(with_=variant.with_, without=variant.without)
    decision = judge.decide(work.new, variant.archs, wish)
    judged = judge.judge(decision, judge.read(work.obtain(work.new)), last, pulls=work.pulls)
    verdicts = judged.verdicts
    patches_before = variant.patches_before if variant.patches_before is not None else tuple(last)
    dropped = _dropped(work, variant, series, verdicts) if work.request.drop_conflicts else ()
    named = {each.patch for each in dropped}
    renderings = tuple(each for each in judged.renderings if each.patch.id not in named)
    placed = {rendering.patch.id for rendering in renderings}
    inside = [patch.id for patch in series.patches if patch.builds.covers(work.new.build)]
    wanted = {*judge.decide(work.new, variant.archs, Wish(with_=variant.with_)).ids}
    options = [*arch_options(variant.archs, work.stage.series.profiles), "--upstream", work.new.name]
    options += [word for name in variant.with_ if name in placed for word in ("--with", name)]
    options += [word for name in sorted(wanted - placed - named) for word in ("--without", name)]
    options += [word for name in work.request.accept_faults for word in ("--accept-fault", name)]
    branch = candidate_ref(variant.archs, work.new.name, unproven=work.new.unproven)
    return Successor(
        variant=variant,
        verdicts=verdicts,
        blocked=tuple(_blocked(work, variant, series, verdicts)),
        missing=tuple(
            f"{verdict.id}: {each} (used at {each.used})"
            for verdict in verdicts
            for each in verdict.missing
            if each.name not in work.request.accept_missing
        ),
        faults=decision.faults_with(rendering.selected for rendering in renderings),
        patches_before=patches_before,
        losses=find_losses(
            patches_before,
            verdicts,
            series,
            # Excluded by --without, or by the --trust that the variant was resolved with.
            without=(*work.request.without, *variant.without),
            dropped=named,
            drops_all=work.request.drop_conflicts,
        ),
        offered=() if placed or not patches_before else decision.opted_in(inside),
        branch=branch.removeprefix("refs/heads/"),
        apply_args=("patchkit", "apply", *options),
        followed=followed_by(series, renderings),
        dropped=dropped,
    )


def _dropped(
    work: Work, variant: Variant, series: Series, verdicts: Sequence[Classified]
) -> tuple[DroppedPatch, ...]:
    """Patches that ``--drop-conflicts`` excludes, with the reasons, and patches that require one of these."""
    found: dict[str, str] = {}
    for verdict in verdicts:
        patch = series.patch(verdict.id)
        if patch is None or verdict.id in variant.without:
            continue
        needless = verdict.patch_class in DROPPED and patch.builds.covers(work.new.build)
        if verdict.patch_class == "conflict" or needless:
            found[verdict.id] = f"{verdict.patch_class}: {verdict.reason}"
    placed = {verdict.id for verdict in verdicts if verdict.patch_class in GOOD}
    for patch in series.patches:  # a patch comes after what it requires, so one pass is enough
        needed = next((each for each in patch.requires if each.patch in found), None)
        if needed is not None and patch.id in placed:
            found[patch.id] = f"requires '{needed.patch}', which is excluded: {needed.why}"
    return tuple(
        DroppedPatch(
            patch=patch.id,
            archs=variant.archs,
            digest=digest_of_patch(patch, work.stage.series),
            why=" ".join(found[patch.id].split()),
        )
        for patch in series.patches
        if patch.id in found
    )


def settle(successors: Sequence[Successor], lock: Lock, pin: str) -> tuple[Lock, list[Successor]]:
    """Record the excluded patches of the new pin in the lock, so that later commands exclude them too.

    The lock records them per set of GPUs. If another variant of these GPUs has the patch, the command of this
    one gets ``--without`` instead.
    """
    settled = []
    for one in successors:
        same = [each for each in successors if each.variant.archs == one.variant.archs]
        others = {verdict.id for each in same for verdict in each.verdicts if verdict.patch_class in GOOD}
        rows = [each for one in same for each in one.dropped if each.patch not in others]
        lock = lock.with_dropped(pin, one.variant.archs, list(dict.fromkeys(rows)))
        words = [word for each in one.dropped if each not in rows for word in ("--without", each.patch)]
        settled.append(replace(one, apply_args=(*one.apply_args, *words)))
    return lock, settled


def _blocked(work: Work, variant: Variant, series: Series, verdicts: Sequence[Classified]) -> Iterator[str]:
    """What the user has to fix first, one line per patch."""
    if work.request.drop_conflicts:
        return
    builds = [pin.build for pin in variant.pins if pin.build < work.new.build]
    last = max(builds, default=work.new.build - 1)
    for verdict in verdicts:
        patch = series.patch(verdict.id)
        if patch is None or verdict.id in variant.without:
            continue
        if verdict.patch_class == "conflict":
            yield f"{verdict.id}: {verdict.reason}"
        elif verdict.patch_class in DROPPED and patch.builds.covers(work.new.build):
            yield (
                f"{verdict.id}: {verdict.patch_class} ({verdict.reason}): "
                f"end it with [builds] last = {last} in patches/{patch.folder}/patch.toml"
            )


def make(work: Work, one: Successor, lock: Lock, repository: Repository) -> tuple[Lock, Successor]:
    """Write the candidate's commits and record its result in the stage's lock. No ref is created."""
    lock = lock.with_followed(work.new.name, one.followed)
    write_lock(work.stage.series.lock, lock)
    request = Request(
        archs=one.variant.archs,
        upstream=work.new.name,
        with_=one.variant.with_,
        without=tuple(dict.fromkeys([*one.variant.without, *(each.patch for each in one.dropped)])),
        accept_faults=work.request.accept_faults,
    )
    plan = make_plan(request, work.stage, work.cache)
    candidate, result = write_result(plan, repository, work.stage.series)
    lock = lock.with_result(result)
    write_lock(work.stage.series.lock, lock)
    return lock, replace(one, candidate=candidate, tree=result.tree)

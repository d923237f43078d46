"""One candidate of a bump: a row's patches classified on the new upstream, then made into commits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from patchkit.base.errors import ErrorGroup
from patchkit.bump.classes import DROPPED, GOOD, Classified
from patchkit.bump.classify import Comparison, classify_series
from patchkit.bump.request import BumpRequest, Row
from patchkit.candidate.apply import candidate_ref, write_plan
from patchkit.candidate.find import Candidate, read_candidate
from patchkit.candidate.following import Rendering, followed_by, render_series, select_on
from patchkit.candidate.locking import make_result, read_inputs
from patchkit.candidate.plan import Request, plan_with
from patchkit.candidate.workspace import Workspace
from patchkit.edits.tree import UpstreamFiles, read_upstream
from patchkit.gates.verify import Report
from patchkit.series.catalogue import Series, load_series
from patchkit.series.lock import Followed, Lock, Pin, write_lock
from patchkit.series.profile import load_profile
from patchkit.series.selection import opted_in
from patchkit.upstream.cache import Cache
from patchkit.upstream.pin import obtain, pin_ref
from patchkit.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One patch that is not in the candidate any more; ``how`` as above, ``why`` in a sentence."""

    id: str
    how: Literal["proven", "accepted", "dropped", "unproven"]
    why: str

    def as_json(self) -> dict[str, str]:
        """Plain data."""
        return {"id": self.id, "how": self.how, "why": self.why}


def find_losses(
    had: Sequence[str],
    verdicts: Sequence[Classified],
    series: Series,
    *,
    without: Collection[str],
    dropped: Collection[str],
) -> tuple[Loss, ...]:
    """Every loss, those of ``had`` first and in its order."""
    known = {verdict.id: verdict for verdict in verdicts}
    kept = {verdict.id for verdict in verdicts if verdict.patch_class in GOOD}
    proven = _proven(known, series)
    found: list[Loss] = []
    for name in dict.fromkeys([*had, *dropped]):
        state = known[name].patch_class if name in known else None
        if name in kept or (state == "conflict" and name not in dropped):
            continue  # what is in conflict is not lost yet: it keeps the bump from being done
        why = known[name].reason if name in known else "the series has no such patch any more"
        if name in proven:
            found.append(Loss(id=name, how="proven", why=proven[name]))
        elif name in without:
            found.append(Loss(id=name, how="accepted", why=why))
        else:
            found.append(Loss(id=name, how="dropped" if name in dropped else "unproven", why=why))
    return tuple(found)


def _proven(known: Mapping[str, Classified], series: Series) -> dict[str, str]:
    """Why each patch is needed no more: its own class, or that of a patch without which it is wrong."""
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
            if patch.id in found or known[patch.id].patch_class != "out of era":
                continue
            for requirement in patch.requires:
                if requirement.patch in ended:
                    found[patch.id] = f"requires '{requirement.patch}', which is retired: {requirement.why}"
                    ended.add(patch.id)
                    more = True
                    break
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What the bump made for one row; ``report`` is None when the gates were left out.

    ``had``: the patches before it; ``losses``: those of them that are not in any more. ``offered``: what is
    opt-in there, where nothing is left. ``asked``: the options of ``apply`` that make the same.
    ``followed``: functions that are not where patch.toml says, with the place the lock has from now on.
    ``history``: whether upstream's commits were asked for, and why not.
    """

    row: Row
    verdicts: tuple[Classified, ...]
    blocked: tuple[str, ...]
    had: tuple[str, ...]
    losses: tuple[Loss, ...]
    offered: tuple[str, ...]
    branch: str
    asked: tuple[str, ...]
    followed: tuple[Followed, ...]
    tip: str | None = None
    tree: str | None = None
    patches: tuple[str, ...] = ()
    report: Report | None = None
    history: str = ""

    @property
    def archs(self) -> tuple[str, ...]:
        """The GPUs."""
        return self.row.archs

    @property
    def dropped(self) -> tuple[str, ...]:
        """Patches that were left out because of a conflict."""
        return tuple(loss.id for loss in self.losses if loss.how == "dropped")

    @property
    def unproven(self) -> tuple[str, ...]:
        """Patches that were lost, and nobody knows why."""
        return tuple(loss.id for loss in self.losses if loss.how == "unproven")

    @property
    def left_out(self) -> tuple[str, ...]:
        """Patches that were left out, by name or because of a conflict."""
        return tuple(dict.fromkeys([*self.row.without, *self.dropped]))

    @property
    def drifted(self) -> tuple[Classified, ...]:
        """Patches of the candidate whose functions changed upstream."""
        return tuple(each for each in self.verdicts if each.patch_class in GOOD and each.drift)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What all steps need; ``stage`` is the workspace whose series is the stage's.

    ``told`` is the new pin as its source tells it: ``new`` is the lock's own where that has this tree.
    ``trees`` are the upstreams that were read so far, by commit: rows share them.
    """

    request: BumpRequest
    workspace: Workspace
    stage: Workspace
    cache: Cache
    lock: Lock
    old: Pin
    new: Pin
    told: Pin
    environ: Mapping[str, str]
    trees: dict[str, UpstreamFiles] = field(default_factory=dict)


def regenerate(work: Work, row: Row, repository: Repository) -> Candidates:
    """Every patch on the new upstream, classified against its last rendering on the pins of the row."""
    series = load_series(work.stage.series.patches)
    bases = [work.lock.pin(build) for build in row.builds]
    last: dict[str, Rendering] = {}
    for pin in bases:
        base = _comparison(work, row, series, pin, (), repository)
        # A newer pin knows better where a function is now.
        last |= {
            each.patch.id: each
            for each in render_series(base.chosen, base.files, work.stage.series)
            if each.placed is not None
        }
    new = _comparison(work, row, series, work.new, row.without, repository)
    verdicts, renderings = classify_series(replace(new, last=last))
    had = row.had if row.had is not None else tuple(last)
    conflicts = [each.id for each in verdicts if each.patch_class == "conflict"]
    left_out = conflicts if work.request.drop_conflicts else []
    made = {rendering.patch.id for rendering in renderings}
    profiles = tuple(load_profile(work.stage.series.profiles, arch) for arch in row.archs)
    inside = [patch.id for patch in series.patches if patch.builds.covers(work.new.build)]
    wanted = {each.patch.id for each in select_on(series, profiles, work.new, row.with_) if each.targets}
    return Candidates(
        row=row,
        verdicts=verdicts,
        blocked=tuple(_blocked(work, row, series, verdicts)),
        had=had,
        losses=find_losses(had, verdicts, series, without=work.request.without, dropped=left_out),
        offered=() if made or not had else opted_in(profiles, inside),
        branch=candidate_ref(row.archs, work.new.name).removeprefix("refs/heads/"),
        asked=_asked(work, row, sorted(made), sorted(wanted - made)),
        followed=followed_by(series, renderings),
    )


def _comparison(
    work: Work, row: Row, series: Series, pin: Pin, without: Sequence[str], repository: Repository
) -> Comparison:
    obtained = obtain(
        pin,
        cache=work.cache,
        source=work.request.source if pin is work.new is work.told else "auto",
        upstream_url=work.request.upstream_url if pin.commit is not None else None,
        fetched=work.told.commit if pin is work.new else None,
        reporter=work.workspace.reporter,
    )
    if obtained.commit not in work.trees:
        work.trees[obtained.commit] = read_upstream(repository, obtained.commit, series.folders)
    profiles = tuple(load_profile(work.stage.series.profiles, arch) for arch in row.archs)
    return Comparison(
        series=work.stage.series,
        build=pin.build,
        chosen=select_on(series, profiles, pin, row.with_, without),
        files=work.trees[obtained.commit].fresh(),
        last={},
        reporter=work.workspace.reporter,
    )


def _asked(work: Work, row: Row, made: Sequence[str], left_out: Sequence[str]) -> tuple[str, ...]:
    """The options of ``apply`` that make this candidate again."""
    words = [word for arch in row.archs for word in ("--arch", arch)] + ["--upstream", work.new.name]
    words += [word for name in row.with_ if name in made for word in ("--with", name)]
    return (*words, *(word for name in left_out for word in ("--without", name)))


def _blocked(work: Work, row: Row, series: Series, verdicts: Sequence[Classified]) -> Iterator[str]:
    """What a person has to do first, one sentence for each patch."""
    last = max((build for build in row.builds if build < work.new.build), default=work.new.build - 1)
    for verdict in verdicts:
        patch = series.patch(verdict.id)
        if patch is None or verdict.id in row.without:
            continue
        if verdict.patch_class == "conflict":
            if not work.request.drop_conflicts:
                yield f"{verdict.id}: {verdict.reason}"
        elif verdict.patch_class in DROPPED and patch.builds.covers(work.new.build):
            yield (
                f"{verdict.id}: {verdict.patch_class} ({verdict.reason}): "
                f"end it with [builds] last = {last} in patches/{patch.folder}/patch.toml"
            )


def make(
    work: Work, one: Candidates, lock: Lock, repository: Repository
) -> tuple[Lock, Candidate, Candidates]:
    """The commits of the candidate, its result in the lock of the stage, and no ref."""
    lock = lock.with_followed(work.new.build, one.followed)
    write_lock(work.stage.series.lock, lock)
    request = Request(
        archs=one.archs,
        upstream=work.new.name,
        with_=one.row.with_,
        without=one.left_out,
    )
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

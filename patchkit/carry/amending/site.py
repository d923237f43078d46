"""Where a patch of the series is placed: a build, the GPUs of a candidate, and the patches before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchkit.base.arch import list_profiles
from patchkit.base.errors import UsageError
from patchkit.base.reporter import NullReporter
from patchkit.carry.bump.request import BumpRequest
from patchkit.carry.candidate.commit import write_plan
from patchkit.carry.candidate.decision import Decision, Request, load_decision
from patchkit.carry.candidate.plan import Plan, place
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.resolving.case import find_variant
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Pin, PinWanted
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.selection import Selected
from patchkit.carry.upstream.pin import obtain


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A pin, its commit ``base`` in the cache, and the candidate there that has the patches in question."""

    pin: Pin
    base: str
    decision: Decision

    @property
    def archs(self) -> tuple[str, ...]:
        """The GPUs of the candidate."""
        return self.decision.archs

    def chosen(self, name: str) -> Selected:
        """A patch as it is on this pin."""
        return next(each for each in self.decision.selected if each.patch.id == name)


def find_site(names: Sequence[str], wanted: PinWanted, pipeline: Pipeline) -> Site:
    """The pin where all of some patches are placed: the wanted one, else the default one, else the newest.

    Raises PIN_UNKNOWN, AMEND_REFUSED, and the errors of obtaining the pin.
    """
    workspace, lock = pipeline.workspace, pipeline.lock
    series = load_series(workspace.series.patches)
    patches = [series.require(name) for name in names]
    pins = sorted(lock.pins, key=lambda pin: (pin.name != lock.default, -pin.build))
    pins = pins if wanted is None else [lock.pin(wanted)]
    pin = next((pin for pin in pins if all(each.builds.covers(pin.build) for each in patches)), None)
    if pin is None:
        tried = ", ".join(each.title for each in pins)
        raise UsageError(
            f"{_quoted(names)}: not for {tried}",
            code="AMEND_REFUSED",
            where=[each.where for each in patches],
            hint="name a build of its [builds] with --upstream, or extend that range",
        )
    base = obtain(pin, cache=pipeline.cache, reporter=workspace.reporter)
    variant = find_variant(BumpRequest(), lock, pin, workspace, names[0])
    known = [name for name in variant.with_ if series.patch(name) is not None]
    request = Request(archs=variant.archs, upstream=pin, with_=tuple(dict.fromkeys((*known, *names))))
    # The GPUs of the lock need not be those that are offered the patch.
    others = [(arch,) for arch in list_profiles(workspace.series.profiles) if (arch,) != variant.archs]
    requests = [request, *(replace(request, archs=archs, with_=tuple(names)) for archs in others)]
    lacking: list[Selected] = []
    for each in requests:
        site = Site(pin=pin, base=base, decision=load_decision(each, workspace, lock))
        off = [chosen for name in names if not (chosen := site.chosen(name)).targets]
        if not off:
            return site
        lacking = lacking or off
    raise UsageError(
        f"'{lacking[0].patch.id}' is not applied at {pin.title}: {lacking[0].reason}",
        code="AMEND_REFUSED",
        where=[each.where for each in patches],
        hint="choose another build with --upstream",
    )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseTree:
    """A site with some patches, as a tree in the cache; ``selected`` is the patch to place there."""

    site: Site
    plan: Plan
    tree: str
    selected: Selected
    pipeline: Pipeline

    @property
    def pin(self) -> Pin:
        """The pin below it."""
        return self.site.pin

    @property
    def base(self) -> str:
        """The commit of the pin in the cache."""
        return self.site.base

    def files(self, paths: Sequence[str]) -> UpstreamFiles:
        """The files that the series and ``paths`` name, with the patches."""
        series = self.site.decision.series
        found = read_upstream(self.pipeline.repository, self.base, (*series.read, *paths))
        for _, placed in self.plan.steps:
            found.write(placed.changes, placed.gone, placed.modes)
        return found


def base_tree_with(site: Site, below: Sequence[Selected], selected: Selected, pipeline: Pipeline) -> BaseTree:
    """The site with these patches; raises one ErrorGroup if one of them cannot be placed."""
    workspace = replace(pipeline.workspace, reporter=NullReporter())
    plan = place(replace(site.decision, selected=tuple(below)), site.base, workspace, pipeline.repository)
    _, tree = write_plan(plan, pipeline.repository)
    return BaseTree(site=site, plan=plan, tree=tree, selected=selected, pipeline=pipeline)


def base_tree_before(site: Site, patch: Patch, pipeline: Pipeline) -> BaseTree:
    """The site with the patches before one."""
    before = site.decision.up_to(patch.id).selected[:-1]
    pipeline.workspace.reporter.step(f"placing the patches before '{patch.id}' at {site.pin.title}")
    return base_tree_with(site, before, site.chosen(patch.id), pipeline)

"""A decision placed on upstream: every patch of the series in memory, or the reason why it is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from patchkit.base.errors import ErrorGroup, PatchkitError
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Decision, Request, load_decision
from patchkit.carry.placing.context import make_guard
from patchkit.carry.placing.place import PlacedEdit, PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.placing.whereabouts import add_whereabouts
from patchkit.carry.series.fault import FaultHere
from patchkit.carry.series.lock import Lock, Pin
from patchkit.carry.series.selection import Selected
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.pin import obtain
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPatch:
    """One patch of the series; ``placed`` is None when it is skipped, for ``reason``, or has failed."""

    json_keys: ClassVar = (
        "id title=selected.patch.title state reason targets new_files replaced=placed.replaced "
        "removed=placed.removed renamed=placed.renamed modes=placed.modes edits"
    )

    selected: Selected
    placed: PlacedPatch | None
    state: Literal["apply", "skipped", "failed"]
    reason: str = ""

    @property
    def id(self) -> str:
        """The patch's."""
        return self.selected.patch.id

    @property
    def targets(self) -> tuple[str, ...]:
        """The GPUs for which it is live: those asked for, and all of the family that guards it."""
        if not self.selected.targets:
            return ()
        guard = make_guard(self.selected.patch.guard, self.selected.targets)
        return tuple(target.arch for target in guard.targets)

    @property
    def edits(self) -> tuple[PlacedEdit, ...]:
        """Where its edits go."""
        return self.placed.edits if self.placed is not None else ()

    @property
    def new_files(self) -> tuple[str, ...]:
        """The files that it adds."""
        return self.placed.new_files if self.placed is not None else ()

    @property
    def format_files(self) -> tuple[str, ...]:
        """What becomes of whole files, a line each."""
        return self.selected.patch.format_files if self.placed is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A decision placed on ``base``, the commit of the pin in the cache.

    ``pin`` is that of the decision; on a commit of the user's clone it says where functions were found.
    """

    json_keys: ClassVar = (
        "pin archs patches trust=decision.trust more_trust=decision.more_trust faults errors"
    )

    decision: Decision
    pin: Pin
    base: str
    patches: tuple[PlannedPatch, ...]
    errors: tuple[PatchkitError, ...]

    @property
    def archs(self) -> tuple[str, ...]:
        """The GPUs, sorted."""
        return self.decision.archs

    @property
    def faults(self) -> tuple[FaultHere, ...]:
        """What is known to be wrong in this build on these GPUs, mended by a patch that is placed or not."""
        return self.decision.faults_with(each.selected for each in self.patches if each.placed is not None)

    @property
    def steps(self) -> tuple[tuple[Selected, PlacedPatch], ...]:
        """What apply commits, in order; empty when there are errors."""
        placed = [(each.selected, each.placed) for each in self.patches if each.placed is not None]
        return () if self.errors else tuple(placed)

    @property
    def ids(self) -> tuple[str, ...]:
        """The patches of the steps."""
        return tuple(selected.patch.id for selected, _ in self.steps)

    @property
    def skipped(self) -> dict[str, str]:
        """Every patch that is not in, with the reason."""
        return {patch.id: patch.reason for patch in self.patches if patch.state != "apply"}

    @property
    def files(self) -> dict[str, bytes]:
        """What the steps make of the files that they change."""
        made: dict[str, bytes] = {}
        for _, placed in self.steps:
            made = {path: data for path, data in made.items() if path not in placed.gone}
            made |= placed.changes
        return made

    @property
    def modes(self) -> dict[str, str]:
        """The modes of those files that the steps give one, as git writes them."""
        made: dict[str, str] = {}
        for _, placed in self.steps:
            made = {path: mode for path, mode in made.items() if path not in placed.gone}
            made |= placed.modes
        return made

    def check(self) -> None:
        """Raise one ErrorGroup of everything that was found, if anything was."""
        if self.errors:
            raise ErrorGroup("the series cannot be applied", self.errors)


def make_plan(
    request: Request, workspace: Workspace, cache: Cache | None = None, lock: Lock | None = None
) -> Plan:
    """Plan a request. Fetches the pin into the cache if it is not there; writes nothing else.

    Errors of places and templates are collected in ``Plan.errors``; whatever makes planning itself
    impossible (a bad lock, profile, patch.toml or request, an unobtainable pin) is raised.

    Args:
        request: what is asked for.
        workspace: the series and the cache.
        cache: that of the workspace, where the caller holds it already.
        lock: stands in for the series' own: that is how a bump plans a pin before it is recorded.
    """
    cache = cache or open_cache(workspace.cache_root)
    decision = load_decision(request, workspace, lock)
    decision.warn(workspace.reporter)
    base = obtain(
        decision.pin,
        cache=cache,
        source=request.source,
        upstream_url=request.upstream_url,
        reporter=workspace.reporter,
    )
    repository = cache.peek(workspace.reporter)
    if repository is None:
        raise AssertionError("the pin was put into it just now")
    return place(decision, base, workspace, repository)


def place(decision: Decision, base: str, workspace: Workspace, repository: Repository) -> Plan:
    """Place every patch that is in on ``base``."""
    series_dir, reporter = workspace.series, workspace.reporter
    files = UpstreamFiles({})
    if decision.ids:
        files = read_upstream(repository, base, decision.series.read)
    planned: list[PlannedPatch] = []
    errors: list[PatchkitError] = []
    for selected in decision.selected:
        if not selected.targets:
            planned.append(
                PlannedPatch(selected=selected, placed=None, state="skipped", reason=selected.reason)
            )
            continue
        reporter.step(f"placing {selected.patch.id}")
        try:
            placed = place_patch(selected, files, series_dir.patches, series_dir.templates)
        except PatchkitError as exc:
            found = exc.errors if isinstance(exc, ErrorGroup) else (exc,)
            add_whereabouts(found, selected.patch, files)
            errors.extend(found)
            planned.append(PlannedPatch(selected=selected, placed=None, state="failed"))
            continue
        for warning in placed.warnings:
            reporter.warn(f"{selected.patch.id}: {warning}")
        files.write(placed.changes, placed.gone, placed.modes)
        planned.append(PlannedPatch(selected=selected, placed=placed, state="apply"))
    return Plan(decision=decision, pin=decision.pin, base=base, patches=tuple(planned), errors=tuple(errors))

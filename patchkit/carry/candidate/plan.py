"""A decision placed on upstream: every patch of the series in memory, or the reason why it is not applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from patchkit.base.errors import ErrorGroup, PatchkitError, members_of
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Decision, Request, load_decision
from patchkit.carry.placing.context import make_guard
from patchkit.carry.placing.moved_lines import add_moved_lines
from patchkit.carry.placing.place import PlacedEdit, PlacedPatch, place_patch
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.series.fault import FaultHere
from patchkit.carry.series.lock import Lock, Pin
from patchkit.carry.series.selection import Selected
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.pin import obtain
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPatch:
    """One patch of the series; ``placed`` is None if it was skipped, for ``reason``, or failed."""

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
        """The id of the patch."""
        return self.selected.patch.id

    @property
    def targets(self) -> tuple[str, ...]:
        """The GPUs for which its code is compiled: those requested, or all of the family in its guard."""
        if not self.selected.targets:
            return ()
        guard = make_guard(self.selected.patch.guard, self.selected.targets)
        return tuple(target.arch for target in guard.targets)

    @property
    def edits(self) -> tuple[PlacedEdit, ...]:
        """Its placed edits."""
        return self.placed.edits if self.placed is not None else ()

    @property
    def new_files(self) -> tuple[str, ...]:
        """The files that it adds."""
        return self.placed.new_files if self.placed is not None else ()

    @property
    def format_files(self) -> tuple[str, ...]:
        """One line for each change to a whole file."""
        return self.selected.patch.format_files if self.placed is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A decision placed on ``base``, the commit of the pin in the cache.

    ``pin`` is that of the decision; on a commit of the user's clone it also has the places of moved
    functions.
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
        """The known faults of this build on these GPUs, whether a placed patch fixes them or not."""
        return self.decision.faults_with(each.selected for each in self.patches if each.placed is not None)

    @property
    def steps(self) -> tuple[tuple[Selected, PlacedPatch], ...]:
        """The patches that apply commits, in order; empty if there are errors."""
        placed = [(each.selected, each.placed) for each in self.patches if each.placed is not None]
        return () if self.errors else tuple(placed)

    @property
    def ids(self) -> tuple[str, ...]:
        """The patches of the steps."""
        return tuple(selected.patch.id for selected, _ in self.steps)

    @property
    def skipped(self) -> dict[str, str]:
        """Every patch that is not applied, with the reason."""
        return {patch.id: patch.reason for patch in self.patches if patch.state != "apply"}

    @property
    def files(self) -> dict[str, bytes]:
        """The final content of every file that the steps change."""
        files: dict[str, bytes] = {}
        for _, placed in self.steps:
            files = {path: data for path, data in files.items() if path not in placed.gone}
            files |= placed.changes
        return files

    @property
    def modes(self) -> dict[str, str]:
        """The final modes of files whose mode the steps set, as git writes them."""
        modes: dict[str, str] = {}
        for _, placed in self.steps:
            modes = {path: mode for path, mode in modes.items() if path not in placed.gone}
            modes |= placed.modes
        return modes

    def check(self) -> None:
        """Raise one ErrorGroup of all errors, if there are any."""
        if self.errors:
            raise ErrorGroup("the series cannot be applied", self.errors)


def make_plan(
    request: Request, workspace: Workspace, cache: Cache | None = None, lock: Lock | None = None
) -> Plan:
    """Plan a request. Fetches the pin into the cache if it is not there; writes nothing else.

    Errors of places and templates are collected in ``Plan.errors``. Errors that prevent planning (an invalid
    lock, profile, patch.toml or request, an unobtainable pin) are raised.

    Args:
        request: the requested GPUs, patches and pin.
        workspace: the series and the cache.
        cache: that of the workspace, if the caller already holds it.
        lock: used instead of the series' own; a bump plans a pin this way before it is recorded.
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
        raise AssertionError("obtain() has just put the pin into the cache")
    return place(decision, base, workspace, repository)


def place(decision: Decision, base: str, workspace: Workspace, repository: Repository) -> Plan:
    """Place every selected patch on ``base``."""
    series_dir, reporter = workspace.series, workspace.reporter
    files = UpstreamFiles({})
    if decision.ids:
        files = read_upstream(repository, base, decision.series.read, decision.pin.project)
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
            found = tuple(members_of(exc))
            add_moved_lines(found, selected.patch, files)
            errors.extend(found)
            planned.append(PlannedPatch(selected=selected, placed=None, state="failed"))
            continue
        for warning in placed.warnings:
            reporter.warn(f"{selected.patch.id}: {warning}")
        files.write(placed.changes, placed.gone, placed.modes)
        planned.append(PlannedPatch(selected=selected, placed=placed, state="apply"))
    return Plan(decision=decision, pin=decision.pin, base=base, patches=tuple(planned), errors=tuple(errors))

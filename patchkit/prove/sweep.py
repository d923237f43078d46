"""Run the compiling gates on every pin of a sweep that has a patch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import CacheError, ErrorGroup, GitError, PatchkitError, UsageError, members_of
from patchkit.base.series_folder import PLAIN
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.commit import write_plan
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.plan import make_plan
from patchkit.carry.candidate.staging import open_stage
from patchkit.carry.series.lock import Lock, load_lock
from patchkit.carry.sweep.run import Sweep, SweepRow
from patchkit.carry.upstream.cache import open_cache
from patchkit.prove.gates.registry import entries
from patchkit.prove.verify.run import Report, run_verify
from patchkit.toolchain.hip import check_archs, find_toolchain


def _gates(archs: Sequence[str]) -> tuple[str, ...]:
    """The gates that prove something new about a row; its edits were already placed by planning."""
    if tuple(archs) == (PLAIN,):
        return tuple(entry.name for entry in entries("anywhere") if entry.plain_only)
    return tuple(entry.name for entry in entries("anywhere") if entry.compiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the gates found on one pin; without a ``report`` they could not run, and ``error`` is the reason.

    Without ``patches`` there is nothing to prove.
    """

    json_keys: ClassVar = "build patches ok nothing_to_prove=nothing report error"

    build: int
    patches: tuple[str, ...]
    report: Report | None
    error: PatchkitError | None = None

    @property
    def nothing(self) -> bool:
        """Whether the row has no patch: it is upstream itself, and no gate ran."""
        return not self.patches

    @property
    def failed(self) -> bool:
        """Whether a gate failed or could not run, so that "clean" or "moved" is not confirmed."""
        return not self.nothing and (self.report is None or self.report.failed)

    @property
    def ok(self) -> bool:
        """Whether every gate that had to run did, and none failed."""
        return self.report is not None and self.report.ok

    def lines(self) -> list[str]:
        """One line per gate that had to run, followed by its problems."""
        if self.nothing:
            return [f"{build_name(self.build)}  nothing to prove: no patch applies, so no gate ran"]
        if self.report is None:
            return [f"{build_name(self.build)}  not run  {line}" for line in _error_lines(self.error)]
        lines: list[str] = []
        for gate in self.report.gates:
            if gate.gate in _gates(self.report.archs):
                verdict = f"{gate.verdict:<8} {gate.gate}"
                lines.append(f"{build_name(self.build)}  {verdict}: {gate.summary}")
                lines += [f"    {line}" for problem in gate.problems for line in _error_lines(problem)]
        return lines


def _error_lines(error: PatchkitError | None) -> list[str]:
    if error is None:
        return []
    return [
        f"{each.code}: {each.message}" + (f" ({each.where[0]})" if each.where else "")
        for each in members_of(error)
    ]


def prove_rows(
    workspace: Workspace, sweep: Sweep, *, with_: Sequence[str], environ: Mapping[str, str]
) -> Iterator[Proof]:
    """Run the gates on each row that has a patch, in order; no compiler is needed if no row has one.

    A row that cannot be proven (no plan, a baseline that does not compile) has the error in its proof.

    Raises:
        ToolchainMissing, SDK_UNUSABLE, UsageError, CacheError: no row could be proven.
        GitError: git failed.
    """
    if sweep.archs != (PLAIN,) and any(row.placed for row in sweep.rows):
        toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
        check_archs(toolchain, sweep.archs, workspace.reporter)
    cache = open_cache(workspace.cache_root)
    lock = load_lock(workspace.series.lock)
    pins = {pin.build: pin for pin in lock.pins} | {row.pin.build: row.pin for row in sweep.rows}
    lock = replace(lock, pins=tuple(pins.values()))
    with open_stage(workspace.series, cache, lock) as series:
        stage = replace(workspace, series=series)
        for row in sweep.rows:
            if not row.placed:
                yield Proof(build=row.pin.build, patches=(), report=None)
                continue
            try:
                yield _prove(stage, sweep.archs, row, lock, with_, environ)
            except (UsageError, CacheError, GitError):
                raise
            except PatchkitError as error:
                yield Proof(build=row.pin.build, patches=row.placed, report=None, error=error)


def _prove(
    stage: Workspace,
    archs: tuple[str, ...],
    row: SweepRow,
    lock: Lock,
    with_: Sequence[str],
    environ: Mapping[str, str],
) -> Proof:
    cache = open_cache(stage.cache_root)
    wanted = tuple(each for each in with_ if each in row.placed)
    request = Request(archs=archs, upstream=row.pin.name, only=row.placed, with_=wanted)
    with cache.hold(stage.reporter) as repository:
        plan = make_plan(request, stage, cache, lock)
        if plan.errors:
            raise ErrorGroup(f"the series cannot be applied to {row.pin.name}", plan.errors)
        candidate, _ = write_plan(plan, repository)
    stage.reporter.info(f"gates on {row.pin.name}")
    report = run_verify(
        stage,
        archs=archs,
        upstream=row.pin.name,
        only=_gates(archs),
        full=False,
        environ=environ,
        candidate=candidate,
    )
    return Proof(build=row.pin.build, patches=row.placed, report=report)

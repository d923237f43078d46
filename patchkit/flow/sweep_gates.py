"""The gates that compile, on every pin of a sweep where something is placed.

Vocabulary: a *proof* is what the gates ``isolation``, ``compile`` and ``launch`` say of the candidate that a
row would give. The candidate is commits that no ref names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from patchkit.classify.model import GOOD
from patchkit.config.lock import Lock, load_lock
from patchkit.errors import ErrorGroup
from patchkit.fetch.cache import open_cache
from patchkit.fetch.pin import pin_ref
from patchkit.flow.apply import candidate_ref, write_plan
from patchkit.flow.candidates import read_candidate
from patchkit.flow.plan import Request, plan_with
from patchkit.flow.staging import open_stage
from patchkit.flow.sweep import Row, Sweep
from patchkit.flow.verify import Report, run_verify
from patchkit.flow.workspace import Workspace

__all__ = ["GATES", "Proof", "prove_rows"]

GATES = ("isolation", "compile", "launch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the gates say of one pin."""

    build: int
    patches: tuple[str, ...]
    report: Report

    @property
    def failed(self) -> bool:
        """Whether one of them failed: a patch was called clean or moved and is neither."""
        return self.report.failed

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {"build": self.build, "patches": list(self.patches), **self.report.as_json()}

    def lines(self) -> list[str]:
        """One line per gate that was to run."""
        return [
            f"b{self.build}  {gate.result.verdict:<8} {gate.result.gate}: {gate.result.summary}"
            for gate in self.report.gates
            if gate.result.gate in GATES
        ]


def prove_rows(
    workspace: Workspace, sweep: Sweep, *, with_: Sequence[str], environ: Mapping[str, str]
) -> tuple[Proof, ...]:
    """Run the gates on each row that has a patch in; rows without one are upstream itself.

    Raises ErrorGroup when what was classified cannot be planned, and what the gates raise.
    """
    cache = open_cache(workspace.cache_root)
    lock = load_lock(workspace.series.lock)
    pins = {pin.build: pin for pin in lock.pins} | {row.pin.build: row.pin for row in sweep.rows}
    lock = replace(lock, pins=tuple(pins.values()))
    with open_stage(workspace.series, cache, lock) as series:
        stage = replace(workspace, series=series)
        return tuple(
            _prove(stage, sweep.archs, row, placed, lock, with_, environ)
            for row in sweep.rows
            if (placed := tuple(each.id for each in row.verdicts if each.patch_class in GOOD))
        )


def _prove(
    stage: Workspace,
    archs: tuple[str, ...],
    row: Row,
    placed: tuple[str, ...],
    lock: Lock,
    with_: Sequence[str],
    environ: Mapping[str, str],
) -> Proof:
    cache = open_cache(stage.cache_root)
    wanted = tuple(each for each in with_ if each in placed)
    request = Request(archs=archs, upstream=row.pin.name, only=placed, with_=wanted)
    with cache.hold(stage.reporter) as repository:
        plan = plan_with(request, stage, cache, lock)
        if plan.errors:
            raise ErrorGroup(f"the series cannot be applied to {row.pin.name}", plan.errors)
        commits, _ = write_plan(plan, repository, unlocked=False)
        ref = candidate_ref(archs, row.pin.build)
        tip = commits[-1].commit if commits else plan.base
        candidate = read_candidate(repository, ref, {ref: tip, pin_ref(row.pin): plan.base})
    stage.reporter.info(f"gates on {row.pin.name}")
    report = run_verify(
        stage,
        archs=archs,
        upstream=row.pin.name,
        only=GATES,
        full=False,
        environ=environ,
        candidate=candidate,
    )
    return Proof(build=row.pin.build, patches=placed, report=report)

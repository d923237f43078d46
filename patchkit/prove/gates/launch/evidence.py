"""Evidence of gate ``launch`` for every GPU: the kernels before and after, and the paths of the logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from patchkit.base.report.blocks import Block, Row, Table, columns, group
from patchkit.prove.gates.base import Both, Count, Evidence, Many, Record

_ATTENTION = "flash_attn"
_MOST_GPUS = 64  # each has its own tables; there are profiles for 16 GPUs
_CHANGED, _SAME = "changed", "as before"

_Triple = Annotated[tuple[Count, Count, Count], Field(strict=False)]


class LaunchRow(Record):
    """One launch: blocks per grid, threads per block, dynamic LDS in bytes, blocks per multiprocessor."""

    kernel: str
    grid: _Triple
    block: _Triple
    lds: Count
    resident: Count | None


class BenchRow(Record):
    """One run of llama-bench on both sides, and their logs."""

    run: str
    identical: bool
    logs: Both[str]


class Transition(Record):
    """``cases`` of a phase that changed from one kind of kernel to another, or kept it."""

    phase: str
    before: str
    after: str
    cases: Count


class Sample(Record):
    """The attention launches of one case."""

    case: str
    before: Many[LaunchRow]
    after: Many[LaunchRow]


class ModelRun(Record):
    """The launches of a model's last graph."""

    run: str
    before: Many[LaunchRow]
    after: Many[LaunchRow]


class Kernels(Record):
    """How often each attention kernel was launched."""

    before: Mapping[str, Count]
    after: Mapping[str, Count]


class UpstreamOwn(Record):
    """The number of cases that break a rule in the baseline already, and the first of them."""

    cases: Count
    first: Many[str]


class GpuRecord(Record):
    """One GPU; the last five fields are set if a patch targets it.

    ``supported`` counts upstream's own cases before and after, out of ``operations``.
    """

    supported: Both[Count]
    operations: Count
    cases: Count
    cases_identical: bool
    logs: Both[str]
    benches: Many[BenchRow]
    transitions: Many[Transition] | None = None
    kernels: Kernels | None = None
    samples: Many[Sample] | None = None
    models: Many[ModelRun] | None = None
    upstream: Mapping[str, UpstreamOwn] | None = None


class BuiltSide(Record):
    """How one side was built."""

    programs: str
    programs_key: str
    host_library: str
    host_library_key: str
    device_code: str


class Built(Record):
    """What was built, and with what; ``figures`` counts the kernels whose registers are known."""

    baseline: BuiltSide
    candidate: BuiltSide
    definitions: str
    clang: str | None
    hip_headers: str | None
    rocwmma: str
    figures: Mapping[str, Mapping[str, Count]]


class LaunchEvidence(Evidence):
    """What was built, and what was recorded for each GPU."""

    built: Built
    archs: Mapping[str, GpuRecord]

    def blocks(self) -> Iterator[Block]:
        """For each targeted GPU: kernels by phase, and geometry by shape and model. Then all other GPUs."""
        guarded = [(arch, one) for arch, one in self.archs.items() if one.transitions is not None]
        for arch, one in guarded[:_MOST_GPUS]:
            yield _transitions(arch, one.transitions or ())
            if one.samples is not None:
                rows = [_launches(sample.case, sample) for sample in one.samples]
                yield _geometry(f"samples-{arch}", "case", f"for attention at 65536 KV rows on {arch}", rows)
            if one.models is not None:
                rows = [_launches(model.run, model) for model in one.models]
                yield _geometry(f"models-{arch}", "run", f"in llama-bench on small models on {arch}", rows)
        others = [_other(arch, one) for arch, one in self.archs.items() if one.transitions is None]
        if others:
            yield Table(
                name="other-gpus",
                caption="GPUs that no patch targets",
                columns=columns("GPU", "cases #", "model runs #", "launches"),
                rows=tuple(others),
                is_detail=True,
            )


def _transitions(arch: str, transitions: Sequence[Transition]) -> Table:
    rows = []
    for one in transitions:
        state = _SAME if one.before == one.after else _CHANGED
        rows.append(Row(cells=(state, one.phase, one.before, one.after, str(one.cases))))
    rows.sort(key=lambda row: row.cells[0] == _SAME)
    return Table(
        name=f"kernels-by-phase-{arch}",
        caption=f"Attention kernels on {arch}, by number of recorded cases",
        columns=columns("state", "phase", "baseline", "candidate", "cases #"),
        rows=tuple(rows),
        note="Recorded from host code on a stub of the GPU: what is launched, not what is computed.",
    )


def _geometry(name: str, what: str, where: str, rows: Sequence[Row]) -> Table:
    return Table(
        name=name,
        caption=f"Launches {where}",
        columns=columns("state", what, "baseline", "candidate"),
        rows=tuple(rows),
        note="Blocks of the grid, 'of' threads per block.",
        is_detail=True,
    )


def _launches(name: str, sides: Sample | ModelRun) -> Row:
    before, after = _attention(sides.before), _attention(sides.after)
    state = _SAME if before == after else _CHANGED
    return Row(cells=(state, name, before, after))


def _attention(launches: Sequence[LaunchRow]) -> str:
    """The attention kernels of a step, once each, with their geometry."""
    found = [
        f"{one.kernel} {_times(one.grid)} of {_times(one.block).removesuffix('x1')}"
        for one in launches
        if one.kernel.startswith(_ATTENTION)
    ]
    return group(list(dict.fromkeys(found))) or "none"


def _times(size: Sequence[int]) -> str:
    return "x".join(map(str, size))


def _other(arch: str, one: GpuRecord) -> Row:
    same = one.cases_identical and all(run.identical for run in one.benches)
    result = "the baseline's" if same else "differ from the baseline's"
    return Row(cells=(arch, str(one.cases), str(len(one.benches)), result))

"""What a measurement of the kernel's numbers found, as it is written and shown."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.gates.base import Count, Evidence, Many, MeasuredNumber, Record
from patchkit.gates.blocks import Block, Row, Table, columns
from patchkit.gates.numerics.cuda import NvidiaGpu


class Limits(Record):
    """The largest NMSE of a result, and of one of its rows."""

    nmse: MeasuredNumber
    row_nmse: MeasuredNumber


class Counts(Record):
    """Cases of patchkit's own and of upstream's that ran; those that failed, and those not supported."""

    own: Count
    upstream: Count
    failed: Count
    unsupported: Count


class PointRow(Record):
    """One setting of one variant; ``failures`` names the cases that failed."""

    head_size: Count
    ncols: Count
    acc: str
    kq_stride: Count
    nwarps: Count
    static_bytes: Count
    own_cases: Count
    upstream_cases: Count
    failed: Count
    nmse_max: MeasuredNumber
    row_nmse_max: MeasuredNumber
    failures: Many[str]


class TableRow(Record):
    """One table of settings; ``not_run`` are those that CUDA cannot run."""

    name: str
    settings: Count
    measured: Count
    passed: Count
    cases: Count
    failed: Count
    nmse_max: MeasuredNumber | None
    not_run: Many[str]


class PlantedRow(Record):
    """One run with settings that break the kernel's rules: it must fail, or crash."""

    job: str
    cases: Count
    failed: Count
    crashed: bool


class Timing(Record):
    """One test of upstream's on CUDA: microseconds of each round, and the ratio of the medians."""

    before_us: Many[MeasuredNumber]
    after_us: Many[MeasuredNumber]
    ratio: MeasuredNumber
    slower: bool


class CudaSides(Record):
    """What CUDA makes of both sides. ``unsteady_objects``: sha256s of units that two builds differ in."""

    units: Count
    equal_objects: Count
    differing: Many[str]
    unsteady_objects: dict[str, Many[str]]
    programs_equal: bool
    counts: dict[str, str]
    timings: dict[str, Timing]


class JobEnd(Record):
    """How a job ended, as a shell says it."""

    status: Count
    seconds: Count


class NumericsEvidence(Evidence):
    """Everything that one bundle's results say; ``isolation`` is None where it does not compare the sides."""

    candidate_tree: str
    baseline_tree: str
    build: Count
    gpu: NvidiaGpu
    nvcc: str
    limits: Limits
    counts: Counts
    points: Many[PointRow]
    tables: Many[TableRow]
    planted: Many[PlantedRow]
    isolation: CudaSides | None
    jobs: dict[str, JobEnd]

    def blocks(self) -> Iterator[Block]:
        """The tables of settings."""
        yield Table(
            name="numerics",
            caption=f"The kernel's numbers on {self.gpu.name}, by table of settings",
            columns=columns("table", "settings #", "passed #", "cases #", "failed #", "largest NMSE #"),
            rows=tuple(
                Row(
                    cells=(
                        one.name,
                        *(str(count) for count in (one.settings, one.passed, one.cases, one.failed)),
                        f"{one.nmse_max:.1e}" if one.nmse_max is not None else "-",
                    )
                )
                for one in self.tables
            ),
            note="Measured on an NVIDIA GPU in place of the target: docs/gates.md says what that proves.",
        )

    def provenance(self) -> Iterator[tuple[str, str]]:
        """The compiler and the GPU."""
        yield "nvcc", self.nvcc
        yield "GPU and driver", f"{self.gpu.name}, {self.gpu.driver}"

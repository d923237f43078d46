"""What every gate has in common: what it is made with, its result, and the base of its evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from patchkit.base.errors import PatchkitError
from patchkit.base.report.blocks import Block
from patchkit.base.verdict import PASSED, Verdict

if TYPE_CHECKING:  # reading evidence needs none of these
    from pathlib import Path

    from patchkit.base.workspace import Workspace
    from patchkit.carry.series.lock import PinWanted
    from patchkit.gpu.hardware.program import Elsewhere
    from patchkit.gpu.hardware.runner import Runner
    from patchkit.prove.build import Machine
    from patchkit.prove.subject import Subject

_LARGEST = 10**15  # far above nanoseconds of a day and bytes of any disk; floats still count in ones there
_T = TypeVar("_T")

Many = Annotated[tuple[_T, ...], Field(strict=False)]
"""A list in JSON, which strict models would not take for a tuple."""
Both = Annotated[tuple[_T, _T], Field(strict=False)]
"""The same of both sides, or both ends of an interval."""
Count = Annotated[int, Field(ge=0, le=_LARGEST)]
Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
MeasuredNumber = Annotated[float, Field(allow_inf_nan=True)]
"""What a gate measured: NaN and infinities are results, too, and those of a gate that failed."""


class Record(BaseModel):
    """A part of what is written as JSON and read back; strangers may have written it."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_by_name=True
    )


class Evidence(Record):
    """What a gate found, in full: filled by the gate, written, read back, and shown by every format."""

    def blocks(self) -> Iterator[Block]:
        """What a report shows of it."""
        yield from ()

    def provenance(self) -> Iterator[tuple[str, str]]:
        """Who measured it, on what, and when, each by name."""
        yield from ()


class Identity(Record):
    """All that a result on a device rests on: it holds as long as none of it changes."""

    format: str
    baseline_tree: str
    candidate_tree: str
    toolchain: str
    runner: str
    machine: str
    settings: str


class EmulatedOn(Record):
    """An emulated GPU; ``emulator`` is a digest of the sources of what emulates it."""

    gpu: str
    emulator: str

    def __str__(self) -> str:
        return f"emulated {self.gpu}, emulator {self.emulator}"


class DeviceEvidence(Evidence):
    """What a gate found on a device, which may be an ``emulated`` one.

    All is filled in where it may be taken again later.
    """

    emulated: EmulatedOn | None = None
    identity: Identity | None = None
    run_at: str | None = None

    def provenance(self) -> Iterator[tuple[str, str]]:
        """When, by whom, on what machine, with what settings."""
        if self.emulated is not None:
            yield "GPU", str(self.emulated)
        if self.run_at is not None:
            yield "run at", self.run_at
        if self.identity is not None:
            yield "run by", self.identity.runner
            yield "machine", self.identity.machine
            yield "settings", self.identity.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What one gate found, in ``seconds``.

    ``summary`` is one line; ``lines`` are the rows a person reads below it. ``not_run`` names what was not
    proven, each with its reason. As JSON it is the gate's own file; the report has its ``seconds``.
    """

    json_keys: ClassVar = (
        "gate verdict summary not_run lines problems=problem_records evidence=evidence_record"
    )

    gate: str
    verdict: Verdict
    summary: str
    problems: tuple[PatchkitError, ...] = ()
    evidence: Evidence | None = None
    not_run: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def has_passed(self) -> bool:
        """Whether it passed, on hardware, on the emulated GPU or by the timing model."""
        return self.verdict in PASSED

    @classmethod
    def without_compiler(cls, gate: str) -> GateResult:
        """Of a gate that has nothing to compile with."""
        return cls(gate=gate, verdict="not run", summary="no compiler", not_run=("all of it: no compiler",))

    @classmethod
    def ended_by(cls, gate: str, error: PatchkitError) -> GateResult:
        """Of a gate that failed with one error, before there was anything else to tell."""
        return cls(gate=gate, verdict="failed", summary=error.message, problems=(error,))

    @property
    def problem_records(self) -> list[dict[str, object]]:
        """The problems as the gate's file has them: each place as text and in parts."""
        return [
            {
                **{name: getattr(problem, name) for name in ("code", "message", "why", "hint")},
                "where": problem.where,
                "places": [asdict(place) for place in problem.where],
            }
            for problem in self.problems
        ]

    @property
    def evidence_record(self) -> Evidence | dict[str, object]:
        """The evidence as the gate's file has it."""
        return self.evidence or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """What gates that run anywhere are made with; ``full``: as thorough as they can be."""

    workspace: Workspace
    upstream: PinWanted
    full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSetup:
    """What gates on a device are made with.

    ``runner`` says where programs run, ``elsewhere`` is that place when it is another machine. ``model`` and
    ``text`` are the user's. ``full``: as thorough as they can be, where the default is a sample.
    ``scheduler``: the address of a Dask scheduler whose workers share the work of the emulated GPU.
    ``is_looked_at``: the gate that looks for faults runs, too, and wants the same runs with its checks.
    """

    machine: Machine
    runner: Runner
    elsewhere: Elsewhere | None = None
    model: Path | None = None
    text: Path | None = None
    full: bool = False
    scheduler: str | None = None
    is_looked_at: bool = False


class Gate(Protocol):
    """One check. ``run`` raises only when the check itself was impossible (no compiler, disk full).

    The class of a gate that runs anywhere has ``make(RunSetup)``, one on a device ``make(DeviceSetup)``.
    """

    @property
    def name(self) -> str:
        """The name it goes by on the command line."""
        ...

    def run(self, subject: Subject) -> GateResult:
        """Look at the subject."""
        ...

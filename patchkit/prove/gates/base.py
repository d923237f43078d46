"""What all gates share: their setup, their result, and the base class of their evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from patchkit.base.errors import PatchkitError
from patchkit.base.report.blocks import Block
from patchkit.base.verdict import PASSED, Verdict

if TYPE_CHECKING:  # not needed to read evidence
    from pathlib import Path

    from patchkit.base.workspace import Workspace
    from patchkit.carry.series.lock import PinWanted
    from patchkit.gpu.hardware.program import RemoteRunner
    from patchkit.gpu.hardware.runner import Runner
    from patchkit.prove.build import Machine
    from patchkit.prove.subject import Subject

_LARGEST = (
    10**15
)  # above the nanoseconds of a day and the bytes of any disk; floats are exact to 1 up to here
_T = TypeVar("_T")

Many = Annotated[tuple[_T, ...], Field(strict=False)]
"""A JSON list; strict models would not accept it as a tuple."""
Both = Annotated[tuple[_T, _T], Field(strict=False)]
"""One value per side (baseline, candidate), or both ends of an interval."""
Count = Annotated[int, Field(ge=0, le=_LARGEST)]
Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
MeasuredNumber = Annotated[float, Field(allow_inf_nan=True)]
"""A measurement. NaN and infinities are valid results, for example of a failed gate."""


SKIPPED = "skipped: "
"""Prefix of the summary of a gate that was not to run: not selected, or after a gate that failed."""
NOT_SELECTED = f"{SKIPPED}not selected with --gate"


class Record(BaseModel):
    """A part of a JSON file. Files may come from other people, so fields are checked strictly."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_by_name=True
    )


class Evidence(Record):
    """All that a gate found: filled by the gate, written, read back and shown in every format."""

    def blocks(self) -> Iterator[Block]:
        """The blocks of a report that show it."""
        yield from ()

    def provenance(self) -> Iterator[tuple[str, str]]:
        """Where the evidence comes from: runner, machine and time, as name and value."""
        yield from ()

    @property
    def outcome(self) -> str:
        """What was run or found, in a few words for the first lines of a report; may be empty."""
        return ""


class Identity(Record):
    """All inputs of a result on a device. The result can be reused while none of them changes."""

    format: str
    baseline_tree: str
    candidate_tree: str
    toolchain: str
    runner: str
    machine: str
    settings: str


class EmulatedOn(Record):
    """An emulated GPU; ``emulator`` is a digest of the emulator's sources."""

    gpu: str
    emulator: str

    def __str__(self) -> str:
        return f"emulated {self.gpu}, emulator {self.emulator}"


class DeviceEvidence(Evidence):
    """What a gate found on a device, which may be an emulated GPU (``emulated``).

    Evidence that may be reused later has ``emulated``, ``identity`` and ``run_at``. ``uses``: how often the
    gate's programs used the code of each patch with a run-time switch; None in evidence of earlier versions.
    """

    emulated: EmulatedOn | None = None
    identity: Identity | None = None
    run_at: str | None = None
    uses: dict[str, Count] | None = None

    def provenance(self) -> Iterator[tuple[str, str]]:
        """Time, runner, machine and settings."""
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
    """The result of one gate, which took ``seconds``.

    ``summary`` is one line; ``lines`` are shown below it. ``not_run`` names what was not proven, each with
    its reason. As JSON this is the gate's own file; ``seconds`` is in the report instead.
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
        """The result of a gate that needs a compiler and has none."""
        return cls(gate=gate, verdict="not run", summary="no compiler", not_run=("all of it: no compiler",))

    @classmethod
    def ended_by(cls, gate: str, error: PatchkitError) -> GateResult:
        """The result of a gate that failed with an error before it produced anything else."""
        return cls(gate=gate, verdict="failed", summary=error.message, problems=(error,))

    @property
    def problem_records(self) -> list[dict[str, object]]:
        """The problems as in the gate's file: each place as text and as fields."""
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
        """The evidence as in the gate's file."""
        return self.evidence or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """What gates that run anywhere are created with; ``full``: the complete check, not a sample."""

    workspace: Workspace
    upstream: PinWanted
    full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSetup:
    """What gates on a device are created with.

    ``runner`` starts programs, on the machine ``elsewhere`` if it is not this one. ``model`` and ``text`` are
    files given by the user. ``full``: the complete check, not a sample.
    ``is_sanitized``: gate ``sanitize`` runs too,
    so other gates run with its checks on and share their runs with it.
    """

    machine: Machine
    runner: Runner
    elsewhere: RemoteRunner | None = None
    model: Path | None = None
    text: Path | None = None
    full: bool = False
    is_sanitized: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGate:
    """What gates on a device have in common; ``NAME`` is the gate's name on a GPU."""

    NAME: ClassVar[str]

    machine: Machine

    @classmethod
    def make(cls, setup: DeviceSetup) -> Self:
        """The gate on a device."""
        return cls(machine=setup.machine)

    @property
    def name(self) -> str:
        """The gate's name on this machine."""
        return self.machine.gate_name(self.NAME)


class Gate(Protocol):
    """One check. ``run`` raises only if the check itself was impossible (no compiler, disk full).

    A gate that runs anywhere has ``make(RunSetup)``; a gate on a device has ``make(DeviceSetup)``.
    """

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    def run(self, subject: Subject) -> GateResult:
        """Check the candidate."""
        ...

"""What a report is made of: one run of ``verify``, its gates and their problems, as its evidence says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, get_args

from pydantic import Field, SkipValidation

from patchkit.base.series_folder import PLAIN
from patchkit.base.verdict import Verdict
from patchkit.prove.gates.base import Many, Record
from patchkit.prove.gates.blocks import Table
from patchkit.prove.gates.record import GateReport, Problem
from patchkit.prove.verify.timings import Stage

_MOST_GATES = 100


class Available(Record, extra="ignore"):
    """Where there are patches, in one sentence."""

    sentence: str


class RunFile(Record):
    """What ``report.json`` says. ``base`` and ``tip`` are commits, ``tree`` is the candidate's.

    ``timings``: where the time of the run went, by gate.
    """

    ok: bool
    nothing_to_prove: bool = False
    available: Available | None = None
    stopped: str | None = None
    branch: str
    archs: Many[str]
    base: str
    tip: str
    tree: str
    proven_with: Many[str]
    known_faults: Many[str] = ()
    gates: Annotated[Many[GateReport], Field(max_length=_MOST_GATES)]
    timings: Annotated[Many[Stage], Field(max_length=2 * _MOST_GATES)] = ()


class EvidenceFile(Record):
    """A file that the report rests on; ``size`` in bytes."""

    name: str
    size: int
    sha256: str


class Run(RunFile):
    """One run of ``verify``, its gates with their evidence.

    ``strays`` are gates whose files lie beside it and are of another run. ``nothing``: the candidate has no
    patch, so no gate ran; where there are patches, in one sentence. The last two are no part of evidence:
    the tables of a matrix that are shown with it, and patchkit's version.
    """

    folder: str
    strays: tuple[str, ...]
    files: tuple[EvidenceFile, ...]
    nothing: str | None = None
    sweep: SkipValidation[tuple[Table, ...]] = ()
    version: str = ""

    def count(self, verdict: Verdict) -> int:
        """How many gates have that verdict."""
        return sum(gate.verdict == verdict for gate in self.gates)

    @property
    def headline(self) -> str:
        """One sentence that claims no more than was run."""
        passed, emulated, modelled, failed, left = map(self.count, get_args(Verdict))
        if self.nothing is not None:
            return "Nothing to prove: the candidate has no patch, it is upstream's own tree; no gate ran"
        on_emulated = f"{emulated} passed on an emulated GPU, " if emulated else ""
        by_model = f"{modelled} passed by the timing model, " if modelled else ""
        told = (
            f"of {len(self.gates)} gates {passed} passed, {on_emulated}{by_model}"
            f"{failed} failed, {left} did not run"
        )
        if failed:
            return f"Does not hold: {told}"
        if self.stopped is not None:
            return f"Ended in the middle ({self.stopped}): {told}"
        return f"Nothing failed: {told}"

    @property
    def problems(self) -> Iterator[tuple[GateReport, Problem]]:
        """Every problem with its gate."""
        for gate in self.gates:
            for problem in gate.problems:
                yield gate, problem

    @property
    def provenance(self) -> tuple[tuple[str, str], ...]:
        """Everything that the figures rest on, by name."""
        told = [
            ("candidate", self.branch),
            *((("GPUs", ", ".join(self.archs)),) if self.archs != (PLAIN,) else ()),
            ("upstream's commit", self.base),
            ("candidate's commit", self.tip),
            ("candidate's tree", self.tree),
            *(("tool", each) for each in self.proven_with),
        ]
        for gate in self.gates:
            found = gate.evidence.provenance() if gate.evidence is not None else ()
            told += [(f"{gate.name}: {name}", each) for name, each in found]
        return tuple(dict.fromkeys(told))

    @property
    def open(self) -> Iterator[tuple[str, str]]:
        """Everything that was not proven, a gate's name and what: whole gates first, then parts of them."""
        for gate in self.gates:
            if gate.verdict == "not run":
                yield gate.name, f"not run: {gate.summary}"
        for gate in self.gates:
            yield from ((gate.name, told) for told in gate.not_run)
        for name in self.strays:
            yield (
                name,
                f"{name}.json lies beside the report and is of another run: it is not part of this one",
            )

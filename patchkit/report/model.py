"""What a report is made of: one run of ``verify``, its gates and their problems, as its evidence says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, SkipValidation

from patchkit.gates.base import Evidence, Many, Number, Record, Verdict
from patchkit.gates.blocks import Table
from patchkit.gates.document import Node

Side = Literal["upstream", "series", "other"]

SERIES = "$PATCHKIT_SERIES/"
"""What paths of the series folder begin with once evidence was made independent of the machine."""

_LONGEST_PATH = 4096  # PATH_MAX of Linux
_MOST_GATES = 100
_SOURCE = re.compile(r"[\w.+@-]+(?:/[\w.+@ -]+)*\.\w+")
_LineOrColumn = Annotated[int, Field(ge=1, le=10**15)]


class Place(Record):
    """``path:line:column``, lines and columns from 1; ``label`` says what stands there, often the patch."""

    path: str
    line: _LineOrColumn | None = None
    column: _LineOrColumn | None = None
    label: str | None = None

    @property
    def side(self) -> Side:
        """Whose file it is."""
        if self.path.startswith(SERIES):
            return "series"
        is_source = len(self.path) <= _LONGEST_PATH and _SOURCE.fullmatch(self.path)
        return "upstream" if is_source and ".." not in self.path.split("/") else "other"

    @property
    def file(self) -> str:
        """The path, one of the series relative to its folder."""
        return self.path.removeprefix(SERIES)

    def __str__(self) -> str:
        parts = [self.file, *(str(each) for each in (self.line, self.column) if each is not None)]
        return ":".join(parts)


class Problem(Record):
    """One finding of a gate; ``where`` are the places as texts."""

    code: str
    message: str
    where: Many[str]
    places: Many[Place]
    why: str | None = None
    hint: str | None = None

    @property
    def fingerprint(self) -> str:
        """The same for the same finding after lines moved: of code, file and message."""
        path = self.places[0].file if self.places else ""
        return hashlib.sha256(f"{self.code}\0{path}\0{self.message}".encode()).hexdigest()[:32]


class GateReport(Record):
    """One gate. ``seconds`` is how long it took; ``evidence`` is None where the gate has none.

    Read, the evidence is first what the file says: :func:`patchkit.report.evidence.parse_evidence` puts the
    gate's model in its place.
    """

    name: str = Field(validation_alias="gate")
    verdict: Verdict
    summary: str
    problems: Many[Problem]
    not_run: Many[str]
    lines: Many[str]
    seconds: Number = 0.0
    evidence: SkipValidation[Evidence | Node | None] = None

    @property
    def has_broken(self) -> bool:
        """Whether the gate could not be run, which is neither a failure nor a choice."""
        return self.verdict == "not run" and bool(self.problems)


class Available(Record, extra="ignore"):
    """Where there are patches, in one sentence."""

    sentence: str


class RunFile(Record):
    """What ``report.json`` says. ``base`` and ``tip`` are commits, ``tree`` is the candidate's."""

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
    gates: Annotated[Many[GateReport], Field(max_length=_MOST_GATES)]


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
        passed, failed, left = (self.count(each) for each in ("passed", "failed", "not run"))
        if self.nothing is not None:
            return "Nothing to prove: the candidate has no patch, it is upstream's own tree; no gate ran"
        told = f"of {len(self.gates)} gates {passed} passed, {failed} failed, {left} did not run"
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

"""A gate's result as read from a file, which may come from other people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SkipValidation

from patchkit.base.digests import sha256
from patchkit.base.document import EvidenceMalformed, EvidenceUnreadable, parse_model, read_model
from patchkit.base.report.blocks import Block
from patchkit.base.report.blocks import Place as ShownPlace
from patchkit.base.verdict import PASSED, Verdict
from patchkit.prove.gates.base import Evidence, GateResult, Many, Number, Record
from patchkit.prove.gates.registry import find_entry, load

FileOwner = Literal["upstream", "series", "other"]

SERIES = "$PATCHKIT_SERIES/"
"""Prefix of paths in the series folder, so that evidence does not depend on the machine."""

_ROOTS: Mapping[FileOwner, str] = {"upstream": "UPSTREAM", "series": "SERIES"}
_LONGEST_PATH = 4096  # PATH_MAX of Linux
_SOURCE = re.compile(r"[\w.+@-]+(?:/[\w.+@ -]+)*\.\w+")
_LineOrColumn = Annotated[int, Field(ge=1, le=10**15)]


class ProblemPlace(Record):
    """``path:line:column``, lines and columns from 1; ``label`` names what is there, often the patch."""

    path: str
    line: _LineOrColumn | None = None
    column: _LineOrColumn | None = None
    label: str | None = None

    @property
    def side(self) -> FileOwner:
        """Whether the file is upstream's, the series', or another one."""
        if self.path.startswith(SERIES):
            return "series"
        is_source = len(self.path) <= _LONGEST_PATH and _SOURCE.fullmatch(self.path)
        return "upstream" if is_source and ".." not in self.path.split("/") else "other"

    @property
    def file(self) -> str:
        """The path; for a file of the series, relative to the series folder."""
        return self.path.removeprefix(SERIES)

    @property
    def shown(self) -> ShownPlace:
        """The place as a report shows it."""
        return ShownPlace(
            path=self.file,
            line=self.line,
            column=self.column,
            label=self.label,
            root=_ROOTS.get(self.side),
            is_file=self.side in _ROOTS,
        )


class Problem(Record):
    """One problem that a gate found; ``where`` are the places as text."""

    code: str
    message: str
    where: Many[str]
    places: Many[ProblemPlace]
    why: str | None = None
    hint: str | None = None

    @property
    def fingerprint(self) -> str:
        """A digest of code, file and message, so that it survives when lines move."""
        path = self.places[0].file if self.places else ""
        return sha256(f"{self.code}\0{path}\0{self.message}")[:32]


class GateReport(Record):
    """The result of one gate, which took ``seconds``; ``evidence`` is None where the gate has none.

    On parsing, ``evidence`` is first the raw JSON; :func:`read_gate` replaces it by the gate's model.
    """

    name: str = Field(validation_alias="gate")
    verdict: Verdict
    summary: str
    problems: Many[Problem]
    not_run: Many[str]
    lines: Many[str]
    seconds: Number = 0.0
    evidence: SkipValidation[Evidence | None] = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What reports show of the evidence."""
        return () if self.evidence is None else tuple(self.evidence.blocks())

    @property
    def has_passed(self) -> bool:
        """Whether the gate passed, on hardware, on the emulated GPU or by the timing model."""
        return self.verdict in PASSED

    @property
    def has_broken(self) -> bool:
        """Whether the gate was to run and could not; this is neither a failure nor a choice."""
        return self.verdict == "not run" and bool(self.problems)

    def reused(self, summary: str) -> GateResult:
        """The same result with another summary; it has no problems, and took no time."""
        return GateResult(
            gate=self.name,
            verdict=self.verdict,
            summary=summary,
            evidence=self.evidence,
            not_run=self.not_run,
            lines=self.lines,
        )


class _Unknown(Evidence, extra="ignore"):
    """Evidence of a gate that this version of patchkit does not know."""


def read_gate(data: bytes, source: str) -> GateReport:
    """Parse the file of one gate, its evidence with the gate's model; ``source`` is the file's name.

    Raises EvidenceUnreadable, EvidenceMalformed.
    """
    gate = parse_model(data, GateReport, source)
    value: object = gate.evidence
    if not isinstance(value, dict) or not value:
        return gate.model_copy(update={"evidence": None})
    entry = find_entry(gate.name)
    model: type[Evidence] = load(entry.evidence) if entry is not None else _Unknown
    return gate.model_copy(update={"evidence": read_model(value, model, source, "$.evidence")})


def evidence_file(cache_root: Path, tree: str, gate: str) -> Path:
    """The file with a gate's last result on a tree."""
    return cache_root / "evidence" / tree / f"{gate}.json"


def find_gate(cache_root: Path, tree: str, name: str) -> GateReport | None:
    """A gate's last result on a tree; None if there is none that can be read."""
    path = evidence_file(cache_root, tree, name)
    try:
        gate = read_gate(path.read_bytes(), str(path))
    except (OSError, EvidenceUnreadable, EvidenceMalformed):
        return None
    return gate if gate.name == name else None

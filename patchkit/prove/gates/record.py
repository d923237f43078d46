"""A gate's result as it is kept in a file, which strangers may have changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, SkipValidation

from patchkit.base.digests import sha256
from patchkit.base.document import parse_model, read_model
from patchkit.base.report.blocks import Block
from patchkit.base.report.blocks import Place as ShownPlace
from patchkit.base.verdict import PASSED, Verdict
from patchkit.prove.gates.base import Evidence, Many, Number, Record
from patchkit.prove.gates.registry import find_entry, load

Side = Literal["upstream", "series", "other"]

SERIES = "$PATCHKIT_SERIES/"
"""What paths of the series folder begin with once evidence was made independent of the machine."""

_ROOTS: Mapping[Side, str] = {"upstream": "UPSTREAM", "series": "SERIES"}
_LONGEST_PATH = 4096  # PATH_MAX of Linux
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

    @property
    def shown(self) -> ShownPlace:
        """As reports show it."""
        return ShownPlace(
            path=self.file,
            line=self.line,
            column=self.column,
            label=self.label,
            root=_ROOTS.get(self.side),
            is_file=self.side in _ROOTS,
        )


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
        return sha256(f"{self.code}\0{path}\0{self.message}")[:32]


class GateReport(Record):
    """One gate. ``seconds`` is how long it took; ``evidence`` is None where the gate has none.

    Read, the evidence is first what the file says: :func:`read_gate` puts the gate's model in its place.
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
        """What is shown of it."""
        return () if self.evidence is None else tuple(self.evidence.blocks())

    @property
    def has_passed(self) -> bool:
        """Whether the gate passed, on hardware, on the emulated GPU or by the timing model."""
        return self.verdict in PASSED

    @property
    def has_broken(self) -> bool:
        """Whether the gate could not be run, which is neither a failure nor a choice."""
        return self.verdict == "not run" and bool(self.problems)


class _Unknown(Evidence, extra="ignore"):
    """What a gate found that this patchkit does not know."""


def read_gate(data: bytes, source: str) -> GateReport:
    """The file of one gate, its evidence by the gate's model; ``source`` is the file's name.

    Raises EvidenceUnreadable, EvidenceMalformed.
    """
    gate = parse_model(data, GateReport, source)
    value: object = gate.evidence
    if not isinstance(value, dict) or not value:
        return gate.model_copy(update={"evidence": None})
    entry = find_entry(gate.name)
    model: type[Evidence] = load(entry.evidence) if entry is not None else _Unknown
    return gate.model_copy(update={"evidence": read_model(value, model, source, "$.evidence")})

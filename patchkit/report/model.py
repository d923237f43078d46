"""What a report is made of: the run, its gates, their problems, all read from evidence."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

from patchkit.gates.base import Evidence as GateEvidence
from patchkit.gates.document import Node, read_model
from patchkit.gates.registry import find_entry, load

Verdict = Literal["passed", "failed", "not run"]
Side = Literal["upstream", "series", "other"]

SERIES = "$PATCHKIT_SERIES/"
"""What paths of the series folder begin with once evidence was made independent of the machine."""

_LONGEST_PATH = 4096  # PATH_MAX of Linux
_WRITTEN = re.compile(r"(?P<path>.*?)(?::(?P<line>\d{1,9}))?(?::(?P<column>\d{1,9}))?", re.DOTALL)
_SOURCE = re.compile(r"[\w.+@-]+(?:/[\w.+@ -]+)*\.\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """``path:line:column``, lines and columns from 1; ``label`` says what stands there, often the patch."""

    path: str
    line: int | None = None
    column: int | None = None
    label: str | None = None
    side: Side = "other"

    def __str__(self) -> str:
        parts = [self.path, *(str(each) for each in (self.line, self.column) if each is not None)]
        return ":".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding of a gate."""

    code: str
    message: str
    places: tuple[Place, ...] = ()
    why: str | None = None
    hint: str | None = None

    @property
    def fingerprint(self) -> str:
        """The same for the same finding after lines moved: of code, file and message."""
        path = self.places[0].path if self.places else ""
        return hashlib.sha256(f"{self.code}\0{path}\0{self.message}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """One gate. ``seconds`` is how long it took; ``evidence`` is None where the gate has none."""

    name: str
    verdict: Verdict
    summary: str
    problems: tuple[Problem, ...]
    not_run: tuple[str, ...]
    lines: tuple[str, ...]
    seconds: float = 0.0
    evidence: GateEvidence | Node | None = None

    @property
    def has_broken(self) -> bool:
        """Whether the gate could not be run, which is neither a failure nor a choice."""
        return self.verdict == "not run" and bool(self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFile:
    """A file that the report rests on; ``size`` in bytes."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One run of ``verify``. ``base`` and ``tip`` are commits, ``tree`` is the candidate's.

    ``nothing``: the candidate has no patch, so no gate ran; where there are patches, in one sentence.
    """

    folder: str
    ok: bool
    stopped: str | None
    branch: str
    archs: tuple[str, ...]
    base: str
    tip: str
    tree: str
    proven_with: tuple[str, ...]
    gates: tuple[GateReport, ...]
    strays: tuple[str, ...]
    files: tuple[EvidenceFile, ...]
    nothing: str | None = None

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


def parse_gate(node: Node) -> GateReport:
    """One gate, of the report or of its own file. Raises EvidenceMalformed."""
    seconds = node.find("seconds")
    evidence = node.find("evidence")
    return GateReport(
        name=node.get("gate").text(),
        verdict=cast("Verdict", node.get("verdict").word("passed", "failed", "not run")),
        summary=node.get("summary").text(),
        problems=tuple(_problem(each) for each in node.get("problems").items()),
        not_run=node.get("not_run").texts(),
        lines=node.get("lines").texts(),
        seconds=seconds.number() if seconds is not None else 0.0,
        evidence=_evidence(node.get("gate").text(), evidence) if evidence is not None else None,
    )


def _evidence(gate: str, node: Node) -> GateEvidence | Node | None:
    """By the model of the gate; that of a gate without one stays as it is."""
    if not isinstance(node.value, dict) or not node.value:
        return None
    entry = find_entry(gate)
    if entry is None or not entry.evidence:
        return node
    model: type[GateEvidence] = load(entry.evidence)
    return read_model(node.value, model, node.source, node.path, node.hint)


def _problem(node: Node) -> Problem:
    places = node.find("places")
    if places is not None:
        found = tuple(_place(each) for each in places.items())
    else:
        found = tuple(parse_place(text) for text in node.get("where").texts())
    return Problem(
        code=node.get("code").text(),
        message=node.get("message").text(),
        places=found,
        why=_optional(node, "why"),
        hint=_optional(node, "hint"),
    )


def _optional(node: Node, key: str) -> str | None:
    found = node.find(key)
    return None if found is None else found.text()


def _place(node: Node) -> Place:
    line, column = node.find("line"), node.find("column")
    return _sided(
        node.get("path").text(),
        None if line is None else line.integer(least=1),
        None if column is None else column.integer(least=1),
        _optional(node, "label"),
    )


def parse_place(text: str) -> Place:
    """A place as text: ``path``, ``path:line`` or ``path:line:column``."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return Place(path=text)
    line, column = (int(found[name]) if found[name] else None for name in ("line", "column"))
    return _sided(found["path"], line or None, column or None, None)


def _sided(path: str, line: int | None, column: int | None, label: str | None) -> Place:
    side: Side = "other"
    if path.startswith(SERIES):
        path, side = path.removeprefix(SERIES), "series"
    elif len(path) <= _LONGEST_PATH and _SOURCE.fullmatch(path) and ".." not in path.split("/"):
        side = "upstream"
    return Place(path=path, line=line, column=column, label=label, side=side)

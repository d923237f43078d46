"""Reading the evidence of one run of ``verify``: the report, and the files of the gates that it names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import disk_errors
from patchkit.gates.document import FILE_BYTES, EvidenceContradicts, EvidenceUnreadable, Node, parse_document
from patchkit.report.model import Evidence, EvidenceFile, GateReport, parse_gate

REPORT = "report.json"
_MOST_FILES = 200  # the whole ladder on two backends has 17
_MOST_GATES = 100
_HEAD = 1000  # bytes; the name is the first field of a gate's file


def load_evidence(folder: Path, neutral: Callable[[bytes], bytes] | None = None) -> Evidence:
    """The evidence in a folder. ``neutral`` takes the paths of this machine out of a file's bytes.

    Raises:
        EVIDENCE_ABSENT: there is no report.
        EvidenceUnreadable, EvidenceMalformed, EvidenceContradicts: it is not what ``verify`` writes.
        CacheError: the disk refused.
    """
    with disk_errors(folder, "reading the evidence"):
        is_there = (folder / REPORT).is_file()
    if not is_there:
        raise UsageError(
            f"{folder} has no evidence of patchkit verify",
            code="EVIDENCE_ABSENT",
            where=Location(path=str(folder / REPORT)),
            why="there is no such file",
            hint="patchkit verify --no-gpu --arch gfx1151 makes it; patchkit status shows the candidates",
        )
    files: dict[str, bytes] = {}
    with disk_errors(folder, "reading the evidence"):
        for path in sorted(folder.glob("*.json"))[:_MOST_FILES]:
            if path.is_file() and not path.name.startswith("."):
                files[path.name] = _read(path)
    if neutral is not None:
        files = {name: neutral(data) for name, data in files.items()}
    return parse_evidence(files, str(folder))


def _read(path: Path) -> bytes:
    with disk_errors(path, "reading the evidence"), path.open("rb") as stream:
        data = stream.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise EvidenceUnreadable(
            f"{path} cannot be read as evidence",
            where=Location(path=str(path)),
            why=f"it has more than {FILE_BYTES} bytes",
            hint="patchkit verify makes the evidence anew",
        )
    return data


def parse_evidence(files: Mapping[str, bytes], folder: str) -> Evidence:
    """The evidence of a folder's files by name; raises as :func:`load_evidence`, but for the disk."""
    if REPORT not in files:
        raise UsageError(f"{folder} has no {REPORT}", code="EVIDENCE_ABSENT", hint="patchkit verify makes it")
    report = parse_document(files[REPORT], f"{folder}/{REPORT}")
    gates: list[GateReport] = []
    used = [REPORT]
    for row in report.get("gates").items(most=_MOST_GATES):
        gate = parse_gate(row)
        if any(gate.name == other.name for other in gates):
            raise EvidenceContradicts(
                f"{row.source}: {row.path} is of gate {gate.name}, which is there already",
                where=Location(path=row.source, label=row.path),
                why="a run has one result of each gate",
                hint="run patchkit verify again",
            )
        name = f"{gate.name}.json"
        if name in files and row.find("evidence") is not None:
            gate = _with_evidence(gate, parse_document(files[name], f"{folder}/{name}"))
            used.append(name)
        gates.append(gate)
    stopped = report.find("stopped")
    nothing = _nothing(report, gates)
    return Evidence(
        folder=folder,
        ok=report.get("ok").flag(),
        stopped=None if stopped is None else stopped.text(),
        branch=report.get("branch").text(),
        archs=report.get("archs").texts(),
        base=report.get("base").text(),
        tip=report.get("tip").text(),
        tree=report.get("tree").text(),
        proven_with=report.get("proven_with").texts(),
        gates=tuple(gates),
        strays=_strays(files, used, gates),
        files=tuple(_file(name, files[name]) for name in used),
        nothing=nothing,
    )


def _nothing(report: Node, gates: list[GateReport]) -> str | None:
    """Where there are patches, of a candidate without one; None for any other candidate.

    Evidence of an earlier patchkit may say of such a candidate that gates passed.
    """
    flag = report.find("nothing_to_prove")
    is_nothing = flag is not None and flag.flag()
    if not is_nothing and report.get("base").text() != report.get("tip").text():
        return None
    ran = [gate.name for gate in gates if gate.verdict != "not run"]
    if ran or not is_nothing or report.get("ok").flag():
        raise EvidenceContradicts(
            f"{report.source} is of a candidate without a patch, and says that something was proven",
            where=Location(path=report.source),
            why=f"gates that ran: {', '.join(ran)}"
            if ran
            else "it does not say that there is nothing to prove",
            hint="run patchkit verify again",
        )
    available = report.find("available")
    return "" if available is None else available.get("sentence").text()


def _with_evidence(gate: GateReport, document: Node) -> GateReport:
    own = parse_gate(document)
    if (own.name, own.verdict, own.summary) != (gate.name, gate.verdict, gate.summary):
        raise EvidenceContradicts(
            f"{document.source} is not of the run that the report is of",
            where=Location(path=document.source),
            why=f"the report says '{gate.verdict}: {gate.summary}', the file '{own.verdict}: {own.summary}'",
            hint="run patchkit verify again: it writes both",
        )
    return replace(own, seconds=gate.seconds)


def _strays(files: Mapping[str, bytes], used: list[str], gates: list[GateReport]) -> tuple[str, ...]:
    """Gates' files that this run did not write; that of a gate that broke is its own, without evidence."""
    own = {*used, *(f"{gate.name}.json" for gate in gates if gate.has_broken), REPORT}
    return tuple(
        name.removesuffix(".json") for name in files if name not in own and _is_gates(files[name], name)
    )


def _is_gates(data: bytes, name: str) -> bool:
    """Whether a file says that it is of a gate; other files are nobody's business here."""
    gate = re.escape(name.removesuffix(".json").encode())
    return re.search(rb'"gate"\s*:\s*"%s"' % gate, data[:_HEAD]) is not None


def _file(name: str, data: bytes) -> EvidenceFile:
    return EvidenceFile(name=name, size=len(data), sha256=hashlib.sha256(data).hexdigest())

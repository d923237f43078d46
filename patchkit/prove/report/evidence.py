"""Read the evidence of one run of ``verify``: report.json and the files of its gates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from patchkit.base.digests import sha256
from patchkit.base.document import (
    FILE_BYTES,
    EvidenceContradicts,
    EvidenceMalformed,
    EvidenceUnreadable,
    parse_model,
)
from patchkit.base.errors import Location, UsageError
from patchkit.base.files import disk_errors
from patchkit.prove.gates.record import GateReport, read_gate
from patchkit.prove.report.model import Run
from patchkit.prove.report.run_record import EvidenceFile, RunFile

REPORT = "report.json"
_MOST_FILES = 200  # all gates, those of a device on two backends, have 12
_HEAD = 1000  # bytes; the gate's name is the first field of its file


def load_evidence(folder: Path, neutral: Callable[[bytes], bytes] | None = None) -> Run:
    """Read the run whose evidence is in a folder.

    ``neutral`` replaces paths of this machine in a file's bytes.

    Raises:
        EVIDENCE_MISSING: there is no report.
        EvidenceUnreadable, EvidenceMalformed, EvidenceContradicts: ``verify`` did not write this.
        CacheError: reading failed.
    """
    with disk_errors(folder, "reading the evidence"):
        is_there = (folder / REPORT).is_file()
    if not is_there:
        raise UsageError(
            f"no evidence of patchkit verify in {folder}",
            code="EVIDENCE_MISSING",
            where=Location(path=str(folder / REPORT)),
            why="this file does not exist",
            hint="create it with: patchkit verify --no-gpu --arch gfx1151; patchkit status lists candidates",
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
            f"cannot read {path} as evidence",
            where=Location(path=str(path)),
            why=f"it has more than {FILE_BYTES} bytes",
            hint="write the evidence again with patchkit verify",
        )
    return data


def parse_evidence(files: Mapping[str, bytes], folder: str) -> Run:
    """Parse the files of a folder, by name; raises as :func:`load_evidence` except for the disk."""
    if REPORT not in files:
        raise UsageError(
            f"no {REPORT} in {folder}", code="EVIDENCE_MISSING", hint="create it with patchkit verify"
        )
    source = f"{folder}/{REPORT}"
    report = parse_model(files[REPORT], RunFile, source)
    gates: list[GateReport] = []
    used = [REPORT]
    for number, row in enumerate(report.gates):
        if any(row.name == other.name for other in gates):
            place = f"$.gates[{number}]"
            raise EvidenceContradicts(
                f"{source}: {place} is a second result of gate {row.name}",
                where=Location(path=source, label=place),
                why="a run has one result per gate",
                hint="run patchkit verify again",
            )
        name = f"{row.name}.json"
        if name in files and row.evidence is not None:
            gates.append(_with_evidence(row, files[name], f"{folder}/{name}"))
            used.append(name)
        else:
            gates.append(row.model_copy(update={"evidence": None}))
    return Run.model_construct(
        **dict(report)
        | {
            "gates": tuple(gates),
            "folder": folder,
            "strays": _strays(files, used, gates),
            "files": tuple(_file(name, files[name]) for name in used),
            "nothing": _nothing(report, gates, source),
        }
    )


def _nothing(report: RunFile, gates: list[GateReport], source: str) -> str | None:
    """For a candidate without patches: which pins have some; None for any other candidate.

    Early versions of patchkit wrote evidence in which gates of such a candidate passed; it is refused.
    """
    if not report.nothing_to_prove and report.base != report.tip:
        return None
    ran = [gate.name for gate in gates if gate.verdict != "not run"]
    if ran or not report.nothing_to_prove or report.ok:
        raise EvidenceContradicts(
            f"{source} is of a candidate without a patch, but claims that something was proven",
            where=Location(path=source),
            why=f"gates that ran: {', '.join(ran)}" if ran else "nothing_to_prove is not set",
            hint="run patchkit verify again",
        )
    return "" if report.available is None else report.available.sentence


def _with_evidence(row: GateReport, data: bytes, source: str) -> GateReport:
    own = read_gate(data, source)
    if (own.name, own.verdict, own.summary) != (row.name, row.verdict, row.summary):
        raise EvidenceContradicts(
            f"{source} is of another run than the report",
            where=Location(path=source),
            why=f"the report has '{row.verdict}: {row.summary}', the file '{own.verdict}: {own.summary}'",
            hint="run patchkit verify again, which writes both",
        )
    return own.model_copy(update={"seconds": row.seconds})


def _strays(files: Mapping[str, bytes], used: list[str], gates: list[GateReport]) -> tuple[str, ...]:
    """The gates with files that this run did not write."""
    own = {*used, REPORT}
    own |= {f"{gate.name}.json" for gate in gates if gate.has_broken or _is_own(gate, files)}
    return tuple(
        name.removesuffix(".json") for name in files if name not in own and _is_gates(files[name], name)
    )


def _is_own(gate: GateReport, files: Mapping[str, bytes]) -> bool:
    """Whether the file of a gate without evidence has the result that the report has."""
    name = f"{gate.name}.json"
    try:
        found = read_gate(files[name], name) if name in files else None
    except (EvidenceUnreadable, EvidenceMalformed):
        return False
    return (
        found is not None
        and found.evidence is None
        and (found.name, found.verdict, found.summary) == (gate.name, gate.verdict, gate.summary)
    )


def _is_gates(data: bytes, name: str) -> bool:
    """Whether a file is the result of a gate; other files are ignored."""
    gate = re.escape(name.removesuffix(".json").encode())
    return re.search(rb'"gate"\s*:\s*"%s"' % gate, data[:_HEAD]) is not None


def _file(name: str, data: bytes) -> EvidenceFile:
    return EvidenceFile(name=name, size=len(data), sha256=sha256(data))

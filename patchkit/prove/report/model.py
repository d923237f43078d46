"""What a report is made of: one run of ``verify``, its gates and their problems, as its evidence says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, get_args

from pydantic import Field

from patchkit.base.report.blocks import Finding, Report, Row, Section, Table, columns
from patchkit.base.series_folder import PLAIN
from patchkit.base.verdict import Verdict
from patchkit.prove.gates.base import Many, Record
from patchkit.prove.gates.record import GateReport
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
    patch, so no gate ran; where there are patches, in one sentence.
    """

    folder: str
    strays: tuple[str, ...]
    files: tuple[EvidenceFile, ...]
    nothing: str | None = None

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

    def report(self, *, sweep: Sequence[Table] = (), version: str = "") -> Report:
        """As every format shows it, with the tables of a ``sweep``; ``version`` is patchkit's."""
        sections = [_section(gate) for gate in self.gates]
        if sweep:
            sections.append(Section(title="Upstreams", blocks=tuple(sweep)))
        sections.append(Section(title="Evidence", blocks=(_files(self.files),)))
        return Report(
            command="patchkit verify",
            title=self.branch,
            headline=self.headline,
            sections=tuple(sections),
            notes=(self.nothing,) if self.nothing else (),
            facts=(
                *((("GPUs", ", ".join(self.archs)),) if self.archs != (PLAIN,) else ()),
                ("upstream", self.base[:12]),
                ("candidate", self.tip[:12]),
                ("tree", self.tree[:12]),
            ),
            open=tuple(self.open),
            provenance=self.provenance,
            is_complete=self.stopped is None,
            roots={
                "UPSTREAM": f"llama.cpp, tree {self.tree} of the candidate",
                "SERIES": "the folder of patches, templates and profiles",
            },
            footer="It was made from evidence alone; what is not listed as passed is not proven.",
            folder=self.folder,
            version=version,
        )


def _section(gate: GateReport) -> Section:
    findings = [
        Finding(
            code=one.code,
            message=one.message,
            places=tuple(place.shown for place in one.places),
            why=one.why,
            hint=one.hint,
            fingerprint=one.fingerprint,
        )
        for one in gate.problems
    ]
    return Section(
        title=gate.name,
        blocks=(*findings, *gate.blocks),
        verdict=gate.verdict,
        summary=gate.summary,
        seconds=gate.seconds,
        open=gate.not_run,
        lines=gate.lines,
    )


def _files(files: Sequence[EvidenceFile]) -> Table:
    return Table(
        name="evidence",
        caption="Files of evidence; hashes are of what was read, without this machine's paths",
        columns=columns("file", "bytes #", "sha256"),
        rows=tuple(Row(cells=(one.name, str(one.size), one.sha256)) for one in files),
        is_detail=True,
    )

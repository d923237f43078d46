"""One run of ``verify`` as its evidence has it, and the report made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from patchkit.base.report.blocks import Finding, Report, Row, Section, Table, columns
from patchkit.base.series_folder import PLAIN
from patchkit.base.verdict import Verdict
from patchkit.prove.gates.base import SKIPPED
from patchkit.prove.gates.record import GateReport
from patchkit.prove.report.run_record import EvidenceFile, RunRecord
from patchkit.prove.report.summary import (
    group_unproven,
    is_skipped,
    make_answers,
    next_steps,
    patch_summaries,
    why_not_run,
)


class Run(RunRecord):
    """A run, its texts, and the report made of it."""

    def count(self, verdict: Verdict) -> int:
        """Number of gates with that verdict."""
        return sum(gate.verdict == verdict for gate in self.gates)

    @property
    def headline(self) -> str:
        """One sentence: the number of gates by verdict."""
        passed, emulated, modelled, failed, left = map(self.count, get_args(Verdict))
        if self.nothing is not None:
            return "Nothing to prove: the candidate has no patch, it is upstream's own tree; no gate ran"
        on_emulated = f"{emulated} passed on an emulated GPU, " if emulated else ""
        by_model = f"{modelled} passed by the timing model, " if modelled else ""
        counts = (
            f"of {len(self.gates)} gates {passed} passed, {on_emulated}{by_model}"
            f"{failed} failed, {left} did not run"
        )
        if failed:
            return f"Failed: {counts}"
        if self.stopped is not None:
            return f"Incomplete, ended by {self.stopped}: {counts}"
        return f"Nothing failed: {counts}"

    @property
    def provenance(self) -> tuple[tuple[str, str], ...]:
        """Commits, tools, machines and settings that the figures depend on, by name."""
        found = [
            ("candidate", self.branch),
            *((("GPUs", ", ".join(self.archs)),) if self.archs != (PLAIN,) else ()),
            ("upstream's commit", self.base),
            ("candidate's commit", self.tip),
            ("candidate's tree", self.tree),
            *(("tool", each) for each in self.proven_with),
        ]
        for gate in self.gates:
            own = gate.evidence.provenance() if gate.evidence is not None else ()
            found += [(f"{gate.name}: {name}", each) for name, each in own]
        return tuple(dict.fromkeys(found))

    @property
    def open(self) -> Iterator[tuple[str, str]]:
        """Everything unproven as (gate, text): gates that did not run, then what the others do not cover."""
        for gate in self.gates:
            if gate.verdict == "not run":
                yield gate.name, why_not_run(gate)
        for gate in self.gates:
            yield from ((gate.name, text) for text in gate.not_run)
        for name in self.strays:
            yield (name, f"{name}.json next to the report is of another run: ignored")

    def report(self, *, version: str = "") -> Report:
        """The report that every format renders; ``version`` is patchkit's."""
        sections = [_section(gate) for gate in self.gates]
        sections.append(Section(title="Evidence", blocks=(_files(self.files),)))
        return Report(
            command="patchkit verify",
            title=self.branch,
            headline=self.headline,
            sections=tuple(sections),
            notes=(
                *((self.nothing,) if self.nothing else ()),
                *(f"Known fault of this build: {fault}" for fault in self.known_faults),
            ),
            facts=(
                *((("GPUs", ", ".join(self.archs)),) if self.archs != (PLAIN,) else ()),
                ("upstream", self.base[:12]),
                ("candidate", self.tip[:12]),
                ("tree", self.tree[:12]),
            ),
            answers=make_answers(self),
            patches=patch_summaries(self),
            open=tuple(self.open),
            unproven=group_unproven(self),
            steps=next_steps(self),
            provenance=self.provenance,
            is_complete=self.stopped is None,
            roots={
                "UPSTREAM": f"llama.cpp, tree {self.tree} of the candidate",
                "SERIES": "the folder of patches, templates and profiles",
            },
            footer="It was made from evidence alone; what is not listed as passed is not proven.",
            folder=self.folder,
            data="one JSON file per gate in the folder of the evidence (patchkit verify prints where)",
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
        summary=gate.summary.removeprefix(SKIPPED) if is_skipped(gate) else gate.summary,
        seconds=gate.seconds,
        open=gate.not_run,
        lines=gate.lines,
        is_skipped=is_skipped(gate),
    )


def _files(files: Sequence[EvidenceFile]) -> Table:
    return Table(
        name="evidence",
        caption="Files of evidence, hashed after paths of this machine were replaced",
        columns=columns("file", "bytes #", "sha256"),
        rows=tuple(Row(cells=(one.name, str(one.size), one.sha256)) for one in files),
        is_detail=True,
    )

"""Gate ``used``: the code of every patch with a run-time switch ran in at least one of the gates before it.

A gate proves nothing about code that its programs did not run. The candidate's programs count how often they
use each patch, and write the counts to stderr when they end (``GGML_PATCHES_COUNT``).
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import GateError, PatchkitError
from patchkit.base.report.blocks import Block, Row, Table, columns
from patchkit.base.text import counted
from patchkit.carry.series.switches import Switches, switches_of
from patchkit.prove.gates.base import Count, DeviceEvidence, DeviceGate, GateResult, Many
from patchkit.prove.gates.emulated import verdict_on
from patchkit.prove.gates.registry import gate_names
from patchkit.prove.subject import Subject

COUNTING = {"GGML_PATCHES_COUNT": "-"}
"""Environment of a candidate's programs: they write their counts to stderr."""
NAME = "used"
_COUNT = re.compile(r"^patch ([a-z0-9-]+) (\d{1,15})$", re.MULTILINE)


def read_uses(gate: Path, *, since: float) -> dict[str, int]:
    """How often a gate's programs used each patch, summed over all runs.

    ``gate`` is the path of its evidence without the ending; the output of its programs is in folders whose
    names begin so. Output from before the time ``since``, in seconds of the epoch, is of an earlier run.
    """
    uses: Counter[str] = Counter()
    for path in gate.parent.glob(f"{gate.name}-*/**/*.err"):
        with contextlib.suppress(OSError):  # a gate may remove its files
            if path.stat().st_mtime >= since - 1:  # file systems round times
                uses.update(uses_in(path.read_text("utf-8", "replace")))
    return dict(sorted(uses.items()))


def uses_in(stderr: str) -> dict[str, int]:
    """How often a program used each patch, by what it wrote to stderr."""
    return {patch: int(runs) for patch, runs in _COUNT.findall(stderr)}


class UsedEvidence(DeviceEvidence):
    """How often each gate used each patch: ``by_patch`` has the counts by gate.

    ``fixed``: patches without a switch, whose code is in upstream's kernels and is not counted.
    """

    by_patch: dict[str, dict[str, Count]]
    fixed: Many[str]

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates that counted."""
        return tuple(dict.fromkeys(gate for counts in self.by_patch.values() for gate in counts))

    @property
    def outcome(self) -> str:
        """How many patches ran."""
        ran = sum(any(counts.values()) for counts in self.by_patch.values())
        return f"code of {counted(ran, 'switched patch', 'switched patches')}"

    def blocks(self) -> Iterator[Block]:
        """A row for each patch, a column for each gate."""
        gates = self.gates
        yield Table(
            name="used",
            caption="How often the gates used the code of each patch",
            columns=columns("patch", *(f"{gate} #" for gate in gates)),
            rows=tuple(
                Row(cells=(patch, *(str(counts.get(gate, "")) for gate in gates)))
                for patch, counts in self.by_patch.items()
            ),
            note=f"not counted, compiled into upstream's kernels: {', '.join(self.fixed)}"
            if self.fixed
            else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedGate(DeviceGate):
    """The gate on a machine; it reads the evidence of the other gates and runs nothing itself."""

    NAME = NAME

    def run(self, subject: Subject) -> GateResult:
        """Compare the counts of all gates with the patches that have a switch."""
        switches = switches_of([part.patch for part in subject.patches])
        if switches is None:
            return GateResult(gate=self.name, verdict="not run", summary="no patch has a run-time switch")
        counts = _counts_of(subject)
        if not counts:
            return GateResult(
                gate=self.name, verdict="not run", summary="no gate has run the candidate's programs"
            )
        evidence = UsedEvidence(
            by_patch={
                each.patch: {gate: uses.get(each.patch, 0) for gate, uses in counts.items()}
                for each in switches.all
            },
            fixed=switches.fixed,
        )
        problems = tuple(_problems(evidence, switches, tuple(counts)))
        return GateResult(
            gate=self.name,
            verdict=verdict_on(self.machine, problems),
            summary=f"{evidence.outcome} of {len(switches.all)} ran in {', '.join(counts)}",
            problems=problems,
            evidence=evidence,
            not_run=tuple(
                f"whether code of {each} ran: it has no switch and is not counted" for each in switches.fixed
            ),
            lines=tuple(_lines(evidence)),
        )


def _counts_of(subject: Subject) -> dict[str, Mapping[str, int]]:
    """The counts of each gate that has run programs on this tree."""
    from patchkit.prove.gates.record import find_gate  # noqa: PLC0415 - it loads the models of all evidence

    found: dict[str, Mapping[str, int]] = {}
    for name in gate_names("device", "emulated"):
        gate = find_gate(subject.cache_root, subject.candidate_tree, name)
        if gate is not None and isinstance(gate.evidence, DeviceEvidence) and gate.evidence.uses:
            found[name] = gate.evidence.uses
    return found


def _problems(evidence: UsedEvidence, switches: Switches, gates: Sequence[str]) -> Iterator[PatchkitError]:
    for each in switches.all:
        if not any(evidence.by_patch[each.patch].values()):
            yield GateError(
                f"the code of '{each.patch}' never ran in {', '.join(gates)}",
                code="PATCH_NEVER_RAN",
                why="what these gates proved is about upstream's code in its place",
                hint=f"add a case that reaches it, or drop the patch: patchkit show {each.patch}",
            )


def _lines(evidence: UsedEvidence) -> Iterator[str]:
    for patch, counts in evidence.by_patch.items():
        yield f"{patch}: {', '.join(f'{gate} {count}' for gate, count in counts.items())}"

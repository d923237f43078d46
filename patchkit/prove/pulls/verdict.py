"""The verdict on a pull request, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.errors import ExitCode, Location, PatchkitError
from patchkit.prove.pulls.changes import Part, Pull

RowState = Literal[
    "passed", "passed (emulated)", "passed (modelled)", "failed", "not run", "not needed", "would run"
]
_STATUS = {"A": "added", "D": "removed"}  # by git's letter
Word = Literal["passed", "blocked", "not proven", "nothing to prove", "explained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``target`` None: about the pull request as a whole. ``leaks`` are names of configurations."""

    problem: PatchkitError
    target: str | None = None
    patch_places: tuple[Location, ...] = ()
    leaks: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """As ``--json`` shows it."""
        return {
            "code": self.problem.code,
            "message": self.problem.message,
            "target": self.target,
            "where": [str(place) for place in self.problem.where],
            "patch": [str(place) for place in self.patch_places],
            "leaks_into": list(self.leaks),
            "why": self.problem.why,
            "hint": self.problem.hint,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRow:
    """What came of one gate, or would; ``why`` it ran, or need not or could not run.

    ``summary`` is the gate's own line.
    """

    gate: str
    state: RowState
    why: str
    summary: str = ""
    seconds: float = 0.0
    not_proven: tuple[str, ...] = ()

    @property
    def has_run(self) -> bool:
        """Whether the gate ran to its end."""
        return self.state in ("passed", "passed (emulated)", "passed (modelled)", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One candidate; ``evidence`` is the folder of its gates' evidence, when any ran.

    ``no_gates``: why it has no rows. ``nothing_to_prove``: because it has no patch, which is no fault.
    """

    name: str
    archs: tuple[str, ...]
    build: int
    patches: tuple[str, ...]
    reasons: tuple[str, ...]
    tree_before: str | None
    tree: str | None
    rows: tuple[GateRow, ...]
    evidence: Path | None = None
    no_gates: str | None = None
    nothing_to_prove: bool = False

    def as_json(self) -> dict[str, object]:
        """As ``--json`` shows it."""
        document = asdict(self)
        document["gates"] = document.pop("rows")
        document["evidence"] = None if self.evidence is None else str(self.evidence)
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class PullVerdict:
    """The answer. ``attention``: what a person should look at, though nothing is wrong with it."""

    pull: Pull
    parts: Mapping[str, Part]
    judged: tuple[Judged, ...]
    findings: tuple[Finding, ...]
    attention: tuple[str, ...]
    own_tests: Literal["not needed", "needed", "passed"]
    explained: bool = False

    @property
    def word(self) -> Word:
        """In one word, or two."""
        codes = {finding.problem.code for finding in self.findings}
        if codes - {"GATE_OWN_TESTS_NEEDED"}:
            return "blocked"
        if self.explained:
            return "explained"
        if codes:
            return "not proven"
        if self.ran or self.own_tests == "passed":
            return "passed"
        return "not proven" if self.needed else "nothing to prove"

    @property
    def exit_code(self) -> ExitCode:
        """That of the first finding: the earliest stage that failed. A lock behind comes after the gates."""
        return self.findings[0].problem.exit_code if self.findings else ExitCode.OK

    @property
    def ran(self) -> tuple[str, ...]:
        """The gates that ran, each once, in order of cost."""
        rows = [row for one in self.judged for row in one.rows if row.has_run]
        return tuple(dict.fromkeys(row.gate for row in rows))

    @property
    def needed(self) -> tuple[str, ...]:
        """The gates that ran, would have run, or could not, on whichever backend."""
        rows = [row for one in self.judged for row in one.rows if row.state != "not needed"]
        return tuple(dict.fromkeys(row.gate.partition("@")[0] for row in rows))

    def as_json(self) -> dict[str, object]:
        """As ``--json`` shows it."""
        return {
            "ok": not self.findings,
            "verdict": self.word,
            "exit_code": int(self.exit_code),
            "repository": self.pull.kind,
            "base": self.pull.base,
            "head": self.pull.head,
            "fork_point": self.pull.fork_point,
            "behind": self.pull.behind,
            "changes": [
                {
                    "path": one.path,
                    "status": _STATUS.get(one.letter, "changed"),
                    "part": self.parts.get(one.path),
                }
                for one in self.pull.changes
            ],
            "own_tests": self.own_tests,
            "ran": list(self.ran),
            "needed": list(self.needed),
            "candidates": [one.as_json() for one in self.judged],
            "findings": [one.as_json() for one in self.findings],
            "attention": list(self.attention),
        }

"""The verdict on a pull request, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from patchkit.base.errors import ExitCode, Location, PatchkitError
from patchkit.prove.pulls.changes import Part, Pull

GateState = Literal[
    "passed", "passed (emulated)", "passed (modelled)", "failed", "not run", "not needed", "would run"
]
_STATUS = {"A": "added", "D": "removed"}  # by git's letter
Word = Literal["passed", "blocked", "not proven", "nothing to prove", "explained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem. ``target`` None: about the whole pull request. ``leaks`` are names of configurations."""

    json_keys: ClassVar = (
        "code=problem.code message=problem.message target where=problem.where patch=patch_places "
        "leaks_into=leaks why=problem.why hint=problem.hint"
    )

    problem: PatchkitError
    target: str | None = None
    patch_places: tuple[Location, ...] = ()
    leaks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRow:
    """The state of one gate; ``why`` it ran, need not run or could not run.

    ``summary`` is the gate's own line.
    """

    gate: str
    state: GateState
    why: str
    summary: str = ""
    seconds: float = 0.0
    not_proven: tuple[str, ...] = ()

    @property
    def has_run(self) -> bool:
        """Whether the gate finished."""
        return self.state in ("passed", "passed (emulated)", "passed (modelled)", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateVerdict:
    """The verdict on one candidate; ``evidence`` is the folder of its gates' evidence, if any ran.

    ``no_gates`` is why it has no rows. ``nothing_to_prove``: it has no patch, which is not an error.
    """

    json_keys: ClassVar = (
        "name archs build patches reasons tree_before tree evidence no_gates nothing_to_prove gates=rows"
    )

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PullVerdict:
    """The verdict. ``attention``: what a reviewer should look at although nothing is wrong."""

    json_keys: ClassVar = (
        "ok verdict=word exit_code repository=pull.kind base=pull.base head=pull.head "
        "fork_point=pull.fork_point behind=pull.behind changes own_tests ran needed candidates=judged "
        "findings attention"
    )

    pull: Pull
    parts: Mapping[str, Part]
    judged: tuple[CandidateVerdict, ...]
    findings: tuple[Finding, ...]
    attention: tuple[str, ...]
    own_tests: Literal["not needed", "needed", "passed"]
    explained: bool = False

    @property
    def word(self) -> Word:
        """The verdict in one or two words."""
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
        """The exit code of the first finding, from the earliest stage; an outdated lock comes last."""
        return self.findings[0].problem.exit_code if self.findings else ExitCode.OK

    @property
    def ran(self) -> tuple[str, ...]:
        """The gates that ran, each once, in order of cost."""
        rows = [row for one in self.judged for row in one.rows if row.has_run]
        return tuple(dict.fromkeys(row.gate for row in rows))

    @property
    def needed(self) -> tuple[str, ...]:
        """The gates that ran, would have run, or could not run, on any backend."""
        rows = [row for one in self.judged for row in one.rows if row.state != "not needed"]
        return tuple(dict.fromkeys(row.gate.partition("@")[0] for row in rows))

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @property
    def changes(self) -> list[dict[str, str | None]]:
        """The changed paths with their status and part of the project."""
        return [
            {
                "path": one.path,
                "status": _STATUS.get(one.letter, "changed"),
                "part": self.parts.get(one.path),
            }
            for one in self.pull.changes
        ]

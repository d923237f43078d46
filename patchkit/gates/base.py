"""What a gate is, what it looks at, and what it answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol

from patchkit.base.errors import PatchkitError
from patchkit.candidate.subject import Subject

Verdict = Literal["passed", "failed", "not run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What one gate found.

    ``summary`` is one line; ``lines`` are the rows a person reads below it. ``evidence`` is JSON-able.
    ``not_run`` names what was not proven, each with its reason.
    """

    gate: str
    verdict: Verdict
    summary: str
    problems: tuple[PatchkitError, ...] = ()
    evidence: dict[str, object] = field(default_factory=dict)
    not_run: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Plain data, the evidence included."""
        return {
            "gate": self.gate,
            "verdict": self.verdict,
            "summary": self.summary,
            "problems": [
                {
                    "code": problem.code,
                    "message": problem.message,
                    "where": [str(place) for place in problem.where],
                    "places": [asdict(place) for place in problem.where],
                    "why": problem.why,
                    "hint": problem.hint,
                }
                for problem in self.problems
            ],
            "not_run": list(self.not_run),
            "lines": list(self.lines),
            "evidence": self.evidence,
        }


class Gate(Protocol):
    """One check. ``run`` raises only when the check itself was impossible (no compiler, disk full)."""

    @property
    def name(self) -> str:
        """The name it goes by on the command line."""
        ...

    def run(self, subject: Subject) -> GateResult:
        """Look at the subject."""
        ...

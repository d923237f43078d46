"""The classes of a patch on a new upstream, and what is said with each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from patchkit.base.errors import Location, PatchkitError

PatchClass = Literal["clean", "moved", "upstreamed", "superseded", "retired", "out of era", "conflict", "off"]
PATCH_CLASSES: tuple[PatchClass, ...] = get_args(PatchClass)
GOOD: frozenset[PatchClass] = frozenset({"clean", "moved"})
"""Classes whose patch is in the candidate."""
DROPPED: frozenset[PatchClass] = frozenset({"upstreamed", "superseded", "retired"})
"""Classes that show, with proof, that upstream made a patch needless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamCommit:
    """A commit of upstream, named where its history is at hand."""

    commit: str
    subject: str

    def __str__(self) -> str:
        return f"{self.commit[:12]} ({self.subject})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One place of an edit that is not where the last rendering had it; ``how`` says in what way."""

    edit: str
    how: Literal["renamed", "another file", "nesting", "order", "statement"]
    before: Location
    after: Location
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """An edited function whose tokens changed upstream; ``removed`` and ``added`` are token runs.

    ``commits`` changed them, newest first; none where upstream's history is not at hand.
    """

    file: str
    entity: str
    before: str
    after: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    commits: tuple[UpstreamCommit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """Something the patch rests on that upstream no longer has, and the commit that took it away."""

    what: Literal["file", "function", "option"]
    name: str
    commit: UpstreamCommit | None = None

    def __str__(self) -> str:
        return f"{self.what} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How the textual three-way of the last rendering stands to the structural one.

    ``agree``: the same tokens in every file. ``differ``: both apply and give different code.
    ``does not apply``: the three-way has conflicts. ``no last rendering``: there is nothing to merge.
    """

    verdict: Literal["agree", "differ", "does not apply", "no last rendering"]
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """One patch on one upstream. ``proof`` are sentences that say what was done to know the class."""

    id: str
    title: str
    intent: str
    patch_class: PatchClass
    reason: str
    proof: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    drift: tuple[Drift, ...] = ()
    gone: tuple[Gone, ...] = ()
    agreement: Agreement | None = None
    problems: tuple[PatchkitError, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "id": self.id,
            "title": self.title,
            "class": self.patch_class,
            "reason": self.reason,
            "intent": self.intent,
            "proof": list(self.proof),
            "moves": [
                {
                    "edit": move.edit,
                    "how": move.how,
                    "before": str(move.before),
                    "after": str(move.after),
                    "detail": move.detail,
                }
                for move in self.moves
            ],
            "drift": [_drift_json(drift) for drift in self.drift],
            "gone": [
                {"what": gone.what, "name": gone.name, "upstream_commit": _commit_json(gone.commit)}
                for gone in self.gone
            ],
            "agreement": None
            if self.agreement is None
            else {"verdict": self.agreement.verdict, "lines": list(self.agreement.lines)},
            "problems": [_problem_json(error) for error in self.problems],
        }


def _drift_json(drift: Drift) -> dict[str, object]:
    return {
        "file": drift.file,
        "entity": drift.entity,
        "digest_before": drift.before,
        "digest_after": drift.after,
        "removed": list(drift.removed),
        "added": list(drift.added),
        "upstream_commits": [_commit_json(commit) for commit in drift.commits],
    }


def _commit_json(commit: UpstreamCommit | None) -> dict[str, str] | None:
    return None if commit is None else {"commit": commit.commit, "subject": commit.subject}


def _problem_json(error: PatchkitError) -> dict[str, object]:
    return {
        "code": error.code,
        "message": error.message,
        "where": [{"path": place.path, "line": place.line, "label": place.label} for place in error.where],
        "why": error.why,
        "hint": error.hint,
    }

"""What a bump asks of whoever proves candidates: it is given a function, and reads what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from patchkit.base.errors import PatchkitError
from patchkit.base.verdict import Verdict
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.listing import Available
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.series.lock import Pin


class GateProof(Protocol):
    """What one gate says of a candidate."""

    @property
    def gate(self) -> str:
        """Its name."""

    @property
    def verdict(self) -> Verdict:
        """What became of it, and on what that rests."""

    @property
    def summary(self) -> str:
        """What it found, or why it did not run, on one line."""

    @property
    def problems(self) -> Sequence[PatchkitError]:
        """Why it failed."""

    @property
    def has_passed(self) -> bool:
        """Whether it passed, on whatever."""


class Proof(Protocol):
    """What all gates say of a candidate."""

    @property
    def gates(self) -> Sequence[GateProof]:
        """Every gate, those that did not run too."""

    @property
    def failed(self) -> bool:
        """Whether one failed."""

    @property
    def nothing(self) -> Available | None:
        """Where there are patches, if the candidate has none: then there was nothing to prove."""


Prove = Callable[[Workspace, Candidate, Pin], Proof]
"""Runs the gates over a candidate that no branch names yet; the workspace has the series it was made of."""

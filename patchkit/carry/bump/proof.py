"""The interface between a bump and the gates: the function that runs them, and the results that a bump reads.

``carry`` may not import ``prove``, so the caller passes the function in.
"""

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
    """The result of one gate for a candidate."""

    @property
    def gate(self) -> str:
        """The gate's name."""

    @property
    def verdict(self) -> Verdict:
        """Passed (on hardware, emulated or modelled), failed or not run."""

    @property
    def summary(self) -> str:
        """One line: what the gate found, or why it did not run."""

    @property
    def problems(self) -> Sequence[PatchkitError]:
        """Why it failed."""

    @property
    def has_passed(self) -> bool:
        """Whether it passed, be it on hardware, emulated or modelled."""


class Proof(Protocol):
    """The results of all gates for a candidate."""

    @property
    def gates(self) -> Sequence[GateProof]:
        """Every gate, including those that did not run."""

    @property
    def failed(self) -> bool:
        """Whether any gate failed."""

    @property
    def nothing(self) -> Available | None:
        """If the candidate has no patches, and so nothing to prove: which patches are available."""


Prove = Callable[[Workspace, Candidate, Pin], Proof]
"""Runs the gates on a candidate that has no branch yet; the workspace holds the series it was made from."""

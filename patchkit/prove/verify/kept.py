"""Cached results of gates that need no device.

Such a gate depends on two trees, the series, a compiler and patchkit's own code. A digest of all of them is
the key under which a passed result is stored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import patchkit
from patchkit.base.digests import key_of
from patchkit.base.document import EvidenceMalformed, EvidenceUnreadable
from patchkit.base.errors import ToolchainError
from patchkit.base.plain import fields_of
from patchkit.base.store import Store
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.known import program_digest
from patchkit.prove.gates.base import Gate, GateResult
from patchkit.prove.gates.record import GateReport, read_gate
from patchkit.prove.subject import Subject
from patchkit.toolchain.hip import toolchain_identity
from patchkit.toolchain.machine import host_compiler
from patchkit.toolchain.parts import sources_digest

_FORMAT = 1
_REUSED = "; reused: nothing that it checks has changed"


def key_of_run(subject: Subject, workspace: Workspace, *, full: bool) -> str:
    """Digest of everything that the gates of a run depend on, except for those on a device."""
    try:
        host = host_compiler(subject.reporter)
    except ToolchainError:
        host = "none"
    series = workspace.series
    return key_of(
        {
            "format": _FORMAT,
            "patchkit": own_code(),
            "libraries": program_digest(),  # with the versions of Python and of libraries
            "series": [_digest(each) for each in (series.patches, series.templates, series.profiles)],
            "baseline": subject.baseline_tree,
            "candidate": subject.candidate_tree,
            "build": subject.build,
            "archs": subject.archs,
            "commits": [part.commit for part in subject.patches],
            "toolchain": None if subject.toolchain is None else toolchain_identity(subject.toolchain),
            "host": host,
            "full": full,
        }
    )


@lru_cache(maxsize=1)
def own_code() -> str:
    """Digest of every file of this package."""
    return _digest(Path(patchkit.__file__).parent)


def _digest(folder: Path) -> str:
    return sources_digest(folder, (".",), lambda path: "__pycache__" in path.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A gate with cached results. ``key`` is the run's; ``fresh`` runs the gate in any case."""

    inner: Gate
    key: str
    store: Store
    fresh: bool = False

    @property
    def name(self) -> str:
        """Name of the gate."""
        return self.inner.name

    def run(self, subject: Subject) -> GateResult:
        """Return the cached result if the gate passed, else run the gate; raises what the gate raises."""
        key = key_of({"gate": self.name, "run": self.key})
        earlier = None if self.fresh else self._earlier(key)
        if earlier is not None:
            return earlier.reused(earlier.summary + _REUSED)
        self.store.drop(key)  # the new run may fail
        result = self.inner.run(subject)
        if result.verdict == "passed":
            self.store.write(key, json.dumps(fields_of(result)).encode())
        return result

    def _earlier(self, key: str) -> GateReport | None:
        try:
            text = self.store.read(key)
            return None if text is None else read_gate(text, self.name)
        except (EvidenceUnreadable, EvidenceMalformed):
            return None

"""A gate whose result is taken again when nothing changed that it could see.

What such a gate looks at are two trees, the series, a compiler and patchkit's own code. All of it is in one
key, under which a result that passed is kept.
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
_AGAIN = "; taken again: nothing that it looks at changed"


def key_of_run(subject: Subject, workspace: Workspace, *, full: bool) -> str:
    """The key of all that the gates of a run can see, those on a device aside."""
    try:
        host = host_compiler(subject.reporter)
    except ToolchainError:
        host = "none"
    series = workspace.series
    return key_of(
        {
            "format": _FORMAT,
            "patchkit": own_code(),
            "libraries": program_digest(),  # Python's version and those of what places edits, too
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
    """A digest of every file of the package."""
    return _digest(Path(patchkit.__file__).parent)


def _digest(folder: Path) -> str:
    return sources_digest(folder, (".",), lambda path: "__pycache__" in path.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A gate, with the key of the run and the store of results; ``fresh`` runs it anyway."""

    inner: Gate
    key: str
    store: Store
    fresh: bool = False

    @property
    def name(self) -> str:
        """The gate's own name."""
        return self.inner.name

    def run(self, subject: Subject) -> GateResult:
        """Give the earlier result if the gate passed then, or run the gate; raises what the gate raises."""
        key = key_of({"gate": self.name, "run": self.key})
        earlier = None if self.fresh else self._earlier(key)
        if earlier is not None:
            return GateResult(
                gate=earlier.name,
                verdict=earlier.verdict,
                summary=earlier.summary + _AGAIN,
                evidence=earlier.evidence,
                not_run=earlier.not_run,
                lines=earlier.lines,
            )
        self.store.drop(key)  # a fresh run need not pass
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

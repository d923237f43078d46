"""A gate whose result is taken again when nothing changed that it could see.

What such a gate looks at are two trees, the series, a compiler and patchkit's own code. All of it is in one
key; the file of the gate is taken again if it was written under that key, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import patchkit
from patchkit.base.digests import key_of
from patchkit.base.document import EvidenceMalformed, EvidenceUnreadable
from patchkit.base.errors import ToolchainError
from patchkit.base.files import write_whole
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
    """A gate, with the key of the run and the folder of its evidence; ``fresh`` runs it anyway."""

    inner: Gate
    key: str
    folder: Path
    fresh: bool = False

    @property
    def name(self) -> str:
        """The gate's own name."""
        return self.inner.name

    def run(self, subject: Subject) -> GateResult:
        """Give the earlier result if the gate passed then, or run the gate; raises what the gate raises."""
        kept = None if self.fresh else self._earlier()
        if kept is None:
            return self.inner.run(subject)
        summary = kept.summary.removesuffix(_AGAIN) + _AGAIN
        return GateResult(
            gate=kept.name,
            verdict=kept.verdict,
            summary=summary,
            evidence=kept.evidence,
            not_run=kept.not_run,
            lines=kept.lines,
        )

    def stamp(self) -> None:
        """Note under which key the file of the gate was written. Raises CacheError when the disk refuses."""
        path = self.folder / f"{self.name}.json"
        told = {"key": self.key, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        write_whole(self._stamp, json.dumps(told), "writing evidence")

    def _earlier(self) -> GateReport | None:
        path = self.folder / f"{self.name}.json"
        try:
            data = path.read_bytes()
            told = json.loads(self._stamp.read_text("utf-8"))
            if told != {"key": self.key, "sha256": hashlib.sha256(data).hexdigest()}:
                return None
            gate = read_gate(data, str(path))
        except (OSError, ValueError, EvidenceUnreadable, EvidenceMalformed):
            return None
        return gate if gate.name == self.name and gate.verdict == "passed" else None

    @property
    def _stamp(self) -> Path:
        return self.folder / f"{self.name}.kept"

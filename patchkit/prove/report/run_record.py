"""One run of ``verify`` as data: ``report.json``, and the evidence of the gates next to it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from patchkit.prove.gates.base import Many, Record
from patchkit.prove.gates.record import GateReport
from patchkit.prove.verify.timings import Stage

_MOST_GATES = 100
_MOST_PATCHES = 500  # far above any series


class Available(Record, extra="ignore"):
    """On which pins there are patches for these GPUs, in one sentence."""

    sentence: str


class RunPatch(Record):
    """One patch of the candidate.

    ``trust`` is how well its gain is known on the candidate's GPUs (measured, published, modelled, faults),
    None if it is not known. ``sources``: who measured a gain of this very patch. ``gain``: a sentence.
    """

    id: str
    title: str
    trust: str | None
    sources: Many[str]
    gain: str


class RunFile(Record):
    """The contents of ``report.json``.

    ``base`` and ``tip`` are the commits of upstream and candidate, ``tree`` is the candidate's. ``timings``:
    the time spent in each gate. ``patches`` is empty in evidence of earlier versions.
    """

    ok: bool
    nothing_to_prove: bool = False
    available: Available | None = None
    stopped: str | None = None
    branch: str
    archs: Many[str]
    base: str
    tip: str
    tree: str
    proven_with: Many[str]
    known_faults: Many[str] = ()
    patches: Annotated[Many[RunPatch], Field(max_length=_MOST_PATCHES)] = ()
    gates: Annotated[Many[GateReport], Field(max_length=_MOST_GATES)]
    timings: Annotated[Many[Stage], Field(max_length=2 * _MOST_GATES)] = ()


class EvidenceFile(Record):
    """A file that the report was made from; ``size`` in bytes."""

    name: str
    size: int
    sha256: str


class RunRecord(RunFile):
    """One run of ``verify`` and the evidence of its gates.

    ``strays``: gates with evidence of another run in the same folder, which is ignored. ``nothing``: None,
    unless the candidate has no patch, so no gate ran; then it says on which pins there are patches.
    ``arch_options`` name its GPUs on a command line: none in a series without GPUs; None if not known.
    """

    folder: str
    strays: tuple[str, ...]
    files: tuple[EvidenceFile, ...]
    nothing: str | None = None
    arch_options: Many[str] | None = None

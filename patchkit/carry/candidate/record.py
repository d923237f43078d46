"""A candidate branch: its name, its commits, and the record of how it was made.

The record is a blob under ``refs/patchkit/made/<arch[+arch]>/<pin>``. It is updated together with the
branch, so that a candidate of another series is not mistaken for one of this series.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from patchkit.carry.series.lock import Followed, FollowedEdit, ObjectId, Sha256
from patchkit.carry.upstream.repository import Repository

_BRANCHES = "refs/heads/candidate/"
_RECORDS = "refs/patchkit/made/"
UNPROVEN = "-unproven"
"""The end of the name of a candidate on a build that no bump has checked, or one that ran no gates."""

CANDIDATE_REF = re.compile(
    _BRANCHES + r"(?P<archs>[^/]+)/(?P<pin>b(?P<build>[0-9]+)|onto-[0-9a-f]{12})(?P<unproven>-unproven)?"
)


def candidate_ref(archs: tuple[str, ...], pin: str, *, unproven: bool = False) -> str:
    """Full ref name of the candidate for these GPUs (sorted) on the pin of this name."""
    return f"{_BRANCHES}{'+'.join(archs)}/{pin}{UNPROVEN if unproven else ''}"


def is_candidate(ref: str) -> bool:
    """Whether a full ref name is that of a candidate."""
    return CANDIDATE_REF.fullmatch(ref) is not None


def record_ref(ref: str) -> str:
    """The ref of a candidate branch's record."""
    return _RECORDS + ref.removeprefix(_BRANCHES)


class CandidateRecord(BaseModel):
    """How a candidate was made.

    ``inputs`` is the sha256 over every file of the series that was used; ``with_``, ``without`` and ``only``
    are the options that chose its patches. ``commit``, ``clone`` and ``branch`` are set for a candidate on a
    commit of the user's clone. ``followed`` is where moved functions were found, ``faults`` the known
    faults that the code of that commit has, ``program`` the digest of the patchkit that made it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    tip: ObjectId
    build: int
    archs: tuple[str, ...]
    patches: tuple[str, ...]
    inputs: Sha256
    series: str
    with_: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    unlocked: bool = False
    commit: ObjectId | None = None
    clone: str | None = None
    branch: str | None = None
    followed: tuple[Followed | FollowedEdit, ...] = ()
    faults: tuple[str, ...] | None = None
    program: Sha256 | None = None


def shown_path(path: Path) -> str:
    """A path as a record stores it, for display; bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def write_record(repository: Repository, record: CandidateRecord) -> str:
    """Store the record and return its id; equal records give equal bytes. No ref moves."""
    text = json.dumps(record.model_dump(mode="json"), sort_keys=True, indent=1) + "\n"
    return repository.write_object("blob", text.encode("ascii"))


def read_record(repository: Repository, ref: str, refs: Mapping[str, str]) -> CandidateRecord | None:
    """The record of a candidate branch; None if there is none, or if it is of an incompatible version."""
    blob = refs.get(record_ref(ref))
    if blob is None:
        return None
    found = repository.git.attempt("cat-file", "blob", blob)
    if found.status != 0:
        return None
    try:
        return CandidateRecord.model_validate_json(found.stdout)
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCommit:
    """One patch as a commit; ``id`` is that of the patch."""

    id: str
    commit: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate branch; ``base`` and ``tip`` are commit ids, ``commits`` in order from the base.

    ``pin`` is the name of the pin below it. ``record`` is None if it is unknown how the candidate was made.
    """

    ref: str
    archs: tuple[str, ...]
    pin: str
    build: int
    base: str
    tip: str
    commits: tuple[CandidateCommit, ...]
    record: CandidateRecord | None = None

    @property
    def branch(self) -> str:
        """The short name, as used with ``git fetch``."""
        return self.ref.removeprefix("refs/heads/")

    @property
    def ids(self) -> tuple[str, ...]:
        """Its patches, in order."""
        return tuple(each.id for each in self.commits)

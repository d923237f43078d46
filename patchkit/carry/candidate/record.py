"""A candidate branch: its name, its commits, and the record of how it was made.

The record is a blob under ``refs/patchkit/made/<arch[+arch]>/<pin>``; it moves together with the branch, so
that a candidate of another series is not taken for this one's.
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

from patchkit.carry.series.lock import Followed, ObjectId, Sha256
from patchkit.carry.upstream.repository import Repository

_BRANCHES = "refs/heads/candidate/"
_RECORDS = "refs/patchkit/made/"
CANDIDATE_REF = re.compile(_BRANCHES + r"(?P<archs>[^/]+)/(?P<pin>b(?P<build>[0-9]+)|onto-[0-9a-f]{12})")


def candidate_ref(archs: tuple[str, ...], pin: str) -> str:
    """Full ref name of the candidate of these GPUs (sorted) on the pin of this name."""
    return f"{_BRANCHES}{'+'.join(archs)}/{pin}"


def is_candidate(ref: str) -> bool:
    """Whether the full name of a ref is that of a candidate."""
    return CANDIDATE_REF.fullmatch(ref) is not None


def record_ref(ref: str) -> str:
    """Where the record of a candidate branch is."""
    return _RECORDS + ref.removeprefix(_BRANCHES)


class Record(BaseModel):
    """How a candidate was made.

    ``inputs`` is the sha256 over every file of the series that it was made from; ``with_``, ``without`` and
    ``only`` are the options that chose its patches. ``commit``, ``clone`` and ``branch`` are set for one on a
    commit of the user's clone, ``followed`` is where its functions were found, ``program`` the
    digest of the patchkit that made it.
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
    followed: tuple[Followed, ...] = ()
    program: Sha256 | None = None


def shown_path(path: Path) -> str:
    """A path as a record keeps it, to be shown: what is not UTF-8 as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def write_record(repository: Repository, record: Record) -> str:
    """Store the record and return its id; the same record gives the same bytes. No ref moves."""
    text = json.dumps(record.model_dump(mode="json"), sort_keys=True, indent=1) + "\n"
    return repository.write_object("blob", text.encode("ascii"))


def read_record(repository: Repository, ref: str, refs: Mapping[str, str]) -> Record | None:
    """The record of a candidate branch; None when there is none, or one that another patchkit wrote."""
    blob = refs.get(record_ref(ref))
    if blob is None:
        return None
    found = repository.git.attempt("cat-file", "blob", blob)
    if found.status != 0:
        return None
    try:
        return Record.model_validate_json(found.stdout)
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCommit:
    """One patch as a commit; ``id`` is the patch's."""

    id: str
    commit: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate branch; ``base`` and ``tip`` are commit ids, ``commits`` in order from the base.

    ``pin`` is the name of what it stands on. ``record`` is None when nothing says how it was made.
    """

    ref: str
    archs: tuple[str, ...]
    pin: str
    build: int
    base: str
    tip: str
    commits: tuple[CandidateCommit, ...]
    record: Record | None = None

    @property
    def branch(self) -> str:
        """The short name, as ``git fetch`` takes it."""
        return self.ref.removeprefix("refs/heads/")

    @property
    def ids(self) -> tuple[str, ...]:
        """Its patches, in order."""
        return tuple(each.id for each in self.commits)

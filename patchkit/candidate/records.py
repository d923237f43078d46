"""How a candidate was made, kept beside its branch: one of another series is not taken for this one's.

The record is a blob under ``refs/patchkit/made/<arch[+arch]>/<pin>``; it moves together with the branch.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from patchkit.candidate.locking import hash_inputs
from patchkit.candidate.plan import Request
from patchkit.candidate.workspace import Workspace
from patchkit.series.catalogue import load_series
from patchkit.series.folder import SeriesDir
from patchkit.series.lock import Followed, ObjectId, Pin, Sha256
from patchkit.series.profile import load_profile
from patchkit.upstream.repository import Repository


class Made(BaseModel):
    """The record of one candidate.

    ``inputs`` is the sha256 over every file of the series that the candidate was made from; ``with_``,
    ``without`` and ``only`` are the options that chose its patches. ``commit`` and ``clone`` are set for a
    candidate on a commit of the user's clone, ``followed`` is where its functions were found, ``program`` the
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


def format_made(made: Made) -> bytes:
    """The record as it is kept: the same record gives the same bytes."""
    return json.dumps(made.model_dump(mode="json"), sort_keys=True, indent=1).encode("ascii") + b"\n"


def parse_made(data: bytes) -> Made | None:
    """A record; None for what is none, as another patchkit may have written it."""
    try:
        return Made.model_validate_json(data)
    except ValidationError:
        return None


_BRANCHES = "refs/heads/candidate/"
_RECORDS = "refs/patchkit/made/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What options say of a candidate's patches; empty: whatever it was made with."""

    with_: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.with_ or self.without or self.only)

    @property
    def options(self) -> str:
        """The options again, as a person types them; each with a space in front."""
        rows = (("--with", self.with_), ("--without", self.without), ("--only", self.only))
        return "".join(f" {option} {shlex.quote(name)}" for option, names in rows for name in names)


def record_ref(ref: str) -> str:
    """Where the record of a candidate branch is."""
    return _RECORDS + ref.removeprefix(_BRANCHES)


def recall(repository: Repository, ref: str, refs: Mapping[str, str]) -> Made | None:
    """The record of a candidate branch; None when there is none that can be read."""
    blob = refs.get(record_ref(ref))
    if blob is None:
        return None
    found = repository.git.attempt("cat-file", "blob", blob)
    return parse_made(found.stdout) if found.status == 0 else None


def make_record(
    request: Request,
    pin: Pin,
    workspace: Workspace,
    *,
    tip: str,
    patches: Sequence[str],
    inputs: Mapping[str, str],
    branch: str | None = None,
) -> Made:
    """The record of a candidate that was just made from ``inputs`` (sha256 by path)."""
    return Made(
        tip=tip,
        build=pin.build,
        archs=tuple(sorted(set(request.archs))),
        patches=tuple(patches),
        inputs=digest_of(inputs),
        series=shown_path(workspace.series.root),
        with_=request.with_,
        without=request.without,
        only=request.only,
        unlocked=request.unlocked,
        commit=pin.commit if pin.clone is not None else None,
        clone=shown_path(pin.clone) if pin.clone is not None else None,
        branch=branch,
        followed=pin.followed,
        program=program_digest(),
    )


_CODE = Path(__file__).parents[1]
# What decides the bytes of a candidate and what is refused: these packages, and the libraries they ask.
_PACKAGES = ("base", "series", "kernels", "cpp", "upstream", "edits", "candidate")
_LIBRARIES = ("jinja2", "libclang", "pydantic")


def program_digest() -> str:
    """sha256 over the code of this patchkit that decides a candidate, and the versions of what it uses."""
    state = hashlib.sha256(sys.version.encode())
    for name in _LIBRARIES:
        state.update(f"\0{name} {importlib.metadata.version(name)}".encode())
    for package in _PACKAGES:
        for path in sorted((_CODE / package).rglob("*")):
            if path.suffix in (".py", ".h"):
                state.update(f"\0{path.relative_to(_CODE)} ".encode())
                state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def shown_path(path: Path) -> str:
    """A path as a record keeps it, to be shown: what is not UTF-8 as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def write_record(repository: Repository, made: Made) -> str:
    """Store the record and return its id. No ref moves."""
    return repository.write_object("blob", format_made(made))


def digest_of(inputs: Mapping[str, str]) -> str:
    """sha256 over paths and digests."""
    text = json.dumps(dict(inputs), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def digest_today(series: SeriesDir, archs: Sequence[str], patches: Sequence[str]) -> str | None:
    """The digest that these patches for these GPUs have now; None when the series lacks one of them.

    Raises the errors of reading the series and the profiles, LOCK_INPUT_UNUSABLE.
    """
    known = load_series(series.patches)
    found = [known.patch(name) for name in patches]
    if None in found:
        return None
    profiles = [load_profile(series.profiles, arch) for arch in sorted(set(archs))]
    return digest_of(hash_inputs(profiles, [patch.folder for patch in found if patch is not None], series))

"""How a candidate was made: what was asked for, and of which files. Kept beside its branch, as JSON."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from patchkit.config.lock import Followed
from patchkit.config.lock_model import ObjectId, Sha256


class Made(BaseModel):
    """The record of one candidate.

    ``inputs`` is the sha256 over every file of the series that the candidate was made from; ``with_``,
    ``without`` and ``only`` are the options that chose its patches. ``commit`` and ``clone`` are set for a
    candidate on a commit of the user's clone, ``followed`` is where its functions were found.
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


def format_made(made: Made) -> bytes:
    """The record as it is kept: the same record gives the same bytes."""
    return json.dumps(made.model_dump(mode="json"), sort_keys=True, indent=1).encode("ascii") + b"\n"


def parse_made(data: bytes) -> Made | None:
    """A record; None for what is none, as another patchkit may have written it."""
    try:
        return Made.model_validate_json(data)
    except ValidationError:
        return None

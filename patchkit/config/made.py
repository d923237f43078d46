"""How a candidate was made: what was asked for, and of which files. Kept beside its branch, as JSON."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

__all__ = ["Made", "MadeFollowed", "format_made", "parse_made"]

_ObjectId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MadeFollowed(_Model):
    """A function that patches name, and where it was on this upstream."""

    file: str
    function: str
    now_file: str
    now_function: str


class Made(_Model):
    """The record of one candidate.

    ``inputs`` is the sha256 over every file of the series that the candidate was made from; ``with_``,
    ``without`` and ``only`` are the options that chose its patches. ``commit`` and ``clone`` are set for a
    candidate on a commit of the user's clone, ``followed`` is where its functions were found.
    """

    version: Literal[1] = 1
    tip: _ObjectId
    build: int
    archs: tuple[str, ...]
    patches: tuple[str, ...]
    inputs: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    series: str
    with_: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    unlocked: bool = False
    commit: _ObjectId | None = None
    clone: str | None = None
    branch: str | None = None
    followed: tuple[MadeFollowed, ...] = ()


def format_made(made: Made) -> bytes:
    """The record as it is kept: the same record gives the same bytes."""
    return json.dumps(made.model_dump(mode="json"), sort_keys=True, indent=1).encode("ascii") + b"\n"


def parse_made(data: bytes) -> Made | None:
    """A record; None for what is none, as another patchkit may have written it."""
    try:
        return Made.model_validate_json(data)
    except ValidationError:
        return None

"""The tables of patch.toml about a patch's end: ``[upstream]``, ``[expires]`` and ``[[replaced_by]]``.

Vocabulary: the *standing* of a patch is what upstream made of it: none, submitted, merged in a build, or
rejected for a reason. It *expires* at a build or on a day, after which somebody has to look at it again.
A *replacement* is what upstream would have once it does the same in its own words.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from patchkit.config.toml import TomlModel

Standing = Literal["none", "submitted", "merged", "rejected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A token pattern in a function of upstream that means: upstream does this itself now."""

    file: str
    function: str
    tokens: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """``url``, ``merged_in`` and ``reason`` belong to the standing; ``since`` is when the patch was begun."""

    standing: Standing = "none"
    url: str | None = None
    merged_in: int | None = None
    reason: str | None = None
    since: dt.date | None = None
    expires_build: int | None = None
    expires_on: dt.date | None = None
    expires_why: str | None = None
    replaced_by: tuple[Replacement, ...] = ()

    def __str__(self) -> str:
        match self.standing:
            case "none":
                return "not submitted"
            case "submitted":
                return f"submitted: {self.url or 'no link'}"
            case "merged":
                return f"merged in b{self.merged_in}" if self.merged_in else "merged, build not written down"
            case "rejected":
                return f"rejected: {self.reason or 'no reason written down'}"

    def expired(self, build: int, today: dt.date) -> str | None:
        """Why a person has to look at the patch now, if so."""
        if self.expires_build is not None and build > self.expires_build:
            return f"expired after b{self.expires_build}: {self.expires_why}"
        if self.expires_on is not None and today > self.expires_on:
            return f"expired on {self.expires_on.isoformat()}: {self.expires_why}"
        return None


class UpstreamModel(TomlModel):
    """``[upstream]``."""

    url: str | None = Field(default=None, min_length=1)
    merged_in: int | None = Field(default=None, ge=1)
    reason: str | None = Field(default=None, min_length=1)
    since: dt.date | None = None

    def fit(self, status: str) -> None:
        """Raises ValueError when the table lacks what the patch's status calls for, or excludes."""
        if status == "submitted" and self.url is None:
            raise ValueError("status 'submitted' needs [upstream] url")
        if status == "rejected" and self.reason is None:
            raise ValueError("status 'rejected' needs [upstream] reason")
        if status == "backport" and self.merged_in is None:
            raise ValueError("status 'backport' needs [upstream] merged_in")
        if status != "backport" and self.merged_in is not None:
            raise ValueError(f"merged_in does not go with status '{status}': it is a 'backport' then")


class ExpiresModel(TomlModel):
    """``[expires]``."""

    build: int | None = Field(default=None, ge=1)
    on: dt.date | None = None
    why: str = Field(min_length=1)

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if (self.build is None) == (self.on is None):
            raise ValueError("give 'build' or 'on', one of them")
        return self


class ReplacementModel(TomlModel):
    """``[[replaced_by]]``."""

    file: str = Field(min_length=1)
    function: str = Field(min_length=1)
    tokens: str = Field(min_length=1)
    why: str = Field(min_length=1)

    def build(self) -> Replacement:
        """The table as data."""
        return Replacement(file=self.file, function=self.function, tokens=self.tokens, why=self.why.strip())


_STANDINGS: dict[str, Standing] = {"submitted": "submitted", "rejected": "rejected", "backport": "merged"}


def make_fate(
    status: str,
    links: Sequence[str],
    upstream: UpstreamModel | None,
    expires: ExpiresModel | None,
    replaced_by: Sequence[ReplacementModel],
) -> Fate:
    """The tables as data; a patch without ``[upstream]`` stands as its status says, by its first link."""
    table = upstream if upstream is not None else UpstreamModel()
    return Fate(
        standing=_STANDINGS.get(status, "none"),
        url=table.url or (links[0] if status == "submitted" and links else None),
        merged_in=table.merged_in,
        reason=table.reason,
        since=table.since,
        expires_build=expires.build if expires is not None else None,
        expires_on=expires.on if expires is not None else None,
        expires_why=expires.why.strip() if expires is not None else None,
        replaced_by=tuple(row.build() for row in replaced_by),
    )

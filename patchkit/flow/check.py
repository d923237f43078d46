"""What one check of :mod:`patchkit.flow.doctor` found.

Vocabulary: a *check* looks at one thing. It is *ok*, *failed* (patchkit cannot work, or the user asked
for something that is broken), or *absent* (something that only a later step needs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from patchkit.errors import PatchkitError

State = Literal["ok", "absent", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; ``error`` is there when it failed, ``hint`` says how to get what is absent."""

    name: str
    state: State
    detail: str
    hint: str | None = None
    error: PatchkitError | None = None

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "name": self.name,
            "state": self.state,
            "detail": self.detail,
            "hint": self.hint,
            "code": self.error.code if self.error is not None else None,
        }

"""A finding about the host: its state, what it costs, how to change it, how to check the change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from patchkit.gpu.hardware.host.knowledge import Advice

State = Literal["ok", "costs speed", "broken", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One setting or part of the host.

    ``cost`` is what others measured or documented, and ``sources`` say who; it is None if there is no source.
    ``change`` and ``check`` are for the user: how to change the setting, and how to see that it has changed.
    """

    name: str
    state: State
    detail: str
    cost: str | None = None
    sources: tuple[str, ...] = ()
    change: str | None = None
    check: str | None = None


def advise(name: str, state: State, detail: str, advice: Advice, *, change: str | None = None) -> Finding:
    """A finding with the texts of ``advice``; ``change`` replaces how to change it."""
    return Finding(
        name=name,
        state=state,
        detail=detail,
        cost=advice.cost,
        sources=advice.sources,
        change=change or advice.change,
        check=advice.check,
    )

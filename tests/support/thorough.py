"""Parameters that only ``pytest -m thorough`` goes through, a stage of .ci/run, or a run by hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest


def ordinary(
    values: Sequence[Any],
    kept: Collection[Any] | int,
    others: pytest.MarkDecorator = pytest.mark.thorough,
) -> list[Any]:
    """All of ``values`` as parameters: those that are ``kept`` (or the first so many) are for every run.

    A tuple is the values of several parameters. ``others`` marks the rest, as ``pytest.mark.hours``.
    """
    kept = values[:kept] if isinstance(kept, int) else kept
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in kept else others,
        )
        for value in values
    ]

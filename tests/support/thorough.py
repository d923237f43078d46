"""Parameters that only the thorough run goes through (``pytest -m thorough``, a stage of .ci/run)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest


def ordinary(values: Sequence[Any], kept: Collection[Any] | int) -> list[Any]:
    """All of ``values`` as parameters: those that are ``kept`` (or the first so many) are for every run.

    A tuple is the values of several parameters.
    """
    kept = values[:kept] if isinstance(kept, int) else kept
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in kept else pytest.mark.thorough,
        )
        for value in values
    ]

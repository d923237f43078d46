"""Parameters that only the thorough run goes through (``pytest -m thorough``, a stage of .ci/run)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def ordinary(values: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """All of ``values`` as parameters; those that are not ``kept`` for every run carry the mark."""
    return [value if value in kept else pytest.param(value, marks=pytest.mark.thorough) for value in values]

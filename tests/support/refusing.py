"""What a test says of an error: its code."""

from __future__ import annotations

import pytest

from patchkit.base.errors import PatchkitError


def refused(code: str, match: str | None = None) -> pytest.RaisesExc[PatchkitError]:
    """As pytest.raises, for patchkit's error of that code."""
    return pytest.raises(PatchkitError, match=match, check=lambda error: error.code == code)

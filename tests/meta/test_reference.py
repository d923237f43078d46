"""The generated pages of docs/reference/ are what the program says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MADE: dict[str, str] = runpy.run_path(str(ROOT / "ci" / "reference.py"))["reference"]()


@pytest.mark.parametrize("name", MADE)
def test_a_page_of_the_reference_is_up_to_date(name: str) -> None:
    kept = (ROOT / "docs" / "reference" / name).read_text("utf-8")
    assert kept == MADE[name], "write it with: python ci/reference.py --write"

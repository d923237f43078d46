"""docs/reference.md is what the program says."""

from __future__ import annotations

import runpy
from pathlib import Path

from patchkit.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "ci" / "reference.py"))["reference"]()
    kept = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert kept == made, "write it with: python ci/reference.py --write"


def test_each_command_has_its_section_with_an_example() -> None:
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    for name in COMMANDS:
        section = text.split(f"### patchkit {name}\n")[1].split("\n### ")[0]
        assert f"patchkit {name}" in section.split("```sh")[1]
    assert "### patchkit bench compare" in text

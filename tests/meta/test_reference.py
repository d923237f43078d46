"""The generated pages of docs/reference/ are what the program says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from patchkit.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
MADE: dict[str, str] = runpy.run_path(str(ROOT / "ci" / "reference.py"))["reference"]()


@pytest.mark.parametrize("name", MADE)
def test_a_page_of_the_reference_is_up_to_date(name: str) -> None:
    kept = (ROOT / "docs" / "reference" / name).read_text("utf-8")
    assert kept == MADE[name], "write it with: python ci/reference.py --write"


def test_each_command_has_its_section_with_an_example() -> None:
    text = MADE["commands.md"]
    for name in COMMANDS:
        section = text.split(f"\n## patchkit {name}\n")[1].split("\n## ")[0]
        assert f"patchkit {name}" in section.split("```sh")[1]
    assert "\n### patchkit bench compare\n" in text


def test_each_table_of_a_file_is_listed_and_described_once() -> None:
    text = MADE["files.md"]
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    places = [f"#{heading.lower().replace(': ', '-').replace(' ', '-')}" for heading in headings]
    assert len(set(places)) == len(places) > 40
    assert set(re.findall(r"\]\((#[^)]+)\)", text)) == set(places)

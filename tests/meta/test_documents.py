"""The documents and the help texts say what the program does."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main
from patchkit.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_has_an_example_of_it(name: str, capsys) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    _, _, examples = text.partition("Example:\n")
    assert f"patchkit {name}" in examples
    assert "--json" in text


def test_each_link_of_the_readme_leads_somewhere() -> None:
    # Those of docs/ are held when the site is built (.ci/run).
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", README)
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / link).exists()]


def test_ci_finds_the_commands_of_the_readme() -> None:
    readme_block = runpy.run_path(str(ROOT / "ci" / "readme_block.py"))["readme_block"]
    assert readme_block("main").endswith(".venv/bin/patchkit apply --arch gfx1151")
    assert readme_block("tests").endswith(".venv/bin/pytest -n auto")
    with pytest.raises(LookupError):
        readme_block("nothing")


def test_the_exit_codes_are_listed_as_they_are() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE))
    assert rows == {str(int(code)): code.name for code in ExitCode}


def test_the_readme_names_the_pythons_that_are_supported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == ">=3.11,<3.14"
    assert "Python 3.11 to 3.13" in README

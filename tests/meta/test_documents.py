"""The documents and the help texts say what the program does, and what they point at is there."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main
from patchkit.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# A page as texts name it, behind the repository if that is another one.
_CITED = re.compile(r"(?:\b[\w-]+/[\w.-]+ |\b)docs/[\w/-]+\.(?:md|svg)")

# Their bytes go into commits, or into digests of records: they name pages as they were called before docs/
# had shelves, by a name that one page of the shelf of records still has.
_FIXED = ("patches", "arch_profiles", "patchkit/toolchain/sdk/standin")
# Code, and what configures it, names a page by its path; tests of gates and builds make up pages of their
# own.
_CITING = ("patchkit", "ci", "benchmarks", ".github", ".ci", "tests", "pyproject.toml", "CMakeLists.txt")
_MADE_UP = {f"docs/{name}" for name in ("how.md", "other.md", "build.md", "pictures/speed.svg")}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_has_an_example_of_it(name: str, capsys) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    _, _, examples = text.partition("Examples:\n")
    assert f"patchkit {name}" in examples
    assert "--json" in text


def _anchor(heading: str) -> str:
    """Where a heading can be linked to, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _anchors(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text("utf-8"))
    return {_anchor(each) for each in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def _broken(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        known = target.is_file() and target.is_relative_to(ROOT)
        if not known or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            yield link


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert not list(_broken(page))


def _texts(*places: str) -> Iterator[tuple[str, str]]:
    for place in places:
        path = ROOT / place
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield str(file.relative_to(ROOT)), file.read_bytes().decode("utf-8", "replace")


def _cited(text: str) -> list[str]:
    """The pages of ours that a text names."""
    return [page for page in _CITED.findall(text) if page.startswith("docs/")]


def _stays(file: str) -> bool:
    """Whether its bytes are part of a candidate's: not those of evidence, which decides no byte."""
    return file.startswith(_FIXED) and not file.endswith("/evidence.toml")


def test_what_bytes_that_stay_cite_is_a_page_of_the_records() -> None:
    """They name the page, or its path before it moved to the records where a tree would change."""
    cited = {page for file, text in _texts(*_FIXED) if _stays(file) for page in _cited(text)}
    assert cited, "the texts were not understood"
    names = {page: page.removeprefix("docs/").removeprefix("records/") for page in cited}
    assert not [page for page, name in names.items() if not (DOCS / "records" / name).is_file()]


def test_a_page_that_code_names_is_there() -> None:
    found = [
        f"{file}: {page}"
        for file, text in _texts(*_CITING, "patches")
        if not _stays(file)
        for page in _cited(text)
        if page not in _MADE_UP and not (ROOT / page).is_file()
    ]
    assert not found


def test_ci_finds_the_commands_of_the_readme() -> None:
    readme_block = runpy.run_path(str(ROOT / "ci" / "readme_block.py"))["readme_block"]
    assert readme_block("main").endswith(".venv/bin/patchkit apply --arch gfx1151")
    assert readme_block("tests").endswith(".venv/bin/pytest -n auto")
    with pytest.raises(LookupError):
        readme_block("nothing")


def test_the_exit_codes_are_listed_as_they_are() -> None:
    page = (DOCS / "reference" / "errors.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE))
    assert rows == {str(int(code)): code.name for code in ExitCode}

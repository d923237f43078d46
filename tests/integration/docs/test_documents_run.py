"""The commands of the tutorial and the how-tos do what the pages say, on the real pin."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from patchkit.cli.app import main

pytestmark = [pytest.mark.upstream, pytest.mark.slow]

_DOCS = Path(__file__).resolve().parents[3] / "docs"
_PAGES = sorted([*_DOCS.glob("howto-*.md"), _DOCS / "tutorial.md"])
_RUN = re.compile(r"<!-- run -->\n```sh\n(.*?)\n```", re.DOTALL)
_FILE = re.compile(r"<!-- file: (\S+) -->\n```toml\n(.*?\n)```", re.DOTALL)
_LINE = re.compile(r"<!-- line: (\S+) after (\S+) -->\n```toml\n(.*?\n)```", re.DOTALL)


def _commands(page: str) -> list[list[str]]:
    blocks = _RUN.findall(page)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_pages_have_commands_to_run() -> None:
    counts = {page.name: len(_commands(page.read_text("utf-8"))) for page in _PAGES}
    without = {name for name, count in counts.items() if not count}
    assert without == {"howto-gate-fork.md", "howto-strix-halo.md"}
    assert sum(counts.values()) >= 11


@pytest.mark.parametrize(
    "path", [page for page in _PAGES if "<!-- run -->" in page.read_text("utf-8")], ids=lambda p: p.stem
)
def test_the_commands_of_a_page_end_well(
    path: Path,
    pin_cache: Path,
    tmp_path: Path,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a folder that holds the series and what the page has its reader write."""
    clone = tmp_path / "clone"
    for folder in ("patches", "templates", "arch_profiles", "benchmarks/shapes"):
        shutil.copytree(checkout / folder, clone / folder)
    text = path.read_text("utf-8")
    for name, content in _FILE.findall(text):
        (clone / name).parent.mkdir(parents=True)
        (clone / name).write_text(content, "utf-8")
    for name, after, line in _LINE.findall(text):
        old = (clone / name).read_text("utf-8")
        assert f"{after}\n" in old
        (clone / name).write_text(old.replace(f"{after}\n", f"{after}\n{line}", 1), "utf-8")
    monkeypatch.chdir(clone)
    for program, *argv in _commands(text):
        assert program == "patchkit"
        code = main([*argv, "--series-dir", str(clone), "--cache-dir", str(pin_cache)])
        out, err = capsys.readouterr()
        assert code == 0, f"{shlex.join(argv)}\n{err}"
        assert out.strip()
        assert "Traceback" not in err
    if path.name == "howto-patch.md":
        assert "mmq.cu" in out
        assert "return true;" in out


_COMMAND = re.compile(r"^(?:\$ )?patchkit ([a-z]+)", re.MULTILINE)


@pytest.mark.parametrize("path", _PAGES, ids=lambda p: p.stem)
def test_what_is_not_run_at_least_exists(path: Path, checkout: Path) -> None:
    from patchkit.cli.commands import COMMANDS

    text = path.read_text("utf-8")
    assert set(_COMMAND.findall(text)) <= set(COMMANDS)
    for link in re.findall(r"\]\(([\w./-]+\.md)", text):
        assert (checkout / "docs" / link).is_file(), link

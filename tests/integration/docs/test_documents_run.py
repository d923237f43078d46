"""The commands of the tutorial and the how-tos do what the pages say, on the real pin."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import process_environment, run_patchkit
from demo_world import git

from patchkit.cli.app import main

pytestmark = [pytest.mark.upstream, pytest.mark.slow]

_DOCS = Path(__file__).resolve().parents[3] / "docs"
_PAGES = sorted(page for page in _DOCS.glob("guide/*.md") if "<!-- run -->" in page.read_text("utf-8"))
_RUN = re.compile(r"<!-- run -->\n```sh\n(.*?)\n```", re.DOTALL)
_FILE = re.compile(r"<!-- file: (\S+) -->\n```toml\n(.*?\n)```", re.DOTALL)
_LINE = re.compile(r"<!-- line: (\S+) after (\S+) -->\n```toml\n(.*?\n)```", re.DOTALL)


def _commands(page: str) -> list[list[str]]:
    blocks = _RUN.findall(page)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_pages_have_commands_to_run() -> None:
    assert {page.stem for page in _PAGES} == {"add-a-gpu", "bump", "patch", "tutorial"}
    assert sum(len(_commands(page.read_text("utf-8"))) for page in _PAGES) >= 11


@pytest.mark.parametrize("path", _PAGES, ids=lambda p: p.stem)
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
    for folder in ("patches", "templates", "arch_profiles"):
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
    if path.name == "patch.md":
        assert "mmq.cu" in out
        assert "return true;" in out


_STORY = re.compile(r"<!-- story -->\n```sh\n(.*?)\n```", re.DOTALL)
_UPSTREAM = "https://github.com/ggml-org/llama.cpp"


@pytest.mark.thorough
def test_the_owner_of_a_clone_gets_the_patches_beside_his_own_edit(
    pin_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tutorial's first page, word for word, in a shell; upstream is a remote on this machine."""
    upstream = tmp_path / "upstream.git"
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATCHKIT_CACHE", str(pin_cache))
    for key, value in (
        ("user.name", "owner"),
        ("user.email", "owner@localhost"),
        (f"url.{upstream}.insteadOf", _UPSTREAM),
    ):
        git(tmp_path, "config", "--global", key, value)
    git(tmp_path, "init", "-q", "--bare", "-b", "master", str(upstream))
    (upstream / "objects" / "info" / "alternates").write_text(f"{pin_cache / 'upstream.git' / 'objects'}\n")
    tree = git(pin_cache / "upstream.git", "rev-parse", "refs/patchkit/pin/b6900^{tree}")
    first = git(upstream, "commit-tree", tree, "-m", "the commit before")
    pinned = git(upstream, "commit-tree", tree, "-p", first, "-m", "build 6900")
    git(upstream, "tag", "b6900", pinned)
    git(upstream, "update-ref", "refs/heads/master", pinned)
    script = "\n".join(_STORY.findall((_DOCS / "guide" / "tutorial.md").read_text("utf-8")))
    patchkit = f'patchkit() {{ "{sys.executable}" -m patchkit "$@"; }}\n'
    done = subprocess.run(
        ["sh", "-euc", patchkit + script], cwd=tmp_path, env=process_environment(),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 clean (wmma-tile-params, tile-unprune, fattn-decode-tile)" in done.stdout
    clone = tmp_path / "llama.cpp"
    text = (clone / "ggml/src/ggml-cuda/fattn.cu").read_text()
    assert text.index("// rocWMMA, see my notes") < text.index("Q->ne[1] == 1)\n#endif")
    assert git(clone, "rev-list", "--count", f"{pinned}..HEAD") == "4"
    assert git(clone, "status", "--porcelain") == ""
    # What the page says of cherry-pick: the same commits, made on upstream's own, conflict with the edit.
    git(clone, "switch", "-q", "-c", "plain", "mine~3")
    onto = ("--onto", "b6900", "--branch", "pinned")
    assert run_patchkit("apply", "--arch", "gfx1151", *onto, cwd=clone).returncode == 0
    picked = subprocess.run(
        ["git", "cherry-pick", "b6900..pinned"],
        cwd=clone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert picked.returncode != 0
    assert "CONFLICT" in picked.stdout + picked.stderr


_COMMAND = re.compile(r"^(?:\$ )?patchkit ([a-z]+)", re.MULTILINE)


@pytest.mark.parametrize("path", _PAGES, ids=lambda p: p.stem)
def test_what_is_not_run_at_least_exists(path: Path) -> None:
    from patchkit.cli.commands import COMMANDS

    assert set(_COMMAND.findall(path.read_text("utf-8"))) <= set(COMMANDS)

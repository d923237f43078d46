"""The commands of the tutorial and the how-tos do what the pages say, on the real pin."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click
import pytest
from command_line import process_environment, run_patchkit
from demo_world import git

from patchkit.cli.app import main
from patchkit.cli.commands import Verbs

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
    assert {page.stem for page in _PAGES} == {"add-a-gpu", "bump", "estimate", "patch", "tutorial"}
    assert sum(len(_commands(page.read_text("utf-8"))) for page in _PAGES) >= 12


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
    tree = git(pin_cache / "upstream.git", "rev-parse", "refs/patchkit/pin/b11549^{tree}")
    first = git(upstream, "commit-tree", tree, "-m", "the commit before")
    pinned = git(upstream, "commit-tree", tree, "-p", first, "-m", "build 11549")
    git(upstream, "tag", "b11549", pinned)
    git(upstream, "update-ref", "refs/heads/master", pinned)
    script = "\n".join(_STORY.findall((_DOCS / "guide" / "tutorial.md").read_text("utf-8")))
    patchkit = f'patchkit() {{ "{sys.executable}" -m patchkit "$@"; }}\n'
    done = subprocess.run(
        ["sh", "-euc", patchkit + script], cwd=tmp_path, env=process_environment(),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    patches = ("mmq-batch-limits", "mmq-tile-config", "mmvq-batch-limits", "mmq-rolled-loops")
    assert all(patch in done.stdout for patch in patches)
    clone = tmp_path / "llama.cpp"
    text = (clone / "ggml/src/ggml-cuda/mmq.cuh").read_text()
    assert text.index("// my Strix Halo") < text.index("return ggml_cuda_mmq_tuned_gfx1151(")
    assert git(clone, "rev-list", "--count", f"{pinned}..HEAD") == "6"
    assert git(clone, "status", "--porcelain") == ""
    # What the page says of cherry-pick: the same commits, made on upstream's own, conflict with the edit.
    git(clone, "switch", "-q", "-c", "plain", "mine~5")
    onto = ("--onto", "b11549", "--branch", "pinned")
    assert run_patchkit("apply", "--arch", "gfx1151", *onto, cwd=clone).returncode == 0
    picked = subprocess.run(
        ["git", "cherry-pick", "b11549..pinned"],
        cwd=clone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert picked.returncode != 0
    assert "CONFLICT" in picked.stdout + picked.stderr


_GUIDES = [_DOCS.parent / "README.md", *sorted((_DOCS / "guide").glob("*.md"))]
_SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _asked(page: str) -> Iterator[list[str]]:
    """Each command of patchkit in the page's shell blocks, as its arguments."""
    for block in _SHELL.findall(page):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            for _, part in groupby(words, key=lambda word: word in {"&&", "|", ">", ">>"}):
                program, *argv = part
                if program.rpartition("/")[2] == "patchkit":
                    yield argv


def _mistakes(argv: list[str]) -> Iterator[str]:
    """What the command line would say of the words and options of a command, without running it."""
    command: click.Command = Verbs(name="patchkit")
    context = click.Context(command, info_name="patchkit")
    while isinstance(command, click.Group) and argv:
        name, *argv = argv
        inner = command.get_command(context, name)
        if inner is None:
            yield f"no command {name}"
            return
        command, context = inner, click.Context(inner, parent=context, info_name=name)
    try:
        found, *_ = command.make_parser(context).parse_args(args=list(argv))
    except click.UsageError as error:
        yield error.format_message()
        return
    for param in command.params:
        value = found.get(str(param.name))
        if param.required and not value:
            yield f"without {param.name}"
        if isinstance(param.type, click.Choice):
            for each in value if isinstance(value, list) else [value]:
                if each is not None and each not in param.type.choices:
                    yield f"{param.name} {each}"


@pytest.mark.parametrize("path", _GUIDES, ids=lambda p: p.stem)
def test_what_is_not_run_at_least_exists(path: Path) -> None:
    found = [(argv, list(_mistakes(argv))) for argv in _asked(path.read_text("utf-8"))]
    assert not [each for each in found if each[1]]


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("patchkit aply --arch gfx1151", "no command aply"),
        ("cd x && patchkit apply --archs gfx1151", "No such option"),
        ("patchkit bench runn", "no command runn"),
        ("patchkit model --tokens 1", "without arch"),
        ("patchkit report --arch gfx1151 --format pdf", "form pdf"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, mistake: str) -> None:
    (argv,) = _asked(f"```sh\n{line}  # as a page has it\n```\n")
    (told,) = _mistakes(argv)
    assert told.startswith(mistake)

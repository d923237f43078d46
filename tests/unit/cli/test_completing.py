"""What <tab> offers, by the answers that the script of a shell gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from command_line import ROOT, process_environment, process_start, run_patchkit

from patchkit.base.arch import list_profiles
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import load_lock
from patchkit.cli.boundary import root
from patchkit.cli.commands import COMMANDS
from patchkit.cli.settings import Settings


def _ask(*words: str, shell: str = "bash", code: str = "") -> subprocess.CompletedProcess[str]:
    """The answer to <tab> behind the last of the words; ``code`` runs in place of patchkit."""
    argv = [sys.executable, "-c", code] if code else process_start()
    # fish gives the word itself, the others its place.
    asked = {
        "COMP_WORDS": "\n".join(["patchkit", *words]),
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words)),
    }
    environ = process_environment({**asked, "_PATCHKIT_COMPLETE": f"{shell}_complete"})
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def _offered(*words: str) -> list[str]:
    done = _ask(*words)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.removeprefix("plain,") for line in done.stdout.split()]


def test_the_name_of_a_command_is_completed_and_no_command_imported() -> None:
    code = (
        "import sys\nfrom patchkit.cli import app\ntry:\n    app.run()\n"
        "except SystemExit:\n    print('#', *sys.modules)"
    )
    offered, _, loaded = _ask("", code=code).stdout.partition("#")
    assert offered.split() == [f"plain,{name}" for name in COMMANDS]
    assert "patchkit.cli.completing" in loaded.split()
    heavy = "git clang jinja2 pydantic pypi_simple requests rich platformdirs filelock numpy"
    assert not set(heavy.split()) & set(loaded.split())
    assert [name for name in loaded.split() if name.startswith("patchkit.cli.verbs.")] == []
    assert _offered("sta") == ["status"]


def test_options_are_completed_of_patchkit_and_of_a_command() -> None:
    assert _offered("--ver") == ["--version", "--verbose"]
    assert _offered("-v", "apply", "--with") == ["--without", "--with", "--with-opt-in"]
    assert _offered("bench", "run", "--mod") == ["--model"]


def test_values_are_those_of_the_series(tmp_path: Path) -> None:
    gpus = list(list_profiles(ROOT / "arch_profiles"))
    patches = [patch.id for patch in load_series(ROOT / "patches").patches]
    pins = [f"b{pin.build}" for pin in load_lock(ROOT / "patches" / "upstream.lock").pins]
    assert _offered("apply", "--arch", "") == gpus
    assert _offered("show", "") == [*patches, *gpus]
    assert sorted(_offered("plan", "--upstream", "")) == sorted(pins)
    (tmp_path / "arch_profiles").mkdir()
    (tmp_path / "arch_profiles" / "gfx1234.toml").touch()
    (tmp_path / "patches").mkdir()
    own = ("--series-dir", str(tmp_path))
    assert _offered(*own, "apply", "--arch", "") == ["gfx1234"]
    assert _offered("apply", *own, "--arch", "gfx12") == ["gfx1234"]
    day = 'committed = "2026-09-23T10:00:00Z"\n'
    (tmp_path / "patches" / "upstream.lock").write_text(
        f'[[pin]]\nname = "b9"\n{day}\n[[pin]]\nname = "b11"\nreleases = ["v0.4.0", "v0.5.0"]\n{day}'
    )
    assert _offered(*own, "plan", "--upstream", "") == ["v0.4.0", "v0.5.0", "b11", "b9"]
    assert _offered(*own, "plan", "--upstream", "v0.5") == ["v0.5.0"]
    assert _offered(*own, "sweep", "--from", "b1") == ["b11"]
    assert _offered(*own, "sweep", "--to", "latest") == ["latest", "latest-release"]
    assert _offered(*own, "bump", "--to", "") == ["latest", "latest-release", "v0.4.0", "v0.5.0", "b11", "b9"]


def _parameters(command: click.Command, path: str) -> Iterator[tuple[str, click.Parameter]]:
    yield from ((path, param) for param in command.params)
    if isinstance(command, click.Group):
        with click.Context(command) as ctx:
            for name in command.list_commands(ctx):
                inner = command.get_command(ctx, name)
                assert inner is not None
                yield from _parameters(inner, f"{path} {name}".strip())


def test_an_option_that_names_a_gpu_a_pin_or_a_patch_offers_them_in_every_command() -> None:
    wanted = {"--arch": "gfx1151", "--upstream": "b6900"}
    wanted |= dict.fromkeys(("--only", "--with", "--without"), "fattn-keep-gqa-tiles")
    found = 0
    for path, param in _parameters(root, "patchkit"):
        for option in {*param.opts} & {*wanted}:
            with click.Context(root, obj=Settings()) as ctx:
                values = [item.value for item in param.shell_complete(ctx, "")]
            assert wanted[option] in values, (path, option)
            found += 1
    assert found > 50


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_value_behind_an_equals_sign_keeps_its_option_where_that_is_one_word(shell: str) -> None:
    assert "--arch=gfx942" in _ask("apply", "--arch=gfx94", shell=shell).stdout


def test_bash_makes_three_words_of_an_option_with_an_equals_sign() -> None:
    assert _offered("apply", "--arch", "=", "gfx94") == ["gfx942"]
    assert len(_offered("apply", "--arch", "=")) > 10


def test_nothing_is_said_written_or_left_behind_when_there_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "arch_profiles").mkdir()
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "upstream.lock").write_text("no [ lock")
    broken = ("--series-dir", str(tmp_path))
    none = ("--series-dir", str(tmp_path / "none"))
    for words in [
        (*broken, "apply", "--upstream", ""),
        (*none, "apply", "--arch", ""),
        ("aply", "--arch", ""),
        ("apply", "'"),
    ]:
        done = _ask(*words)
        assert (done.stdout.strip(), done.stderr) == ("", ""), words
    unknown = _ask("apply", shell="csh")
    assert (unknown.stdout, unknown.stderr) == ("", "")
    assert list(Path(os.environ["HOME"]).rglob("*")) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed(shell: str) -> None:
    printed = run_patchkit("completion", shell)
    assert printed.returncode == 0
    assert f"_PATCHKIT_COMPLETE={shell}_complete" in printed.stdout
    document = json.loads(run_patchkit("completion", shell, "--json").stdout)
    assert document["shell"] == shell
    assert document["script"].strip() == printed.stdout.strip()


def test_another_shell_is_a_mistake_that_names_those_there_are() -> None:
    done = run_patchkit("completion", "tcsh")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error[USAGE_VALUE]: ")
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.stderr

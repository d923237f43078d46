"""<tab> in the shells themselves, after what ``patchkit completion`` told each of them."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import ROOT, run_patchkit

pytestmark = pytest.mark.extra_tools  # bash, zsh and fish

_PATIENCE_S = 60

# What is typed, and what stands there once each <tab> was answered.
_LINES = [
    ("patchkit stat\t", "patchkit status"),
    ("patchkit appl\t--with-o\t", "patchkit apply --with-opt-in"),
    ("patchkit apply --arch gfx94\t", "patchkit apply --arch gfx942"),
    ("patchkit apply --arch=gfx94\t", "patchkit apply --arch=gfx942"),
    (
        "patchkit plan --upstream b6\t--with mmq-t\t",
        "patchkit plan --upstream b6900 --with mmq-tile-config",
    ),
    ("patchkit model --gguf lla\t", "patchkit model --gguf llama.gguf"),
    ("patchkit sanitize -- ./lla\t", "patchkit sanitize -- ./llama.gguf"),
    ("patchkit nonsense --arch gfx94\t", "patchkit nonsense --arch gfx94"),
]


@pytest.fixture
def shell_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts patchkit on the PATH, and a file into the folder."""
    start = tmp_path / "bin" / "patchkit"
    start.parent.mkdir()
    start.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m patchkit "$@"\n')
    start.chmod(0o755)
    monkeypatch.setenv("PATH", f"{start.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TERM", "dumb")
    Path("llama.gguf").touch()


def _set_up(shell: str, file: str, before: str = "") -> None:
    done = run_patchkit("completion", shell)
    path = Path.home() / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before + done.stdout)


@contextlib.contextmanager
def _at_a_terminal(*argv: str) -> Iterator[int]:
    ours, theirs = os.openpty()
    shell = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    try:
        yield ours
    finally:
        os.close(ours)
        shell.kill()
        shell.wait()


def _become(terminal: int, line: str) -> str:
    """What the line is after its <tab>s: the shell is made to print it instead of running it."""
    os.write(terminal, f"{line}\x01print_it '<\x05>'\n".encode())
    text = b""
    while b"\n>>" not in text.replace(b"\r", b""):
        ready, _, _ = select.select([terminal], [], [], _PATIENCE_S)
        assert ready, text
        text += os.read(terminal, 65536)
    return text.replace(b"\r", b"").decode().rpartition("<<\n")[2].partition("\n>>")[0]


_PRINT_IT = "print_it() { printf '<%s\\n%s\\n%s>\\n' '<' \"${1:1:-1}\" '>'; }\n"


@pytest.mark.parametrize(
    ("shell", "file", "before"),
    [("bash", ".bashrc", ""), ("zsh", ".zshrc", "bindkey -e; autoload -U compinit; compinit -u\n")],
)
def test_a_line_is_completed_at_a_terminal(shell_path: None, shell: str, file: str, before: str) -> None:
    _set_up(shell, file, before + _PRINT_IT)
    with _at_a_terminal(shell, "-i") as terminal:
        assert [_become(terminal, line).strip() for line, _ in _LINES] == [line for _, line in _LINES]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("patchkit sd", ["sdk\tInstall a HIP SDK, for machines without ROCm."]),
        ("patchkit apply --arch=gfx94", ["--arch=gfx942"]),
        ("patchkit apply -v --upstream b6", ["b6900\t2025-10-31"]),
        ("patchkit sanitize -- ./lla", ["./llama.gguf"]),
        ("patchkit nonsense --arch gfx94", []),
    ],
)
def test_fish_offers_with_what_each_is_about(shell_path: None, line: str, offered: list[str]) -> None:
    _set_up("fish", ".config/fish/config.fish")
    argv = ["fish", "-c", f"complete -C '{line}'"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines(), done.stderr) == (offered, "")

"""Programs with files, run on another machine as if they ran here."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.program import RunContext, run_program

pytestmark = pytest.mark.extra_tools  # sshd and rsync

# Its library path must be its own folder there, its arguments the model, the module and the output.
_PROGRAM = """\
#!/bin/sh
here=$(dirname "$0")
echo "loaded from $GGML_BACKEND_PATH"
echo "reading $1" >&2
case "$LD_LIBRARY_PATH" in "$here"*) ;; *) exit 9;; esac
[ "$4" = crash ] && kill -SEGV $$
[ "$4" = hang ] && sleep 100
[ "$4" = fail ] && exit 3
cat "$1" "$2" > "$3"
"""


@pytest.fixture
def side(tmp_path: Path) -> Path:
    folder = tmp_path / "side"
    folder.mkdir()
    (folder / "program").write_text(_PROGRAM)
    (folder / "program").chmod(0o755)
    (folder / "libggml-base.so").write_text("a library")
    (folder / "libggml-cpu.so").write_text("the module\n")
    (tmp_path / "m.gguf").write_text("the model\n")
    return folder


def test_a_program_finds_its_files_there_and_its_output_comes_here(
    server, side: Path, tmp_path: Path
) -> None:
    module, out = side / "libggml-cpu.so", tmp_path / "runs" / "x.logits"
    place = RunContext(folder=tmp_path / "runs", reporter=NullReporter(), elsewhere=server.runner())
    argv = [str(side / "program"), str(tmp_path / "m.gguf"), str(module), str(out), "512"]
    env = {"GGML_BACKEND_PATH": str(module)}
    ran = run_program("x", argv, place=place, env=env, timeout_s=60.0)
    assert out.read_text() == "the model\nthe module\n"
    assert ran.text() == f"loaded from {module}\n"
    assert ran.talk() == f"reading {tmp_path}/m.gguf\n"
    assert ran.argv == tuple(argv)
    assert not list((tmp_path / "runs").glob(".*"))


@pytest.mark.parametrize(
    ("word", "code"), [("crash", "PROGRAM_CRASHED"), ("fail", "PROGRAM_FAILED"), ("hang", "PROGRAM_FAILED")]
)
def test_a_bad_end_there_is_the_bad_end_it_would_be_here(
    server, side: Path, tmp_path: Path, word: str, code: str
) -> None:
    place = RunContext(folder=tmp_path / "runs", reporter=NullReporter(), elsewhere=server.runner())
    out = tmp_path / "runs" / "x.logits"
    argv = [str(side / "program"), str(tmp_path / "m.gguf"), str(side / "libggml-cpu.so"), str(out), word]
    with refused(code):
        run_program("x", argv, place=place, timeout_s=3.0)
    assert not out.exists()
    assert '"partial": true' in (tmp_path / "runs" / "x.json").read_text()

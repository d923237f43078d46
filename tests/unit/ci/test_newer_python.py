"""A Python that a machine lacks: where it cannot be had, CI says so; that is no pass and no failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RUN = ROOT / ".ci" / "run"


def test_a_machine_without_apt_cannot_have_it_and_is_told_why(tmp_path: Path) -> None:
    argv = [sys.executable, str(ROOT / "ci" / "python314.py"), str(tmp_path / "python")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1].startswith("apt-config is not installed on this machine")
    assert not (tmp_path / "python").exists()


@pytest.mark.extra_tools
@pytest.mark.parametrize(
    ("code", "ends", "says"),
    [
        (0, 0, "== a stage: ok"),
        (77, 0, "== a stage: NOT RUN, see above\nleft: a stage"),
        (1, 5, "== a stage: FAILED (exit code 5)"),
    ],
)
def test_a_stage_that_cannot_run_is_neither_passed_nor_failed(code: int, ends: int, says: str) -> None:
    head, found, _ = RUN.read_text("utf-8").partition("\npackages() {")
    assert found
    script = f'{head}\nstage 5 "a stage" sh -c "exit {code}"\necho "left: ${{not_run[*]-}}"\n'
    argv = ["bash", "-c", script, str(RUN)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == ends
    assert says in done.stdout

"""Which patches a release takes: those of the lock, and never none because nobody said which."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_patchkit

ROOT = Path(__file__).resolve().parents[3]


def options(tmp_path: Path, arch: str, upstream: str, wanted: str) -> subprocess.CompletedProcess[str]:
    """What the workflow does with the lock of this project."""
    status = run_patchkit("status", "--json", "--cache-dir", tmp_path, "--series-dir", ROOT)
    assert status.returncode == 0, status.stderr
    args = ["--arch", arch, "--upstream", upstream, f"--with={wanted}"]
    return subprocess.run(
        [sys.executable, str(ROOT / "ci" / "release_set.py"), *args],
        input=status.stdout,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arch", "upstream", "wanted", "out"),
    [
        ("gfx1151", "b6900", "", ""),
        ("gfx1200", "b11549", "", "--with=mmvq-decode-warps\n"),
        ("gfx1151", "b11549", "none", ""),
        (
            "gfx1151",
            "b11549",
            "mmvq-batch-limits fattn-d256-tile mmq-tile-table fattn-tile-rows",
            "--with=fattn-d256-tile\n--with=fattn-tile-rows\n--with=mmq-tile-table\n--with=mmvq-batch-limits\n",
        ),
    ],
)
def test_the_set_is_one_of_the_lock(tmp_path, arch, upstream, wanted, out) -> None:
    done = options(tmp_path, arch, upstream, wanted)
    assert (done.returncode, done.stdout) == (0, out), done.stderr


@pytest.mark.parametrize(
    ("arch", "upstream", "wanted", "told"),
    [
        ("gfx1151", "b11549", "", "none; fattn-d256-tile fattn-tile-rows"),
        ("gfx1151", "b11549", "mmq-tile-table", "no such set"),
        ("gfx1201", "b6900", "", "nothing"),
    ],
)
def test_a_set_that_the_lock_does_not_have_is_refused_with_those_it_has(
    tmp_path, arch, upstream, wanted, told
) -> None:
    done = options(tmp_path, arch, upstream, wanted)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr

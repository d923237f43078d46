"""``--blocks`` and ``--profile``: a sample of each launch, and which kernels take the time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_SAMPLE = "SAMPLE ONLY: "


@pytest.fixture(scope="module")
def program(compile_program) -> Path:
    return compile_program("many_blocks", "-gline-tables-only")


@pytest.fixture(scope="module")
def patchkit(gates_cache: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command in a process of its own."""

    def run(verb: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "patchkit", "--cache-dir", gates_cache, verb, "--arch", "gfx1151"]
        return subprocess.run(
            [*map(str, argv), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600
        )

    return run


@pytest.mark.parametrize("schedule", ["in-order", "shuffle:3"])
def test_a_sample_has_the_first_and_the_last_block_and_says_so(patchkit, program, schedule):
    done = patchkit("emulate", "--blocks", "5", "--schedule", schedule, "--", program, "ran")
    assert (done.stdout.split(), done.returncode) == (["0", "24", "49", "74", "99"], 3)
    assert f"{_SAMPLE}95 blocks of 1 kernel did not run" in done.stderr
    one = patchkit("emulate", "--blocks", "1", "--schedule", schedule, "--", program, "ran")
    assert one.stdout.split() == ["0"]


def test_what_is_no_sample_is_called_none(patchkit, program):
    done = patchkit("emulate", "--blocks", "100", "--", program, "ran")
    assert (len(done.stdout.split()), done.returncode, _SAMPLE in done.stderr) == (100, 0, False)
    together = patchkit("emulate", "--blocks", "2", "--", program, "meet")
    assert (len(together.stdout.split()), together.returncode) == (40, 0)
    assert _SAMPLE not in together.stderr


def test_faults_of_the_last_block_are_found_in_a_sample(patchkit, program, tmp_path):
    report = tmp_path / "report"
    done = patchkit("sanitize", "--blocks", "2", "--report", report, "--", program, "past end")
    assert done.returncode == 1, done.stderr
    assert "right past the end of 400 bytes" in done.stdout
    assert f"{_SAMPLE}2 blocks of 1 kernel did not run" in done.stdout
    document = json.loads(report.read_text("utf-8"))
    assert (document["blocks_left_out"], document["kernels"][0]["left_out"]) == (2, 2)


def test_what_a_sample_leaves_out_makes_no_finding(patchkit, program):
    done = patchkit("sanitize", "--blocks", "3", "--", program, "others")
    assert done.returncode == 0, done.stdout
    assert f"{_SAMPLE}194 blocks of 2 kernels did not run" in done.stdout
    # The program says that its result is wrong, which is no wonder.
    done = patchkit("sanitize", "--blocks", "3", "--", program, "ran")
    assert done.returncode == 0, done.stdout
    assert "; it exited with status 3" in done.stdout


def test_a_block_that_waits_for_one_that_was_left_out_ends(patchkit, program):
    done = patchkit("emulate", "--blocks", "3", "--limit", "1000000", "--", program, "wait")
    assert done.returncode > 128, done.stderr
    assert "(it may wait for a block that is not in the sample)" in done.stderr


def test_the_profile_has_the_longest_kernel_first(patchkit, program):
    for verb in ("emulate", "sanitize"):
        done = patchkit(verb, "--profile", "--", program, "two")
        assert done.returncode == 0, done.stderr
        _, _, told = done.stderr.partition(
            "s in kernels, in the emulator on this machine's CPU (not a GPU time):\n"
        )
        rows = [line.split() for line in told.splitlines()[1:3]]
        assert [row[-1] for row in rows] == ["take_long", "say_that_it_ran"], done.stderr
        assert int(rows[0][3]) > 200000

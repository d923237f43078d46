"""Blocks that wait for later ones in loops: those get their turn soon."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

# Instructions that waves execute until all 100 blocks are done, on one thread, and some to spare. With turns
# of 2^24 jumps for each wave that waits, as they were, it is hundreds of times as many.
MOST = {"wait for the next": 40_000_000, "look for all behind": 4_000_000_000}


@pytest.fixture(scope="module")
def program(compile_program):
    return compile_program("many_blocks")


@pytest.mark.parametrize("name", MOST)
def test_blocks_that_wait_give_others_their_turn(program, emulate, tmp_path, name):
    report = tmp_path / "report"
    variables = {"PATCHKIT_EMULATOR_THREADS": "1", "PATCHKIT_EMULATOR_REPORT": str(report)}
    done = emulate(program, name, **variables)
    assert (done.returncode, len(done.stdout.split())) == (0, 100), done.stderr
    (kernel,) = json.loads(report.read_text("utf-8"))["kernels"]
    assert kernel["instructions"] < MOST[name]

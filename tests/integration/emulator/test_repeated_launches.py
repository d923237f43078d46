"""Launches that repeat an earlier one do not run; what programs see is the same as when every one does."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

# Of 20 launches: the first is only timed, the second leaves what later ones find.
REPEATING = {
    "the same": 18,
    "begun anew": 18,
    "two in turn": 17,
    "a pointer in memory changes": 16,
    "memory comes anew": 16,
    "a graph": 36,  # of 40
    "two threads": 36,  # of 40
}
NOT_REPEATING = (
    "in place",
    "one byte differs",
    "other arguments",
    "a variable changes",
    "counts",
    "tells the host",
    "prints",
    "allocates",
    "meets",  # what blocks meet at counts on from launch to launch
    "an image changes",
)


@pytest.fixture(scope="module")
def program(compile_program):
    return compile_program("repeated_launches")


@pytest.fixture
def both_ways(program, emulate, tmp_path):
    """What a part of the program prints, the same both times, and how many of its launches did not run."""

    def run(name):
        report = tmp_path / "report"
        every = emulate(program, name)
        done = emulate(program, name, PATCHKIT_EMULATOR_REPEATS="1", PATCHKIT_EMULATOR_REPORT=str(report))
        assert (every.returncode, done.returncode, done.stderr) == (0, 0, "")
        assert done.stdout == every.stdout
        assert done.stdout.strip()
        kernels = json.loads(report.read_text("utf-8"))["kernels"]
        assert sum(one["launches"] for one in kernels) in {20, 40}
        return sum(one["repeats"] for one in kernels)

    return run


@pytest.mark.parametrize("name", REPEATING)
def test_what_repeats_an_earlier_launch_does_not_run(both_ways, name):
    assert both_ways(name) == REPEATING[name]


@pytest.mark.parametrize("name", NOT_REPEATING)
def test_what_only_looks_like_an_earlier_launch_runs(both_ways, name):
    assert both_ways(name) == 0


def test_code_that_comes_anew_is_not_taken_for_what_lay_there_before(program, emulate):
    done = emulate(program, "code comes anew", PATCHKIT_EMULATOR_REPEATS="1")
    assert (done.returncode, done.stderr) == (0, "")
    one, other, *further = done.stdout.split()
    assert (one != other, further) == (True, [one, other] * 9)


@pytest.mark.parametrize(
    "how",
    ["COUNT=1", "SCHEDULE=late", "SCHEDULE=shuffle 7", "BLOCKS=4", "CHECK=memory", "CHECK=races"],
)
def test_every_launch_runs_where_more_than_results_is_asked_for(program, emulate, tmp_path, how):
    report = tmp_path / "report"
    wanted = f"PATCHKIT_EMULATOR_{how}".split("=")
    variables = {"PATCHKIT_EMULATOR_REPORT": str(report), wanted[0]: wanted[1]}
    done = emulate(program, "the same", PATCHKIT_EMULATOR_REPEATS="1", **variables)
    assert done.returncode == 0, done.stderr
    assert [one["repeats"] for one in json.loads(report.read_text("utf-8"))["kernels"]] == [0]

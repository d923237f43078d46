"""Waves and lanes that do not meet at one barrier; kernels that wait for ever behind what was left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ALL = "memory,waits,races,hidden,barriers,uninitialised,asynchrony"
# By the name of the case: what the finding says.
_FAULTS = {
    "some call it": "waits at a barrier while wave 0 waits at another one",
    "two branches": "waits at a barrier while wave 0 waits at another one",
    "loops differ": "waits at a barrier while wave 0 waits at another one",
    "leaves the loop": "waits again at a barrier that wave 2 reached before, but which has ended",
    "some lanes": "reaches a barrier with 20 of its 32 lanes: the others continue after it",
    "lanes loop": "of its 32 lanes: the others continue after it",
    "one branch": "waits at a barrier while wave 0 waits at another one",
    "called twice": "waits at a barrier while wave 0 waits at another one",
}
_NOTES = {
    "note: waves return": "waits at a barrier that wave 3 does not reach, because it has ended; not portable",
    "note: lanes return": "reaches a barrier without 14 of its 32 lanes, which have ended; not portable",
}
_SCHEDULES = ["in-order", "shuffle 1"]
_ARCHS = ["gfx1151", "gfx1201"]


@pytest.fixture(scope="module")
def programs(compile_program):
    return {
        arch: compile_program("checked_barriers", "-std=c++20", "-gline-tables-only", arch=arch)
        for arch in _ARCHS
    }


@pytest.fixture
def every_kind() -> str:
    """What is looked for unless a test says it."""
    return _ALL


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("case", _FAULTS | _NOTES)
def test_who_does_not_come_to_a_barrier_is_told(told, programs, case, arch):
    said, is_note = (_FAULTS | _NOTES)[case], case in _NOTES
    for schedule in _SCHEDULES:
        findings = [one for one in told(programs[arch], case, arch, schedule) if one.kind == "barriers"]
        assert any(said in one.what and one.is_note == is_note for one in findings), (schedule, findings)
        assert all(one.is_note for one in findings) == is_note
        assert all(one.at.file is not None for one in findings)


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("schedule", _SCHEDULES)
def test_barriers_of_all_waves_are_none(told, emulate, programs, arch, schedule):
    clean = [
        name for name in emulate(programs[arch], arch=arch).stdout.splitlines() if name.startswith("clean: ")
    ]
    assert len(clean) == 5
    assert {name: told(programs[arch], name, arch, schedule) for name in clean} == {
        name: [] for name in clean
    }


@pytest.fixture
def ended(emulate, programs, tmp_path: Path):
    """How a program ended that looks for everything: its standard error, and its report."""

    def run(case: str, arch: str):
        report = tmp_path / "report"
        settings = {"PATCHKIT_EMULATOR_CHECK": _ALL, "PATCHKIT_EMULATOR_REPORT": str(report)}
        done = emulate(programs[arch], case, arch=arch, **settings)
        return done, json.loads(report.read_text("utf-8"))

    return run


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("case", ["polls nothing", "lost store", "lost store of another block"])
def test_a_kernel_that_waits_for_what_was_left_out_is_stopped(ended, case, arch):
    done, report = ended(f"stuck: {case}", arch)
    assert done.returncode < 0
    assert "makes no progress since an invalid access was skipped" in done.stderr
    assert report["fault"] in done.stderr
    assert {one["kind"] for one in report["findings"]} == {"memory"}


def test_a_kernel_that_goes_on_behind_what_was_left_out_ends(ended):
    done, report = ended("goes on", "gfx1151")
    assert (done.returncode, report["fault"]) == (0, None)
    assert {one["kind"] for one in report["findings"]} == {"memory"}


def test_what_is_not_emulated_is_refused_with_checks_too(ended):
    done, report = ended("refused: host function", "gfx1151")
    assert done.returncode < 0
    assert "a kernel calls host service 1;" in report["fault"]
    assert report["findings"] == []

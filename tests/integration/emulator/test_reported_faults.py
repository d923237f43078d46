"""Faults of public reports, in code of our own: found as they were reported, and nothing where mended."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

# By the name of the case: the kind that is found whichever wave comes first.
_REPORTED = {
    "root of the root": "races",
    "leaves early": "races",
    "rotates": "races",
    "slot again": "races",
    "row over column": "races",
    "four call it": "barriers",
    "scans": "races",
    "tile over tile": "races",
}
# What goes wrong behind it depends on the order: numbers that are alike, waves that leave or come too early.
_BESIDE = {"races", "hidden", "barriers"}
_ARCHS = ["gfx1151", "gfx1201"]
_SCHEDULES = ["in-order", "shuffle 1", "shuffle 2"]


@pytest.fixture(scope="module")
def programs(compile_program):
    return {
        arch: compile_program("reported_faults", "-std=c++20", "-gline-tables-only", arch=arch)
        for arch in _ARCHS
    }


@pytest.fixture
def every_kind() -> str:
    """What is looked for unless a test says it."""
    return "memory,waits,races,hidden,barriers,uninitialised,asynchrony,calls"


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("schedule", _SCHEDULES)
def test_a_reported_fault_is_found_and_its_mended_form_is_clean(found, programs, emulate, arch, schedule):
    names = emulate(programs[arch], arch=arch).stdout.splitlines()
    settings = {"arch": arch, "PATCHKIT_EMULATOR_SCHEDULE": schedule}
    seen = {name: {one["kind"] for one in found(programs[arch], name, **settings)} for name in names}
    assert {name for name in names if not name.startswith("clean: ")} == set(_REPORTED)
    for name, kinds in seen.items():
        if name in _REPORTED:
            assert _REPORTED[name] in kinds, (name, kinds)
            assert kinds <= _BESIDE, (name, kinds)
        else:
            assert kinds == set(), name


@pytest.mark.parametrize("arch", _ARCHS)
def test_waves_that_leave_early_are_missed_at_the_barrier(found, programs, arch):
    # ROCm issue 6623: the wave that overwrites the pivot waits where the others, which saw that, never come.
    said = [one["what"] for one in found(programs[arch], "leaves early", kinds="barriers", arch=arch)]
    assert "waits at a barrier while wave 0 waits at another one" in said

"""What the check for races finds between the waves of a block in memory of the device, and what not."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ALL = "memory,waits,races,caches,hidden,barriers,uninitialised,asynchrony"
_NO_BARRIER = "without a barrier in between"
# By the name of the case: what findings say of it.
_IN_MEMORY = {
    "neighbour": ("reads byte 0 of an allocation of 16384 bytes, which wave 0 wrote",),
    "used again": ("writes byte ", " read "),
    "in place": ("writes byte ", " read "),
    "one place": ("writes byte 0 of an allocation of 16384 bytes, which wave ", " wrote "),
    "tree": (" read ",),
    "counted": ("changes byte 0",),
    "cleared and counted": ("changes byte 0 of an allocation of 16384 bytes, which wave 0 wrote",),
    "factorises": ("which wave ",),
    "halves": (" wrote ",),
    "wide": ("which wave ",),
    "two buffers": ("which wave ",),
    "long after": ("writes byte 0 of an allocation of 16384 bytes, which wave 0 read",),
    "flag": ("reads byte 256 of an allocation of 16384 bytes, which wave 0 wrote",),
    "lock": ("byte 256 of an allocation of 16384 bytes, which wave ",),
    "swapped dwords": ("changes byte ",),
    "swapped floats": ("changes byte ",),
    "swapped doubles": ("changes byte ",),
    "doubles": ("changes byte 0",),
}
_IN_LDS = {
    "swapped floats in lds": ("changes byte ",),
    "swapped doubles in lds": ("changes byte ",),
    "swapped halves in lds": ("changes byte ",),
    "swapped bytes in lds": ("changes byte ",),
    "doubles in lds": ("changes byte ",),
}
_SCHEDULES = ["in-order", "shuffle 1", "shuffle 2"]


@pytest.fixture(scope="module")
def programs(compile_program):
    return {
        arch: compile_program("checked_waves", "-std=c++20", arch=arch) for arch in ("gfx1151", "gfx1201")
    }


@pytest.fixture
def every_kind() -> str:
    """What is looked for unless a test says it."""
    return _ALL


@pytest.mark.parametrize("arch", ["gfx1151", "gfx1201"])
@pytest.mark.parametrize("case", _IN_MEMORY | _IN_LDS)
def test_waves_without_an_order_are_found_whichever_runs_first(found, programs, case, arch):
    for schedule in _SCHEDULES:
        seen = found(programs[arch], case, arch=arch, PATCHKIT_EMULATOR_SCHEDULE=schedule)
        # In some orders a write of a program that races happens to change nothing.
        findings = [one for one in seen if one["kind"] != "hidden"]
        assert {one["kind"] for one in findings} == {"races"}, schedule
        assert all(one["what"].endswith(_NO_BARRIER) for one in findings), findings
        for one in findings:
            assert one["at"]["function"] == one["kernel"]
            assert one["other"]["text"]
            assert one["other_called_from"] == []
        if schedule == "in-order":
            said = (_IN_MEMORY | _IN_LDS)[case]
            assert all(any(text in one["what"] for one in findings) for text in said), findings


@pytest.mark.parametrize("arch", ["gfx1151", "gfx1201"])
@pytest.mark.parametrize("schedule", [*_SCHEDULES, "shuffle 3"])
def test_waves_in_order_have_no_findings(found, programs, emulate, arch, schedule):
    names = emulate(programs[arch], arch=arch).stdout.splitlines()
    clean = [name for name in names if name.startswith("clean: ")]
    assert clean
    settings = {"arch": arch, "PATCHKIT_EMULATOR_SCHEDULE": schedule}
    assert {name: found(programs[arch], name, **settings) for name in clean} == {name: [] for name in clean}

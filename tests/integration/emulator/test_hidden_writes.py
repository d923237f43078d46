"""Writes that change nothing: told where other numbers show them, not where all write the same anyway."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ARCHS = ["gfx1151", "gfx1201"]
_SCHEDULES = ["in-order", "shuffle 1", "shuffle 2"]
# In the order of their numbers no wave reads what another one wrote.
_ONLY_HIDDEN = ("tree", "tree in lds", "tree of floats", "last one stays", "last one stays in memory")
_ON_ZEROS = (*_ONLY_HIDDEN, "shifted", "product", "running sum")


@pytest.fixture(scope="module")
def programs(compile_program):
    return {arch: compile_program("checked_zeros", "-std=c++20", arch=arch) for arch in _ARCHS}


@pytest.fixture
def every_kind() -> str:
    """What is looked for unless a test says it."""
    return "memory,waits,races,hidden,barriers,uninitialised,asynchrony"


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("case", _ON_ZEROS)
def test_a_race_that_zeros_hide_is_found_by_other_numbers(found, programs, case, arch):
    for schedule in _SCHEDULES:
        findings = found(programs[arch], case, arch=arch, PATCHKIT_EMULATOR_SCHEDULE=schedule)
        kinds = {one["kind"] for one in findings}
        assert kinds, schedule
        assert (
            kinds == {"hidden"}
            if case in _ONLY_HIDDEN and schedule == "in-order"
            else kinds <= {"hidden", "races"}
        )
        assert not any(one["note"] for one in findings), findings
        hidden = [one for one in findings if one["kind"] == "hidden"]
        assert all(one["what"].endswith("but did with other values in memory") for one in hidden)
        assert all(one["other"]["text"] for one in hidden)


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("schedule", _SCHEDULES)
def test_what_all_waves_write_alike_is_no_finding(found, programs, emulate, arch, schedule):
    clean = [
        name for name in emulate(programs[arch], arch=arch).stdout.splitlines() if name.startswith("clean: ")
    ]
    assert len(clean) == 5
    settings = {"arch": arch, "PATCHKIT_EMULATOR_SCHEDULE": schedule}
    assert {name: found(programs[arch], name, **settings) for name in clean} == {name: [] for name in clean}


def test_it_is_not_looked_for_where_races_alone_are(found, programs):
    assert found(programs["gfx1151"], "last one stays", kinds="races") == []

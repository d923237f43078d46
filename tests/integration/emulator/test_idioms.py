"""Idioms that keep an order without looking like it: no check blames them, and their barriers are missed."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ARCHS = ["gfx1151", "gfx1201"]
_SCHEDULES = ["in-order", "shuffle 1", "shuffle 2"]


@pytest.fixture(scope="module")
def programs(compile_program):
    return {arch: compile_program("checked_idioms", "-std=c++20", arch=arch) for arch in _ARCHS}


@pytest.fixture
def every_kind() -> str:
    """What is looked for unless a test says it."""
    return "memory,waits,races,caches,hidden,barriers,uninitialised,asynchrony"


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("schedule", _SCHEDULES)
def test_no_idiom_is_blamed(found, programs, emulate, arch, schedule):
    names = emulate(programs[arch], arch=arch).stdout.splitlines()
    clean = [name for name in names if name.startswith("clean: ")]
    assert clean
    settings = {"arch": arch, "PATCHKIT_EMULATOR_SCHEDULE": schedule}
    blamed = {name: {one["kind"] for one in found(programs[arch], name, **settings)} for name in clean}
    # clang 22 loses the wait of a store that comes around a loop to its barrier (docs/reference/checks.md).
    assert blamed.pop("clean: with halo") <= {"waits"}
    assert blamed == {name: set() for name in blamed}


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("schedule", _SCHEDULES)
def test_without_its_barrier_it_is(found, programs, emulate, arch, schedule):
    names = emulate(programs[arch], arch=arch).stdout.splitlines()
    planted = [name for name in names if not name.startswith("clean: ")]
    assert len(planted) == 9
    for name in planted:
        findings = found(programs[arch], name, arch=arch, PATCHKIT_EMULATOR_SCHEDULE=schedule)
        assert "races" in {one["kind"] for one in findings}, name

"""Lock-free programs as users write them: right ones are not reported, those without acquire are."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ARCHS = ["gfx1151", "gfx1201"]
# Within a block, an atomic without acquire is no signal: a race.
_RACES = ("flag in LDS without acquire",)
_STORE = "store among atomics"


@pytest.fixture(scope="module")
def programs(compile_program):
    return {arch: compile_program("lock_free", "-std=c++20", arch=arch) for arch in _ARCHS}


@pytest.fixture
def every_kind() -> str:
    """What is looked for unless a test says it."""
    return "memory,waits,races,caches,hidden,barriers,uninitialised,asynchrony"


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("schedule", ["in-order", "shuffle 1", "shuffle 2"])
def test_a_right_program_is_not_reported(found, programs, emulate, arch, schedule):
    clean = [name for name in _names(emulate, programs, arch) if name.startswith("clean: ")]
    assert len(clean) == 31
    settings = {"arch": arch, "PATCHKIT_EMULATOR_SCHEDULE": schedule}
    reported = {name: found(programs[arch], name, **settings) for name in clean}
    assert reported == {name: [] for name in clean}


@pytest.mark.parametrize("arch", _ARCHS)
def test_without_acquire_it_is(found, programs, emulate, arch):
    faulty = [name for name in _names(emulate, programs, arch) if name.endswith(" without acquire")]
    assert len(faulty) == 16
    for name in faulty:
        # With one thread, the blocks are on two WGPs in turn.
        kinds = {one["kind"] for one in found(programs[arch], name, arch=arch, PATCHKIT_EMULATOR_THREADS="1")}
        assert kinds == {"races"} if name in _RACES else "caches" in kinds, (name, kinds)


@pytest.mark.parametrize("arch", _ARCHS)
def test_only_without_acquire_caches_make_it_wrong(programs, emulate, arch):
    settings = {"arch": arch, "PATCHKIT_EMULATOR_CHECK": "caches", "PATCHKIT_EMULATOR_THREADS": "1"}
    names = [name for name in _names(emulate, programs, arch) if name != _STORE]
    printed = {name: emulate(programs[arch], name, **settings).stdout.strip() for name in names}
    assert printed == {name: "right" if name.startswith("clean: ") else "wrong" for name in names}


@pytest.mark.parametrize("arch", _ARCHS)
def test_a_store_to_a_counter_sets_no_flag(found, programs, arch):
    # With one thread, it comes after the atomics.
    findings = found(programs[arch], _STORE, arch=arch, PATCHKIT_EMULATOR_THREADS="1")
    assert {one["kind"] for one in findings} == {"races"}


def _names(emulate, programs, arch):
    return emulate(programs[arch], arch=arch).stdout.splitlines()

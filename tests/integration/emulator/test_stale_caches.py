"""Caches that keep old values: a missing acquire is found and changes results, correct programs stay so."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ARCHS = ["gfx1151", "gfx1201"]
_AGENT = {"gfx1151": "(buffer_gl1_inv and buffer_gl0_inv)", "gfx1201": "(global_inv scope:SCOPE_DEV)"}
_BLOCK = {"gfx1151": "(buffer_gl0_inv)", "gfx1201": "(global_inv scope:SCOPE_SE)"}
_ACQUIRE = "missing acquire at agent scope"
# By the name of the case: what a finding says. All of them also give wrong values.
_STALE = {
    "last block without acquire": _ACQUIRE,
    "last block with an acquire at block scope": _ACQUIRE,
    "last block with a counter at block scope": _ACQUIRE,
    "sums without acquire": _ACQUIRE,
    "look back without acquire": _ACQUIRE,
    "look back with an acquire at block scope": _ACQUIRE,
    "sends without acquire": _ACQUIRE,
    "spin lock without acquire": _ACQUIRE,
    "spin lock with an acquire at block scope": _ACQUIRE,
    "ticket lock without acquire": _ACQUIRE,
    "grid barrier without acquire": _ACQUIRE,
    "work queue without acquire": _ACQUIRE,
    "once without acquire": _ACQUIRE,
    "stack without acquire": _ACQUIRE,
    "mailbox without acquire": _ACQUIRE,
    "reply without acquire": _ACQUIRE,
    "wave barrier without acquire": "missing acquire at workgroup scope",
    "scalar load without invalidation": "missing s_dcache_inv before this load",
}
# Without a release, or without a fence after looking at a flag, nothing orders the two sides: a race.
_RACES = (
    "last block without release",
    "last block with a store after the release",
    "look back without release",
    "wave flag without acquire",
)
_WAITS = "waits in a loop for byte 0 of an allocation"


@pytest.fixture(scope="module")
def programs(compile_program):
    return {arch: compile_program("stale_caches", "-std=c++20", arch=arch) for arch in _ARCHS}


@pytest.fixture
def every_kind() -> str:
    """What is looked for unless a test says it."""
    return "memory,waits,races,caches,hidden,barriers,uninitialised,asynchrony"


@pytest.fixture
def printed(emulate):
    """What a case prints, with this check or with none."""

    def run(program, case: str, arch: str, check: str) -> str:
        # With one thread, its blocks are on two WGPs in turn.
        settings = {"PATCHKIT_EMULATOR_CHECK": check, "PATCHKIT_EMULATOR_THREADS": "1"}
        return emulate(program, case, arch=arch, **settings).stdout.strip()

    return run


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("case", _STALE)
def test_a_missing_acquire_is_found(found, programs, printed, case, arch):
    findings = found(programs[arch], case, arch=arch, PATCHKIT_EMULATOR_THREADS="1")
    assert {one["kind"] for one in findings} == {"caches"}
    assert any(_STALE[case] in one["what"] for one in findings), findings
    for one in findings:
        assert ("_atomic_" if "by an atomic at" in one["what"] else "_load_") in one["at"]["text"]
        assert "_store_" in one["other"]["text"] or "_atomic_" in one["other"]["text"]
        named = _AGENT if "agent" in one["what"] else _BLOCK
        assert "atomic at" in one["what"] or "s_dcache_inv" in one["what"] or named[arch] in one["what"]
    assert printed(programs[arch], case, arch, "caches") == "wrong"
    assert printed(programs[arch], case, arch, "races") == "right"


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("case", _RACES)
def test_a_missing_release_is_a_race(found, programs, case, arch):
    findings = found(programs[arch], case, arch=arch, PATCHKIT_EMULATOR_THREADS="1")
    assert {one["kind"] for one in findings} == {"races"}


@pytest.mark.parametrize("arch", _ARCHS)
def test_a_loop_around_a_plain_load_is_found_and_ends(found, programs, arch):
    (one,) = found(programs[arch], "waits by a plain load", arch=arch, PATCHKIT_EMULATOR_THREADS="1")
    assert one["kind"] == "caches"
    assert _WAITS in one["what"]
    assert "which block (0, 0, 0) changed" in one["what"]


def test_a_flag_needs_the_scope_of_its_readers(found, programs, compile_program):
    case, settings = "waits by a load at block scope", {"PATCHKIT_EMULATOR_THREADS": "1"}
    (one,) = found(programs["gfx1201"], case, arch="gfx1201", **settings)
    assert _WAITS in one["what"]
    # gfx11 has the same instruction for both scopes, unless the waves of a block are on one CU.
    assert found(programs["gfx1151"], case, **settings) == []
    (one,) = found(compile_program("stale_caches", "-std=c++20", "-mcumode"), case, **settings)
    assert _WAITS in one["what"]


def test_a_load_past_a_cache_leaves_no_line_there(found, programs, printed, compile_program):
    case, settings = "last block without acquire, after atomic loads", {"PATCHKIT_EMULATOR_THREADS": "1"}
    (one,) = found(programs["gfx1201"], case, arch="gfx1201", **settings)
    assert _ACQUIRE in one["what"]
    (one,) = found(compile_program("stale_caches", "-std=c++20", "-mcumode"), case, **settings)
    assert _ACQUIRE in one["what"]
    # In WGP mode, gfx11 loads at workgroup scope past L0 and L1: no cache can have the old value.
    assert found(programs["gfx1151"], case, **settings) == []
    assert printed(programs["gfx1151"], case, "gfx1151", "caches") == "right"


def test_an_atomic_needs_the_scope_of_the_others(found, programs):
    case = "last block with a counter at block scope"
    findings = found(programs["gfx1201"], case, arch="gfx1201", PATCHKIT_EMULATOR_THREADS="1")
    (one,) = (one for one in findings if "by an atomic at workgroup scope" in one["what"])
    assert "_atomic_" in one["at"]["text"]


@pytest.mark.parametrize("arch", _ARCHS)
@pytest.mark.parametrize("schedule", ["in-order", "shuffle 1", "shuffle 2"])
def test_a_correct_program_stays_correct(found, programs, emulate, arch, schedule):
    names = emulate(programs[arch], arch=arch).stdout.splitlines()
    clean = [name for name in names if name.startswith("clean: ")]
    assert clean
    settings = {"PATCHKIT_EMULATOR_SCHEDULE": schedule}
    assert {name: found(programs[arch], name, arch=arch, **settings) for name in clean} == {
        name: [] for name in clean
    }
    settings["PATCHKIT_EMULATOR_CHECK"] = "caches"
    printed = {emulate(programs[arch], name, arch=arch, **settings).stdout for name in clean}
    assert printed == {"right\n"}

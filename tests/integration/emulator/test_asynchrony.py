"""What the checks of the emulated GPU find between blocks, and between operations, that nothing orders."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ALL = "memory,waits,races,asynchrony"
_UNORDERED = "the two are not ordered"
_SOURCE = "the program changed the source of the copy of 4096 bytes"
_DOWN = "the copy of 4096 bytes from device memory to pinned host memory"
_UP = "the copy of 4096 bytes from pinned host memory to device memory"
# By the name of the case: what findings say of it.
_RACES = {
    "same element": (
        "block (1, 0, 0) writes byte 0 of an allocation of 4096 bytes, which block (0, 0, 0) wrote",
    ),
    "next element": (" reads byte 0 ", "which block (0, 0, 0) wrote", "which block (0, 0, 0) read"),
    "overlapping": ("writes byte 508", "which block (0, 0, 0) wrote"),
    "overlapping halves": ("writes byte 62", "which block (0, 0, 0) wrote"),
    "overlapping wide": ("writes byte 1600", "which block (0, 0, 0) wrote"),
    "cleared by one": ("changes byte 0", "which block (0, 0, 0) wrote"),
    "last block without fence": ("block (7, 0, 0) reads byte 0", "which block (0, 0, 0) wrote"),
    "last block with plain counter": ("reads byte 0", "writes byte 0", " wrote"),
    "look back without order": ("block (1, 0, 0)", "which block (0, 0, 0) wrote"),
    "look back without wait": ("block (1, 0, 0)", "which block (0, 0, 0) wrote"),
    "told too early": ("which block (",),
    "grid without barrier": ("which block (0, 0, 0) wrote", "which block (0, 0, 0) read"),
}
_ASYNCHRONY = {
    "no event": ("reads byte 0 of an allocation of 4096 bytes, which kernel _Z3putPii wrote",),
    "event before the kernel": ("which kernel _Z3putPii wrote",),
    "event of another stream": ("which kernel _Z3putPii wrote",),
    "both write": ("writes byte 0", "which kernel _Z3putPii wrote"),
    "written while it is read": ("writes byte 0", "which kernel _Z4takePiPKi read"),
    "copied while it is written": (f"{_DOWN} reads what kernel _Z3putPii wrote",),
    "copy over what is read": (f"{_UP} writes what kernel _Z4takePiPKi read",),
    "copies to one place": (f"{_UP} writes what {_UP} wrote",),
    "copies through pinned memory": (f"{_UP} reads what {_DOWN} wrote",),
    "cleared while it is read": (
        "the memset of 4096 bytes of device memory writes what kernel _Z4takePiPKi read",
    ),
    "cleared by default": ("which the memset of 4096 bytes of device memory wrote",),
    "branches without edge": ("which kernel _Z3putPii wrote",),
    "graph without event": ("which kernel _Z4takePiPKi wrote",),
    "freed while it is read": ("hipFreeAsync of 4096 bytes writes what kernel _Z4takePiPKi read",),
    "source changed": (_SOURCE,),
    "source changed after another wait": (_SOURCE,),
    "rows": ("the copy of 512 bytes from pinned host memory to device memory writes what the copy of 512",),
    "third of three": ("which kernel _Z4takePiPKi wrote",),
}
# What the program changed of its own memory while the device used it: seen where work runs at once.
_CHANGES = {
    "target changed": f"the target of {_DOWN}",
    "target changed after another wait": f"the target of {_DOWN}",
    "rows of a target changed": f"the target of {_DOWN.replace('4096', '512')}",
    "changed while a kernel reads it": "memory of the host that kernel _Z4takePiPKi reads",
    "changed while a kernel writes it": "memory of the host that kernel _Z3putPii writes",
    "changed twice while a kernel reads it": "memory of the host that kernel _Z4takePiPKi reads",
    "one number for all": "memory of the host that kernel _Z11read_sharedPiPKi reads",
    "managed memory changed": "memory of the host that kernel _Z3putPii writes",
    "memory of its own registered": "memory of the host that kernel _Z4takePiPKi reads",
    "changed behind an event of before": "memory of the host that kernel _Z4takePiPKi reads",
}
# What it read before the copy was done.
_READS = {
    "target read": _DOWN,
    "target read after another wait": _DOWN,
    "target read by another thread": _DOWN,
    "target of its own read": "the copy of 65536 bytes from device memory to pinned host memory",
}


@pytest.fixture(scope="module")
def program(compile_program):
    return compile_program("checked_streams")


@pytest.fixture(scope="module")
def program_gfx1201(compile_program):
    return compile_program("checked_streams", arch="gfx1201")


@pytest.fixture
def every_kind() -> str:
    """What is looked for unless a test says it."""
    return _ALL


@pytest.mark.parametrize("case", _RACES)
def test_a_race_between_blocks_is_found(found, program, case):
    findings = found(program, case, PATCHKIT_EMULATOR_THREADS="1")
    assert {one["kind"] for one in findings} == {"races"}
    assert all(any(text in one["what"] for one in findings) for text in _RACES[case]), findings
    for one in findings:
        assert one["what"].endswith(_UNORDERED)
        assert one["at"]["function"] == one["other"]["function"] == one["kernel"]
        assert one["other_called_from"] == []


@pytest.mark.parametrize("schedule", ["in-order", "late", "shuffle 5"])
@pytest.mark.parametrize("case", _ASYNCHRONY)
def test_operations_without_an_order_are_found_in_every_schedule(found, program, case, schedule):
    settings = {"PATCHKIT_EMULATOR_SCHEDULE": schedule, "PATCHKIT_EMULATOR_THREADS": "1"}
    findings = found(program, case, **settings)
    if case == "freed while it is read" and schedule == "late":
        assert {one["kind"] for one in findings} == {"memory"}  # it was freed before it was read
        return
    assert {one["kind"] for one in findings} == {"asynchrony"}
    for one in findings:
        assert one["at"]["text"]
        frames = one["called_from"] + one["other_called_from"]
        assert any(Path(frame["file"]).name == "checked_streams" for frame in frames)
        is_of_two = one["what"].endswith(_UNORDERED)
        assert bool(one["other_called_from"]) == is_of_two == (one["other"] is not None)
    if schedule == "in-order":
        texts = _ASYNCHRONY[case]
        assert all(any(text in one["what"] for one in findings) for text in texts), findings


@pytest.mark.parametrize("case", _CHANGES)
def test_memory_that_the_program_changed_too_early_is_found(found, program, case):
    (only,) = found(program, case)
    assert only["kind"] == "asynchrony"
    assert only["what"] == f"the program changed {_CHANGES[case]} before it was done"
    assert (only["other"] is not None) == ("kernel" in _CHANGES[case])
    assert any(Path(frame["file"]).name == "checked_streams" for frame in only["called_from"])


@pytest.mark.parametrize("case", _READS)
def test_a_target_that_the_program_read_too_early_is_found_with_both_places(found, program, case):
    (only,) = found(program, case)
    assert only["kind"] == "asynchrony"
    assert only["what"] == f"the program read the target of {_READS[case]} before it was done"
    for frames in (only["called_from"], only["other_called_from"]):
        assert Path(frames[0]["file"]).name == "checked_streams"
    assert only["called_from"][0] != only["other_called_from"][0]


def test_memory_that_is_changed_too_early_again_is_found_with_the_place_of_the_change(
    told, compile_program, every_kind
):
    # Four bytes in a page where the program also changes what the kernel does not read.
    program = compile_program("checked_streams", "-gline-tables-only")
    (only,) = told(program, "changed twice while a kernel reads it", "gfx1151")
    assert only.title == "the program changed memory of the host that kernel take reads before it was done"
    assert only.times == 2
    lines = Path(__file__).with_name("checked_streams.hip").read_text().splitlines()
    (change,) = [number for number, line in enumerate(lines, 1) if "static void change_read(" in line]
    assert only.other_called_from[0].line == change


def test_a_host_that_waits_for_each_kernel_has_no_findings(found, program):
    kernels = [name for name in (*_CHANGES, *_ASYNCHRONY) if "kernel" in {**_CHANGES}.get(name, "")]
    assert kernels
    assert [found(program, name, HIP_LAUNCH_BLOCKING="1") for name in kernels] == [[] for _ in kernels]


def test_a_program_that_crashes_while_a_target_is_looked_after_still_does(emulate, program):
    assert emulate(program, "crash", PATCHKIT_EMULATOR_CHECK=_ALL).returncode == -signal.SIGSEGV


@pytest.mark.parametrize("schedule", ["in-order", "late", "shuffle 7"])
def test_programs_with_an_order_have_no_findings(found, program, emulate, schedule):
    clean = [name for name in emulate(program).stdout.splitlines() if name.startswith("clean: ")]
    assert clean
    seen = {name: found(program, name, PATCHKIT_EMULATOR_SCHEDULE=schedule) for name in clean}
    assert seen == {name: [] for name in clean}


def test_what_was_not_asked_for_is_not_looked_for(found, program):
    assert found(program, "no event", kinds="memory,waits,races") == []
    assert found(program, "same element", kinds="memory,waits,asynchrony") == []
    assert found(program, "same element", kinds="races") != []
    assert found(program, "source changed", kinds="asynchrony") != []


def test_rdna4_gives_signs_in_its_own_way(found, program_gfx1201, emulate):
    names = emulate(program_gfx1201, arch="gfx1201").stdout.splitlines()
    wanted = dict.fromkeys(_RACES, "races") | dict.fromkeys([*_ASYNCHRONY, *_CHANGES, *_READS], "asynchrony")
    kinds = {name: {one["kind"] for one in found(program_gfx1201, name, arch="gfx1201")} for name in names}
    assert kinds == {name: {wanted[name]} if name in wanted else set() for name in names}

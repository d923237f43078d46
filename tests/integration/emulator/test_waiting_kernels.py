"""Kernels that can never go on are ended with the reason, and those that still can are left alone."""

from __future__ import annotations

import json

import pytest

from patchkit.gpu.emulated.emulator import EmulationReport
from patchkit.gpu.emulated.findings import SourceLines, stopped_lines

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_HOW = ("gfx1151", "gfx1201", "not optimised")
_STUCK = (
    "flag",
    "flag with sleep",
    "one block",
    "more blocks than run",
    "lock twice",
    "flag in LDS",
    "every wave looks",
    "each for the next",
    "many flags",
    "nothing",
    "same again",
    "copy of another stream",
)
_GO_ON = (
    "time",
    "time or flag",
    "one computes",
    "counts in memory",
    "counts by atomics",
    "counts in scratch",
    "ping pong",
    "say while others wait",
    "host memory",
    "managed memory",
    "registered memory",
    "fine-grained memory",
)


# Without optimisation loops call functions, and keep what they know in scratch.
_NOT_OPTIMISED = {"flag", "every wave looks", "lock twice", "counts in scratch", "ping pong", "one computes"}


@pytest.fixture(scope="module")
def programs(compile_program):
    flags = {"gfx1151": (), "gfx1201": (), "not optimised": ("-O0",)}
    return {
        how: compile_program("waiting_kernels", "-std=c++20", "-g", *more, arch=_arch(how))
        for how, more in flags.items()
    }


def _arch(how: str) -> str:
    return "gfx1151" if how == "not optimised" else how


def _names(names: tuple[str, ...], how: str) -> list[str]:
    return [name for name in names if how != "not optimised" or name in _NOT_OPTIMISED]


def _line_of(path, mark: str) -> int:
    lines = path.read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if f"// line: {mark}" in line)


@pytest.mark.parametrize("how", _HOW)
def test_a_kernel_that_can_never_go_on_is_ended(emulate, programs, how):
    names = emulate(programs[how], arch=_arch(how)).stdout.splitlines()
    assert set(names) == {*(f"stuck: {name}" for name in _STUCK), *_GO_ON}
    for name in _names(_STUCK, how):
        done = emulate(programs[how], f"stuck: {name}", arch=_arch(how), PATCHKIT_EMULATOR_THREADS="1")
        assert (done.returncode < 0, done.stdout) == (True, ""), (name, done.stderr)
        assert ": it makes no progress: every wave of the " in done.stderr, name


@pytest.mark.parametrize("how", _HOW)
def test_a_kernel_that_goes_on_is_left_alone(emulate, programs, how):
    for name in _names(_GO_ON, how):
        done = emulate(programs[how], name, arch=_arch(how))
        assert (done.returncode, done.stdout) == (0, "right\n"), (name, done.stderr)


@pytest.mark.parametrize("schedule", ["shuffle 1", "late"])
def test_other_orders_change_neither(emulate, programs, schedule):
    settings = {"PATCHKIT_EMULATOR_SCHEDULE": schedule}
    for name in ("ping pong", "one computes", "host memory"):
        assert emulate(programs["gfx1151"], name, **settings).stdout == "right\n", name
    done = emulate(programs["gfx1151"], "stuck: each for the next", **settings)
    assert ": it makes no progress" in done.stderr


def test_the_error_names_kernel_line_and_address(emulate, programs, checkout, tmp_path):
    objects, report = tmp_path / "objects", tmp_path / "report"
    objects.mkdir()
    settings = {"PATCHKIT_EMULATOR_OBJECTS": str(objects), "PATCHKIT_EMULATOR_REPORT": str(report)}
    done = emulate(programs["gfx1151"], "stuck: flag", **settings)
    assert "kernel flag, block (0, 0, 0): it makes no progress" in done.stderr
    told = EmulationReport.model_validate(json.loads(report.read_text("utf-8")))
    file = "tests/integration/emulator/waiting_kernels.hip"
    flag, barrier = (_line_of(checkout / file, mark) for mark in ("flag", "barrier"))
    assert told.stopped.kernel == "_Z4flagPi"
    spinning, waiting = stopped_lines(told.stopped, SourceLines(objects, checkout))
    assert f", inlined at {file}:{flag}: spins, reading 4 bytes at address 0x" in spinning
    assert f"{file}:{barrier}: waits at a barrier (wave 1)" in waiting


def test_blocks_that_have_not_begun_are_counted(emulate, programs):
    done = emulate(programs["gfx1151"], "stuck: more blocks than run", PATCHKIT_EMULATOR_THREADS="1")
    assert "every wave of the 4096 started blocks, of 5000, spins" in done.stderr

"""What device code asks of the host, executed: printf, assert, a heap, a barrier of the whole grid."""

from __future__ import annotations

import json
import signal

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture(scope="module", params=["-O0", "-O3"])
def program(compile_program, request):
    """Unoptimised device code calls the library's functions; optimised code has them inside."""
    return compile_program("host_calls", "-UNDEBUG", "-Xarch_device", request.param)


@pytest.mark.parametrize("schedule", ["in-order", "late"])
def test_printf_of_a_kernel_comes_out_before_the_host_goes_on(program, emulate, schedule):
    done = emulate(program, "prints", PATCHKIT_EMULATOR_SCHEDULE=schedule)
    assert (done.returncode, done.stderr) == (0, "")
    *printed, end = done.stdout.splitlines()
    assert sorted(printed) == [
        f"{lane} of {block}: {text}, {lane / 2:.2f},    ab|{2**40}"
        for lane, text in ((0, "first"), (1, "another"))
        for block in (0, 1)
    ]
    assert end == "hipSuccess"


def test_an_assertion_says_what_does_not_hold_and_ends_the_process(program, emulate):
    done = emulate(program, "asserts")
    assert (done.returncode, done.stdout) == (-signal.SIGABRT, "")
    said, fault, *_ = done.stderr.splitlines()
    assert "host_calls.hip:" in said
    assert said.endswith("void asserts(unsigned int): Device-side assertion `threadIdx.x != wrong' failed.")
    assert fault.startswith("patchkit emulator: kernel asserts, block")
    assert "an assertion" in fault


@pytest.mark.parametrize("order", ["in-order", "shuffle 3"])
@pytest.mark.parametrize("looks_for", [None, "memory,races,hidden,barriers,uninitialised"])
def test_threads_take_memory_and_give_it_back(program, emulate, tmp_path, order, looks_for):
    done = emulate(
        program,
        "allocates",
        PATCHKIT_EMULATOR_SCHEDULE=order,
        PATCHKIT_EMULATOR_CHECK=looks_for,
        PATCHKIT_EMULATOR_REPORT=str(tmp_path / "report"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    # Of a few bytes, of more than a slab has, and of more than there is.
    assert done.stdout == "192 0\n192 0\n0 192\nhipSuccess\n"
    assert json.loads((tmp_path / "report").read_text("utf-8"))["findings"] == []


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("behind", "right past the end of 5000 bytes"),
        ("freed", "32 bytes into 5000 bytes of device memory that were freed"),
    ],
)
def test_memory_of_a_kernel_is_used_only_while_it_is_there(program, emulate, tmp_path, case, says):
    done = emulate(
        program, case, PATCHKIT_EMULATOR_CHECK="memory", PATCHKIT_EMULATOR_REPORT=str(tmp_path / "report")
    )
    assert done.stdout == "hipSuccess\n"
    (found,) = json.loads((tmp_path / "report").read_text("utf-8"))["findings"]
    assert says in found["what"]


@pytest.mark.parametrize("looks_for", [None, "memory"])
def test_memory_that_a_kernel_frees_twice_is_a_fault(program, emulate, looks_for):
    done = emulate(program, "frees_twice", PATCHKIT_EMULATOR_CHECK=looks_for)
    assert done.returncode == -signal.SIGABRT
    assert "which was not allocated by a kernel's malloc, or was already freed" in done.stderr


def test_a_service_of_the_host_that_is_not_there_is_a_fault_with_a_report(program, emulate, tmp_path):
    done = emulate(program, "asks_for_a_function", PATCHKIT_EMULATOR_REPORT=str(tmp_path / "report"))
    assert done.returncode == -signal.SIGABRT
    assert "a kernel calls host service 1; only printf (2) and memory (3) are supported" in done.stderr
    assert "service 1" in json.loads((tmp_path / "report").read_text())["fault"]


def test_blocks_of_a_cooperative_launch_meet(program, emulate):
    done = emulate(program, "meets")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\nhipSuccess\n", "")

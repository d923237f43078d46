"""What the checks of the emulated GPU find in the calls of a program to the runtime."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ALL = "memory,waits,races,uninitialised,asynchrony,calls,leaks"
_UNSEEN = "; the program does not check the error "
# By the name of the case: the call, and what the finding says of it.
_ERRORS = {
    "copy past end": ("hipMemcpy", "4104 bytes of the target, 8 of them past the end of 4096 bytes"),
    "copy from past end": ("hipMemcpy", "200 bytes of the source, 104 of them past the end of 4096 bytes"),
    "asynchronous copy past end": ("hipMemcpyAsync", "4096 bytes of the target, 4 of them past the end"),
    "copy to freed": (
        "hipMemcpy",
        "64 bytes of the target, 0 bytes into 64 bytes of device memory that",
    ),
    "memset past end": ("hipMemset", "4097 bytes of the target, 1 of them past the end of 4096 bytes"),
    "memset of the host": ("hipMemset", "16 bytes of the target, which is outside of any allocation"),
    "rows past end": (
        "hipMemcpy2D",
        "5 rows of 512 bytes at a pitch of 1024 are 4608 bytes of the target, 512 of them past the end",
    ),
    "rows from past end": (
        "hipMemcpy2D",
        "6 rows of 100 bytes at a pitch of 1024 are 5220 bytes of the source",
    ),
    "rows longer than their pitch": ("hipMemcpy2D", "hipErrorInvalidPitchValue: rows of 300 bytes"),
    "rows of a memset past end": ("hipMemset2D", "5 rows of 1000 bytes at a pitch of 1024 are 5096 bytes"),
    "pitch of one allocation for another": (
        "hipMemcpy2D",
        "3372 bytes of the target, 1324 of them past the end",
    ),
    "symbol past end": ("hipMemcpyToSymbol", "68 bytes from byte 0 on, but the variable has 64"),
    "symbol past end with offset": ("hipMemcpyToSymbol", "16 bytes from byte 20 on, but the variable has 32"),
    "from symbol past end": ("hipMemcpyFromSymbol", "128 bytes from byte 0 on, but the variable has 64"),
    "from symbol past end asynchronously": ("hipMemcpyFromSymbolAsync", "4 bytes from byte 64 on"),
    "no such device": (
        "hipSetDevice",
        "hipErrorInvalidDevice: device 7 does not exist; the only device is 0",
    ),
    "event that is gone": ("hipEventRecord", "returns hipError"),
    "too much memory": ("hipMalloc", "hipErrorOutOfMemory: 1125899906842624 bytes requested, but only "),
    "result of a wrapper": ("hipMemcpy", "4097 bytes of the target"),
    "wrapper without result": ("hipMemcpy", "4097 bytes of the target"),
    "asked too late": ("hipMemcpy", "before its next call, hipDeviceSynchronize"),
    "in a thread": ("hipMemset", "until it ends"),
    "often": ("hipMemset", "before its next call, hipMemset"),
}
_LAUNCHES = {
    "launch: dynamic lds": "70000 bytes of dynamic LDS are requested, but a block may have at most 65536",
    "launch: lds together": "49152 bytes of LDS of the kernel and 20000 dynamic ones are 69152, but",
    "launch: no blocks": "a grid of [0,1,1] blocks of [32,1,1] threads is empty",
    "launch: no threads": "a grid of [1,1,1] blocks of [0,1,1] threads is empty",
    "launch: too many threads": "a block of [2048,1,1] has 2048 threads, but may have at most 1024",
    "launch: too many threads in three directions": "a block of [32,32,2] has 2048 threads, but may",
    "launch: more than its bounds": "a block has 256 threads, but the kernel was compiled for at most 128",
    "launch: too large a grid": "has more threads in one direction than 4294967295",
    "launch: cooperative": "a cooperative launch of 100000 blocks, but the GPU holds only ",
    "launch: by its handle": "a block of [1,1,1025] has 1025 threads, but may have at most 1024",
    "launch: asked after the wait": "a block of [2048,1,1] has 2048 threads, but may have at most 1024",
    "launch: the only one": "2048 threads, but may have at most 1024; no kernel of this program ran",
    "launch: the only one and nobody waits": "2048 threads, but may have at most 1024",
}
# The call, what is said, and the call that freed it before.
_FREES = {
    "free: twice": ("hipFree", "256 bytes of device memory were already freed", "hipFree"),
    "free: twice and looked at": ("hipFree", "256 bytes of device memory were already freed", "hipFree"),
    "free: host memory twice": ("hipHostFree", "512 bytes of host memory were already freed", "hipHostFree"),
    "free: managed memory twice": ("hipFree", "128 bytes of managed memory were already freed", "hipFree"),
    "free: twice in order": (
        "hipFreeAsync",
        "256 bytes of device memory were already freed",
        "hipFreeAsync",
    ),
    "free: in order and then at once": (
        "hipFree",
        "256 bytes of device memory were already freed",
        "hipFreeAsync",
    ),
    "free: by two owners": ("hipFree", "96 bytes of device memory were already freed", "hipFree"),
    "free: inside": ("hipFree", "the pointer is 16 bytes into 4096 bytes of device memory", None),
    "free: of the stack": ("hipFree", "the pointer is not to memory allocated by the runtime", None),
    "free: of malloc": ("hipHostFree", "the pointer is not to memory allocated by the runtime", None),
    "free: of a variable": (
        "hipFree",
        "the pointer is to memory that the program registered, or to a",
        None,
    ),
    "free: registered memory": ("hipHostFree", "the pointer is to memory that the program registered", None),
}
_LEAKS = {
    "leak: device memory": ("hipMalloc", "256 bytes of device memory are never freed"),
    "leak: host memory": ("hipHostMalloc", "512 bytes of host memory are never freed"),
    "leak: managed memory": ("hipMallocManaged", "128 bytes of managed memory are never freed"),
    "leak: rows": ("hipMallocPitch", "2048 bytes of device memory are never freed"),
    "leak: of a pool": ("hipMallocAsync", "192 bytes of device memory are never freed"),
    "leak: pieces": ("hipMalloc", "300 bytes of device memory in 3 pieces are never freed"),
    "leak: the pointer was taken for another": ("hipMalloc", "64 bytes of device memory are never freed"),
    "leak: in a thread": ("hipMalloc", "48 bytes of device memory are never freed"),
    "leak: released, not freed": ("hipMalloc", "80 bytes of device memory are never freed"),
}
# How host code looks at a result depends on how it is optimised; clang 22 lacks a grid barrier for gfx1201
# at -O0.
_BUILDS = (("gfx1151", "-O0"), ("gfx1151", "-O2"), ("gfx1201", "-O1"))


@pytest.fixture(scope="module", params=_BUILDS, ids="".join)
def build(request) -> tuple[str, str]:
    return request.param


@pytest.fixture(scope="module")
def arch(build) -> str:
    return build[0]


@pytest.fixture(scope="module")
def program(compile_program, build):
    return compile_program("checked_calls", build[1], arch=build[0])


@pytest.fixture
def every_kind() -> str:
    """What is looked for unless a test says it."""
    return _ALL


@pytest.fixture
def all_found(found, program, arch):
    """The findings of each case of a table, in an order of asynchronous work."""

    def run(cases, schedule: str = "in-order"):
        settings = {"arch": arch, "PATCHKIT_EMULATOR_SCHEDULE": schedule}
        return {case: found(program, case, **settings) for case in cases}

    return run


def _are_of_the_program(findings) -> bool:
    return all(
        any(Path(frame["file"]).name == "checked_calls" for frame in one["called_from"]) for one in findings
    )


def _told(findings):
    return {(one["kind"], one["at"]["text"], (one["other"] or {}).get("text")) for one in findings}


@pytest.mark.parametrize("schedule", ["in-order", "shuffle 3"])
def test_an_error_that_nobody_looks_at_is_found(all_found, schedule):
    for case, findings in all_found(_ERRORS, schedule).items():
        call, text = _ERRORS[case]
        assert _told(findings) == {("calls", call, None)}, case
        assert text in findings[0]["what"], (case, findings)
        assert f"{call} returns hipError" in findings[0]["what"]
        assert _UNSEEN in findings[0]["what"]
        # What a thread begins with may jump to the last call that it makes, and leaves no frame.
        assert case == "in a thread" or _are_of_the_program(findings)
        assert sum(one["times"] for one in findings) == (5 if case == "often" else 1), (case, findings)


@pytest.mark.parametrize("schedule", ["in-order", "shuffle 3"])
def test_a_refused_launch_is_found_with_both_numbers(all_found, schedule):
    for case, findings in all_found(_LAUNCHES, schedule).items():
        (only,) = findings
        assert only["kind"] == "calls"
        assert only["what"].startswith("the launch of kernel _Z"), case
        assert _LAUNCHES[case] in only["what"], (case, findings)
        assert _are_of_the_program(findings)


@pytest.mark.parametrize("schedule", ["in-order", "shuffle 3"])
def test_memory_that_is_freed_wrongly_is_found(all_found, schedule):
    for case, findings in all_found(_FREES, schedule).items():
        call, text, before = _FREES[case]
        assert _told(findings) == {("calls", call, before)}, (case, findings)
        assert text in findings[0]["what"], (case, findings)
        assert bool(findings[0]["other_called_from"]) == (before is not None)
        assert _are_of_the_program(findings)


@pytest.mark.parametrize("schedule", ["in-order", "shuffle 3"])
def test_memory_that_is_never_freed_is_found_where_it_is_looked_for(
    all_found, found, program, arch, schedule
):
    for case, findings in all_found(_LEAKS, schedule).items():
        call, text = _LEAKS[case]
        assert _told(findings) == {("leaks", call, None)}, (case, findings)
        assert findings[0]["what"] == text, case
        assert _are_of_the_program(findings)
    assert found(program, "leak: pieces", kinds="calls,memory", arch=arch) == []


@pytest.mark.parametrize("schedule", ["in-order", "late", "shuffle 3"])
def test_a_program_that_handles_its_errors_has_no_finding(all_found, emulate, program, arch, schedule):
    clean = [name for name in emulate(program, arch=arch).stdout.splitlines() if name.startswith("clean: ")]
    assert clean
    assert all_found(clean, schedule) == {case: [] for case in clean}


def test_a_refused_launch_is_told_where_nothing_is_looked_for(emulate, program, arch, tmp_path):
    report = tmp_path / "report"
    done = emulate(program, "launch: the only one", arch=arch, PATCHKIT_EMULATOR_REPORT=str(report))
    assert (
        "the launch of put(int*) is rejected with hipErrorInvalidValue: a block of [2048,1,1]" in done.stderr
    )
    (refused,) = json.loads(report.read_text("utf-8"))["refused"]
    assert (refused["kernel"], refused["times"]) == ("_Z3putPi", 1)
    assert "2048 threads, but may have at most 1024" in refused["why"]

"""When asynchronous work runs: what HIP promises holds in each schedule, and nothing more when it is late."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]

CORRECT = (
    "waits_for_its_stream",
    "waits_between_streams",
    "trusts_the_default_stream",
    "trusts_its_threads_stream",
    "reuses_a_pageable_source",
    "reads_pageable_at_once",
    "asks_until_done",
    "frees_in_order",
    "frees_after_launching",
    "leaves_the_end_to_the_runtime",
    "calls_the_host",
    "measures_time",
    "replays_a_graph",
    "destroys_early",
    "updates_a_graph",
    "captures_a_graph_in_a_graph",
    "reads_a_captured_source_when_launched",
    "is_told_what_a_capture_forbids",
    "is_told_what_a_host_function_may_not_do",
    "shares_a_stream_between_threads",
    "clears_new_memory",
)
CARELESS = (
    "reads_without_waiting",
    "reuses_a_pinned_source",
    "forgets_the_event",
    "trusts_the_default_stream_too_far",
    "overwrites_what_is_still_read",
    "trusts_memset",
)
SEEDS = range(1, 21)


@pytest.fixture(scope="module")
def program(compile_program):
    return compile_program("ordered_work")


@pytest.mark.parametrize("name", [*CORRECT, *CARELESS])
def test_in_order_everything_works(program, emulate, name):
    done = emulate(program, name)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_program_works_late(program, emulate, name):
    done = emulate(program, name, PATCHKIT_EMULATOR_SCHEDULE="late")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", CARELESS)
def test_a_program_that_relies_on_more_than_hip_promises_breaks_late(program, emulate, name):
    done = emulate(program, name, PATCHKIT_EMULATOR_SCHEDULE="late")
    assert (done.returncode, done.stdout) == (1, f"{name} broke\n")


# The careless programs that work late with a variable of ROCm that makes the host wait.
_MISS_A_KERNEL = {
    "reads_without_waiting",
    "forgets_the_event",
    "trusts_the_default_stream_too_far",
    "overwrites_what_is_still_read",
}
BLOCKING = [
    ("HIP_LAUNCH_BLOCKING", "1", _MISS_A_KERNEL),
    ("AMD_SERIALIZE_KERNEL", "2", _MISS_A_KERNEL),
    ("AMD_SERIALIZE_KERNEL", "1", set()),
    ("AMD_SERIALIZE_KERNEL", "no number", set()),
    ("AMD_SERIALIZE_COPY", "1", set()),
    ("AMD_SERIALIZE_COPY", "3", {"reuses_a_pinned_source"}),
]


@pytest.mark.parametrize(("variable", "value", "expected"), BLOCKING)
def test_a_host_that_waits_as_the_user_asks_hides_a_missing_wait(program, emulate, variable, value, expected):
    settings = {"PATCHKIT_EMULATOR_SCHEDULE": "late", variable: value}
    hidden = {name for name in CARELESS if emulate(program, name, **settings).returncode == 0}
    assert hidden == expected
    for name in CORRECT:
        done = emulate(program, name, **settings)
        assert (name, done.returncode, done.stderr) == (name, 0, "")


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_program_works_in_any_order(program, emulate, name):
    for seed in SEEDS:
        done = emulate(program, name, PATCHKIT_EMULATOR_SCHEDULE=f"shuffle {seed}")
        assert (seed, done.returncode, done.stderr) == (seed, 0, "")


@pytest.mark.parametrize("name", CARELESS)
def test_some_order_breaks_a_careless_program_and_some_does_not(program, emulate, name):
    codes = [
        emulate(program, name, PATCHKIT_EMULATOR_SCHEDULE=f"shuffle {seed}").returncode for seed in SEEDS
    ]
    assert set(codes) == {0, 1}


def test_memory_that_nobody_wrote_is_not_zero_where_a_program_is_to_show_what_it_relies_on(program, emulate):
    codes = [
        emulate(program, "trusts_new_memory", PATCHKIT_EMULATOR_SCHEDULE=schedule).returncode
        for schedule in ("in-order", "late", "shuffle 1")
    ]
    assert codes == [0, 1, 1]


def test_with_a_default_stream_per_thread_the_null_stream_is_the_threads(compile_program, emulate):
    program = compile_program("ordered_work", "-fgpu-default-stream=per-thread")
    for name in ("waits_for_its_stream", "measures_time", "replays_a_graph", "trusts_its_threads_stream"):
        done = emulate(program, name, PATCHKIT_EMULATOR_SCHEDULE="late")
        assert (done.returncode, done.stderr) == (0, "")
    # It does not wait for other streams of the thread.
    assert emulate(program, "trusts_the_default_stream", PATCHKIT_EMULATOR_SCHEDULE="late").returncode == 1


def test_a_seed_gives_the_same_order_again(program, emulate):
    for seed in SEEDS:
        settings = {"PATCHKIT_EMULATOR_SCHEDULE": f"shuffle {seed}"}
        first, second = (emulate(program, "forgets_the_event", **settings) for _ in range(2))
        assert first.stdout == second.stdout


@pytest.mark.parametrize("schedule", ["early", "shuffle", "shuffle 0", "shuffle x"])
def test_a_schedule_that_there_is_not_is_refused(program, emulate, schedule):
    done = emulate(program, "measures_time", PATCHKIT_EMULATOR_SCHEDULE=schedule)
    assert done.returncode == 86
    assert "must be in-order, late or shuffle SEED (a positive number), but is: " + schedule in done.stderr

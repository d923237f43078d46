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
def test_in_order_everything_works(program, execute, name):
    done = execute(program, name)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_program_works_late(program, execute, name):
    done = execute(program, name, PATCHKIT_EMULATOR_SCHEDULE="late")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", CARELESS)
def test_a_program_that_relies_on_more_than_hip_promises_breaks_late(program, execute, name):
    done = execute(program, name, PATCHKIT_EMULATOR_SCHEDULE="late")
    assert (done.returncode, done.stdout) == (1, f"{name} broke\n")


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_program_works_in_any_order(program, execute, name):
    for seed in SEEDS:
        done = execute(program, name, PATCHKIT_EMULATOR_SCHEDULE=f"shuffle {seed}")
        assert (seed, done.returncode, done.stderr) == (seed, 0, "")


@pytest.mark.parametrize("name", CARELESS)
def test_some_order_breaks_a_careless_program_and_some_does_not(program, execute, name):
    codes = [
        execute(program, name, PATCHKIT_EMULATOR_SCHEDULE=f"shuffle {seed}").returncode for seed in SEEDS
    ]
    assert set(codes) == {0, 1}


def test_a_seed_gives_the_same_order_again(program, execute):
    for seed in SEEDS:
        settings = {"PATCHKIT_EMULATOR_SCHEDULE": f"shuffle {seed}"}
        first, second = (execute(program, "forgets_the_event", **settings) for _ in range(2))
        assert first.stdout == second.stdout


@pytest.mark.parametrize("schedule", ["early", "shuffle", "shuffle 0", "shuffle x"])
def test_a_schedule_that_there_is_not_is_refused(program, execute, schedule):
    done = execute(program, "measures_time", PATCHKIT_EMULATOR_SCHEDULE=schedule)
    assert done.returncode == 86
    assert "is none of in-order, late, shuffle SEED (a positive number): " + schedule in done.stderr

"""Graphs put together node by node run in the order of their edges, in every schedule."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture(scope="module")
def program(compile_program):
    return compile_program("built_graphs")


@pytest.mark.parametrize("schedule", ["in-order", "late", "shuffle 7"])
def test_nodes_run_in_the_order_of_their_edges(program, emulate, schedule):
    done = emulate(program, PATCHKIT_EMULATOR_SCHEDULE=schedule)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

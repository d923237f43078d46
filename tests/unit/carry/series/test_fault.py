"""Known faults: the affected GPUs, the patch that fixes them, and the candidates that they reject."""

from __future__ import annotations

from dataclasses import replace

import pytest
from refusing import refused

from patchkit.base.errors import ExitCode
from patchkit.carry.series.fault import Fault, check_faults, find_faults, refused_faults
from patchkit.carry.series.patch import BuildRange

FAULT = Fault(
    id="reads-ahead",
    title="it reads what is not there yet",
    builds=BuildRange(first=10, last=20, why="for the test"),
    archs=("gfx1150", "gfx1151"),
    symptom="Garbage.",
    does="wrong results",
    seen_on="hardware",
    links=("https://example.invalid/1",),
    patch="waits",
)
ALL = ("gfx1100", "gfx1150", "gfx1151")


@pytest.mark.parametrize("build", [9, 21])
def test_other_builds_do_not_have_it(build: int) -> None:
    assert find_faults([FAULT], build, ALL, []) == ()


def test_it_is_on_its_gpus_only_and_mended_where_the_patch_is_live() -> None:
    assert find_faults([FAULT], 10, ["gfx1100"], []) == ()
    (found,) = find_faults([FAULT], 10, ALL, [("waits", ["gfx1151"]), ("other", ALL)])
    assert (found.archs, found.fixed) == (("gfx1150",), ("gfx1151",))
    assert refused_faults([found], ()) == (found,)
    (found,) = find_faults([FAULT], 20, ALL, [("waits", ALL)])
    assert (found.archs, found.fixed) == ((), ("gfx1150", "gfx1151"))
    assert refused_faults([found], ()) == ()
    assert found.state() == "reads-ahead on gfx1150 gfx1151: fixed by waits"


@pytest.mark.parametrize("changed", [{"does": "no harm seen"}, {"does": "aborts"}, {"seen_on": "emulated"}])
def test_what_gives_no_wrong_results_on_hardware_is_not_refused(changed: dict[str, str]) -> None:
    fault = replace(FAULT, **changed)
    found = find_faults([fault], 10, ["gfx1151"], [])
    assert found[0].archs == ("gfx1151",)
    check_faults([fault], found, 10, ())


def test_the_refusal_says_what_is_wrong_and_the_ways_out() -> None:
    found = find_faults([FAULT], 10, ["gfx1151"], [])
    with refused("FAULT_UNMENDED", match="b10 computes wrong results on gfx1151") as caught:
        check_faults([FAULT], found, 10, ())
    error = caught.value
    assert error.exit_code == ExitCode.GATE_FAILED
    assert error.why is not None
    assert "Garbage." in error.why
    assert "https://example.invalid/1" in error.why
    assert error.hint is not None
    assert "apply the patch waits" in error.hint
    assert "--accept-fault reads-ahead" in error.hint
    check_faults([FAULT], found, 10, ("reads-ahead",))


def test_a_fault_that_nobody_knows_cannot_be_accepted() -> None:
    with refused("FAULT_BAD", match="no fault 'reads-ahea'") as caught:
        check_faults([FAULT], (), 10, ("reads-ahea",))
    assert caught.value.hint == "did you mean 'reads-ahead'?"

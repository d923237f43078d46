"""Which gates run on hardware, and under which names."""

from __future__ import annotations

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.device.runner import choose_runner
from patchkit.gates import hardware
from patchkit.gates.hardware import choose_hardware, proven_where
from patchkit.gates.registry import cpu_names, gate_names


def test_without_the_gpu_every_row_says_what_is_missing(monkeypatch) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: ("gfx1100",))
    chosen = choose_hardware(("gfx1151",), None, model=None)
    assert (chosen.backend, chosen.gates) == (None, ())
    assert set(chosen.not_here) == set(gate_names("device"))
    assert chosen.not_here["logits"] == "needs gfx1151; this machine has gfx1100"


def test_the_gpu_of_the_candidate_is_used_when_it_is_here(monkeypatch) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: ("gfx1151",))
    chosen = choose_hardware(("gfx1151",), None, model=None)
    assert chosen.backend == "hip"
    assert [gate.name for gate in chosen.gates] == ["backend-ops", "logits", "bench"]
    assert not {"backend-ops", "logits"} & set(chosen.not_here)


def test_gates_on_the_cpu_never_stand_for_those_on_the_gpu(monkeypatch) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: ("gfx1151",))
    chosen = choose_hardware(("gfx1151",), "cpu", model=None)
    assert tuple(gate.name for gate in chosen.gates) == cpu_names()
    assert set(chosen.not_here) == set(gate_names("device"))
    assert chosen.own_name("logits") == "logits@cpu"
    assert chosen.own_name("isolation") == "isolation"


def test_another_machine_is_taken_to_have_the_gpu(monkeypatch) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: ())
    there = choose_runner("ssh://box", config=None, environ={}, reporter=NullReporter())
    chosen = choose_hardware(("gfx1151",), None, model=None, runner=there)
    assert [gate.name for gate in chosen.gates] == ["backend-ops", "logits", "bench"]


@pytest.mark.parametrize("backend", [None, "hip"])
def test_other_backends_keep_the_names(backend) -> None:
    assert choose_hardware(("gfx1151",), backend, model=None).own_name("logits") == "logits"


@pytest.mark.parametrize(
    ("passed", "told"),
    [
        ((), "Nothing is proven."),
        (("anchors", "launch"), "Proven without a GPU: anchors, launch."),
        (("backend-ops", "bench"), "Proven on the GPU: backend-ops, bench."),
        (("anchors", "logits@cpu"), "Proven without a GPU: anchors, logits@cpu."),
    ],
)
def test_what_passed_is_told_by_the_machine_it_ran_on(passed: tuple[str, ...], told: str) -> None:
    assert proven_where(passed) == told

"""Which gates run on hardware, and under which names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from patchkit.base.errors import GateError
from patchkit.base.reporter import NullReporter
from patchkit.carry.placing.tree import ROCWMMA_OPTION
from patchkit.gpu.hardware.runner import choose_runner
from patchkit.prove.build import Machine
from patchkit.prove.gates.emulated import emulator_digest, not_proven_on, verdict_on
from patchkit.prove.gates.registry import cpu_names, gate_names
from patchkit.prove.verify import hardware
from patchkit.prove.verify.hardware import choose_hardware
from patchkit.prove.verify.reuse import Reusing


def test_a_gpu_that_is_neither_here_nor_emulated_is_missing_in_every_row(monkeypatch) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: ("gfx1100",))
    chosen = choose_hardware(("gfx90a",), None, model=None)
    assert (chosen.backend, chosen.gates) == (None, ())
    assert set(chosen.not_here) == set(gate_names("device", "emulated"))
    assert chosen.not_here["logits"] == "needs gfx90a, which is not emulated; this machine has gfx1100"


@pytest.mark.parametrize(
    ("here", "asked"),
    [((), False), (("gfx1100",), False), (("gfx1151",), True)],
    ids=["none", "other", "asked"],
)
def test_without_the_gpu_or_on_demand_it_is_emulated(monkeypatch, here: tuple[str, ...], asked: bool) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: here)
    chosen = choose_hardware(("gfx1151", "gfx1201"), None, model=None, emulated=asked)
    assert tuple(gate.name for gate in chosen.gates) == gate_names("device", "emulated")
    assert not chosen.not_here
    for gate in chosen.gates:
        assert isinstance(gate, Reusing)
        assert gate.emulated is not None
        assert str(gate.emulated) == f"emulated gfx1151, emulator {emulator_digest()}"
        assert gate.inner.machine == Machine(backend="hip", emulates="gfx1151")


def test_the_gpu_itself_is_never_emulated_by_default(monkeypatch) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: ("gfx1151",))
    there = choose_runner("ssh://box", config=None, environ={}, reporter=NullReporter())
    for chosen in (
        choose_hardware(("gfx1151",), None, model=None),
        choose_hardware(("gfx1151",), "hip", model=None),
        choose_hardware(("gfx1151",), None, model=None, runner=there),
    ):
        assert all(gate.emulated is None for gate in chosen.gates if isinstance(gate, Reusing))


def test_without_any_device_nothing_is_emulated_either() -> None:
    chosen = choose_hardware(("gfx1151",), None, model=None, no_gpu=True)
    assert (chosen.gates, set(chosen.not_here)) == ((), set(gate_names("device", "emulated")))


def test_an_emulated_machine_says_what_it_is_and_what_it_does_not_prove(make_subject) -> None:
    machine = Machine(backend="hip", emulates="gfx1151")
    assert (machine.label, machine.kind, machine.gate_name("logits")) == (
        "emulated gfx1151",
        "emulated",
        "logits",
    )
    assert verdict_on(machine, ()) == "passed (emulated)"
    assert verdict_on(machine, (GateError("x", code="X"),)) == "failed"
    assert verdict_on(Machine(backend="hip"), ()) == "passed"
    own, other = not_proven_on(machine, replace(make_subject(), archs=("gfx1151", "gfx1100")))
    assert own == "execution on the GPU itself: gfx1151 was emulated"
    assert other == "gfx1100: gfx1151 was emulated"
    assert not not_proven_on(Machine(backend="hip"), make_subject())


def test_a_candidate_is_run_without_rocwmma_if_it_is_built_without(make_subject) -> None:
    offered = {"ggml/CMakeLists.txt": f'option({ROCWMMA_OPTION} "ggml: use rocWMMA" OFF)\n'}
    assert not make_subject(offered, macros=("GGML_USE_HIP", ROCWMMA_OPTION)).is_without_rocwmma
    plain = make_subject(offered, macros=("GGML_USE_HIP",))
    assert plain.is_without_rocwmma
    machine = Machine(backend="hip", emulates="gfx1151")
    assert not_proven_on(machine, plain)[1:] == (
        "a build with GGML_HIP_ROCWMMA_FATTN: it was run without, as the candidate is built",
    )
    # Later trees have no such kernel, and no option.
    assert not make_subject({"ggml/CMakeLists.txt": "project(ggml)\n"}).is_without_rocwmma


def test_the_gpu_of_the_candidate_is_used_when_it_is_here(monkeypatch) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: ("gfx1151",))
    chosen = choose_hardware(("gfx1151",), None, model=None)
    assert chosen.backend == "hip"
    assert tuple(gate.name for gate in chosen.gates) == gate_names("device")
    assert chosen.not_here == dict.fromkeys(gate_names("emulated"), "needs the emulated GPU")


def test_gates_on_the_cpu_never_stand_for_those_on_the_gpu(monkeypatch) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: ("gfx1151",))
    chosen = choose_hardware(("gfx1151",), "cpu", model=None)
    assert tuple(gate.name for gate in chosen.gates) == cpu_names()
    assert set(chosen.not_here) == set(gate_names("device", "emulated"))
    assert chosen.own_name("logits") == "logits@cpu"
    assert chosen.own_name("isolation") == "isolation"


def test_another_machine_is_taken_to_have_the_gpu(monkeypatch) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: ())
    there = choose_runner("ssh://box", config=None, environ={}, reporter=NullReporter())
    chosen = choose_hardware(("gfx1151",), None, model=None, runner=there)
    assert tuple(gate.name for gate in chosen.gates) == gate_names("device")


@pytest.mark.parametrize("backend", [None, "hip"])
def test_other_backends_keep_the_names(backend) -> None:
    assert choose_hardware(("gfx1151",), backend, model=None).own_name("logits") == "logits"


def test_a_plain_candidate_needs_no_gpu_and_may_run_on_the_cpu(monkeypatch) -> None:
    monkeypatch.setattr(hardware, "detect_gpus", lambda: ("gfx1151",))
    chosen = choose_hardware(("plain",), None, model=None)
    assert (chosen.gates, list(chosen.not_here)) == ((), ["isolation"])
    on_cpu = choose_hardware(("plain",), "cpu", model=None)
    assert tuple(gate.name for gate in on_cpu.gates) == cpu_names()
    assert list(on_cpu.not_here) == ["isolation"]

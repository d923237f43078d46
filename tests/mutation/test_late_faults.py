"""Let the GPU read the inputs of a graph in place, and see that the gate ``logits`` finds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.gpu.emulated.models import SmallModel
from patchkit.gpu.hardware.logits import Scene
from patchkit.prove.build import Machine
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.logits import LogitsGate
from patchkit.prove.gates.logits_scenes import ModelGroup
from patchkit.prove.subject import Subject

ROOT = Path(__file__).resolve().parents[2]
HOST = "ggml/src/ggml-cuda/ggml-cuda.cu"
# With the second line, as in builds 10039 to 11062, the GPU reads inputs where the host writes others.
COPIES, READS = (f"info.devices[id].integrated = {value};" for value in ("false", "prop.integrated"))
GROUP = ModelGroup(
    kind="attention",
    models=(SmallModel(head_size=64, heads=4, kv_heads=2, spread=0.08),),
    scenes=(Scene(name="batches", tokens=60, steps=2, ubatch=16, stride=1),),
)
pytestmark = [pytest.mark.hip, pytest.mark.slow]


def run(subject: Subject) -> GateResult:
    """The gate over a prompt of several micro-batches."""
    return LogitsGate(machine=Machine(backend="hip", emulates="gfx1151"), groups=(GROUP,)).run(subject)


def test_inputs_that_are_copied_pass(upstream: Subject) -> None:
    result = run(upstream)
    assert result.verdict == "passed (emulated)", result.problems


def test_inputs_that_the_host_overwrites_are_found(upstream: Subject, edited: Callable[..., Subject]) -> None:
    text = (upstream.baseline / HOST).read_text("utf-8")
    assert text.count(COPIES) == 1
    result = run(edited(upstream, {HOST: text.replace(COPIES, READS).encode()}, "planted"))
    assert result.verdict == "failed", result.summary
    assert {problem.code for problem in result.problems} == {"LOGITS_FAR"}

"""Which gates run on hardware here, and why the others do not."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import ToolchainError
from patchkit.base.reporter import NullReporter
from patchkit.build.parts import BackendName
from patchkit.candidate.build import machine_of
from patchkit.device.gpus import detect_gpus
from patchkit.device.runner import LocalRunner, Runner, SshRunner
from patchkit.gates.backend_ops import BackendOpsGate
from patchkit.gates.base import Gate
from patchkit.gates.bench import BenchOnDevice
from patchkit.gates.logits import LogitsGate
from patchkit.gates.numerics.cuda import find_gpus
from patchkit.gates.numerics.gate import NumericsGate
from patchkit.gates.reuse import Reusing, model_identity

# In order of cost; the reasons are those of a machine without any GPU.
GPU_GATES: Mapping[str, str] = {
    "numerics": "needs an NVIDIA GPU",
    "backend-ops": "needs the GPU",
    "logits": "needs the GPU",
    "bench": "needs the GPU",
}
CPU_GATES = ("backend-ops@cpu", "logits@cpu", "bench@cpu")


def proven_where(passed: Sequence[str]) -> str:
    """A sentence for each kind of machine that the gates which passed ran on."""
    places = {
        "Proven without a GPU": [gate for gate in passed if gate not in GPU_GATES],
        "Proven on an NVIDIA GPU": [gate for gate in passed if gate == "numerics"],
        "Proven on the GPU": [gate for gate in passed if gate in GPU_GATES and gate != "numerics"],
    }
    told = [f"{place}: {', '.join(gates)}." for place, gates in places.items() if gates]
    return " ".join(told) or "Nothing is proven."


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """``gates`` can run here; ``not_here`` says of every other one of the ladder why it cannot."""

    backend: BackendName | None
    gates: tuple[Gate, ...]
    not_here: Mapping[str, str]

    def own_name(self, asked: str) -> str:
        """The name under which a gate runs on this backend: ``logits`` on the CPU is ``logits@cpu``."""
        on_cpu = f"{asked}@cpu"
        return on_cpu if self.backend == "cpu" and on_cpu in CPU_GATES else asked


def choose_hardware(
    archs: Sequence[str],
    backend: BackendName | None,
    *,
    model: Path | None,
    text: Path | None = None,
    no_gpu: bool = False,
    runner: Runner | None = None,
    fresh: bool = False,
) -> Hardware:
    """The gates for a backend; without one, for the candidate's GPU if this machine has it.

    Args:
        archs: the GPUs of the candidate.
        backend: what was asked for.
        model: a GGUF of the user's, for the gates that run models.
        text: what the gate logits reads with it.
        no_gpu: run none of them.
        runner: where programs run, if not here; it is taken to have the GPU.
        fresh: run gates that passed before, on the same trees and machine, once more.
    """
    if no_gpu:
        return Hardware(backend=None, gates=(), not_here=GPU_GATES)
    found = detect_gpus()
    elsewhere = runner if isinstance(runner, SshRunner) else None
    if backend is None and (elsewhere or set(found) & set(archs)):
        backend = "hip"
    numerics = () if backend == "cpu" else _numerics(fresh=fresh)
    if backend is None:
        here = f"this machine has {', '.join(found)}" if found else "this machine has none"
        why = f"needs {' or '.join(archs)}; {here}"
        return Hardware(
            backend=None,
            gates=numerics,
            not_here={
                name: GPU_GATES[name] if name == "numerics" else why
                for name in GPU_GATES
                if name not in {gate.name for gate in numerics}
            },
        )
    machine = machine_of(backend)
    place = runner or LocalRunner(reporter=NullReporter())
    settings = f"{machine.backend} {machine.device}, {model_identity(model)}, {model_identity(text)}"
    on_device = tuple(
        Reusing(inner=gate, runner=place, settings=settings, fresh=fresh)
        for gate in (
            BackendOpsGate(machine=machine, elsewhere=elsewhere),
            LogitsGate(machine=machine, model=model, text=text, elsewhere=elsewhere),
            BenchOnDevice(machine=machine, runner=place, model=model),
        )
    )
    gates: tuple[Gate, ...] = (*numerics, *on_device)
    running = {gate.name for gate in gates}
    return Hardware(
        backend=backend,
        gates=gates,
        not_here={name: why for name, why in GPU_GATES.items() if name not in running},
    )


def _numerics(*, fresh: bool) -> tuple[Gate, ...]:
    """The gate numerics, on a machine with an NVIDIA GPU; the candidate's own GPU is not needed for it."""
    try:
        find_gpus(NullReporter())
    except ToolchainError:
        return ()
    return (NumericsGate(environ=os.environ, fresh=fresh),)

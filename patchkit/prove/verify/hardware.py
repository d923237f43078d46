"""The choice of gates that run on a device here, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import PLAIN
from patchkit.gpu.hardware.gpus import detect_gpus
from patchkit.gpu.hardware.runner import LocalRunner, Runner, SshRunner
from patchkit.prove.build import Machine
from patchkit.prove.gates.base import DeviceSetup, Gate
from patchkit.prove.gates.emulated import choose_emulated, emulated_on
from patchkit.prove.gates.registry import cpu_names, entries, gate_names, load
from patchkit.prove.verify.reuse import Reusing, checks_identity, model_identity
from patchkit.toolchain.parts import BackendName


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The ``gates`` that can run on a device here; ``not_here`` has the reason for every other one.

    ``fresh``: run again what has passed before.
    """

    backend: BackendName | None
    gates: tuple[Gate, ...]
    not_here: Mapping[str, str]
    fresh: bool = False

    def own_name(self, asked: str) -> str:
        """The name of a gate on this backend: ``logits`` on the CPU backend is ``logits@cpu``."""
        on_cpu = f"{asked}@cpu"
        return on_cpu if self.backend == "cpu" and on_cpu in cpu_names() else asked


def choose_hardware(  # noqa: PLR0913 - one for each option
    archs: Sequence[str],
    backend: BackendName | None,
    *,
    model: Path | None,
    text: Path | None = None,
    no_gpu: bool = False,
    runner: Runner | None = None,
    fresh: bool = False,
    emulated: bool = False,
    full: bool = False,
    only: Sequence[str] = (),
) -> Hardware:
    """Choose the gates for a backend; by default for the candidate's GPU, emulated if it is not here.

    Args:
        archs: the GPUs of the candidate.
        backend: of ``--backend``.
        model: the user's GGUF model, for the gates that run models.
        text: the text that gate logits reads with that model.
        no_gpu: run none of these gates.
        runner: where programs run, if not here; that machine is assumed to have the GPU.
        fresh: run gates again that have passed on the same trees and machine.
        emulated: use the emulated GPU even if this machine has the GPU.
        full: all cases instead of a sample, on the emulated GPU and the CPU.
        only: the selected gates; empty: all.
    """
    not_here = {entry.name: entry.needs for entry in entries("device", "emulated")}
    if tuple(archs) == (PLAIN,):
        not_here = {entry.name: entry.plain for entry in entries() if isinstance(entry.plain, str)}
        no_gpu = no_gpu or backend is None
    if no_gpu:
        return Hardware(backend=None, gates=(), not_here=not_here, fresh=fresh)
    found = detect_gpus()
    elsewhere = runner if isinstance(runner, SshRunner) else None
    machine: Machine | None = None
    if backend is not None and not emulated:
        machine = Machine(backend=backend)
    elif not emulated and (elsewhere or set(found) & set(archs)):
        machine = Machine(backend="hip")
    elif (arch := choose_emulated(archs)) is not None:
        machine = Machine(backend="hip", emulates=arch, is_fresh=fresh)
    gates: list[Gate] = []
    if machine is None:
        here = f"this machine has {', '.join(found)}" if found else "this machine has no AMD GPU"
        why = f"needs {' or '.join(archs)}, which is not emulated; {here}"
        not_here |= dict.fromkeys(gate_names("device", "emulated"), why)
    else:
        place = runner or LocalRunner(reporter=NullReporter())
        setup = DeviceSetup(
            machine=machine,
            runner=place,
            elsewhere=elsewhere,
            model=model,
            text=text,
            full=full,
            is_sanitized=machine.is_emulated and not fresh and (not only or "sanitize" in only),
        )
        settings = f"{machine.backend} {machine.device}, {model_identity(model)}, {model_identity(text)}"
        if machine.is_emulated or machine.is_cpu:
            settings += ", all cases" if full else ", a sample of the cases"
        settings += f", checks {checks_identity()}"
        on = emulated_on(machine)
        gates += [
            Reusing(
                inner=load(entry.gate).make(setup),
                runner=place,
                settings=settings,
                fresh=fresh or not entry.is_kept,
                emulated=on,
            )
            for entry in (entries("device", "emulated") if machine.is_emulated else entries("device"))
        ]
    running = {gate.name for gate in gates}
    return Hardware(
        backend=None if machine is None else machine.backend,
        gates=tuple(gates),
        not_here={name: why for name, why in not_here.items() if name not in running},
        fresh=fresh,
    )

"""Modelled times of operations on one GPU, for any number of trees."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from patchkit.base.arch import GpuProfile
from patchkit.base.workspace import Workspace
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.emulator import EmulatedGpu, emulated_gpu
from patchkit.gpu.modelled.machine import Machine, load_machine
from patchkit.gpu.modelled.operation import OperationTime, time_operation
from patchkit.gpu.modelled.recording import Recorder, Sources, Timed, as_measured, open_recorder
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.machine import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """``gpu`` records the launches, ``machine`` is the model that they are simulated on."""

    workspace: Workspace
    machine: Machine
    gpu: EmulatedGpu
    compiler: Compiler

    @classmethod
    def of(
        cls, workspace: Workspace, profile: GpuProfile, compiler: Compiler, watts: int | None = None
    ) -> Self:
        """For the GPU of a profile; ``watts`` as :meth:`patchkit.gpu.modelled.machine.Machine.at_power`.

        Raises:
            TIMING_UNKNOWN: its timing file is missing, or has no clock for so few watts.
            ConfigError, ErrorGroup: its timing file is invalid.
            The errors of :func:`patchkit.gpu.emulated.emulator.emulated_gpu`.
        """
        device = device_of(profile, guess_units=True)
        machine = load_machine(workspace.series.profiles, device)
        machine = machine if watts is None else machine.at_power(watts)
        compiler = as_measured(compiler)
        return cls(
            workspace=workspace, machine=machine, gpu=emulated_gpu(device, compiler), compiler=compiler
        )

    def record(
        self,
        source: Source,
        stack: contextlib.ExitStack,
        changes: Mapping[str, bytes] | None = None,
        what: str = "",
        *,
        known_as: str | None = None,
        rocwmma: bool = True,
    ) -> Recorder:
        """A recorder for a tree, with the files in ``changes`` replaced, valid until the stack is closed.

        ``what`` and ``known_as`` as in :class:`patchkit.gpu.modelled.recording.Sources`.

        Raises:
            The errors of :func:`patchkit.gpu.modelled.recording.open_recorder`.
        """
        sources = Sources(source=source, changes=changes or {}, what=what, known_as=known_as, rocwmma=rocwmma)
        return stack.enter_context(open_recorder(sources, self.gpu, self.compiler))

    def time(self, case: Timed, recorder: Recorder, *, repeated: bool) -> OperationTime | None:
        """:func:`patchkit.gpu.modelled.operation.time_operation` for this machine."""
        return time_operation(self.machine, case, recorder, repeated=repeated)

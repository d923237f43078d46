"""Modelled times of one GPU: its machine, and the trees whose kernels are played."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from patchkit.base.errors import GitError
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.series.lock import Pin, PinWanted, load_lock
from patchkit.carry.series.profile import ArchProfile
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import obtain
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.emulator import EmulatedGpu, emulated_gpu
from patchkit.gpu.modelled.machine import Machine, load_machine
from patchkit.gpu.modelled.operation import OperationTime, time_operation
from patchkit.gpu.modelled.recording import Recorder, Sources, Timed, as_measured, open_recorder
from patchkit.toolchain.compiler import Compiler

_ROCWMMA_KERNEL = "ggml/src/ggml-cuda/fattn-wmma-f16.cu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """``gpu`` records, ``machine`` is played."""

    workspace: Workspace
    machine: Machine
    gpu: EmulatedGpu
    compiler: Compiler

    @classmethod
    def of(cls, workspace: Workspace, profile: ArchProfile, compiler: Compiler) -> Self:
        """Those of a profile.

        Raises:
            TIMING_UNKNOWN, ConfigError, ErrorGroup: nothing, or nothing right, is known of its time.
            The errors of :func:`patchkit.gpu.emulated.emulator.emulated_gpu`.
        """
        device = device_of(profile, guess_units=True)
        machine = load_machine(workspace.series.profiles, device)
        compiler = as_measured(compiler)
        return cls(
            workspace=workspace, machine=machine, gpu=emulated_gpu(device, compiler), compiler=compiler
        )

    @property
    def pins(self) -> Sequence[Pin]:
        """Those of the lock."""
        return load_lock(self.workspace.series.lock).pins

    def pin(self, wanted: PinWanted) -> Pin:
        """A pin of the lock. Raises PIN_UNKNOWN."""
        return load_lock(self.workspace.series.lock).pin(wanted)

    def upstream(
        self,
        pin: Pin,
        stack: contextlib.ExitStack,
        changes: Mapping[str, bytes] | None = None,
        what: str = "",
        *,
        known_as: str | None = None,
        rocwmma: bool = True,
    ) -> Recorder:
        """Upstream's tree of a pin, with other files where ``changes`` has them, until the stack is closed.

        ``what`` and ``known_as`` as of :class:`patchkit.gpu.modelled.recording.Sources`.

        Raises:
            SourceError, GitError: the pin could not be had.
            The errors of :func:`patchkit.gpu.modelled.recording.open_recorder`.
        """
        cache = open_cache(self.workspace.cache_root)
        commit = obtain(pin, cache=cache, reporter=self.workspace.reporter)
        repository = cache.peek(self.workspace.reporter)
        if repository is None:
            raise AssertionError("the pin was obtained, and there is no repository")
        sources = Sources(
            repository=repository,
            commit=commit,
            build=pin.build,
            changes=changes or {},
            what=what,
            known_as=known_as,
            rocwmma=rocwmma,
        )
        return stack.enter_context(open_recorder(sources, self.gpu, self.compiler))

    def sides(
        self, wanted: PinWanted, stack: contextlib.ExitStack, *, with_rocwmma: bool
    ) -> dict[str, Recorder]:
        """Upstream's tree of a pin as it is built by default, and the candidate where there is one.

        Between them, where it is wanted and upstream has one, with its attention kernel on rocWMMA.

        Raises:
            As :meth:`upstream`.
        """
        pin = self.pin(wanted)
        found = {"upstream": self.upstream(pin, stack, rocwmma=False)}
        if with_rocwmma and found["upstream"].tree.has(_ROCWMMA_KERNEL):
            found["rocWMMA"] = self.upstream(pin, stack)
        try:
            repository, candidate = find_candidate(self.workspace, (self.gpu.device.arch,), pin)
        except GitError as error:
            self.workspace.reporter.warn(f"upstream's kernels only: {error.message}")
            return found
        sources = Sources(repository=repository, commit=candidate.tip, build=pin.build)
        found["candidate"] = stack.enter_context(open_recorder(sources, self.gpu, self.compiler))
        return found

    def time(self, case: Timed, recorder: Recorder, *, repeated: bool) -> OperationTime | None:
        """As :func:`patchkit.gpu.modelled.operation.time_operation`, for this machine."""
        return time_operation(self.machine, case, recorder, repeated=repeated)

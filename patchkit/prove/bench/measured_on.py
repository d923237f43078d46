"""The machine of a measurement, as an evidence file says it: asked while it is measured, not later."""

from __future__ import annotations

from patchkit.base.evidence import MeasuredMachine
from patchkit.gpu.hardware.machine_facts import machine_token, read_machine
from patchkit.gpu.hardware.runner import Runner
from patchkit.prove.subject import Subject
from patchkit.toolchain.parts import BackendName


def machine_of(subject: Subject, backend: BackendName, runner: Runner) -> MeasuredMachine:
    """The machine of a runner; of several GPUs the first that the candidate is for. Raises CacheError."""
    toolchain = subject.toolchain
    return read_machine(
        runner,
        machine_token(subject.cache_root, runner),
        arch="cpu" if backend == "cpu" else subject.archs[0],
        backend=backend,
        compiler=f"clang {toolchain.clang_version}" if toolchain is not None and backend == "hip" else None,
        tag=subject.candidate_tree[:16],
    )

"""The machine of a measurement, as in an evidence file; its facts are read while it measures, not later."""

from __future__ import annotations

from pathlib import Path

from patchkit.base.evidence import MeasuredMachine
from patchkit.base.files import write_whole
from patchkit.gpu.hardware.bench.journal import ELSEWHERE
from patchkit.gpu.hardware.machine_facts import MACHINE_FILE, machine_token, read_machine
from patchkit.gpu.hardware.runner import Runner
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.parts import BackendName


def machine_of(
    cache_root: Path, runner: Runner, backend: BackendName, arch: str, toolchain: Toolchain | None, tag: str
) -> MeasuredMachine:
    """The machine of a runner; ``arch`` is the GPU that the candidate is for. Raises CacheError."""
    return read_machine(
        runner,
        machine_token(cache_root, runner),
        arch="cpu" if backend == "cpu" else arch,
        backend=backend,
        compiler=f"clang {toolchain.clang_version}" if toolchain is not None and backend == "hip" else None,
        tag=tag,
    )


def keep_machine(
    folder: Path,
    cache_root: Path,
    runner: Runner,
    backend: BackendName,
    arch: str,
    toolchain: Toolchain | None,
) -> None:
    """Write the machine's facts into a folder of measurements, once. Raises CacheError."""
    path = folder / MACHINE_FILE
    if not path.is_file():
        found = machine_of(cache_root, runner, backend, arch, toolchain, folder.name)
        write_whole(path, found.model_dump_json(indent=1), "saving measurements", ELSEWHERE)

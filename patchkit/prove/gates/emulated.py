"""The emulated GPU as a machine for gates: which GPUs can be emulated, and what a run there proves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

from patchkit.base.arch import architecture_of
from patchkit.base.errors import PatchkitError
from patchkit.base.verdict import EMULATED, Verdict
from patchkit.carry.placing.tree import ROCWMMA_OPTION
from patchkit.prove.build import Machine
from patchkit.prove.gates.base import EmulatedOn
from patchkit.prove.subject import Subject


def choose_emulated(archs: Sequence[str]) -> str | None:
    """The GPU to emulate for a candidate: the first one that can be emulated, else None."""
    return next((arch for arch in archs if architecture_of(arch).is_emulated), None)


def not_proven_on(machine: Machine, subject: Subject) -> tuple[str, ...]:
    """What a run on the CPU or on an emulated GPU does not prove about a candidate."""
    if not machine.is_emulated:
        return machine.not_proven
    others = [arch for arch in subject.archs if arch != machine.emulates]
    more = [f"{', '.join(others)}: {machine.emulates} was emulated"] if others else []
    if subject.is_without_rocwmma:
        more.append(f"a build with {ROCWMMA_OPTION}: it was run without, as the candidate is built")
    return (*machine.not_proven, *more)


def emulator_digest() -> str:
    """A digest of the sources of the emulator and of the runtime that programs load it through."""
    native = files("patchkit.gpu.emulated") / "native"
    digest = hashlib.sha256()
    for folder in ("emulator", "runtime"):
        for path in sorted((native / folder).iterdir(), key=_name):
            if path.is_file():
                digest.update(f"{folder}/{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _name(path: Traversable) -> str:
    return path.name


def emulated_on(machine: Machine) -> EmulatedOn | None:
    """The emulated GPU as recorded in evidence; None for a real device."""
    if machine.emulates is None:
        return None
    return EmulatedOn(gpu=machine.emulates, emulator=emulator_digest())


def verdict_on(machine: Machine, problems: Sequence[PatchkitError]) -> Verdict:
    """The verdict of a gate that finished on that machine."""
    if problems:
        return "failed"
    return EMULATED if machine.is_emulated else "passed"

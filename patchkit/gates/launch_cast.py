"""Which GPUs the launch gate plays, and with which host libraries.

Vocabulary: the *cast* are the GPUs that are played, with a reason for each that is not; *sides* are the
baseline's and the candidate's host library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.build.compile import CompiledKernel, CompiledUnit, CompileFailed
from patchkit.build.compiler import Compiler
from patchkit.build.sources import SourceTree
from patchkit.config.facts import FactNotForDecisions
from patchkit.config.profile_data import ArchProfile
from patchkit.gates.launch_geometry import Code
from patchkit.gates.launch_runs import Sides
from patchkit.gates.subject import Subject
from patchkit.gates.touched import Pair
from patchkit.recorder.backend import build_backend
from patchkit.recorder.device import PlayedDevice, device_of
from patchkit.recorder.programs import GPU_FOLDER
from patchkit.recorder.session import Figures

# hip/amd_detail/amd_hip_runtime.h (HIP 6.4) makes the second into the first: the only line in which the host
# pass of a unit of build 6900 differs between the two wave sizes (clang -E of all 103 units). Members of that
# name are the device properties, asked at run time.
_WAVE_SIZE = re.compile(rb"(?<![.\w])(?<!->)(warpSize|__AMDGCN_WAVEFRONT_SIZE(__)?)\b")
_SOURCES = frozenset({".cu", ".cuh", ".h"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """``devices``: the GPUs of the candidate first. ``remarks`` say what is not proven, and of whom."""

    devices: tuple[PlayedDevice, ...]
    remarks: tuple[str, ...]


def make_cast(subject: Subject, others: Sequence[str] | None) -> Cast:
    """The GPUs of the candidate, then every other that has a profile; ``others`` limits those by name.

    One host library plays all of them, as in a binary for all of them: host code asks at run time which
    GPU it has. The HIP headers do compile the wave size into host code; where a tree's GPU sources name
    that constant, GPUs of another wave size are left out.
    """
    mine = [device_of(subject.profiles[name]) for name in subject.archs]
    outside = sorted(set(subject.profiles) - set(subject.archs))
    skipped = [name for name in outside if others is not None and name not in others]
    remarks = [f"launches as {' '.join(skipped)}: not asked for"] if skipped else []
    use = _use_of_wave_size(subject.baseline) or _use_of_wave_size(subject.candidate)
    devices: list[PlayedDevice] = []
    elsewhere: list[str] = []
    for profile in (subject.profiles[name] for name in outside if name not in skipped):
        device, remark = _other(profile)
        if use is not None and device.wave_size != mine[0].wave_size:
            elsewhere.append(profile.arch)
        else:
            devices.append(device)
            remarks += remark
    if elsewhere:
        told = f"host code is compiled for waves of {mine[0].wave_size} lanes, and {use} depends on it"
        remarks.append(f"launches as {' '.join(elsewhere)}: {told}")
    if devices:
        remarks.append("grids of other GPUs: their kernels are assumed to use all registers, on both sides")
    return Cast(devices=(*mine, *devices), remarks=tuple(remarks))


def _use_of_wave_size(root: Path) -> str | None:
    """The first place in a tree's GPU sources that names the headers' constant (file:line), or None."""
    sources = (path for path in (root / GPU_FOLDER).rglob("*") if path.suffix in _SOURCES)
    for path in sorted(sources):
        found = _WAVE_SIZE.search(data := path.read_bytes())
        if found is not None:
            line = data.count(b"\n", 0, found.start()) + 1
            return f"{path.relative_to(root).as_posix()}:{line}"
    return None


def _other(profile: ArchProfile) -> tuple[PlayedDevice, list[str]]:
    """A GPU where only sameness is asked for; a guessed number of compute units is on both sides the same."""
    try:
        return device_of(profile), []
    except FactNotForDecisions:
        device = device_of(profile, guess_units=True)
    units = profile.facts.by_name["compute_units"].value
    return device, [
        f"grids of {profile.arch}: played with {units} compute units, which its profile only guesses"
    ]


def build_sides(subject: Subject, compiler: Compiler, touched: Sequence[Pair]) -> Sides | CompileFailed:
    """Both host libraries; what clang said when the candidate's does not compile.

    Raises:
        CompileFailed: the baseline does not compile.
        ToolchainError, CacheError: as :func:`patchkit.recorder.backend.build_backend`.
    """
    arch = subject.archs[0]
    before = build_backend(SourceTree(subject.baseline), compiler, arch)
    inside = all(path.startswith(f"{GPU_FOLDER}/") for path in subject.changed_files)
    try:
        after = build_backend(
            SourceTree(subject.candidate), compiler, arch, programs=before.programs if inside else None
        )
    except CompileFailed as error:
        return error
    figures: dict[str, tuple[Mapping[str, Figures], Mapping[str, Figures]]] = {}
    for name in subject.archs:
        mine = [pair for pair in touched if pair.arch == name]
        old = [kernel for pair in mine for kernel in pair.before.kernels]
        new = [kernel for kernels in code_after(mine).values() for kernel in kernels.values()]
        figures[name] = _figures(old), _figures(new)
    return Sides(before=before, after=after, figures=figures)


def code_after(touched: Sequence[Pair]) -> Code:
    """The candidate's code, by unit and mangled name."""
    return {
        pair.unit: {kernel.name: kernel for kernel in pair.after.kernels}
        for pair in touched
        if isinstance(pair.after, CompiledUnit)
    }


def _figures(kernels: Sequence[CompiledKernel]) -> dict[str, Figures]:
    return {
        kernel.name: Figures(vgprs=kernel.figures.vgprs, lds=kernel.figures.lds_bytes) for kernel in kernels
    }

"""Which GPUs launches are recorded for, and what stays unproven for the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.arch import FactNotForDecisions
from patchkit.base.upstreams import upstream_of
from patchkit.carry.series.profile import ArchProfile
from patchkit.gpu.emulated.device import EmulatedDevice, device_of
from patchkit.prove.subject import Subject

# hip/amd_detail/amd_hip_runtime.h (HIP 6.4) defines the first as the second: the only line in which the host
# pass of a unit of build 6900 differs between the two wave sizes (clang -E of all 103 units). Members with
# that name are device properties, which are read at run time.
_WAVE_SIZE = re.compile(rb"(?<![.\w])(?<!->)(warpSize|__AMDGCN_WAVEFRONT_SIZE(__)?)\b")
_SOURCES = frozenset({".cu", ".cuh", ".h"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGpus:
    """``devices``: the GPUs of the candidate first. ``remarks``: what is not proven, for which GPU."""

    devices: tuple[EmulatedDevice, ...]
    remarks: tuple[str, ...]


def choose_gpus(subject: Subject, others: Sequence[str] | None) -> RecordedGpus:
    """The GPUs of the candidate, then all others that have a profile; ``others`` restricts those by name.

    One host library serves all of them, as in a binary for all GPUs, because host code queries the GPU at run
    time. Only the wave size is compiled into host code, by the HIP headers. If the GPU sources of a tree use
    that constant, GPUs with another wave size are skipped.
    """
    mine = [device_of(subject.profiles[name]) for name in subject.archs]
    outside = sorted(set(subject.profiles) - set(subject.archs))
    skipped = [name for name in outside if others is not None and name not in others]
    remarks = [f"launches as {' '.join(skipped)}: not requested"] if skipped else []
    use = _use_of_wave_size(subject.baseline) or _use_of_wave_size(subject.candidate)
    devices: list[EmulatedDevice] = []
    elsewhere: list[str] = []
    for profile in (subject.profiles[name] for name in outside if name not in skipped):
        device, remark = _other(profile)
        if use is not None and device.wave_size != mine[0].wave_size:
            elsewhere.append(profile.arch)
        else:
            devices.append(device)
            remarks += remark
    if elsewhere:
        reason = f"host code is compiled for waves of {mine[0].wave_size} lanes, and {use} depends on it"
        remarks.append(f"launches as {' '.join(elsewhere)}: {reason}")
    if devices:
        remarks.append("grids of other GPUs: their kernels are assumed to use all registers, on both sides")
    return RecordedGpus(devices=(*mine, *devices), remarks=tuple(remarks))


def _use_of_wave_size(root: Path) -> str | None:
    """The first use of the headers' constant in a tree's GPU sources (file:line), or None."""
    sources = (path for path in (root / upstream_of(root).gpu_folder).rglob("*") if path.suffix in _SOURCES)
    for path in sorted(sources):
        found = _WAVE_SIZE.search(data := path.read_bytes())
        if found is not None:
            line = data.count(b"\n", 0, found.start()) + 1
            return f"{path.relative_to(root).as_posix()}:{line}"
    return None


def _other(profile: ArchProfile) -> tuple[EmulatedDevice, list[str]]:
    """A GPU whose launches are only compared; a guessed number of compute units is the same on both sides."""
    try:
        return device_of(profile), []
    except FactNotForDecisions:
        device = device_of(profile, guess_units=True)
    units = profile.facts.by_name["compute_units"].value
    return device, [
        f"grids of {profile.arch}: recorded with {units} compute units, which its profile only guesses"
    ]

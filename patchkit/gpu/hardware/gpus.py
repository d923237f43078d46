"""Detects the GPUs of this machine from the kernel's files, without ROCm or CUDA."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")

# Device files of the driver on Linux, WSL and Jetson. Containers may have only nvidia-smi.
_NVIDIA = ("nvidia[0-9]*", "dxg", "nvhost-gpu", "nvgpu")

_AMD = ("kfd", "dxg")

_VERSION = re.compile(r"^gfx_target_version\s+(\d+)$", re.MULTILINE)


def gfx_name(target_version: int) -> str:
    """The LLVM name for a KFD target version: 110501 is gfx1151, 90010 is gfx90a (hexadecimal stepping)."""
    major, rest = divmod(target_version, 10000)
    minor, stepping = divmod(rest, 100)
    return f"gfx{major}{minor:x}{stepping:x}"


def detect_gpus(topology: Path = TOPOLOGY) -> tuple[str, ...]:
    """The distinct gfx names of the GPUs here, sorted; empty if there are none or they cannot be detected."""
    found = set()
    for properties in topology.glob("*/properties"):
        try:
            text = properties.read_text("ascii", errors="replace")
        except OSError:  # a GPU that this container has no access to
            continue
        version = _VERSION.search(text)
        if version is not None and int(version[1]):
            found.add(gfx_name(int(version[1])))
    return tuple(sorted(found))


def has_nvidia_gpu(devices: Path = Path("/dev")) -> bool:
    """Whether there are signs of an NVIDIA GPU: a device file of its driver, or nvidia-smi."""
    return any(any(devices.glob(name)) for name in _NVIDIA) or shutil.which("nvidia-smi") is not None


def has_amd_driver(devices: Path = Path("/dev")) -> bool:
    """Whether HIP may find a GPU here although the kernel lists none, as in WSL or a container."""
    return any((devices / name).exists() for name in _AMD)

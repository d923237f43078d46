"""Which GPUs this machine has, asked of the kernel: no ROCm and no CUDA needed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")

# Of the driver on Linux, under WSL, and on a Jetson; a container may have the program alone.
_NVIDIA = ("nvidia[0-9]*", "dxg", "nvhost-gpu", "nvgpu")

_AMD = ("kfd", "dxg")

_VERSION = re.compile(r"^gfx_target_version\s+(\d+)$", re.MULTILINE)


def gfx_name(target_version: int) -> str:
    """The LLVM name of a target version: 110501 is gfx1151, 90010 is gfx90a (stepping in hexadecimal)."""
    major, rest = divmod(target_version, 10000)
    minor, stepping = divmod(rest, 100)
    return f"gfx{major}{minor:x}{stepping:x}"


def detect_gpus(topology: Path = TOPOLOGY) -> tuple[str, ...]:
    """The gfx ids of the GPUs here, each once, sorted; empty when there are none or nobody can tell."""
    found = set()
    for properties in topology.glob("*/properties"):
        try:
            text = properties.read_text("ascii", errors="replace")
        except OSError:  # the file of a GPU that a container may not see
            continue
        version = _VERSION.search(text)
        if version is not None and int(version[1]):
            found.add(gfx_name(int(version[1])))
    return tuple(sorted(found))


def has_nvidia_gpu(devices: Path = Path("/dev")) -> bool:
    """Whether anything speaks for an NVIDIA GPU here: a device of its driver, or nvidia-smi."""
    return any(any(devices.glob(name)) for name in _NVIDIA) or shutil.which("nvidia-smi") is not None


def has_amd_driver(devices: Path = Path("/dev")) -> bool:
    """Whether HIP may find a GPU here, though the kernel lists none: under WSL, or in a container."""
    return any((devices / name).exists() for name in _AMD)

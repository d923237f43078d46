"""Machines as tables of files, written below a folder: a good Strix Halo box, and changes of it.

A value is a file's text or bytes, a number, or one of the marks below. None removes the file and, for a
folder, everything in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Value = object


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    to: str


@dataclass(frozen=True)
class Folder:
    """An empty folder."""


@dataclass(frozen=True)
class Pipe:
    """A named pipe, which blocks whoever opens it to read."""


@dataclass(frozen=True)
class Closed:
    """A file or folder without permissions; root can read it nevertheless."""


@dataclass(frozen=True)
class Zeros:
    """A sparse file of this many bytes."""

    size: int


GIB = 1024**3
NODE = "sys/class/kfd/kfd/topology/nodes/1/properties"
DEVICE = "sys/class/drm/renderD128/device"
HWMON = f"{DEVICE}/hwmon/hwmon5"
CMDLINE = "BOOT_IMAGE=/vmlinuz root=UUID=1234 ro quiet"
PAGES = 100 * GIB // 4096


def rocm(root: str, version: str) -> dict[str, Value]:
    """The files of a whole ROCm that the finder looks at."""
    return {
        f"{root}/.info/version": f"{version}\n",
        f"{root}/include/hip/hip_version.h": "#define HIP_VERSION_MAJOR 7\n#define HIP_VERSION_MINOR 2\n"
        "#define HIP_VERSION_PATCH 53211\n",
        f"{root}/amdgcn/bitcode/ocml.bc": "BC",
        f"{root}/lib/llvm/bin/clang++": "#!/bin/sh\n",
        **{
            f"{root}/lib/cmake/{name}/{name}-config.cmake": ""
            for name in ("hip-lang", "hip", "hipblas", "rocblas")
        },
    }


GOOD: Mapping[str, Value] = {
    "proc/cmdline": f"{CMDLINE} amd_iommu=off ttm.pages_limit={PAGES}\n",
    "proc/sys/kernel/osrelease": "6.18.9-200.fc43.x86_64\n",
    "proc/meminfo": "MemTotal:       131023872 kB\nMemFree:        1 kB\n",
    "sys/class/iommu": Folder(),
    "sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 32\ngfx_target_version 0\n",
    NODE: "cpu_cores_count 0\ngfx_target_version 110501\nvendor_id 4098\ndrm_render_minor 128\n",
    f"{DEVICE}/mem_info_vram_total": f"{GIB // 2}\n",
    f"{DEVICE}/mem_info_gtt_total": f"{100 * GIB}\n",
    f"{DEVICE}/power_dpm_force_performance_level": "auto\n",
    f"{DEVICE}/pp_dpm_sclk": "0: 600Mhz \n1: 2794Mhz *\n2: 2900Mhz \n",
    f"{DEVICE}/gpu_busy_percent": "98\n",
    f"{DEVICE}/fw_version/mes_fw_version": "0x00000080\n",
    f"{HWMON}/name": "amdgpu\n",
    f"{HWMON}/freq1_input": "2794000000\n",
    f"{HWMON}/power1_cap": "120000000\n",
    f"{HWMON}/power1_cap_default": "120000000\n",
    "sys/bus/pci/devices/0000:c5:00.0/vendor": "0x1002\n",
    "sys/bus/pci/devices/0000:c5:00.0/class": "0x038000\n",
    "sys/bus/pci/devices/0000:c5:00.0/driver": Link("../../drivers/amdgpu"),
    "sys/bus/pci/drivers/amdgpu": Folder(),
    "sys/module/ttm/parameters/pages_limit": f"{PAGES}\n",
    "sys/firmware/acpi/platform_profile": "performance\n",
    "dev/kfd": "",
    "dev/dri/renderD128": "",
    "etc/group": "root:x:0:\nvideo:x:39:ann\nrender:x:105:ann,bob\n",
    "etc/os-release": 'NAME="Fedora Linux"\nID=fedora\nVERSION_ID=43\nPRETTY_NAME="Fedora Linux 43"\n',
    "home/ann": Folder(),
    **{f"usr/bin/{name}": "#!/bin/sh\n" for name in ("cmake", "make", "git", "c++")},
    **rocm("opt/rocm", "7.2.1-81"),
}


def write_machine(root: Path, *changes: Mapping[str, Value]) -> None:
    """Write the good box with ``changes``, the last of which counts for a file."""
    files = dict(GOOD)
    for change in changes:
        for name, value in change.items():
            files = {
                other: old
                for other, old in files.items()
                if other != name and not other.startswith(f"{name}/")
            }
            if value is not None:
                files[name] = value
    for name, value in files.items():
        write_file(root / name, value)


def write_file(path: Path, value: Value) -> None:
    """Write one value; nothing may be at ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match value:
        case Link(to):
            path.symlink_to(to)
        case Folder():
            path.mkdir(exist_ok=True)
        case Pipe():
            os.mkfifo(path)
        case Closed():
            path.touch(mode=0)
        case Zeros(size):
            path.touch()
            os.truncate(path, size)
        case bytes():
            path.write_bytes(value)
        case _:
            path.write_text(str(value))
            path.chmod(0o755)

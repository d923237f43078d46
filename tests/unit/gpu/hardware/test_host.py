"""What doctor finds on recorded machines: the right finding, and nothing else."""

from __future__ import annotations

import dataclasses
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from host_machines import (
    CMDLINE,
    DEVICE,
    GIB,
    GOOD,
    HWMON,
    NODE,
    Closed,
    Folder,
    Link,
    Pipe,
    Value,
    Zeros,
    rocm,
    write_file,
    write_machine,
)

from patchkit.base.errors import ErrorGroup
from patchkit.base.toml import TomlTable, load_toml, validate
from patchkit.gpu.hardware.host import knowledge
from patchkit.gpu.hardware.host.check import judge_host
from patchkit.gpu.hardware.host.facts import HostFacts, Identity
from patchkit.gpu.hardware.host.finding import Finding
from patchkit.gpu.hardware.host.knowledge import Advice, Knowledge, load_knowledge
from patchkit.gpu.hardware.host.read import read_host, this_identity
from patchkit.gpu.hardware.host.root import HostRoot

ENVIRON = {"PATH": "/usr/local/bin:/usr/bin", "HOME": "/home/ann", "LLAMA_ARG_LOAD_MODE": "none"}
ANN = Identity(name="ann", groups=(1000, 39, 105))


def _facts(
    root: Path,
    environ: Mapping[str, str] = ENVIRON,
    identity: Identity = ANN,
    denied: tuple[str, ...] = (),
    free: int = 10**12,
) -> HostFacts:
    return read_host(
        HostRoot(path=root, can_open=lambda path: path.name not in denied),
        load_knowledge(),
        environ=environ,
        identity=identity,
        free_bytes=lambda _: free,
    )


def _findings(facts: HostFacts) -> dict[str, Finding]:
    found = judge_host(facts, load_knowledge(), ("gfx1151",))
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


class Machine(NamedTuple):
    """Changes of the good box, and the findings that are not ok, with a word of their text."""

    name: str
    files: Mapping[str, Value] = {}
    expected: Mapping[str, tuple[str, str]] = {}
    environ: Mapping[str, str] = {}
    identity: Identity = ANN
    denied: tuple[str, ...] = ()
    free: int = 10**12


IOMMU_ON = {"proc/cmdline": CMDLINE, "sys/class/iommu/ivhd0": Folder()}
UBUNTU = {
    "etc/os-release": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n'
}
UBUNTU_NEW = {
    "etc/os-release": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="26.04"\nPRETTY_NAME="Ubuntu 26.04 LTS"\n'
}
ARCH = {"etc/os-release": 'ID=arch\nPRETTY_NAME="Arch Linux"\n'}
CACHYOS = {"etc/os-release": 'ID=cachyos\nID_LIKE=arch\nPRETTY_NAME="CachyOS"\n'}
DEBIAN = {"etc/os-release": 'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian GNU/Linux 13"\n'}
NO_ROCM = {"opt/rocm": None}
LIMITS = {f"{DEVICE}/mem_info_gtt_total": 62 * GIB, "sys/module/ttm/parameters/pages_limit": 62 * GIB // 4096}
OLD = "kernel", ("broken", "too old for gfx1151")
GFX1100 = {
    NODE: "gfx_target_version 110000\ndrm_render_minor 128\n",
    f"{DEVICE}/mem_info_vram_total": 24 * GIB,
    f"{DEVICE}/mem_info_gtt_total": 16 * GIB,
    f"{HWMON}/power1_cap": "339000000",
    f"{HWMON}/power1_cap_default": "339000000",
}
OVERRIDE_1100 = {"HSA_OVERRIDE_GFX_VERSION": "11.5.1"}  # because the tests build for gfx1151

MACHINES = [
    Machine("good box"),
    # IOMMU
    Machine("iommu on", IOMMU_ON, {"iommu": ("costs speed", "pp512 692 t/s off")}),
    Machine(
        "iommu passthrough",
        {**IOMMU_ON, "proc/cmdline": f"{CMDLINE} iommu=pt"},
        {"iommu": ("costs speed", "on, passthrough")},
    ),
    Machine(
        "an option that the kernel ignores",
        {**IOMMU_ON, "proc/cmdline": f"{CMDLINE} amd_iommu=pt"},
        {"iommu": ("costs speed", "grubby"), "iommu option": ("broken", "amd_iommu=pt is not a valid")},
    ),
    Machine("iommu off in the BIOS", {"proc/cmdline": CMDLINE}),
    Machine(
        "no sysfs of iommu",
        {"sys/class/iommu": None, "proc/cmdline": CMDLINE},
        {"iommu": ("unknown", "cannot be read")},
    ),
    Machine("no sysfs of iommu, but off by option", {"sys/class/iommu": None}),
    # Memory
    Machine("kernel's default GTT", LIMITS, {"gpu memory": ("costs speed", "may use 62.0 GiB")}),
    Machine(
        "GTT raised, pages not",
        {"sys/module/ttm/parameters/pages_limit": 62 * GIB // 4096},
        {"gpu memory": ("costs speed", "GTT 62.0 GiB")},
    ),
    Machine(
        "96 GB reserved in the BIOS",
        {
            "proc/meminfo": "MemTotal:       32768000 kB\n",
            f"{DEVICE}/mem_info_vram_total": 96 * GIB,
            f"{DEVICE}/mem_info_gtt_total": 15 * GIB,
        },
    ),
    Machine(
        "the options of a larger machine",
        {"proc/meminfo": "MemTotal:       65000000 kB\n"},
        {"gpu memory": ("unknown", "more memory than the machine has")},
    ),
    Machine(
        "options for 128 GiB where the kernel has 125",
        {f"{DEVICE}/mem_info_gtt_total": 128 * GIB, "sys/module/ttm/parameters/pages_limit": 33554432},
    ),
    Machine(
        "no limits shown",
        {f"{DEVICE}/mem_info_gtt_total": None},
        {"gpu memory": ("unknown", "does not show the limits")},
    ),
    # Model files
    Machine(
        "mmap by the environment", {}, {"model loading": ("broken", "hangs")}, {"LLAMA_ARG_LOAD_MODE": "mmap"}
    ),
    Machine("mmap by default", {}, {"model loading": ("unknown", "--no-mmap")}, {"LLAMA_ARG_LOAD_MODE": ""}),
    # Power and clock
    Machine(
        "quiet profile",
        {"sys/firmware/acpi/platform_profile": "quiet\n"},
        {"power profile": ("costs speed", "25.9 TFLOPS at 80 W")},
    ),
    Machine(
        "balanced profile",
        {"sys/firmware/acpi/platform_profile": "balanced\n"},
        {"power profile": ("unknown", "not known for this profile")},
    ),
    Machine(
        "desktop board without profiles",
        {"sys/firmware/acpi/platform_profile": None},
        {"power profile": ("unknown", "no platform_profile")},
    ),
    Machine(
        "lowest clocks forced",
        {f"{DEVICE}/power_dpm_force_performance_level": "low\n"},
        {"performance level": ("costs speed", "docs.kernel.org")},
    ),
    Machine(
        "clocks by hand",
        {f"{DEVICE}/power_dpm_force_performance_level": "manual\n"},
        {"performance level": ("unknown", "manual")},
    ),
    Machine("highest clocks forced on an APU", {f"{DEVICE}/power_dpm_force_performance_level": "high\n"}),
    Machine(
        "highest clocks forced on a discrete GPU",
        {**GFX1100, f"{DEVICE}/power_dpm_force_performance_level": "high\n"},
        {"performance level": ("unknown", "boost clock")},
    ),
    Machine(
        "limit below its default",
        {f"{HWMON}/power1_cap": "100000000\n"},
        {"power limit": ("costs speed", "100 W, lowered from 120 W")},
    ),
    Machine(
        "a box of 85 W",
        {f"{HWMON}/power1_cap": "85000000\n", f"{HWMON}/power1_cap_default": "85000000\n"},
        {"power limit": ("costs speed", "2.23 GHz")},
    ),
    Machine(
        "an APU that reports no limit",
        {f"{HWMON}/power1_cap": None},
        {"power limit": ("unknown", "the driver reports none")},
    ),
    Machine(
        "clock stuck under load",
        {f"{HWMON}/freq1_input": "885000000\n"},
        {"gpu clock": ("costs speed", "0.5 t/s")},
    ),
    Machine(
        "idle",
        {f"{HWMON}/freq1_input": "600000000\n", f"{DEVICE}/gpu_busy_percent": "0\n"},
        {"gpu clock": ("unknown", "only the clock under load counts")},
    ),
    Machine(
        "clock by the table of levels",
        {HWMON: None, f"{DEVICE}/pp_dpm_sclk": "0: 600Mhz *\n1: 2900Mhz \n"},
        {"gpu clock": ("costs speed", "600 MHz"), "power limit": ("unknown", "none")},
    ),
    # Kernel and firmware
    Machine("old kernel", {**ARCH, "proc/sys/kernel/osrelease": "6.17.8-arch1-1"}, dict([OLD])),
    Machine(
        "old kernel of a distribution with the fixes",
        {"proc/sys/kernel/osrelease": "6.17.1-300.fc43.x86_64"},
        {"kernel": ("unknown", "AMD lists Fedora Linux 43 as fixed")},
    ),
    Machine("HWE kernel with the fixes", {**UBUNTU, "proc/sys/kernel/osrelease": "6.17.0-19-generic"}),
    Machine("HWE kernel without", {**UBUNTU, "proc/sys/kernel/osrelease": "6.17.0-14-generic"}, dict([OLD])),
    Machine("OEM kernel with the fixes", {**UBUNTU, "proc/sys/kernel/osrelease": "6.14.0-1018-oem"}),
    Machine("OEM kernel without", {**UBUNTU, "proc/sys/kernel/osrelease": "6.14.0-1012-oem"}, dict([OLD])),
    Machine(
        "a kernel that numbers like Ubuntu's",
        {**DEBIAN, "proc/sys/kernel/osrelease": "6.17.0-19-generic"},
        dict([OLD]),
    ),
    Machine(
        "broken MES firmware",
        {f"{DEVICE}/fw_version/mes_fw_version": "0x00000083\n"},
        {"firmware": ("broken", "MES 0x83")},
    ),
    Machine(
        "broken firmware by pacman",
        {
            **ARCH,
            f"{DEVICE}/fw_version": None,
            "var/lib/pacman/local/linux-firmware-amdgpu-20251125-2/desc": "",
        },
        {"firmware": ("broken", "linux-firmware-amdgpu 20251125")},
    ),
    Machine(
        "broken firmware by dpkg",
        {
            **UBUNTU_NEW,
            f"{DEVICE}/fw_version": None,
            "var/lib/dpkg/status": "Package: a\nVersion: 20251125\n\nPackage: linux-firmware\n"
            "Status: install ok installed\nVersion: 20251125.git1-0ubuntu1\n\n",
        },
        {"firmware": ("broken", "20251125.git1")},
    ),
    Machine(
        "firmware that cannot be read",
        {f"{DEVICE}/fw_version": None},
        {"firmware": ("unknown", "amdgpu_firmware_info")},
    ),
    # Access
    Machine(
        "not in the groups",
        {},
        {"gpu devices": ("broken", "not in the groups render, video")},
        identity=Identity(name="cat", groups=(1001,)),
        denied=("kfd", "renderD128"),
    ),
    Machine(
        "in the groups since this morning",
        {},
        {"gpu devices": ("broken", "log out and in again")},
        identity=Identity(name="ann", groups=(1000,)),
        denied=("kfd", "renderD128"),
    ),
    Machine("opened by an access list, without groups", identity=Identity(name="cat", groups=(1001,))),
    Machine("no /dev/kfd", {"dev/kfd": None}, {"gpu devices": ("broken", "missing: /dev/kfd")}),
    Machine(
        "container without the devices",
        {"dev/kfd": None, "dev/dri/renderD128": None, "run/.containerenv": ""},
        {"gpu devices": ("broken", "--device /dev/kfd")},
    ),
    Machine(
        "override",
        {},
        {"gpu override": ("broken", "HSA_OVERRIDE_GFX_VERSION=11.0.0 (gfx1100)")},
        {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"},
    ),
    Machine("override by the GPU itself", environ={"HSA_OVERRIDE_GFX_VERSION": "11.5.1"}),
    # ROCm and packages
    Machine(
        "ROCm 7.2.0",
        rocm("opt/rocm", "7.2.0-43"),
        {"rocm": ("costs speed", "1648 t/s with ROCm 6.4.4, 545 with 7.2")},
    ),
    Machine("ROCm 6.2", rocm("opt/rocm", "6.2.4-139"), {"rocm": ("broken", "6.4 or newer")}),
    Machine(
        "ROCm without hipBLAS",
        {"opt/rocm/lib/cmake/hipblas": None},
        {"rocm": ("broken", "lacks hipblas"), "packages": ("broken", "sudo dnf install hipblas-devel`")},
    ),
    Machine(
        "ROCm without hip-lang and device libs",
        {"opt/rocm/lib/cmake/hip-lang": None, "opt/rocm/amdgcn": None},
        {
            "rocm": ("broken", "lacks hip-lang, device-libs"),
            "packages": ("broken", "sudo dnf install hip-devel rocm-device-libs`"),
        },
    ),
    Machine(
        "no ROCm, Fedora 43",
        NO_ROCM,
        {
            "rocm": ("broken", "no ROCm"),
            "packages": (
                "broken",
                "`sudo dnf install rocm-hip-devel hipblas-devel rocblas-devel rocm-device-libs hipcc`",
            ),
        },
    ),
    Machine(
        "no ROCm, Silverblue",
        {**NO_ROCM, "run/ostree-booted": ""},
        {"rocm": ("broken", "no ROCm"), "packages": ("broken", "`sudo rpm-ostree install rocm-hip-devel")},
    ),
    Machine(
        "no ROCm, Arch",
        {**ARCH, **NO_ROCM},
        {
            "rocm": ("broken", "no ROCm"),
            "packages": ("broken", "`sudo pacman -S --needed hip-runtime-amd hipblas rocblas rocm-llvm`"),
        },
    ),
    Machine(
        "Arch's own ROCm in /opt without hipBLAS",
        {**ARCH, "opt/rocm/lib/cmake/hipblas": None},
        {"rocm": ("broken", "lacks hipblas"), "packages": ("broken", "`sudo pacman -S --needed hipblas`")},
    ),
    Machine(
        "no ROCm, derived from Arch",
        {**CACHYOS, **NO_ROCM},
        {"rocm": ("broken", "no ROCm"), "packages": ("broken", "pacman -S --needed hip-runtime-amd")},
    ),
    Machine(
        "no ROCm, Ubuntu 26.04",
        {**UBUNTU_NEW, **NO_ROCM},
        {
            "rocm": ("broken", "no ROCm"),
            "packages": ("broken", "`sudo apt install libamdhip64-dev libhipblas-dev librocblas-dev hipcc`"),
        },
    ),
    Machine(
        "no ROCm, Ubuntu 24.04",
        {**UBUNTU, **NO_ROCM},
        {
            "rocm": ("broken", "no ROCm"),
            "packages": (
                "broken",
                "`sudo apt install hip-dev hipblas-dev rocblas-dev rocm-device-libs rocm-llvm`",
            ),
        },
    ),
    Machine(
        "no ROCm and no compiler, Debian 13",
        {**DEBIAN, **NO_ROCM, "usr/bin/cmake": None, "usr/bin/c++": None},
        {
            "rocm": ("broken", "no ROCm"),
            "packages": (
                "broken",
                "`sudo apt install cmake g++`. This version of the distribution has no ROCm 6.4",
            ),
        },
    ),
    Machine(
        "no ROCm on an unknown distribution",
        {**NO_ROCM, "etc/os-release": "ID=plan9\n"},
        {"rocm": ("broken", "no ROCm"), "packages": ("broken", "does not know the package names of plan9")},
    ),
    Machine("full disk", {}, {"disk": ("broken", "0.5 GB free")}, free=5 * 10**8),
    # Other GPUs
    Machine(
        "RX 7900 XTX with the IOMMU on and an old kernel",
        {**GFX1100, **IOMMU_ON, "proc/sys/kernel/osrelease": "6.8.0-60-generic"},
        {"iommu": ("unknown", "its cost on this GPU was not measured")},
        OVERRIDE_1100,
    ),
    Machine(
        "driver not loaded",
        {"sys/class/kfd": None, "sys/bus/pci/devices/0000:c5:00.0/driver": None},
        {"gpu driver": ("broken", "0000:c5:00.0")},
    ),
    Machine(
        "no AMD GPU",
        {"sys/class/kfd": None, "sys/bus": None, **IOMMU_ON, **NO_ROCM},
        {"gpu driver": ("unknown", "no AMD GPU"), "packages": ("unknown", "sudo dnf install rocm-hip-devel")},
    ),
    Machine(
        "no AMD GPU, and a distribution that is not known",
        {
            "sys/class/kfd": None,
            "sys/bus": None,
            **IOMMU_ON,
            **NO_ROCM,
            "etc/os-release": "ID=plan9\n",
        },
        {"gpu driver": ("unknown", "no AMD GPU")},
    ),
    # Good machines of other kinds: no false alarm
    Machine(
        "toolbox container with the devices", {"run/.containerenv": 'name="fedora-43"\n', "dev/dri/card1": ""}
    ),
    Machine(
        "Bazzite with everything",
        {"etc/os-release": 'ID=bazzite\nID_LIKE="fedora"\nVERSION_ID=43\n', "run/ostree-booted": ""},
    ),
    Machine("Arch with everything", {**ARCH, "proc/sys/kernel/osrelease": "6.19.2-arch1-1"}),
    Machine("Ubuntu 26.04 with everything", {**UBUNTU_NEW, "proc/sys/kernel/osrelease": "7.0.0-12-generic"}),
    # Combinations
    Machine(
        "wrong twice: an override in a container without devices",
        {"dev/kfd": None, "dev/dri/renderD128": None, "run/.containerenv": ""},
        {
            "gpu devices": ("broken", "--device /dev/kfd"),
            "gpu override": ("broken", "HSA_OVERRIDE_GFX_VERSION=11.0.0 (gfx1100)"),
        },
        {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"},
    ),
    Machine(
        "ROCm 7.2.0 on a full disk with mmap",
        rocm("opt/rocm", "7.2.0-43"),
        {
            "rocm": ("costs speed", "545 with 7.2"),
            "disk": ("broken", "0.5 GB free"),
            "model loading": ("broken", "hangs"),
        },
        {"LLAMA_ARG_LOAD_MODE": "mmap"},
        free=5 * 10**8,
    ),
    Machine(
        "as it comes out of the box",
        {**IOMMU_ON, **LIMITS, **NO_ROCM, **UBUNTU, "proc/sys/kernel/osrelease": "6.14.0-27-generic"},
        dict(
            [
                OLD,
                ("iommu", ("costs speed", "update-grub")),
                ("gpu memory", ("costs speed", "amd-ttm --set")),
                ("rocm", ("broken", "no ROCm")),
                ("packages", ("broken", "AMD's repository")),
                ("model loading", ("unknown", "auto")),
                ("gpu devices", ("broken", "usermod -a -G render,video")),
            ]
        ),
        {"LLAMA_ARG_LOAD_MODE": ""},
        Identity(name=None, groups=(1000,)),
        ("kfd",),
    ),
    Machine(
        "throttled laptop",
        {
            "sys/firmware/acpi/platform_profile": "low-power\n",
            f"{HWMON}/power1_cap": "54000000\n",
            f"{DEVICE}/power_dpm_force_performance_level": "profile_min_sclk\n",
            f"{HWMON}/freq1_input": "600000000\n",
        },
        {
            "power profile": ("costs speed", "low-power"),
            "power limit": ("costs speed", "54 W"),
            "performance level": ("costs speed", "profile_min_sclk"),
            "gpu clock": ("costs speed", "600 MHz"),
        },
    ),
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_the_faults_of_a_machine_are_found_and_nothing_else(machine: Machine, tmp_path: Path) -> None:
    write_machine(tmp_path, machine.files)
    found = _findings(
        _facts(tmp_path, {**ENVIRON, **machine.environ}, machine.identity, machine.denied, machine.free)
    )
    states = {name: each.state for name, each in found.items() if each.state != "ok"}
    assert states == {name: state for name, (state, _) in machine.expected.items()}
    for name, (_, words) in machine.expected.items():
        assert words in " ".join(map(str, dataclasses.astuple(found[name])))
    for each in found.values():
        assert each.cost is None or each.sources, each.name
        if each.state in ("costs speed", "broken"):
            assert each.change, each.name
            assert each.check, each.name


def test_the_memory_parameters_are_shown(tmp_path: Path) -> None:
    write_machine(
        tmp_path,
        {
            "sys/module/ttm/parameters/page_pool_size": "26214400\n",
            "sys/module/amdgpu/parameters/gttsize": "-1\n",
        },
    )
    shown = "of 125.5 GiB, ttm.pages_limit=26214400, ttm.page_pool_size=26214400, amdgpu.gttsize=-1"
    assert shown in _findings(_facts(tmp_path))["gpu memory"].detail


def test_several_gpus_have_a_finding_each(tmp_path: Path) -> None:
    second = {
        name.replace("renderD128", "renderD129"): value
        for name, value in GOOD.items()
        if "renderD128" in name
    }
    write_machine(
        tmp_path,
        second,
        {
            NODE.replace("nodes/1", "nodes/2"): "gfx_target_version 110000\ndrm_render_minor 129\n",
            "sys/class/drm/renderD129/device/mem_info_vram_total": 24 * GIB,
            "sys/class/drm/renderD129/device/hwmon/hwmon5/power1_cap": "99000000",
        },
    )
    found = _findings(_facts(tmp_path))
    assert found["power limit of renderD128"].state == "ok"
    assert found["power limit of renderD129"].state == "costs speed"
    assert found["gpu memory of renderD129"].detail == "24.0 GiB of VRAM"
    assert found["gpu devices"].detail == "can open /dev/kfd, /dev/dri/renderD128, /dev/dri/renderD129"


HOSTILE: Mapping[str, Value] = {
    "an empty file": "",
    "binary": bytes(range(256)) * 64,
    "8 GiB of zeros": Zeros(8 * GIB),
    "one long line": "9" * 300_000,
    "many lines": "Package: linux-firmware\nID=fedora\n0: 1Mhz *\n" * 5000,
    "a folder": Folder(),
    "a named pipe": Pipe(),
    "a loop of links": Link("loop"),
    "a link to itself": Link("."),
    "a link out of the folder": Link("/proc/self/status"),
    "a link to nothing": Link("nothing"),
    "no permission": Closed(),
    "negative": "-1\n",
    "too large": f"{10**30}\n",
    "terminal controls": "\x1b[31mred\x1b[0m\n",
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_whatever_a_file_is_the_checks_end_and_judge_the_rest(value: Value, tmp_path: Path) -> None:
    write_machine(tmp_path)
    for name in (*GOOD, "run/.containerenv", "var/lib/dpkg/status", "var/lib/pacman/local"):
        path, kept = tmp_path / name, tmp_path / "kept"
        loop = path.with_name("loop")
        if os.path.lexists(path):
            path.rename(kept)
        write_file(path, value)
        loop.symlink_to(path.name)
        found = _findings(_facts(tmp_path))
        loop.unlink()
        path.rmdir() if isinstance(value, Folder) else path.unlink()
        if os.path.lexists(kept):
            kept.rename(path)
        touched = [each.name for each in found.values() if each.state in ("costs speed", "broken")]
        assert len(touched) <= 3, (name, touched)
        assert "\x1b" not in "".join(str(each) for each in found.values() if each.name != "rocm")


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_machine_of_nothing_but_hostile_files_is_survived(value: Value, tmp_path: Path) -> None:
    write_machine(tmp_path, {name: value for name in GOOD if name != NODE})
    assert _findings(_facts(tmp_path))["gpu driver"].state == "ok"


@pytest.mark.parametrize(
    "value", ["", "\x1b[31m", "11.5.1\n", "9" * 100_000, "-1.0.0", "gfx1151", "11.0.0.0"]
)
def test_hostile_values_of_the_environment_are_survived(value: str, tmp_path: Path) -> None:
    write_machine(tmp_path)
    names = ("HSA_OVERRIDE_GFX_VERSION", "LLAMA_ARG_LOAD_MODE", "PATH", "HOME")
    found = _findings(_facts(tmp_path, dict.fromkeys(names, value)))
    assert found["gpu driver"].state == "ok"
    assert "\x1b" not in "".join(str(each) for each in found.values())


def test_no_more_than_a_bound_is_read_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"1" * 10_000_000)
    assert len(HostRoot(path=tmp_path).read("large") or "") == 256 * 1024
    assert HostRoot(path=tmp_path).number("large") is None


def test_an_empty_folder_is_a_machine_of_which_nothing_is_known(tmp_path: Path) -> None:
    assert _findings(_facts(tmp_path)).keys() == {"gpu driver", "gpu override"}


def test_reading_changes_nothing(tmp_path: Path) -> None:
    write_machine(tmp_path)

    def state() -> list[tuple[str, int, bytes]]:
        return sorted(
            (str(path), path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in tmp_path.rglob("*")
        )

    before = state()
    _findings(_facts(tmp_path))
    assert state() == before


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = threading.Event()

    def read() -> None:
        assert HostRoot(path=tmp_path).read("pipe") is None
        done.set()

    threading.Thread(target=read, daemon=True).start()
    assert done.wait(60)


def test_this_machine_can_be_read() -> None:
    facts = read_host(HostRoot(), load_knowledge(), environ=dict(os.environ), identity=this_identity())
    assert facts.kernel == os.uname().release
    assert facts.memory


def test_only_a_device_that_is_there_can_be_opened(tmp_path: Path) -> None:
    write_machine(tmp_path, {"dev/kfd": None})
    facts = read_host(HostRoot(path=tmp_path), load_knowledge(), environ=ENVIRON, identity=ANN)
    assert [device.is_open_to_us for device in facts.devices] == [False, True]


def _advices(table: TomlTable) -> list[Advice]:
    inner = [getattr(table, field.name) for field in dataclasses.fields(table)]
    return [each for each in inner if isinstance(each, Advice)] + [
        advice for each in inner if isinstance(each, TomlTable) for advice in _advices(each)
    ]


def test_each_cost_with_a_figure_names_where_it_was_published() -> None:
    for advice in _advices(load_knowledge()):
        if advice.cost is not None and re.search(r"\d", advice.cost):
            assert any(re.search(r"https://|docs/|src/", source) for source in advice.sources), advice


def test_distributions_have_a_package_for_each_need() -> None:
    known = load_knowledge()
    rocm_needs = {"hip", "hip-lang", "hipblas", "rocblas", "device-libs", "clang"}
    for each in known.distributions:
        assert each.packages.keys() >= known.packages.programs.keys(), each.id
        assert each.packages.keys() >= rocm_needs or each.amd_packages.keys() >= rocm_needs, each.id


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('cost = "GPU hangs and memory access faults"\nsources = [', 'cost = "x"\nx = [', "unknown key"),
        ("busy_percent = 50", "busy_percent = -1", "'clock.busy_percent' is -1"),
        ("oldest = [6, 18, 4]", "oldest = []", "kernel.oldest"),
    ],
)
def test_a_wrong_file_of_facts_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = Path(knowledge.__file__).with_name("facts.toml").read_text()
    assert old in text
    (tmp_path / "facts.toml").write_text(text.replace(old, new))
    with pytest.raises(ErrorGroup) as error:
        validate(load_toml(tmp_path / "facts.toml"), Knowledge, what="file of host facts")
    assert says in str([str(each) for each in error.value.errors])


def test_a_cost_without_a_source_is_refused(tmp_path: Path) -> None:
    text = Path(knowledge.__file__).with_name("facts.toml").read_text()
    (tmp_path / "facts.toml").write_text(
        re.sub(r'(cost = "GPU hangs.*"\n)sources = \[\n(?:    ".*",\n)+\]\n', r"\1", text)
    )
    with pytest.raises(ErrorGroup, match="facts") as error:
        validate(load_toml(tmp_path / "facts.toml"), Knowledge, what="file of host facts")
    assert [each.why for each in error.value.errors] == ["a cost needs sources"]

"""The facts of a host, as they were read. None means that a fact could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from patchkit.toolchain.hip import RocmInstallation


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """An AMD GPU that the driver lists. Memory in bytes, limits in microwatts, clocks in MHz.

    ``folder`` is the device's folder in sysfs, ``render`` the name of its render device.
    """

    arch: str
    render: str
    folder: str
    vram: int | None
    gtt: int | None
    level: str | None
    clock: int | None
    busy_percent: int | None
    limit: int | None
    default_limit: int | None
    mes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile:
    """A device file, and whether this process may read and write it."""

    path: str
    exists: bool
    is_open_to_us: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The user that runs programs: name, and ids of its process's groups."""

    name: str | None
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OsRelease:
    """The distribution by /etc/os-release; ``like`` are those that it derives from."""

    id: str
    version: str
    like: tuple[str, ...]
    title: str
    is_ostree: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Everything that is judged.

    Attributes:
        kernel: ``uname -r``.
        options: words of the kernel command line.
        iommus: names in /sys/class/iommu.
        unbound: PCI addresses of AMD GPUs without the driver amdgpu.
        memory: RAM that the kernel manages, in bytes.
        parameters: memory parameters of the kernel modules ttm and amdgpu, ``ttm.pages_limit`` for example.
        firmware: installed firmware packages with their versions.
        group_ids: ids of the groups that may open GPU devices, by name.
        member_of: those of these groups that /etc/group lists the user in.
        programs: whether each program is on PATH.
        free: free bytes by folder.
    """

    kernel: str | None
    options: tuple[str, ...] | None
    iommus: tuple[str, ...] | None
    gpus: tuple[Gpu, ...]
    unbound: tuple[str, ...]
    devices: tuple[DeviceFile, ...]
    memory: int | None
    parameters: Mapping[str, int]
    profile: str | None
    firmware: Mapping[str, str]
    identity: Identity
    group_ids: Mapping[str, int]
    member_of: frozenset[str]
    release: OsRelease | None
    is_container: bool
    environ: Mapping[str, str]
    programs: Mapping[str, bool]
    rocm: tuple[RocmInstallation, ...]
    free: Mapping[str, int]

    def name_of(self, finding: str, gpu: Gpu) -> str:
        """The name of a GPU's finding; with the render device if there are several GPUs."""
        return finding if len(self.gpus) == 1 else f"{finding} of {gpu.render}"

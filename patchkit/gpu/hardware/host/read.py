"""Reads the facts of a host from /proc, /sys, /dev and /etc below a root folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from patchkit.gpu.hardware.gpus import gfx_name
from patchkit.gpu.hardware.host.facts import DeviceFile, Gpu, HostFacts, Identity, OsRelease
from patchkit.gpu.hardware.host.knowledge import Knowledge
from patchkit.gpu.hardware.host.root import HostRoot
from patchkit.toolchain.hip import RocmInstallation, inspect_rocm, rocm_locations

_AMD = 0x1002
_DISPLAY = 0x03  # class of PCI devices: the first of three bytes
_NODES = "sys/class/kfd/kfd/topology/nodes"
_CONTAINERS = ("run/.containerenv", ".dockerenv")  # of podman and docker
_DPKG_BYTES = 16 * 1024 * 1024  # /var/lib/dpkg/status of a large desktop has 6 MB
_MOST_GPUS = 64


def this_identity() -> Identity:
    """The user of this process."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container that was started with a bare number
        name = None
    return Identity(name=name, groups=tuple({os.getegid(), *os.getgroups()}))


def read_host(
    root: HostRoot,
    known: Knowledge,
    *,
    environ: Mapping[str, str],
    identity: Identity,
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> HostFacts:
    """Read everything; a fact that cannot be read is None or missing. Raises nothing."""
    nodes = tuple(islice(_kfd_nodes(root), _MOST_GPUS))
    gpus = tuple(_gpu(root, arch, render) for arch, render in nodes)
    groups = dict(_groups(root, known.access.groups))
    command_line = root.read("proc/cmdline")
    return HostFacts(
        kernel=root.line("proc/sys/kernel/osrelease"),
        options=None if command_line is None else _words(command_line),
        iommus=root.names("sys/class/iommu"),
        gpus=gpus,
        unbound=tuple(_unbound(root)),
        devices=tuple(
            _device(root, f"/dev/{name}") for name in ("kfd", *(f"dri/{gpu.render}" for gpu in gpus))
        ),
        memory=_memory(root),
        parameters=dict(_parameters(root, known.memory.parameters)),
        profile=root.line("sys/firmware/acpi/platform_profile"),
        firmware=dict(_firmware(root, known.firmware.package_names)),
        identity=identity,
        group_ids={name: number for name, (number, _) in groups.items()},
        member_of=frozenset(name for name, (_, members) in groups.items() if identity.name in members),
        release=_release(root),
        is_container=any(root.locate(name) is not None for name in _CONTAINERS),
        environ=dict(environ),
        programs={
            name: root.has_program(name, environ.get("PATH", ""))
            for names in known.packages.programs.values()
            for name in names
        },
        rocm=_rocm(root, environ),
        free=dict(_free(root, environ.get("HOME", "/home"), free_bytes)),
    )


def _words(command_line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command_line))
    except ValueError:  # an unclosed quote
        return tuple(command_line.split())


def _kfd_nodes(root: HostRoot) -> Iterator[tuple[str, str]]:
    """The gfx name and the render device of each GPU that the driver lists."""
    for node in root.names(_NODES) or ():
        rows = (root.read(f"{_NODES}/{node}/properties", at_most=16384) or "").splitlines()
        values = dict(row.split(" ", 1) for row in rows if " " in row)
        version, minor = (
            int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
            for text in (values.get(key, "").strip() for key in ("gfx_target_version", "drm_render_minor"))
        )
        if version:
            yield gfx_name(version), f"renderD{minor}"


def _gpu(root: HostRoot, arch: str, render: str) -> Gpu:
    folder = f"sys/class/drm/{render}/device"
    sensors = next(
        (
            f"{folder}/hwmon/{name}"
            for name in root.names(f"{folder}/hwmon") or ()
            if root.line(f"{folder}/hwmon/{name}/name") == "amdgpu"
        ),
        f"{folder}/hwmon/none",
    )
    current = re.search(r"^\d{1,3}: (\d{1,6})Mhz \*", root.read(f"{folder}/pp_dpm_sclk") or "", re.MULTILINE)
    hertz = root.number(f"{sensors}/freq1_input")
    return Gpu(
        arch=arch,
        render=render,
        folder=folder,
        vram=root.number(f"{folder}/mem_info_vram_total"),
        gtt=root.number(f"{folder}/mem_info_gtt_total"),
        level=root.line(f"{folder}/power_dpm_force_performance_level"),
        clock=hertz // 1_000_000 if hertz is not None else int(current[1]) if current is not None else None,
        busy_percent=root.number(f"{folder}/gpu_busy_percent"),
        limit=root.number(f"{sensors}/power1_cap"),
        default_limit=root.number(f"{sensors}/power1_cap_default"),
        mes=root.number(f"{folder}/fw_version/mes_fw_version"),
    )


def _unbound(root: HostRoot) -> Iterator[str]:
    """PCI addresses of AMD's display devices without a driver, or with another one than amdgpu."""
    devices = "sys/bus/pci/devices"
    for address in root.names(devices) or ():
        kind = root.number(f"{devices}/{address}/class") or 0
        if kind >> 16 != _DISPLAY or root.number(f"{devices}/{address}/vendor") != _AMD:
            continue
        driver = root.locate(f"{devices}/{address}/driver")
        if driver is None or driver.name != "amdgpu":
            yield address


def _device(root: HostRoot, path: str) -> DeviceFile:
    found = root.locate(path)
    return DeviceFile(
        path=path, exists=found is not None, is_open_to_us=found is not None and root.can_open(found)
    )


def _memory(root: HostRoot) -> int | None:
    found = re.search(r"^MemTotal:\s+(\d{1,15}) kB$", root.read("proc/meminfo") or "", re.MULTILINE)
    return int(found[1]) * 1024 if found is not None else None


def _parameters(root: HostRoot, names: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for name in names:
        module, _, parameter = name.partition(".")
        value = root.number(f"sys/module/{module}/parameters/{parameter}")
        if value is not None:
            yield name, value


def _groups(root: HostRoot, names: tuple[str, ...]) -> Iterator[tuple[str, tuple[int, tuple[str, ...]]]]:
    for row in (root.read("etc/group") or "").splitlines():
        parts = row.split(":")
        if len(parts) == 4 and parts[0] in names and re.fullmatch(r"[0-9]{1,10}", parts[2]):  # noqa: PLR2004
            yield parts[0], (int(parts[2]), tuple(parts[3].split(",")))


def _release(root: HostRoot) -> OsRelease | None:
    text = root.read("etc/os-release") or root.read("usr/lib/os-release")
    values = {}
    for row in (text or "").splitlines():
        key, sign, value = row.partition("=")
        if sign and re.fullmatch(r"[A-Z0-9_]{1,40}", key):
            values[key] = " ".join(_words(value))[:200]
    if "ID" not in values:
        return None
    return OsRelease(
        id=values["ID"].lower(),
        version=values.get("VERSION_ID", ""),
        like=tuple(values.get("ID_LIKE", "").lower().split()),
        title=values.get("PRETTY_NAME") or values["ID"],
        is_ostree=root.locate("run/ostree-booted") is not None,
    )


def _firmware(root: HostRoot, packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Versions of installed packages by the databases of pacman and dpkg. That of RPM is not read."""
    for entry in root.names("var/lib/pacman/local") or ():
        name, _, version = entry.removesuffix(f"-{entry.rpartition('-')[2]}").rpartition("-")
        if name in packages:
            yield name, version
    for stanza in (root.read("var/lib/dpkg/status", at_most=_DPKG_BYTES) or "").split("\n\n"):
        name = stanza.partition("\n")[0].removeprefix("Package: ")
        if name in packages:
            found = re.search(r"^Version: (\S{1,100})$", stanza, re.MULTILINE)
            if found is not None:
                yield name, found[1]


def _rocm(root: HostRoot, environ: Mapping[str, str]) -> tuple[RocmInstallation, ...]:
    try:
        places = islice(rocm_locations(environ, system=root.path), _MOST_GPUS)
        return tuple(inspect_rocm(place, environ) for place in places)
    except OSError:  # folders without permission, or loops of links
        return ()


def _free(root: HostRoot, home: str, free_bytes: Callable[[Path], int]) -> Iterator[tuple[str, int]]:
    """Free bytes where models and builds probably are; ``/`` may be a read-only image."""
    for folder in (home, "/"):
        path = root.locate(folder)
        if path is not None:
            with contextlib.suppress(OSError):
                yield folder, free_bytes(path)
            return

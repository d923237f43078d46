"""What is known about hosts: thresholds, costs with sources, package names. Read from ``facts.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from patchkit.base.toml import Prose, Several, TomlTable, Words, load_toml, validate

_Version = Annotated[tuple[int, ...], Field(strict=False, min_length=1)]
_Positive = Annotated[int, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(TomlTable):
    """The texts of a finding. A cost needs a source.

    ``kernel_option`` is appended to the kernel command line; how depends on the distribution.
    """

    change: Prose
    check: Prose
    cost: Prose | None = None
    sources: Several[Words] = ()
    kernel_option: Words | None = None

    def __post_init__(self) -> None:
        """Check that a cost has a source."""
        if self.cost is not None and not self.sources:
            raise ValueError("a cost needs sources")


@dataclass(frozen=True, slots=True, kw_only=True)
class Iommu(TomlTable):
    """The IOMMU: GPUs with measured costs, and kernel options."""

    archs: Several[Words]
    off: Several[Words]
    passthrough: Several[Words]
    ignored: Several[Words]
    on: Advice
    bad_option: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(TomlTable):
    """GPU memory of APUs. Shares are of all memory that the kernel and the GPU have together.

    ``parameters`` of kernel modules are shown; ``page_limit`` is the one that limits GTT.
    """

    archs: Several[Words]
    parameters: Several[Words]
    page_limit: Words
    least_share: float
    most_share: float
    small: Advice
    above_ram: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading(TomlTable):
    """Model files mapped into memory. Values of environment variables that turn mapping on and off."""

    archs: Several[Words]
    on: Mapping[str, Several[Words]]
    off: Mapping[str, Several[Words]]
    mapped: Advice
    by_default: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimit(TomlTable):
    """The highest limit, in watts, that is known to lower the clock of these GPUs."""

    archs: Several[Words]
    watts: _Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Power(TomlTable):
    """Power profiles and limits."""

    slow_levels: Several[Words]
    pinned_levels: Several[Words]
    automatic_levels: Several[Words]
    slow_profiles: Several[Words]
    fast_profiles: Several[Words]
    limits: Several[PowerLimit]
    level: Advice
    level_by_hand: Advice
    level_pinned: Advice
    profile: Advice
    profile_may_cost: Advice
    limit: Advice
    no_limit_file: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock(TomlTable):
    """The GPU clock under load: below ``stuck_mhz`` while at least ``busy_percent`` busy, it is stuck."""

    busy_percent: _Positive
    stuck_mhz: _Positive
    stuck: Advice
    idle: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class UbuntuKernel(TomlTable):
    """A kernel of Ubuntu with backported fixes: 6.14.0-1018-oem has flavour ``oem`` and ABI 1018."""

    version: Words
    flavour: Words
    version_numbers: _Version
    abi: _Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(TomlTable):
    """The oldest kernel for these GPUs; ``patched`` are distributions with the fixes in older ones."""

    archs: Several[Words]
    oldest: _Version
    ubuntu: Several[UbuntuKernel]
    patched: Several[Words]
    old: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Firmware(TomlTable):
    """Firmware of the GPU's scheduler (MES) and the packages that contain it, with known faults."""

    archs: Several[Words]
    bad_mes: Several[int]
    bad_packages: Several[Words]
    package_names: Several[Words]
    bad: Advice
    not_readable: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Rocm(TomlTable):
    """ROCm versions: the oldest that builds llama.cpp, and those whose compiler makes matmuls slower."""

    oldest: _Version
    unrolling: Several[_Version]
    missing: Advice
    incomplete: Advice
    old: Advice
    unrolls: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(TomlTable):
    """The devices of the GPU, and the groups that may open them."""

    groups: Several[Words]
    no_driver: Advice
    no_device: Advice
    no_device_in_container: Advice
    denied: Advice
    log_in_again: Advice
    override: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk(TomlTable):
    """Free disk space."""

    least_gb: _Positive
    low: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution(TomlTable):
    """One distribution: how to install packages and to add kernel options.

    ``packages`` maps a need of llama.cpp's build to packages of the distribution, ``amd_packages`` to those
    of AMD's own repository. ``rocm_from`` is the first version with a ROCm that is new enough: an empty list
    if every version has one, absent if none has. ``OPTION`` in ``kernel_options`` is replaced.
    """

    id: Words
    ostree: bool = False
    install: Words
    kernel_options: Prose
    rocm_from: Annotated[tuple[int, ...], Field(strict=False)] | None = None
    rocm_in_opt: bool = False
    packages: Mapping[str, Words]
    amd_packages: Mapping[str, Words]
    source: Prose


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages(TomlTable):
    """Needs of llama.cpp's HIP build: programs by need, and where to get AMD's packages."""

    programs: Mapping[str, Several[Words]]
    amd_repository: Words
    missing: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge(TomlTable):
    """The whole file."""

    iommu: Iommu
    memory: Memory
    loading: Loading
    power: Power
    clock: Clock
    kernel: Kernel
    firmware: Firmware
    rocm: Rocm
    access: Access
    disk: Disk
    packages: Packages
    distributions: Several[Distribution]


@cache
def load_knowledge() -> Knowledge:
    """Read ``facts.toml`` of this package."""
    return validate(load_toml(Path(__file__).with_name("facts.toml")), Knowledge, what="file of host facts")

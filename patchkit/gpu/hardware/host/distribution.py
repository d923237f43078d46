"""Finds what is known about the host's distribution: package names, commands, versions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from patchkit.gpu.hardware.host.facts import OsRelease
from patchkit.gpu.hardware.host.knowledge import Distribution, Knowledge


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A known distribution; ``version`` is None if the host's is only derived from it."""

    distribution: Distribution
    version: tuple[int, ...] | None

    @property
    def has_new_rocm(self) -> bool | None:
        """Whether its ROCm is new enough for llama.cpp; None if its version is not known."""
        first = self.distribution.rocm_from
        if first is None:
            return False
        if not first:
            return True
        return self.version >= first if self.version else None


def match_distribution(release: OsRelease | None, known: Knowledge) -> Match | None:
    """The known distribution that the host has, or else the one that it is derived from."""
    if release is None:
        return None
    for name in (release.id, *release.like):
        for each in known.distributions:
            if each.id == name and each.ostree == release.is_ostree:
                numbers = tuple(int(part) for part in re.findall(r"\d{1,6}", release.version))
                return Match(distribution=each, version=numbers if name == release.id else None)
    return None


def add_kernel_option(option: str, release: OsRelease | None, known: Knowledge) -> str:
    """How to add an option to the kernel command line on this distribution."""
    match = match_distribution(release, known)
    if match is None:
        return f"add {option} to the kernel options of your boot loader, then reboot"
    return match.distribution.kernel_options.replace("OPTION", option)

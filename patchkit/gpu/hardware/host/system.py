"""Judges the kernel and the GPU's firmware."""

from __future__ import annotations

import re
from collections.abc import Iterator

from patchkit.gpu.hardware.host.facts import HostFacts
from patchkit.gpu.hardware.host.finding import Finding, advise
from patchkit.gpu.hardware.host.knowledge import Knowledge


def judge_kernel(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Check that the kernel has the fixes that these GPUs need."""
    if facts.kernel is None:
        yield Finding(name="kernel", state="unknown", detail="its version cannot be read")
        return
    numbers = tuple(int(part) for part in re.findall(r"\d{1,6}", facts.kernel.partition("-")[0])[:3])
    archs = sorted({gpu.arch for gpu in facts.gpus} & set(known.kernel.archs))
    if not numbers:
        yield Finding(name="kernel", state="unknown", detail=facts.kernel)
    elif not archs or numbers >= known.kernel.oldest or _is_backport(facts, numbers, known):
        yield Finding(name="kernel", state="ok", detail=facts.kernel)
    elif facts.release is not None and f"{facts.release.id} {facts.release.version}" in known.kernel.patched:
        detail = f"{facts.kernel}; AMD lists {facts.release.title} as fixed, but not since which kernel"
        yield advise("kernel", "unknown", detail, known.kernel.old)
    else:
        yield advise("kernel", "broken", f"{facts.kernel} is too old for {' '.join(archs)}", known.kernel.old)


def _is_backport(facts: HostFacts, numbers: tuple[int, ...], known: Knowledge) -> bool:
    """Whether this is a kernel of Ubuntu that has the fixes: 6.14.0-1018-oem, for example."""
    release = facts.release
    found = re.fullmatch(r"[\d.]{1,20}-(\d{1,6})-([a-z]{1,20})", facts.kernel or "")
    if release is None or found is None or "ubuntu" not in (release.id, *release.like):
        return False
    return any(
        numbers == each.version_numbers and found[2] == each.flavour and int(found[1]) >= each.abi
        for each in known.kernel.ubuntu
    )


def judge_firmware(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Check the firmware that each GPU runs, and else the packages that contain it."""
    bad = known.firmware
    installed = ", ".join(f"{name} {version}" for name, version in facts.firmware.items())
    for gpu in facts.gpus:
        name = facts.name_of("firmware", gpu)
        if gpu.arch not in bad.archs:
            continue
        if gpu.mes:
            detail = f"MES {gpu.mes & 0xFFF:#04x}" + (f", {installed}" if installed else "")
            if gpu.mes & 0xFFF in bad.bad_mes:
                yield advise(name, "broken", detail, bad.bad)
            else:
                yield Finding(name=name, state="ok", detail=detail)
        elif any(each in version for version in facts.firmware.values() for each in bad.bad_packages):
            yield advise(name, "broken", installed, bad.bad)
        else:
            yield advise(name, "unknown", installed or "its version cannot be read", bad.not_readable)

"""Judges whether programs of this user can open the GPU, and see it as what it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from patchkit.gpu.hardware.gpus import gfx_name
from patchkit.gpu.hardware.host.facts import HostFacts
from patchkit.gpu.hardware.host.finding import Finding, advise
from patchkit.gpu.hardware.host.knowledge import Knowledge

_OVERRIDE = re.compile(r"HSA_OVERRIDE_GFX_VERSION(_[0-9]+)?")  # for all GPUs, or with a number for one


def judge_driver(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Check that the driver amdgpu lists the GPUs of this machine."""
    if facts.gpus:
        detail = ", ".join(f"{gpu.arch} ({gpu.render})" for gpu in facts.gpus)
        yield Finding(name="gpu driver", state="ok", detail=detail)
    elif facts.unbound:
        detail = f"the driver amdgpu does not use the GPU at {', '.join(facts.unbound)}"
        yield advise("gpu driver", "broken", detail, known.access.no_driver)
    else:
        detail = "no AMD GPU found, so settings of the host are not checked"
        yield Finding(name="gpu driver", state="unknown", detail=detail)


def judge_devices(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Check that this user can open /dev/kfd and the render devices."""
    if not facts.gpus:
        return
    access = known.access
    missing = [device.path for device in facts.devices if not device.exists]
    denied = [device.path for device in facts.devices if device.exists and not device.is_open_to_us]
    if missing:
        advice = access.no_device_in_container if facts.is_container else access.no_device
        yield advise("gpu devices", "broken", f"missing: {', '.join(missing)}", advice)
    if denied:
        ours = {name for name, number in facts.group_ids.items() if number in facts.identity.groups}
        waiting = sorted(facts.member_of - ours)
        advice = access.log_in_again if waiting else access.denied
        lacking = sorted(set(facts.group_ids) - ours)
        why = f"; this process is not in the groups {', '.join(lacking)}" if lacking else ""
        yield advise("gpu devices", "broken", f"no permission to open {', '.join(denied)}{why}", advice)
    if not missing and not denied:
        detail = f"can open {', '.join(device.path for device in facts.devices)}"
        yield Finding(name="gpu devices", state="ok", detail=detail)


def judge_override(facts: HostFacts, known: Knowledge, archs: tuple[str, ...]) -> Iterator[Finding]:
    """Check that HSA_OVERRIDE_GFX_VERSION does not replace the GPU by another than ``archs``."""
    values = {
        name: value for name, value in sorted(facts.environ.items()) if _OVERRIDE.fullmatch(name) and value
    }
    others = {name: value for name, value in values.items() if overriding_arch(value) not in archs}
    if others:
        named = ", ".join(f"{name}={value} ({overriding_arch(value)})" for name, value in others.items())
        change = f"unset {' '.join(others)}. {known.access.override.change}"
        yield advise("gpu override", "broken", named, known.access.override, change=change)
    else:
        detail = ", ".join(f"{name}={value}" for name, value in values.items())
        yield Finding(name="gpu override", state="ok", detail=detail or "HSA_OVERRIDE_GFX_VERSION is not set")


def overriding_arch(version: str) -> str:
    """The GPU that a value names: ``11.5.1`` is gfx1151, ``9.0.10`` is gfx90a."""
    parts = version.split(".")
    if len(parts) != 3 or not all(re.fullmatch("[0-9]{1,2}", part) for part in parts):  # noqa: PLR2004
        return "not a GPU version"
    major, minor, stepping = map(int, parts)
    return gfx_name(major * 10000 + minor * 100 + stepping)

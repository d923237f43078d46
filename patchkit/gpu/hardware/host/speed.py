"""Judges settings that cost speed: IOMMU, power and clock."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.gpu.hardware.host.distribution import add_kernel_option
from patchkit.gpu.hardware.host.facts import Gpu, HostFacts
from patchkit.gpu.hardware.host.finding import Finding, State, advise
from patchkit.gpu.hardware.host.knowledge import Advice, Knowledge

_WATT = 1_000_000  # microwatts


def judge_iommu(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Check whether the IOMMU is on, and whether a kernel option for it has no effect."""
    options = facts.options or ()
    bad = [option for option in options if option in known.iommu.ignored]
    if bad:
        advice = known.iommu.bad_option
        yield advise("iommu option", "broken", f"{bad[0]} is not a valid kernel option", advice)
    mode = _iommu_mode(facts, known)
    if mode is None:
        yield Finding(name="iommu", state="unknown", detail="/sys/class/iommu cannot be read")
        return
    archs = sorted({gpu.arch for gpu in facts.gpus} & set(known.iommu.archs))
    if mode == "off":
        yield Finding(name="iommu", state="ok", detail="off")
    elif archs:
        advice = known.iommu.on
        yield advise("iommu", "costs speed", mode, advice, change=_with_option(advice, facts, known))
    else:
        detail = f"{mode}; its cost on this GPU was not measured"
        yield Finding(name="iommu", state="unknown", detail=detail)


def _iommu_mode(facts: HostFacts, known: Knowledge) -> str | None:
    options = facts.options or ()
    if facts.iommus is None:
        return "off" if any(option in known.iommu.off for option in options) else None
    if not facts.iommus:
        return "off"
    is_passthrough = any(option in known.iommu.passthrough for option in options)
    return "on, passthrough" if is_passthrough else "on"


def _with_option(advice: Advice, facts: HostFacts, known: Knowledge) -> str:
    how = add_kernel_option(advice.kernel_option or "", facts.release, known)
    return f"{advice.change} To add it: {how}."


def judge_power(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Check the power profile of the platform, and each GPU's performance level and power limit."""
    power = known.power
    if facts.profile is None:
        yield Finding(name="power profile", state="unknown", detail="this machine has no platform_profile")
    elif facts.profile in power.slow_profiles:
        yield advise("power profile", "costs speed", facts.profile, power.profile)
    elif facts.profile in power.fast_profiles:
        yield Finding(name="power profile", state="ok", detail=facts.profile)
    else:
        yield advise("power profile", "unknown", facts.profile, power.profile_may_cost)
    for gpu in facts.gpus:
        yield _level(gpu, facts, known)
        yield _limit(gpu, facts, known)


def _level(gpu: Gpu, facts: HostFacts, known: Knowledge) -> Finding:
    name = facts.name_of("performance level", gpu)
    power = known.power
    if gpu.level is None:
        detail = "the driver does not show it"
        return Finding(name=name, state="unknown", detail=detail)
    if gpu.level in power.slow_levels:
        return advise(name, "costs speed", gpu.level, power.level)
    is_apu = gpu.arch in known.memory.archs
    if gpu.level in power.automatic_levels or (is_apu and gpu.level in power.pinned_levels):
        return Finding(name=name, state="ok", detail=gpu.level)
    if gpu.level in power.pinned_levels:
        return advise(name, "unknown", gpu.level, power.level_pinned)
    return advise(name, "unknown", gpu.level, power.level_by_hand)


def _limit(gpu: Gpu, facts: HostFacts, known: Knowledge) -> Finding:
    name = facts.name_of("power limit", gpu)
    if not gpu.limit or gpu.limit < 0:
        return advise(name, "unknown", "the driver reports none", known.power.no_limit_file)
    detail = f"{gpu.limit / _WATT:.0f} W"
    if gpu.default_limit is not None and gpu.limit < gpu.default_limit:
        detail += f", lowered from {gpu.default_limit / _WATT:.0f} W"
        return advise(name, "costs speed", detail, known.power.limit)
    low = next((each.watts for each in known.power.limits if gpu.arch in each.archs), 0)
    state: State = "costs speed" if gpu.limit <= low * _WATT else "ok"
    return (
        advise(name, state, detail, known.power.limit)
        if state != "ok"
        else Finding(name=name, state=state, detail=detail)
    )


def judge_clock(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Check each GPU's clock, if the GPU is busy."""
    for gpu in facts.gpus:
        name = facts.name_of("gpu clock", gpu)
        if gpu.clock is None or gpu.busy_percent is None:
            yield Finding(name=name, state="unknown", detail="the driver does not show clock and load")
            continue
        detail = f"{gpu.clock} MHz, {gpu.busy_percent} % busy"
        if gpu.busy_percent < known.clock.busy_percent:
            yield advise(name, "unknown", f"{detail}: only the clock under load counts", known.clock.idle)
        elif gpu.clock < known.clock.stuck_mhz:
            yield advise(name, "costs speed", detail, known.clock.stuck)
        else:
            yield Finding(name=name, state="ok", detail=detail)

"""Reads a host and judges everything about it."""

from __future__ import annotations

from collections.abc import Mapping

from patchkit.gpu.hardware.host.access import judge_devices, judge_driver, judge_override
from patchkit.gpu.hardware.host.facts import HostFacts
from patchkit.gpu.hardware.host.finding import Finding
from patchkit.gpu.hardware.host.knowledge import Knowledge, load_knowledge
from patchkit.gpu.hardware.host.memory import judge_loading, judge_memory
from patchkit.gpu.hardware.host.read import read_host, this_identity
from patchkit.gpu.hardware.host.root import HostRoot
from patchkit.gpu.hardware.host.software import judge_disk, judge_packages, judge_rocm
from patchkit.gpu.hardware.host.speed import judge_clock, judge_iommu, judge_power
from patchkit.gpu.hardware.host.system import judge_firmware, judge_kernel


def check_host(root: HostRoot, *, environ: Mapping[str, str], archs: tuple[str, ...]) -> tuple[Finding, ...]:
    """Find what costs speed or is broken on the machine below ``root``.

    ``archs`` are the GPUs that programs are built for. Without an AMD GPU, only ROCm and environment
    variables are judged, and packages are listed.
    """
    known = load_knowledge()
    facts = read_host(root, known, environ=environ, identity=this_identity())
    return judge_host(facts, known, archs)


def judge_host(facts: HostFacts, known: Knowledge, archs: tuple[str, ...]) -> tuple[Finding, ...]:
    """Judge facts that were read, in the order in which faults stop a run."""
    always = (*judge_rocm(facts, known), *judge_override(facts, known, archs))
    if not facts.gpus:
        return (*judge_driver(facts, known), *always, *judge_packages(facts, known))
    return (
        *judge_driver(facts, known),
        *judge_devices(facts, known),
        *always,
        *judge_packages(facts, known),
        *judge_kernel(facts, known),
        *judge_firmware(facts, known),
        *judge_loading(facts, known),
        *judge_memory(facts, known),
        *judge_iommu(facts, known),
        *judge_power(facts, known),
        *judge_clock(facts, known),
        *judge_disk(facts, known),
    )

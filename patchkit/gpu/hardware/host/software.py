"""Judges the installed ROCm, missing packages, and free disk space."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.gpu.hardware.host.distribution import Match, match_distribution
from patchkit.gpu.hardware.host.facts import HostFacts
from patchkit.gpu.hardware.host.finding import Finding, advise
from patchkit.gpu.hardware.host.knowledge import Knowledge
from patchkit.toolchain.hip import RocmInstallation

_ALL_OF_ROCM = ("hip", "hip-lang", "hipblas", "rocblas", "device-libs", "clang")


def judge_rocm(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Check each ROCm: its version, its compiler, and the parts that a build of llama.cpp needs."""
    for found in facts.rocm:
        yield _judge(found, known)
    if not facts.rocm and facts.gpus:
        yield advise("rocm", "broken", "no ROCm: the HIP backend cannot be built here", known.rocm.missing)


def _judge(found: RocmInstallation, known: Knowledge) -> Finding:
    place = f"{found.place.root} ({found.place.origin})"
    version = found.version or found.hip_version or "of unknown version"
    detail = f"{version}, {place}, compiler {found.clang or 'missing'}"
    if lacking := missing_needs(found):
        return advise(
            "rocm", "broken", f"{version}, {place} lacks {', '.join(lacking)}", known.rocm.incomplete
        )
    if not found.release:
        return Finding(name="rocm", state="unknown", detail=detail)
    if found.release[: len(known.rocm.oldest)] < known.rocm.oldest:
        return advise("rocm", "broken", detail, known.rocm.old)
    if found.release in known.rocm.unrolling:
        return advise("rocm", "costs speed", detail, known.rocm.unrolls)
    return Finding(name="rocm", state="ok", detail=detail)


def missing_needs(found: RocmInstallation) -> tuple[str, ...]:
    """The needs of a build of llama.cpp that a ROCm lacks, by their names in ``facts.toml``."""
    parts = {"hip": found.hip_version, "device-libs": found.device_libs, "clang": found.clang}
    lacking = {*found.missing_packages, *(name for name, part in parts.items() if part is None)}
    return tuple(name for name in _ALL_OF_ROCM if name in lacking)


def judge_packages(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """List missing packages that a build of llama.cpp needs, with the command that installs them.

    Without an AMD GPU that is no fault, and said only of a distribution whose packages are known.
    """
    tools = [
        need
        for need, names in known.packages.programs.items()
        if not any(facts.programs[name] for name in names)
    ]
    complete = any(not missing_needs(found) for found in facts.rocm)
    rocm = () if complete else missing_needs(facts.rocm[0]) if facts.rocm else _ALL_OF_ROCM
    if not tools and not rocm:
        yield Finding(name="packages", state="ok", detail="everything that a build of llama.cpp needs")
        return
    advice = known.packages.missing
    detail = f"missing: {', '.join([*tools, *rocm])}"
    match = match_distribution(facts.release, known)
    if match is None:
        title = facts.release.title if facts.release is not None else "this distribution"
        change = f"install them; patchkit does not know the package names of {title}"
    else:
        change = ". ".join(_lines(match, tools, rocm, facts, known))
    if facts.gpus:
        yield advise("packages", "broken", detail, advice, change=change)
    elif match is not None:
        detail = f"{detail}; needed only to build for an AMD GPU"
        yield Finding(name="packages", state="unknown", detail=detail, change=change)


def _lines(
    match: Match, tools: list[str], rocm: tuple[str, ...], facts: HostFacts, known: Knowledge
) -> Iterator[str]:
    """The commands that install the needs: of the distribution, then those of AMD's repository."""
    distribution = match.distribution
    is_amds = (
        bool(facts.rocm) and not distribution.rocm_in_opt and facts.rocm[0].place.origin == "ROCm's packages"
    )
    use_amds = bool(rocm) and (is_amds or match.has_new_rocm is False)
    own = [*tools, *(() if use_amds else rocm)]
    if own:
        yield _command(distribution.install, [distribution.packages[need] for need in own])
    if not use_amds:
        if rocm and match.has_new_rocm is None:
            yield "First check that the distribution's ROCm is {}.{} or newer".format(*known.rocm.oldest)
        return
    names = [distribution.amd_packages[need] for need in rocm if need in distribution.amd_packages]
    line = _command(distribution.install, names)
    if is_amds:
        yield f"From AMD's repository: {line}"
    else:
        needed = "{}.{}".format(*known.rocm.oldest)
        yield (
            f"This version of the distribution has no ROCm {needed} or newer. Add AMD's repository "
            f"({known.packages.amd_repository}), then: {line}"
        )


def _command(install: str, packages: list[str]) -> str:
    return f"`{install} {' '.join(dict.fromkeys(packages))}`"


def judge_disk(facts: HostFacts, known: Knowledge) -> Iterator[Finding]:
    """Report free disk space."""
    if not facts.free:
        return
    detail = ", ".join(f"{folder} {free / 1e9:.1f} GB free" for folder, free in facts.free.items())
    if min(facts.free.values()) < known.disk.least_gb * 1e9:
        yield advise("disk", "broken", detail, known.disk.low)
    else:
        yield Finding(name="disk", state="ok", detail=detail)

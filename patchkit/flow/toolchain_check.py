"""Doctor's checks of what compiles HIP: each ROCm, the SDK, the toolchain chosen, and its rocWMMA.

Vocabulary: that of :mod:`patchkit.flow.check` and :mod:`patchkit.build.rocm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from patchkit.build.rocm import Found, look_at, places
from patchkit.build.toolchain import (
    RocWmma,
    Toolchain,
    ToolchainMissing,
    find_toolchain,
    knows_arch,
    rocwmma_for,
)
from patchkit.errors import PatchkitError
from patchkit.flow.check import Check
from patchkit.report import NullReporter, Reporter
from patchkit.sdk.prefix import current_prefix
from patchkit.sdk.versions import known_archs

_INSTALL = "patchkit sdk install"


def check_toolchain(
    cache_root: Path, *, archs: tuple[str, ...], environ: Mapping[str, str], reporter: Reporter
) -> tuple[Check, ...]:
    """The checks, for building for ``archs``."""
    checks = [_rocm(look_at(place, environ)) for place in places(environ)]
    if not checks:
        detail = "no ROCm in ROCM_PATH, /opt, Python's packages or the distribution's"
        hint = f"a GPU needs it to run; to compile without, {_INSTALL}"
        checks = [Check(name="rocm", state="absent", detail=detail, hint=hint)]
    checks.append(_sdk(cache_root))
    try:
        toolchain = find_toolchain(cache_root, environ, _Quiet(reporter))
    except ToolchainMissing as error:
        checks.append(Check(name="hip toolchain", state="absent", detail=error.message, hint=error.hint))
    except PatchkitError as error:
        checks.append(_failed("hip toolchain", error))
    else:
        checks += [_toolchain(toolchain, archs, reporter), *(_rocwmma(toolchain, arch) for arch in archs)]
    return tuple(checks)


class _Quiet(NullReporter):
    """Hands on the commands only: what is passed over has a check of its own."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def command(self, text: str) -> None:
        """Echo it."""
        self._reporter.command(text)


def _rocm(found: Found) -> Check:
    place = found.place
    detail = f"{place.root} ({place.origin})"
    if found.lacks:
        lacks = f"{detail} lacks {' and '.join(found.lacks)}"
        hint = f"install ROCm's development packages, or {_INSTALL}"
        return Check(name="rocm", state="absent", detail=lacks, hint=hint)
    return Check(name="rocm", state="ok", detail=f"{found.version or found.hip_version}, {detail}")


def _sdk(cache_root: Path) -> Check:
    try:
        prefix = current_prefix(cache_root)
    except PatchkitError as error:
        return _failed("sdk", error)
    if prefix is None:
        return Check(
            name="sdk", state="absent", detail="not installed", hint=f"to compile without ROCm: {_INSTALL}"
        )
    return Check(name="sdk", state="ok", detail=f"{prefix.path} ({prefix.record.suite})")


def _toolchain(toolchain: Toolchain, archs: tuple[str, ...], reporter: Reporter) -> Check:
    what = f"{toolchain.kind}: clang {toolchain.clang_version}, HIP {toolchain.hip_version}"
    try:
        unknown = sorted(set(archs) - known_archs(toolchain.clang, reporter))
    except PatchkitError as error:
        return _failed("hip toolchain", error)
    if unknown:
        detail = f"{what}; its compiler does not know {', '.join(unknown)}"
        hint = f"use a newer ROCm, or without ROCM_PATH: {_INSTALL} --again"
        return Check(name="hip toolchain", state="absent", detail=detail, hint=hint)
    return Check(name="hip toolchain", state="ok", detail=f"{what} ({toolchain.clang})")


def _rocwmma(toolchain: Toolchain, arch: str) -> Check:
    own, chosen = toolchain.rocwmma, rocwmma_for(toolchain, arch)
    if own is not None and own == chosen and own.kind != "stand-in":
        return Check(name="rocwmma", state="ok", detail=f"{_named(own)} knows {arch}")
    if chosen is None and toolchain.kind == "sdk":
        return Check(name="rocwmma", state="absent", detail=f"{arch}: no rocWMMA here knows it")
    if own is None:
        why = "there is none"
    elif own.kind == "stand-in":
        why = "the SDK was installed without it"
    else:
        why = f"{_named(own)} does not know {arch}" if not knows_arch(own, arch) else _named(own)
    with_what = f"; patchkit's stand-in header {chosen.version} is used" if chosen is not None else ""
    if toolchain.kind == "rocm":
        hint = "install rocWMMA's development package (rocwmma-dev) of a ROCm that knows the GPU"
    else:
        hint = f"{_INSTALL} --again, where rocWMMA's repository can be reached (or with --rocwmma-url)"
    return Check(name="rocwmma", state="absent", detail=f"{arch}: {why}{with_what}", hint=hint)


def _named(rocwmma: RocWmma) -> str:
    return f"{rocwmma.kind} {rocwmma.version}"


def _failed(name: str, error: PatchkitError) -> Check:
    places_named = "".join(f" ({place})" for place in error.where[:1])
    detail = f"{error.message}{places_named}"
    return Check(name=name, state="failed", detail=detail, hint=error.hint, error=error)

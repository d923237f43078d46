"""Versions of rocWMMA to tune with: the toolchain's own, or folders that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.build.toolchain import RocWmma, Toolchain, knows_arch, rocwmma_for
from patchkit.errors import Location, UsageError
from patchkit.sdk.prefix import STANDIN
from patchkit.sdk.versions import rocwmma_version

__all__ = ["HeadersUnusable", "headers_name", "with_headers"]

STANDIN_NAME = "stand-in"


class HeadersUnusable(UsageError):
    """``--rocwmma`` names no rocWMMA, or one that does not know the GPU."""

    code = "TUNE_HEADERS_UNUSABLE"


def with_headers(toolchain: Toolchain, arch: str, names: Sequence[str]) -> list[Toolchain]:
    """The toolchain once for each of ``names`` (a folder, or ``stand-in``); with its own when there is none.

    Raises:
        HeadersUnusable: a folder holds no rocWMMA, or one that does not know the GPU.
    """
    if not names:
        return [replace(toolchain, rocwmma=rocwmma_for(toolchain, arch))]
    return [replace(toolchain, rocwmma=_headers(name, arch)) for name in dict.fromkeys(names)]


def _headers(name: str, arch: str) -> RocWmma:
    if name == STANDIN_NAME:
        found = RocWmma(kind="stand-in", include=STANDIN, version=rocwmma_version(STANDIN))
    else:
        folder = Path(name).resolve()
        if not (folder / "rocwmma" / "rocwmma.hpp").is_file():
            raise HeadersUnusable(
                f"there is no rocwmma/rocwmma.hpp in {name}",
                where=Location(path=name),
                hint=f"name its include folder, or: --rocwmma {STANDIN_NAME}",
            )
        found = RocWmma(kind="git", include=folder, version=rocwmma_version(folder))
    if not knows_arch(found, arch):
        raise HeadersUnusable(
            f"the rocWMMA in {name} does not know {arch}",
            where=Location(path=name),
            why="its internal/config.hpp does not name it, and would refuse to compile",
            hint=f"take a newer one, or: --rocwmma {STANDIN_NAME}",
        )
    return found


def headers_name(toolchain: Toolchain) -> str:
    """How reports name the headers."""
    one = toolchain.rocwmma
    return (
        "none" if one is None else f"rocWMMA {one.version}{' stand-in' if one.kind == STANDIN_NAME else ''}"
    )

"""Finding a ROCm that is already on the machine, wherever it came from.

Vocabulary: a *place* is a folder that may be the root of a ROCm, with where the idea came from; a place
*serves* when HIP headers, device libs and a clang are all there. What a place *lacks* is said in words.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from patchkit.sdk.versions import hip_version

# Where ROCm's own packages, TheRock, and the distributions put the bitcode, below a root. The newest
# LLVM of several comes first.
_DEVICE_LIBS = (
    "amdgcn/bitcode",
    "lib/llvm/amdgcn/bitcode",
    "lib/llvm/lib/clang/*/lib/amdgcn/bitcode",
    "lib/llvm/lib/clang/*/amdgcn/bitcode",
    "lib/llvm-*/lib/clang/*/amdgcn/bitcode",
    "lib64/rocm/llvm/lib/clang/*/amdgcn/bitcode",
    "lib/clang/*/amdgcn/bitcode",
    "lib/*/amdgcn/bitcode",
)
_CLANGS = ("lib/llvm/bin/clang++", "llvm/bin/clang++", "bin/amdclang++", "lib64/rocm/llvm/bin/clang++")

# The Python packages of TheRock: the first holds headers and compiler, the second runtime libraries.
_WHEELS = ("_rocm_sdk_devel", "_rocm_sdk_core")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """``asked_for`` is set when the user named the place."""

    root: Path
    origin: str
    asked_for: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What stands at a place; the parts that are not there are None, and named in ``lacks``."""

    place: Place
    version: str | None
    hip_version: str | None
    device_libs: Path | None
    clang: Path | None
    rocwmma: Path | None

    @property
    def lacks(self) -> tuple[str, ...]:
        """The missing parts, in words."""
        parts = (
            (self.hip_version, "the HIP headers (include/hip/hip_version.h)"),
            (self.device_libs, "the device libs (amdgcn/bitcode/ocml.bc)"),
            (self.clang, "a clang (lib/llvm/bin/clang++)"),
        )
        return tuple(words for part, words in parts if part is None)


def places(environ: Mapping[str, str], *, system: Path = Path("/")) -> Iterator[Place]:
    """Where a ROCm may be, the most explicit first; only ``ROCM_PATH`` is given without a look.

    Args:
        environ: read for ROCM_PATH and PATH.
        system: the root of the file system.
    """
    named = environ.get("ROCM_PATH")
    if named:
        yield Place(root=Path(named), origin="ROCM_PATH", asked_for=True)
    opt = system / "opt"
    versions = sorted(opt.glob("rocm-*"), key=lambda path: _numbers(path.name), reverse=True)
    for root in (opt / "rocm", *versions):
        if (root / "include" / "hip").is_dir():
            yield Place(root=root, origin="ROCm's packages")
    for name in _WHEELS:
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            if Path(folder, "include", "hip").is_dir():
                yield Place(root=Path(folder), origin="TheRock's wheels")
    if (system / "usr" / "include" / "hip" / "hip_version.h").is_file():
        yield Place(root=system / "usr", origin="the distribution's packages")


def look_at(place: Place, environ: Mapping[str, str]) -> Found:
    """What stands there. Reads a few files and runs nothing."""
    root = place.root
    device_libs = _first(root, _DEVICE_LIBS, "ocml.bc")
    clang = next((root / name for name in _CLANGS if os.access(root / name, os.X_OK)), None)
    if clang is None and not place.asked_for:
        clang = _distribution_clang(device_libs, environ)
    rocwmma = root / "include" / "rocwmma" / "rocwmma.hpp"
    return Found(
        place=place,
        version=_rocm_version(root),
        hip_version=hip_version(root / "include"),
        device_libs=device_libs,
        clang=clang,
        rocwmma=root / "include" if rocwmma.is_file() else None,
    )


def _rocm_version(root: Path) -> str | None:
    for name in (".info/version", "share/therock/version"):
        try:
            return (root / name).read_text("utf-8", errors="replace").strip() or None
        except OSError:
            continue
    return None


def _first(root: Path, patterns: tuple[str, ...], member: str) -> Path | None:
    for pattern in patterns:
        for folder in sorted(root.glob(pattern), key=lambda path: _numbers(str(path)), reverse=True):
            if (folder / member).is_file():
                return folder
    return None


def _distribution_clang(device_libs: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The clang of the LLVM that the device libs belong to: .../clang/21/amdgcn/bitcode is clang++-21's."""
    numbers = re.findall(r"/clang/(\d+)/", f"{device_libs}/")
    found = shutil.which(f"clang++-{numbers[-1]}", path=environ.get("PATH")) if numbers else None
    return Path(found) if found is not None else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))

"""Finds the HIP toolchain: an installed ROCm if there is one, else patchkit's SDK prefix."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.arch import architecture_of
from patchkit.base.errors import Location, PatchkitError, ToolchainError
from patchkit.base.files import file_sha256, open_regular
from patchkit.base.process import run_tool
from patchkit.base.reporter import Reporter
from patchkit.toolchain.sdk.flags import Pass, hip_arguments
from patchkit.toolchain.sdk.prefix import STANDIN, Prefix, RocWmmaKind, current_prefix, sdk_folder
from patchkit.toolchain.sdk.versions import (
    check_bitcode,
    clang_version,
    hip_version,
    known_archs,
    rocwmma_version,
)

# Folders of the device bitcode below a root, in ROCm's own packages, TheRock, and distributions. If a pattern
# matches several, the newest LLVM comes first.
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
class RocmLocation:
    """A folder that may contain a ROCm; ``is_explicit`` if the user named it."""

    root: Path
    origin: str
    is_explicit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RocmInstallation:
    """The parts of a ROCm at a location; missing parts are None, and listed in ``missing_parts``."""

    place: RocmLocation
    version: str | None
    hip_version: str | None
    device_libs: Path | None
    clang: Path | None
    rocwmma: Path | None

    @property
    def missing_parts(self) -> tuple[str, ...]:
        """Descriptions of the missing parts."""
        parts = (
            (self.hip_version, "the HIP headers (include/hip/hip_version.h)"),
            (self.device_libs, "the device libs (amdgcn/bitcode/ocml.bc)"),
            (self.clang, "clang (lib/llvm/bin/clang++)"),
        )
        return tuple(words for part, words in parts if part is None)

    @property
    def missing_packages(self) -> tuple[str, ...]:
        """The CMake packages that llama.cpp's HIP build requires and that are missing."""
        return tuple(name for name in _PACKAGES if not self._has_package(name))

    def _has_package(self, name: str) -> bool:
        config = f"cmake/{name}/{name}-config.cmake"
        return any(next(self.place.root.glob(f"{folder}/{config}"), None) for folder in _LIBRARIES)

    @property
    def release(self) -> tuple[int, ...]:
        """The ROCm version, ``(7, 2, 0)``; if unknown, that of HIP, whose third number differs."""
        return _numbers(self.version or self.hip_version or "")[:3]


# ggml/src/ggml-hip/CMakeLists.txt: enable_language(HIP) needs hip-lang, and find_package the others. CMake
# searches the folders below.
_PACKAGES = ("hip-lang", "hip", "hipblas", "rocblas")
_LIBRARIES = ("lib", "lib64", "lib/*-linux-gnu")


def rocm_locations(environ: Mapping[str, str], *, system: Path = Path("/")) -> Iterator[RocmLocation]:
    """The locations of a ROCm, the most explicit first; that of ``ROCM_PATH`` may not exist.

    Args:
        environ: for ROCM_PATH.
        system: the root of the file system.
    """
    named = environ.get("ROCM_PATH")
    if named:
        yield RocmLocation(root=Path(named), origin="ROCM_PATH", is_explicit=True)
    opt = system / "opt"
    versions = sorted(opt.glob("rocm-*"), key=lambda path: _numbers(path.name), reverse=True)
    for root in (opt / "rocm", *versions):
        if (root / "include" / "hip").is_dir():
            yield RocmLocation(root=root, origin="ROCm's packages")
    for name in _WHEELS:
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            if Path(folder, "include", "hip").is_dir():
                yield RocmLocation(root=Path(folder), origin="TheRock's wheels")
    if (system / "usr" / "include" / "hip" / "hip_version.h").is_file():
        yield RocmLocation(root=system / "usr", origin="the distribution's packages")


def inspect_rocm(place: RocmLocation, environ: Mapping[str, str]) -> RocmInstallation:
    """Find the parts of a ROCm at a location. Reads a few files and runs no program."""
    root = place.root
    device_libs = _first(root, _DEVICE_LIBS, "ocml.bc")
    clang = next((root / name for name in _CLANGS if os.access(root / name, os.X_OK)), None)
    if clang is None and not place.is_explicit:
        clang = _distribution_clang(device_libs, environ)
    rocwmma = root / "include" / "rocwmma" / "rocwmma.hpp"
    return RocmInstallation(
        place=place,
        version=_rocm_version(root),
        hip_version=hip_version(root / "include"),
        device_libs=device_libs,
        clang=clang,
        rocwmma=root / "include" if rocwmma.is_file() else None,
    )


_MOST_OF_VERSION = 100  # bytes; a version has some ten


def _rocm_version(root: Path) -> str | None:
    for name in (".info/version", "share/therock/version"):
        try:
            with open_regular(root / name) as stream:
                return stream.read(_MOST_OF_VERSION).decode("utf-8", "replace").strip() or None
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
    """The clang of the same LLVM as the device libs: clang++-21 for .../clang/21/amdgcn/bitcode."""
    numbers = re.findall(r"/clang/(\d+)/", f"{device_libs}/")
    found = shutil.which(f"clang++-{numbers[-1]}", path=environ.get("PATH")) if numbers else None
    return Path(found) if found is not None else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


_INSTALL = "patchkit sdk install"
_ANSWER_S = 30.0


class ToolchainMissing(ToolchainError):
    """Neither a ROCm nor an SDK prefix was found."""

    code = "TOOLCHAIN_MISSING"


@dataclass(frozen=True, slots=True, kw_only=True)
class RocWmma:
    """A rocWMMA; ``include`` contains ``rocwmma/rocwmma.hpp``. Reports state ``kind`` and ``version``."""

    kind: RocWmmaKind
    include: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """A HIP toolchain. ``root`` is a value for ROCM_PATH: it contains ``include/hip``.

    ``device_options`` are for the device passes, in addition to those of upstream's CMake.
    """

    kind: Literal["rocm", "sdk"]
    root: Path
    clang: Path
    clang_version: str
    hip_version: str
    device_libs: Path
    rocwmma: RocWmma | None
    device_options: tuple[str, ...] = ()

    @property
    def opt(self) -> Path | None:
        """LLVM's ``opt`` from the folder of clang, as in ROCm's packages; None if it is missing."""
        paths = (self.clang.with_name("opt"), self.clang.resolve().with_name("opt"))
        return next((path for path in paths if os.access(path, os.X_OK)), None)


def find_toolchain(cache_root: Path, environ: Mapping[str, str], reporter: Reporter) -> Toolchain:
    """The first usable ROCm, in the order of :func:`rocm_locations`, else the SDK.

    An incomplete ROCm is skipped with a warning, unless ROCM_PATH names it. ROCM_PATH may also name the SDK,
    which users set to build with other projects' Makefiles.

    Raises:
        ROCM_UNUSABLE: the ROCm in ROCM_PATH is incomplete.
        ToolchainMissing: no usable toolchain was found.
        SDK_UNUSABLE: the SDK prefix is incomplete.
        ToolchainError: the compiler cannot be run.
    """
    skipped = []
    for place in rocm_locations(environ):
        if place.is_explicit and place.root.resolve().is_relative_to(sdk_folder(cache_root).resolve()):
            break
        found = inspect_rocm(place, environ)
        try:
            return _from_rocm(found, reporter)
        except PatchkitError as error:
            if place.is_explicit:
                raise
            reporter.warn(f"{place.root} is skipped: {error.message}")
            skipped.append(f"{place.root}: {error.message}")
    prefix = current_prefix(cache_root)
    if prefix is None:
        raise ToolchainMissing(
            "no HIP toolchain found on this machine",
            why="; ".join(skipped) or "no ROCm was found (ROCM_PATH, /opt, wheels, packages), and no SDK",
            hint=_INSTALL,
        )
    version = _version_of(prefix.clang, reporter)
    check_bitcode(prefix.device_libs, version)
    return Toolchain(
        kind="sdk",
        root=prefix.root,
        clang=prefix.clang,
        clang_version=version,
        hip_version=prefix.record.hip_version,
        device_libs=prefix.device_libs,
        rocwmma=_of_prefix(prefix),
    )


def check_archs(toolchain: Toolchain, archs: Sequence[str], reporter: Reporter) -> None:
    """Check that the compiler supports all GPUs, before a unit fails to compile.

    Raises:
        SDK_UNUSABLE: it is too old for a GPU, or was built without the AMDGPU target.
    """
    known = known_archs(toolchain.clang, reporter)
    lacking = [arch for arch in archs if arch not in known]
    if lacking:
        raise ToolchainError(
            f"clang {toolchain.clang_version} does not support {' '.join(lacking)}",
            code="SDK_UNUSABLE",
            where=Location(path=str(toolchain.clang)),
            why=f"it supports {', '.join(sorted(known)) or 'no AMD GPU'}",
            hint="set ROCM_PATH to a newer ROCm; without any ROCm: " + _INSTALL,
        )


def hip_flags(toolchain: Toolchain, arch: str, *, which: Pass) -> list[str]:
    """The compiler flags for HIP, without ggml's macros, the tree's include paths, input and output."""
    rocwmma = rocwmma_for(toolchain, arch)
    flags = hip_arguments(
        root=toolchain.root,
        device_libs=toolchain.device_libs,
        clang_version=toolchain.clang_version,
        hip_version=toolchain.hip_version,
        arch=arch,
        which=which,
        rocwmma=rocwmma.include if rocwmma is not None else None,
    )
    return [*flags, *toolchain.device_options] if which == "device" else flags


def rocwmma_for(toolchain: Toolchain, arch: str) -> RocWmma | None:
    """The toolchain's rocWMMA if it supports the arch, else the stand-in if it does, else None."""
    for one in (toolchain.rocwmma, _standin()):
        if one is not None and knows_arch(one, arch):
            return one
    return None


def knows_arch(rocwmma: RocWmma, arch: str) -> bool:
    """Whether a rocWMMA supports the arch.

    rocWMMA lists the supported gfx ids in ``internal/config.hpp``, and rejects others by static_assert. The
    stand-in supports all GPUs with WMMA instructions.
    """
    folder = rocwmma.include / "rocwmma"
    if rocwmma.kind == "stand-in":
        return (folder / "rocwmma.hpp").is_file() and architecture_of(arch).has_wmma
    try:
        text = (folder / "internal" / "config.hpp").read_bytes()
    except OSError:
        return False
    return re.search(rb"\b__" + re.escape(arch).encode() + rb"__\b", text) is not None


def llvm_tool(toolchain: Toolchain, name: str, reporter: Reporter) -> Path | None:
    """A tool of the compiler's own LLVM, such as ``llvm-cxxfilt``; None if it is missing."""
    sibling = toolchain.clang.with_name(name)
    if toolchain.clang.is_relative_to(toolchain.root.parent) and os.access(sibling, os.X_OK):
        return sibling  # in an SDK prefix it is a wrapper, which sets the library path
    done = run_tool(
        [str(toolchain.clang), f"-print-prog-name={name}"], timeout_s=_ANSWER_S, reporter=reporter
    )
    path = Path(done.stdout.decode("utf-8", "replace").strip())
    return path if path.is_absolute() and path.is_file() else None


def _standin() -> RocWmma:
    """The stand-in header of the running patchkit, not of the one that installed the SDK."""
    return RocWmma(kind="stand-in", include=STANDIN, version=rocwmma_version(STANDIN))


def _of_prefix(prefix: Prefix) -> RocWmma:
    if prefix.record.rocwmma_kind == "stand-in":
        return _standin()
    return RocWmma(kind="git", include=prefix.rocwmma, version=prefix.record.rocwmma_version)


def _from_rocm(found: RocmInstallation, reporter: Reporter) -> Toolchain:
    root, device_libs, clang, hip = found.place.root, found.device_libs, found.clang, found.hip_version
    if device_libs is None or clang is None or hip is None:
        raise ToolchainError(
            f"the ROCm from {found.place.origin} is missing {' and '.join(found.missing_parts)}",
            code="ROCM_UNUSABLE",
            where=Location(path=str(root)),
            hint=f"install its development packages, or unset ROCM_PATH and run: {_INSTALL}",
        )
    version = _version_of(clang, reporter)
    check_bitcode(device_libs, version)
    rocwmma = None
    if found.rocwmma is not None:
        rocwmma = RocWmma(kind="rocm", include=found.rocwmma, version=rocwmma_version(found.rocwmma))
    return Toolchain(
        kind="rocm",
        root=root,
        clang=clang,
        clang_version=version,
        hip_version=hip,
        device_libs=device_libs,
        rocwmma=rocwmma,
    )


def _version_of(clang: Path, reporter: Reporter) -> str:
    version = clang_version(clang, reporter)
    if version is None:
        raise ToolchainError(
            "the compiler is not clang, or prints no clang version",
            code="ROCM_UNUSABLE",
            where=Location(path=str(clang)),
            hint=f"check the output of: {clang} --version",
        )
    return version


# Folders below <root>/include that vendors/hip.h and the rocWMMA kernel of build 6900 include.
_HEADERS = ("hip", "hipblas", "hipblas-common", "rocblas")


def toolchain_identity(toolchain: Toolchain) -> str:
    """sha256 over the compiler version and size, the vendor headers, rocWMMA and the device libraries.

    Toolchains with the same identity generate the same code. The version alone is not enough: headers come
    from the distribution or from a pinned commit, and the rocWMMA stand-in changes during development.
    """
    digest = hashlib.sha256()
    size = toolchain.clang.resolve().stat().st_size
    digest.update(f"{toolchain.kind} {toolchain.clang_version} {size} {toolchain.hip_version}\n".encode())
    for folder in _HEADERS:
        digest.update(contents(toolchain.root / "include" / folder))
    if toolchain.rocwmma is not None:
        digest.update(f"{toolchain.rocwmma.kind} {toolchain.rocwmma.version}\n".encode())
        digest.update(contents(toolchain.rocwmma.include / "rocwmma"))
    for path in sorted(toolchain.device_libs.glob("*.bc")):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    return digest.hexdigest()


def contents(folder: Path) -> bytes:
    """The paths and sha256 of all files below a folder, sorted, one per line; input for a digest."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return "".join(f"{path.relative_to(folder)} {file_sha256(path)}\n" for path in files).encode()

"""The HIP toolchain to compile with: a real ROCm where there is one, else the SDK prefix."""

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
from patchkit.base.files import file_sha256
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

    @property
    def lacks_for_build(self) -> tuple[str, ...]:
        """The missing CMake packages among those that llama.cpp's HIP build asks for."""
        return tuple(name for name in _PACKAGES if not self._has_package(name))

    def _has_package(self, name: str) -> bool:
        config = f"cmake/{name}/{name}-config.cmake"
        return any(next(self.place.root.glob(f"{folder}/{config}"), None) for folder in _LIBRARIES)

    @property
    def release(self) -> tuple[int, ...]:
        """Of ROCm, ``(7, 2, 0)``; where ROCm does not say, that of HIP, whose third number is another one."""
        return _numbers(self.version or self.hip_version or "")[:3]


# ggml/src/ggml-hip/CMakeLists.txt: enable_language(HIP) needs hip-lang, find_package the others. CMake looks
# for them in these folders.
_PACKAGES = ("hip-lang", "hip", "hipblas", "rocblas")
_LIBRARIES = ("lib", "lib64", "lib/*-linux-gnu")


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


_INSTALL = "patchkit sdk install"
_ANSWER_S = 30.0


class ToolchainMissing(ToolchainError):
    """There is neither a ROCm nor an SDK prefix."""

    code = "TOOLCHAIN_MISSING"


@dataclass(frozen=True, slots=True, kw_only=True)
class RocWmma:
    """``include`` holds ``rocwmma/rocwmma.hpp``; ``kind`` and ``version`` belong into every report."""

    kind: RocWmmaKind
    include: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """``root`` is what ROCM_PATH would name: it holds ``include/hip``.

    ``device_options`` are for the device passes, besides what upstream's CMake gives them.
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
        """LLVM's ``opt`` of the same version, which ROCm's packages have beside their clang; None without."""
        beside = (self.clang.with_name("opt"), self.clang.resolve().with_name("opt"))
        return next((path for path in beside if os.access(path, os.X_OK)), None)


def find_toolchain(cache_root: Path, environ: Mapping[str, str], reporter: Reporter) -> Toolchain:
    """The first ROCm that serves, in the order of :func:`patchkit.toolchain.hip.places`, else the SDK.

    A ROCm that patchkit found by itself and that lacks something is passed over, saying so. ROCM_PATH may
    name the SDK: whoever builds by Makefiles of others sets it for them.

    Raises:
        ROCM_UNUSABLE: ROCM_PATH names one that lacks something.
        ToolchainMissing: nothing serves.
        SDK_PREFIX_DAMAGED: the SDK prefix lacks something.
        ToolchainError: the compiler cannot be run.
    """
    passed_over = []
    for place in places(environ):
        if place.asked_for and _is_sdk(place.root, cache_root):
            break
        found = look_at(place, environ)
        try:
            return _from_rocm(found, reporter)
        except PatchkitError as error:
            if place.asked_for:
                raise
            reporter.warn(f"{place.root} is passed over: {error.message}")
            passed_over.append(f"{place.root}: {error.message}")
    prefix = current_prefix(cache_root)
    if prefix is None:
        raise ToolchainMissing(
            "there is no HIP toolchain on this machine",
            why="; ".join(passed_over) or "no ROCm was found (ROCM_PATH, /opt, wheels, packages), and no SDK",
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


def _is_sdk(root: Path, cache_root: Path) -> bool:
    return root.resolve().is_relative_to(sdk_folder(cache_root).resolve())


def check_archs(toolchain: Toolchain, archs: Sequence[str], reporter: Reporter) -> None:
    """Refuse a compiler that makes no code for one of the GPUs, before a unit fails for that reason.

    Raises:
        SDK_COMPILER_LACKS_ARCH: it is too old for the GPU, or was built without AMDGPU.
    """
    known = known_archs(toolchain.clang, reporter)
    lacking = [arch for arch in archs if arch not in known]
    if lacking:
        raise ToolchainError(
            f"clang {toolchain.clang_version} makes no code for {' '.join(lacking)}",
            code="SDK_COMPILER_LACKS_ARCH",
            where=Location(path=str(toolchain.clang)),
            why=f"it knows {', '.join(sorted(known)) or 'no AMD GPU at all'}",
            hint="name a newer ROCm with ROCM_PATH; without any ROCm: " + _INSTALL,
        )


def hip_flags(toolchain: Toolchain, arch: str, *, which: Pass) -> list[str]:
    """Everything but ggml's macros, the include paths of the tree, the input and the output."""
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
    """The toolchain's rocWMMA if it knows the arch, else the stand-in if that does, else None."""
    for one in (toolchain.rocwmma, _standin()):
        if one is not None and knows_arch(one, arch):
            return one
    return None


def knows_arch(rocwmma: RocWmma, arch: str) -> bool:
    """Whether the header has code for the arch.

    rocWMMA names each gfx id that it takes in ``internal/config.hpp`` and refuses others by
    static_assert; the stand-in takes those with the instructions that it was written on.
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
    """A tool of the compiler's own LLVM, such as ``llvm-cxxfilt``; None when it is not there."""
    beside = toolchain.clang.with_name(name)
    if toolchain.clang.is_relative_to(toolchain.root.parent) and os.access(beside, os.X_OK):
        return beside  # a prefix has its programs wrapped, for the sake of their libraries
    done = run_tool(
        [str(toolchain.clang), f"-print-prog-name={name}"], timeout_s=_ANSWER_S, reporter=reporter
    )
    path = Path(done.stdout.decode("utf-8", "replace").strip())
    return path if path.is_absolute() and path.is_file() else None


def _standin() -> RocWmma:
    """Patchkit's own header: its version is that of the patchkit that runs, not of one that installed."""
    return RocWmma(kind="stand-in", include=STANDIN, version=rocwmma_version(STANDIN))


def _of_prefix(prefix: Prefix) -> RocWmma:
    if prefix.record.rocwmma_kind == "stand-in":
        return _standin()
    return RocWmma(kind="git", include=prefix.rocwmma, version=prefix.record.rocwmma_version)


def _from_rocm(found: Found, reporter: Reporter) -> Toolchain:
    root, device_libs, clang, hip = found.place.root, found.device_libs, found.clang, found.hip_version
    if device_libs is None or clang is None or hip is None:
        raise ToolchainError(
            f"the ROCm of {found.place.origin} lacks {' and '.join(found.lacks)}",
            code="ROCM_UNUSABLE",
            where=Location(path=str(root)),
            hint=f"install its development packages, or unset ROCM_PATH and use: {_INSTALL}",
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
            "the compiler does not say that it is a clang",
            code="ROCM_UNUSABLE",
            where=Location(path=str(clang)),
            hint=f"look at: {clang} --version",
        )
    return version


# Below <root>/include; what vendors/hip.h and the rocWMMA kernel of build 6900 include.
_HEADERS = ("hip", "hipblas", "hipblas-common", "rocblas")


def toolchain_identity(toolchain: Toolchain) -> str:
    """sha256 over the compiler, its size, the vendor headers, rocWMMA and the device libraries.

    Two toolchains of equal identity compile alike. The version alone does not say it: headers come from the
    distribution or from a pinned commit, and our stand-in for rocWMMA changes while it is worked on.
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
    """A line of path and sha256 for each file below a folder, sorted: what a digest of it is made from."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return "".join(f"{path.relative_to(folder)} {file_sha256(path)}\n" for path in files).encode()

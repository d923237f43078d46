"""The arguments with which clang compiles HIP, for given HIP headers and device libraries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from patchkit.base.arch import architecture_of

Pass = Literal["host", "device", "both"]

_ONLY: dict[Pass, list[str]] = {"host": ["--cuda-host-only"], "device": ["--cuda-device-only"], "both": []}

# clang 22 no longer predefines this macro, but HIP headers before version 7 use it (measured: clang 22.1.8
# does not compile HIP 6.4.3 without it).
_WAVE_MACRO = "__AMDGCN_WAVEFRONT_SIZE"
_CLANG_WITHOUT_WAVE_MACRO = 22
_HIP_WITHOUT_WAVE_MACRO = 7

# The compiler already searches it last. With -isystem it would come first, and C++ headers would not find
# the C headers by include_next.
_SYSTEM_INCLUDE = Path("/usr/include")


def hip_arguments(
    *,
    root: Path,
    device_libs: Path,
    clang_version: str,
    hip_version: str,
    arch: str,
    which: Pass,
    rocwmma: Path | None,
) -> list[str]:
    """The arguments without input, output, include paths of the tree and ggml's own macros.

    Optimization, standard and macros are those of upstream's CMake in a Release build: ``-O3 -DNDEBUG``,
    ``-std=gnu++17``, and those that the package hip-lang adds for HIP sources.

    Args:
        root: the folder that contains ``include/hip``.
        device_libs: the folder of ``ocml.bc``.
        clang_version: of the compiler, such as 22.1.8.
        hip_version: of the headers, such as 6.4.43484.
        arch: the gfx id to compile for.
        which: the pass; ``both`` gives an object with embedded device code.
        rocwmma: the folder that contains ``rocwmma/rocwmma.hpp``, if any.
    """
    flags = [
        "-x",
        "hip",
        "-O3",
        "-DNDEBUG",
        "-std=gnu++17",
        "-fPIC",
        f"--offload-arch={arch}",
        *_ONLY[which],
        f"--rocm-path={root}",
        f"--hip-path={root}",
        f"--rocm-device-lib-path={device_libs}",
        "-D__HIP_PLATFORM_AMD__",
        "-D__HIP_ROCclr__=1",
    ]
    flags += wave_macro(clang_version=clang_version, hip_version=hip_version, arch=arch)
    flags.append("-Wno-unused-command-line-argument")  # each pass ignores some of these
    for include in dict.fromkeys(path for path in (rocwmma, root / "include") if path is not None):
        if include != _SYSTEM_INCLUDE:
            flags += ["-isystem", str(include)]
    return flags


def wave_macro(*, clang_version: str, hip_version: str, arch: str) -> list[str]:
    """The definition of ``__AMDGCN_WAVEFRONT_SIZE``, if these headers need it and clang lacks it."""
    if needs_wave_macro(clang_version=clang_version, hip_version=hip_version):
        return [f"-D{_WAVE_MACRO}={architecture_of(arch).wave_size}"]
    return []


def needs_wave_macro(*, clang_version: str, hip_version: str) -> bool:
    """Whether the headers use ``__AMDGCN_WAVEFRONT_SIZE`` and clang does not predefine it."""
    return (
        leading_number(clang_version) >= _CLANG_WITHOUT_WAVE_MACRO
        and leading_number(hip_version) < _HIP_WITHOUT_WAVE_MACRO
    )


def leading_number(version: str) -> int:
    """The first component of a version; 0 if it has none."""
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0

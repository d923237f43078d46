"""The compiler arguments that make clang a HIP compiler over one installation of the headers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from patchkit.base.arch import architecture_of

Pass = Literal["host", "device", "both"]

_ONLY: dict[Pass, list[str]] = {"host": ["--cuda-host-only"], "device": ["--cuda-device-only"], "both": []}

# clang 22 no longer predefines this macro, and the HIP headers before 7 use it (measured: clang 22.1.8
# with HIP 6.4.3 does not compile without it).
_WAVE_MACRO = "__AMDGCN_WAVEFRONT_SIZE"
_CLANG_WITHOUT_WAVE_MACRO = 22
_HIP_WITHOUT_WAVE_MACRO = 7

# A compiler searches it by itself, last; named again it would come first, and the C++ headers that
# include_next the C ones would not find them.
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
    """Everything but the input, the output, the include paths of the tree and ggml's own macros.

    Optimisation, standard and macros are those of upstream's CMake in a Release build: ``-O3 -DNDEBUG``,
    ``-std=gnu++17``, and what the package hip-lang adds to HIP sources.

    Args:
        root: the folder that holds ``include/hip``.
        device_libs: the folder of ``ocml.bc``.
        clang_version: of the compiler, such as 22.1.8.
        hip_version: of the headers, such as 6.4.43484.
        arch: the gfx id to compile for.
        which: the pass; ``both`` gives an object with the device code inside.
        rocwmma: the folder that holds ``rocwmma/rocwmma.hpp``, if any.
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
    flags.append("-Wno-unused-command-line-argument")  # most of these mean nothing to one of the passes
    for include in dict.fromkeys(path for path in (rocwmma, root / "include") if path is not None):
        if include != _SYSTEM_INCLUDE:
            flags += ["-isystem", str(include)]
    return flags


def wave_macro(*, clang_version: str, hip_version: str, arch: str) -> list[str]:
    """The definition of the macro that these headers use and this clang no longer makes; often none."""
    if needs_wave_macro(clang_version=clang_version, hip_version=hip_version):
        return [f"-D{_WAVE_MACRO}={architecture_of(arch).wave_size}"]
    return []


def needs_wave_macro(*, clang_version: str, hip_version: str) -> bool:
    """Whether the headers use a macro that the compiler no longer makes."""
    return (
        leading_number(clang_version) >= _CLANG_WITHOUT_WAVE_MACRO
        and leading_number(hip_version) < _HIP_WITHOUT_WAVE_MACRO
    )


def leading_number(version: str) -> int:
    """The first component of a version; 0 when there is none."""
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0

"""What CMake must be told to build for HIP with a toolchain.

Vocabulary: *environment* variables are read by the vendors' package files, *cache* entries by CMake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.build.toolchain import Toolchain, rocwmma_for
from patchkit.sdk.flags import wave_macro


@dataclass(frozen=True, slots=True, kw_only=True)
class CmakeSettings:
    """``environment`` is to be set on top of the caller's, ``cache`` to be given as ``-D`` options."""

    environment: dict[str, str]
    cache: dict[str, str]


def cmake_settings(toolchain: Toolchain, archs: Sequence[str]) -> CmakeSettings:
    """The settings for building for ``archs``; with them CMake knows the compiler for a clang.

    Waves of 64 and of 32 lanes need different macros with an SDK of HIP 6, so archs of one kind only go
    into one build there; rocWMMA is the first arch's.
    """
    root = str(toolchain.root)
    flags = [
        f"--rocm-path={root}",
        f"--hip-path={root}",
        f"--rocm-device-lib-path={toolchain.device_libs}",
        *wave_macro(clang_version=toolchain.clang_version, hip_version=toolchain.hip_version, arch=archs[0]),
    ]
    rocwmma = rocwmma_for(toolchain, archs[0])
    if rocwmma is not None and rocwmma.include != toolchain.root / "include":
        flags += ["-isystem", str(rocwmma.include)]
    return CmakeSettings(
        environment={
            "HIP_PLATFORM": "amd",
            "HIP_PATH": root,
            "ROCM_PATH": root,
            "HIP_DEVICE_LIB_PATH": str(toolchain.device_libs),
        },
        cache={
            "CMAKE_HIP_ARCHITECTURES": ";".join(archs),
            "CMAKE_HIP_COMPILER": str(toolchain.clang),
            "CMAKE_HIP_COMPILER_ROCM_ROOT": root,
            "CMAKE_HIP_FLAGS": " ".join(flags),
            "CMAKE_HIP_PLATFORM": "amd",
            "CMAKE_PREFIX_PATH": root,
        },
    )

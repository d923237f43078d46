"""The configurations in which a unit is read: every backend, GPU and pass that upstream builds.

Vocabulary: a *configuration* is a backend, a GPU, a pass and whether rocWMMA is on. Vendor headers that
this machine need not have (CUDA, MUSA) are *stand-ins*: empty files of ours, the same on both sides of
every comparison, so that what is compared is upstream's and our text and not a vendor's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.build.compile import hip_definitions
from patchkit.build.toolchain import RocWmma, Toolchain, hip_flags, rocwmma_for
from patchkit.build.units import Platform
from patchkit.vcs.disk import disk_errors

# One per generation whose paths differ in upstream's conditions: Volta, Ampere, Hopper.
CUDA_ARCHS = ("sm_70", "sm_80", "sm_90")
# MUSA_ARCHITECTURES of ggml-musa/CMakeLists.txt at build 6900: mp_21, mp_22, mp_31.
MUSA_ARCHS = ("mp_21", "mp_22", "mp_31")

# Upstream's build option for its rocWMMA kernel, builds 6900 to 10068; later ones do not look at it.
ROCWMMA_MACRO = "GGML_HIP_ROCWMMA_FATTN"

# What upstream's conditions ask of the vendor headers; one recent version each (CUDA 12.8, MUSA 4.3).
_STAND_IN_MACROS = {"cuda": ("CUDART_VERSION=12080",), "musa": ("MUSART_VERSION=40300",)}
_VENDOR = re.compile(
    r"(cuda|cublas|cuda_\w+|cub/|curand|nv|mma\.h|cooperative_groups|musa|mublas|mudnn|mtgpu)"
)

# ggml-cuda/CMakeLists.txt and ggml-musa/CMakeLists.txt of build 6900 with default options.
_COMMON = ("GGML_BACKEND_BUILD", "GGML_BACKEND_SHARED", "GGML_SHARED", "GGML_SCHED_MAX_COPIES=4", "NDEBUG")
_DEFINITIONS = {
    "cuda": (*_COMMON, "GGML_CUDA_PEER_MAX_BATCH_SIZE=128", "GGML_CUDA_USE_GRAPHS"),
    "musa": (*_COMMON, "GGML_CUDA_PEER_MAX_BATCH_SIZE=128", "GGML_USE_MUSA", "__MUSACC__"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """``arch`` is the GPU of a device pass; a host pass is one for all GPUs of a backend (``all``)."""

    platform: Platform
    arch: str
    which: Literal["host", "device"]
    rocwmma: bool
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """``hip gfx1100 device, rocWMMA on``."""
        state = f", rocWMMA {'on' if self.rocwmma else 'off'}" if self.platform == "hip" else ""
        return f"{self.platform} {self.arch} {self.which}{state}"


def hip_configurations(
    toolchain: Toolchain, archs: Sequence[str], *, host_arch: str
) -> Iterator[Configuration]:
    """Every device pass with rocWMMA on and off, and the two host passes; in that order per GPU.

    ``host_arch`` is the GPU whose flags the host passes take. Without any rocWMMA those with it on are
    left out.
    """
    wanted = rocwmma_for(toolchain, host_arch)
    for rocwmma in (True, False):
        if rocwmma and wanted is None:
            continue
        definitions = hip_definitions(rocwmma=rocwmma)
        passes: list[tuple[str, Literal["host", "device"], str]] = [(arch, "device", arch) for arch in archs]
        for arch, which, named in [*passes, (host_arch, "host", "all")]:
            flags = (*hip_flags(toolchain, arch, which=which), *rocwmma_flags(toolchain, arch, wanted))
            yield Configuration(
                platform="hip",
                arch=named,
                which=which,
                rocwmma=rocwmma,
                flags=(*flags, *definitions),
            )


def cuda_configurations(headers: Path) -> Iterator[Configuration]:
    """CUDA, read by clang: a device pass per GPU and the host pass."""
    listed = ",".join(f"{arch[3:]}0" for arch in CUDA_ARCHS)
    for arch in CUDA_ARCHS:
        yield _stand_in(headers, "cuda", arch, "device", f"--cuda-gpu-arch={arch}", listed)
    yield _stand_in(headers, "cuda", "all", "host", f"--cuda-gpu-arch={CUDA_ARCHS[0]}", listed)


def musa_configurations(headers: Path) -> Iterator[Configuration]:
    """MUSA, read by clang's CUDA preprocessor with the macros of MUSA's own compiler."""
    for arch in MUSA_ARCHS:
        # MUSA's compiler is a clang with CUDA as its language; __CUDA_ARCH__ is that of sm_70 here.
        own = f"-D__MUSA_ARCH__={arch[3:]}0"
        yield _stand_in(headers, "musa", arch, "device", "--cuda-gpu-arch=sm_70", None, own)
    yield _stand_in(headers, "musa", "all", "host", "--cuda-gpu-arch=sm_70", None)


def stand_in_headers(names: Iterable[str], directory: Path) -> tuple[Path, tuple[str, ...]]:
    """A folder of empty vendor headers for those of ``names`` that are a vendor's, and their names.

    Raises:
        CacheError: the disk refused.
    """
    vendor = tuple(sorted({name for name in names if _VENDOR.match(name) and ".." not in name}))
    digest = hashlib.sha256("\n".join(vendor).encode()).hexdigest()[:16]
    folder = directory / digest
    with disk_errors(folder, "writing stand-in headers"):
        for name in vendor:
            path = folder / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"// stands in for the vendor's header\n")
    return folder, vendor


def rocwmma_flags(toolchain: Toolchain, arch: str, wanted: RocWmma | None) -> list[str]:
    """What ``hip_flags`` leaves out for a GPU that no rocWMMA knows: the folder the build has anyway."""
    # One build has one rocWMMA for all of its GPUs, those that it does not know included.
    if wanted is None or rocwmma_for(toolchain, arch) is not None:
        return []
    return ["-isystem", str(wanted.include)]


def _stand_in(
    headers: Path,
    platform: Literal["cuda", "musa"],
    arch: str,
    which: Literal["host", "device"],
    target: str,
    arch_list: str | None,
    *more: str,
) -> Configuration:
    macros = [*_DEFINITIONS[platform], *_STAND_IN_MACROS[platform]]
    if arch_list is not None:
        macros.append(f"__CUDA_ARCH_LIST__={arch_list}")
    return Configuration(
        platform=platform,
        arch=arch,
        which=which,
        rocwmma=False,
        flags=(
            *("-x", "cuda", "-std=gnu++17", "-nocudainc", "-nocudalib", target),
            "--cuda-host-only" if which == "host" else "--cuda-device-only",
            *("-isystem", str(headers)),
            *(f"-D{macro}" for macro in macros),
            *more,
        ),
    )

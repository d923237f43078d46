"""Builds a tree for one backend on this machine: the programs, the CPU backend and the GPU backend."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import ToolchainError
from patchkit.base.process import ToolFailed, ToolMissing, run_tool
from patchkit.base.reporter import Reporter
from patchkit.toolchain.cmake import cmake_settings
from patchkit.toolchain.hip import Toolchain, rocwmma_for, toolchain_identity
from patchkit.toolchain.parts import CPU_LIBRARY, BackendName, Part, cpu_part, gpu_part, programs_part
from patchkit.toolchain.sides import BuiltSide, Workshop, assemble, build_part

_ANSWER_S = 60.0
_NVCC = "nvcc"
_ROCM_LIBRARIES = Path("/opt/rocm/lib")  # in AMD's packages /opt/rocm links to the installed version


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An exported tree. ``tree`` is its hash; its programs print ``build`` and ``commit``.

    ``has_note``: llama-server prints them when it starts.
    """

    root: Path
    tree: str
    build: int
    commit: str
    has_note: bool = False


def build_side(
    source: Source,
    backend: BackendName,
    *,
    archs: Sequence[str],
    toolchain: Toolchain | None,
    programs: Sequence[str],
    workshop: Workshop,
    with_rocwmma: bool,
    is_timed: bool = True,
) -> BuiltSide:
    """Build the missing parts of a tree, and assemble them into one folder.

    For HIP, ``with_rocwmma`` includes upstream's rocWMMA attention kernel if a rocWMMA is available.
    ``is_timed`` as in :func:`patchkit.toolchain.parts.programs_part`.

    Raises:
        COMPILER_MISSING: a compiler is missing.
        The errors of :func:`patchkit.toolchain.cmake.build_targets`.
    """
    compiler = host_compiler(workshop.reporter)
    wanted: list[tuple[Part, Sequence[str]]] = [
        (
            programs_part(
                source.root,
                build=source.build,
                commit=source.commit,
                compiler=compiler,
                is_timed=is_timed,
                wanted=programs,
                has_note=source.has_note,
            ),
            programs,
        ),
        (cpu_part(source.root, compiler=compiler), (CPU_LIBRARY,)),
    ]
    if backend == "hip":
        part = _hip_part(source.root, archs, toolchain, compiler, with_rocwmma=with_rocwmma)
        wanted.append((part, (part.library or "",)))
    elif backend == "cuda":
        part = _cuda_part(source.root, compiler, workshop.reporter)
        wanted.append((part, (part.library or "",)))
    built = [build_part(part, source.root, targets, workshop) for part, targets in wanted]
    return assemble(source.tree, backend, built, programs, workshop)


def _hip_part(
    tree: Path, archs: Sequence[str], toolchain: Toolchain | None, host: str, *, with_rocwmma: bool
) -> Part:
    if toolchain is None:
        raise ToolchainError(
            "building for HIP requires a HIP toolchain", code="COMPILER_MISSING", hint="patchkit sdk install"
        )
    settings = cmake_settings(toolchain, archs)
    entries: dict[str, str | bool] = {
        **settings.cache,
        "GGML_HIP": True,
        "GPU_TARGETS": ";".join(archs),
        "GGML_HIP_ROCWMMA_FATTN": with_rocwmma
        and all(rocwmma_for(toolchain, arch) is not None for arch in archs),
        "CMAKE_INSTALL_RPATH": f"$ORIGIN;{_runtime(toolchain)}",
    }
    return gpu_part(
        tree,
        "hip",
        entries=entries,
        environment=settings.environment,
        compiler=f"{host}; {toolchain_identity(toolchain)}",
    )


def _runtime(toolchain: Toolchain) -> Path:
    """The folder of the HIP runtime at run time; the SDK's own libraries are stubs for linking only."""
    return toolchain.root / "lib" if toolchain.kind == "rocm" else _ROCM_LIBRARIES


def _cuda_part(tree: Path, host: str, reporter: Reporter) -> Part:
    nvcc = _version(_NVCC, reporter, "the CUDA toolkit")
    entries: dict[str, str | bool] = {"GGML_CUDA": True, "CMAKE_CUDA_ARCHITECTURES": "native"}
    return gpu_part(tree, "cuda", entries=entries, environment={}, compiler=f"{host}; {nvcc}")


def host_compiler(reporter: Reporter) -> str:
    """The machine type and its C and C++ compiler versions, for a part's key. Raises COMPILER_MISSING."""
    versions = [_version(name, reporter, "a C and C++ compiler") for name in ("cc", "c++")]
    return "; ".join([platform.machine(), *versions])


def _version(name: str, reporter: Reporter, what: str) -> str:
    try:
        done = run_tool([name, "--version"], timeout_s=_ANSWER_S, reporter=reporter)
    except (ToolMissing, ToolFailed) as error:
        raise ToolchainError(
            f"building upstream requires {what}",
            code="COMPILER_MISSING",
            why=error.message,
            hint="install the packages g++ and ninja-build" if name != _NVCC else "add nvcc to PATH",
        ) from error
    return " | ".join(done.stdout.decode("utf-8", "replace").strip().splitlines()[:4])

"""Upstream's own build of the HIP library, for who wants to see all of it compile and link.

Vocabulary: the *library* is the target ``ggml-hip``. scikit-build-core finds a cmake, writes typed cache
entries and reads CMake's file API; cmake itself runs through :mod:`patchkit.proc`, because the library's
own ``configure`` and ``build`` write to our stdout and forget the command when it fails. It is imported
when used: it costs 140 ms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchkit.build.compiler import Compiler, nice
from patchkit.build.parallel import workers
from patchkit.build.remarks import Diagnostic, parse_diagnostics
from patchkit.build.toolchain import hip_flags, rocwmma_for
from patchkit.errors import Location, ToolchainError
from patchkit.proc import Completed, run_tool
from patchkit.vcs.disk import disk_error_from_git, disk_errors

__all__ = ["BuiltLibrary", "ConfigureFailed", "LibraryFailed", "LibraryToolsMissing", "build_library"]

_TARGET = "ggml-hip"
# 4.0: older ones do not search Debian's multiarch folder for package files (3.25 measured).
_CMAKE = ">=4.0"
_INSTALL = "pip install 'patchkit[library]'"
_CONFIGURE_S, _BUILD_S = 600.0, 4 * 3600.0
_SHOWN_ERRORS = 8
_CONFIGURE_LOG, _BUILD_LOG = "patchkit-configure.log", "patchkit-build.log"  # in the build folder
# Given by CMake itself, or by upstream's CMakeLists.txt.
_OURS_ALONE = (
    "-x",
    "hip",
    "-O3",
    "-DNDEBUG",
    "-std=gnu++17",
    "-fPIC",
    "--cuda-host-only",
    "--cuda-device-only",
)


class LibraryToolsMissing(ToolchainError):
    """No cmake that is new enough, no ninja, or scikit-build-core is not installed."""

    code = "LIBRARY_TOOLS_MISSING"


class ConfigureFailed(ToolchainError):
    """Upstream's CMake does not configure."""

    code = "CMAKE_CONFIGURE_FAILED"


class LibraryFailed(ToolchainError):
    """The library does not build; ``diagnostics`` are the compiler's errors."""

    code = "LIBRARY_FAILED"
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLibrary:
    """The library: its file, sizes in bytes and units, what was said and how long it took in seconds.

    ``cached_by`` is the compiler cache that upstream's CMake found (``ccache``), if there is one.
    """

    path: Path
    size_bytes: int
    units: int
    cmake: str
    cached_by: str | None
    warnings: tuple[Diagnostic, ...]
    seconds: float


def build_library(tree: Path, folder: Path, arch: str, compiler: Compiler) -> BuiltLibrary:
    """Configure and build ``ggml-hip`` of ``tree`` in ``folder``; a second time only what changed.

    Raises:
        LibraryToolsMissing, ConfigureFailed, LibraryFailed: as they say.
        ToolTimeout, ToolStopped: it was ended.
        CacheError: the disk refused.
    """
    try:
        from scikit_build_core.cmake import CMake, CMaker  # noqa: PLC0415 - see above
        from scikit_build_core.errors import CMakeNotFoundError  # noqa: PLC0415
        from scikit_build_core.file_api.reply import load_reply_dir  # noqa: PLC0415
    except ImportError as error:
        raise _missing("scikit-build-core is not installed") from error
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415

    try:
        cmake = CMake.default_search(version=SpecifierSet(_CMAKE))
    except CMakeNotFoundError as error:
        raise _missing(str(error)) from error
    with disk_errors(folder, "preparing a build"):
        folder.mkdir(parents=True, exist_ok=True)
        maker = CMaker(cmake, source_dir=tree, build_dir=folder, build_type="Release")
        maker.init_cache(_cache_entries(arch, compiler))
    environment = _environment(compiler)
    _configure(str(cmake.cmake_path), maker.init_cache_file, (tree, folder), environment, compiler)
    seconds, text = _build(str(cmake.cmake_path), folder, environment, compiler)
    index = load_reply_dir(folder / ".cmake" / "api" / "v1" / "reply")
    model = index.reply.codemodel_v2
    target = None
    if model is not None:
        target = next((one for one in model.configurations[0].targets if one.name == _TARGET), None)
    if target is None or not target.artifacts:
        raise ConfigureFailed(f"upstream's CMake has no target {_TARGET}", where=Location(path=str(folder)))
    path = folder / target.artifacts[0].path
    return BuiltLibrary(
        path=path,
        size_bytes=path.stat().st_size,
        units=sum(source.path.suffix == ".cu" for source in target.sources),
        cmake=str(cmake.version),
        cached_by=_compiler_cache(folder),
        warnings=tuple(found for found in parse_diagnostics(text) if found.kind == "warning"),
        seconds=seconds,
    )


def _cache_entries(arch: str, compiler: Compiler) -> dict[str, str | Path | bool]:
    chain = compiler.toolchain
    # With these clang recognises itself as a HIP compiler and CMake needs no help with its rules.
    flags = [flag for flag in hip_flags(chain, arch, which="both") if flag not in _OURS_ALONE]
    return {
        "CMAKE_BUILD_TYPE": "Release",
        "GGML_HIP": True,
        "GGML_HIP_ROCWMMA_FATTN": rocwmma_for(chain, arch) is not None,
        "GPU_TARGETS": arch,
        "CMAKE_HIP_ARCHITECTURES": arch,
        "CMAKE_HIP_PLATFORM": "amd",
        "CMAKE_HIP_COMPILER": str(chain.clang),
        "CMAKE_HIP_COMPILER_ROCM_ROOT": str(chain.root),
        "CMAKE_PREFIX_PATH": str(chain.root),
        "CMAKE_HIP_FLAGS": " ".join(flag for flag in flags if not flag.startswith("--offload-arch=")),
        "LLAMA_CURL": False,
        "LLAMA_BUILD_TESTS": False,
        "LLAMA_BUILD_TOOLS": False,
        "LLAMA_BUILD_EXAMPLES": False,
        "LLAMA_BUILD_SERVER": False,
    }


def _environment(compiler: Compiler) -> dict[str, str]:
    chain = compiler.toolchain
    return {
        "HIP_PLATFORM": "amd",
        "ROCM_PATH": str(chain.root),
        "HIP_PATH": str(chain.root),
        "HIP_DEVICE_LIB_PATH": str(chain.device_libs),
    }


def _configure(
    cmake: str,
    cache: Path,
    folders: tuple[Path, Path],
    environment: Mapping[str, str],
    compiler: Compiler,
) -> None:
    source, build = folders
    completed = run_tool(
        [cmake, "-G", "Ninja", "-S", str(source), "-B", str(build), "-C", str(cache)],
        env=environment,
        timeout_s=_CONFIGURE_S,
        check=False,
        reporter=compiler.reporter,
        stop=compiler.stop,
    )
    log = _keep(build / _CONFIGURE_LOG, completed)
    if completed.returncode != 0:
        text = (completed.stderr or completed.stdout).decode("utf-8", "replace")
        if "unable to find a build program" in text:
            raise _missing("there is no ninja")
        raise ConfigureFailed(
            "upstream's CMake does not configure",
            where=Location(path=str(build)),
            why="\n".join(line[:200] for line in text.strip().splitlines()[-20:]),
            hint=f"what it said is in {log}; patchkit doctor shows the toolchain",
        )


def _build(cmake: str, folder: Path, environment: Mapping[str, str], compiler: Compiler) -> tuple[float, str]:
    completed = run_tool(
        [*nice(), cmake, "--build", str(folder), "--target", _TARGET, "-j", str(workers())],
        env=environment,
        timeout_s=_BUILD_S,
        check=False,
        reporter=compiler.reporter,
        stop=compiler.stop,
    )
    log = _keep(folder / _BUILD_LOG, completed)
    # Ninja hands on what compilers write to either stream on its stdout.
    text = completed.stdout.decode("utf-8", "replace") + completed.stderr.decode("utf-8", "replace")
    if completed.returncode == 0:
        return completed.seconds, text
    refused = disk_error_from_git(text, folder, "building the library")
    if refused is not None:
        raise refused
    errors = tuple(found for found in parse_diagnostics(text) if found.kind == "error")
    failed = LibraryFailed(
        f"the library does not build: {errors[0].text if errors else 'see below'}",
        where=[found.where for found in errors[:_SHOWN_ERRORS]] or Location(path=str(folder)),
        why="\n".join(line[:200] for line in text.strip().splitlines()[-20:]),
        hint=f"all that was said is in {log}; again with: cmake --build {folder} --target {_TARGET}",
    )
    failed.diagnostics = errors
    raise failed


def _compiler_cache(folder: Path) -> str | None:
    """The program that GGML_CCACHE, which is on by default, put in front of the compiler."""
    text = (folder / "CMakeCache.txt").read_text("utf-8", "replace")
    found = re.search(r"^GGML_S?CCACHE_FOUND:\w+=(/.+)$", text, re.MULTILINE)
    return Path(found[1]).name if found else None


def _keep(path: Path, completed: Completed) -> Path:
    with disk_errors(path, "keeping a build's log"):
        path.write_bytes(completed.stdout + completed.stderr)
    return path


def _missing(why: str) -> LibraryToolsMissing:
    return LibraryToolsMissing("building the whole library needs cmake 4 and ninja", why=why, hint=_INSTALL)

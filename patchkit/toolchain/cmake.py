"""Builds upstream with its CMake and Ninja: toolchain settings, progress, errors, and the HIP library."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from packaging.specifiers import SpecifierSet
from scikit_build_core.cmake import CMake, CMaker
from scikit_build_core.errors import CMakeNotFoundError
from scikit_build_core.file_api.reply import load_reply_dir
from scikit_build_core.program_search import best_program, get_ninja_programs

from patchkit.base.digests import sha256
from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_error_from_text, disk_errors
from patchkit.base.jobs import cores
from patchkit.base.process import Completed, run_tool
from patchkit.base.reporter import Reporter
from patchkit.base.upstreams import upstream_of
from patchkit.base.watching import follow_file
from patchkit.toolchain.compiler import Compiler, nice
from patchkit.toolchain.hip import Toolchain, rocwmma_for
from patchkit.toolchain.parts import GPU_LIBRARIES
from patchkit.toolchain.remarks import Diagnostic, parse_diagnostics
from patchkit.toolchain.sdk.flags import wave_macro


@dataclass(frozen=True, slots=True, kw_only=True)
class CmakeSettings:
    """Variables to add to the caller's environment, and cache entries to pass as ``-D`` options."""

    environment: dict[str, str]
    cache: dict[str, str]


def cmake_settings(toolchain: Toolchain, archs: Sequence[str]) -> CmakeSettings:
    """The settings for building for ``archs``, with which CMake identifies the compiler as clang.

    With an SDK of HIP 6, wave64 and wave32 GPUs need different macros and so cannot share a build. rocWMMA is
    the one for the first arch.
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


_STATUS = re.compile(rb"^\[(\d+)/(\d+)\] ", re.MULTILINE)
_TAIL = 65536  # bytes at the end of a log that are searched


def last_status(text: bytes) -> tuple[int, int] | None:
    """Ninja's last ``[done/total]`` at the start of a line, or None."""
    found = _STATUS.findall(text)
    return (int(found[-1][0]), int(found[-1][1])) if found else None


def follow(log: Path, reporter: Reporter, what: str) -> AbstractContextManager[None]:
    """Report the progress of the build that writes ``log`` until the block ends."""
    began = log.stat().st_size if log.exists() else 0

    def look(file: BinaryIO) -> tuple[int, int] | None:
        size = file.seek(0, 2)
        file.seek(max(began, size - _TAIL))
        return last_status(file.read())

    return follow_file(log, look, reporter, what, "steps")


# 4.0: older versions do not search Debian's multiarch folder for package files (measured with 3.25).
_CMAKE = ">=4.0"
_NINJA = ">=1.11"  # as in pyproject.toml
_INSTALL = "both are dependencies of the Python package; install them with: pip install patchkit"
_CONFIGURE_S, _BUILD_S = 600.0, 6 * 3600.0
_SHOWN_ERRORS, _SHOWN_LINES = 8, 20


class BuildFailed(ToolchainError):
    """The build of upstream failed; ``diagnostics`` are the compiler's errors, ``log`` is the full output."""

    code = "BUILD_FAILED"
    diagnostics: tuple[Diagnostic, ...] = ()
    log: Path | None = None


class NotConfigured(ToolchainError):
    """Upstream's CMake failed to configure, or lacks an expected target."""

    code = "CMAKE_CONFIGURE_FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A CMake build: ``folder`` holds ``build`` and the logs, ``entries`` are the CMake cache entries."""

    source: Path
    folder: Path
    entries: Mapping[str, str | bool]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def build(self) -> Path:
        """The build folder."""
        return self.folder / "build"

    @property
    def log(self) -> Path:
        """The output of Ninja and the compilers, of all runs."""
        return self.folder / "build.log"


def find_cmake() -> CMake:
    """The cmake of the Python environment or on PATH. Raises LIBRARY_TOOLS_MISSING."""
    try:
        return CMake.default_search(version=SpecifierSet(_CMAKE))
    except CMakeNotFoundError as error:
        raise _missing(str(error)) from error


def find_ninja() -> str:
    """The ninja of the Python environment or on PATH; cmake itself would search only PATH.

    Raises:
        LIBRARY_TOOLS_MISSING: ninja was not found.
    """
    ninja = best_program(get_ninja_programs(module=True), version=SpecifierSet(_NINJA))
    if ninja is None:
        raise _missing("ninja was not found")
    return str(ninja.path)


def build_targets(
    project: Project,
    targets: Sequence[str],
    *,
    what: str,
    reporter: Reporter,
    stop: threading.Event | None = None,
) -> float:
    """Configure if needed, and build ``targets``; returns the seconds that Ninja took.

    Raises:
        LIBRARY_TOOLS_MISSING: cmake is missing or too old, or Ninja is missing.
        CMAKE_CONFIGURE_FAILED, BuildFailed: upstream's CMake or a compiler failed.
        ToolTimeout, ToolStopped: the build was stopped.
        CacheError: a disk operation failed.
    """
    cmake = find_cmake()
    with disk_errors(project.folder, "preparing a build"):
        project.build.mkdir(parents=True, exist_ok=True)
    _configure(project, cmake, reporter, stop)
    program = str(cmake.cmake_path)
    argv = [*nice(), program, "--build", str(project.build), "-j", str(cores()), "--target", *targets]
    began = project.log.stat().st_size if project.log.exists() else 0
    with follow(project.log, reporter, what):
        completed = _run(argv, project.log, project, _BUILD_S, reporter, stop)
    if completed.returncode != 0:
        raise _failure(project, completed, began, targets)
    return completed.seconds


def _configure(project: Project, cmake: CMake, reporter: Reporter, stop: threading.Event | None) -> None:
    """Configure once per set of entries and cmake; doing it again would make Ninja check everything."""
    stamp = project.folder / "configured"
    program, ninja = str(cmake.cmake_path), find_ninja()
    inputs = json.dumps(
        [sorted(project.entries.items()), program, str(cmake.version), str(project.source), ninja]
    )
    wanted = sha256(inputs)
    if (project.build / "build.ninja").is_file() and stamp.is_file() and stamp.read_text("ascii") == wanted:
        return
    stamp.unlink(missing_ok=True)
    with disk_errors(project.folder, "preparing a build"):
        maker = CMaker(cmake, source_dir=project.source, build_dir=project.build, build_type="Release")
        maker.init_cache(project.entries)
    argv = [program, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    argv += ["-S", str(project.source), "-B", str(project.build)]
    log = project.folder / "configure.log"
    log.unlink(missing_ok=True)
    completed = _run([*argv, "-C", str(maker.init_cache_file)], log, project, _CONFIGURE_S, reporter, stop)
    if completed.returncode != 0:
        text = log.read_text("utf-8", "replace")
        raise disk_error_from_text(text, project.folder, "configuring a build") or NotConfigured(
            "upstream's CMake failed to configure the build",
            where=Location(path=str(log)),
            why=_tail(text),
            hint="check the toolchain with patchkit doctor; -v shows the cmake command",
        )
    with disk_errors(stamp, "preparing a build"):
        stamp.write_text(wanted, "ascii")


def _run(
    argv: Sequence[str],
    log: Path,
    project: Project,
    timeout_s: float,
    reporter: Reporter,
    stop: threading.Event | None,
) -> Completed:
    with disk_errors(log, "writing a build log"):
        file = log.open("ab")
    with file:
        return run_tool(
            argv,
            into=(file, file),
            env=project.environment,
            timeout_s=timeout_s,
            check=False,
            reporter=reporter,
            stop=stop,
            work="build",
        )


def _failure(project: Project, completed: Completed, began: int, targets: Sequence[str]) -> ToolchainError:
    with project.log.open("rb") as file:
        file.seek(began)
        text = file.read().decode("utf-8", "replace")
    refused = disk_error_from_text(text, project.folder, "building")
    if refused is not None:
        raise refused
    errors = tuple(found for found in parse_diagnostics(text) if found.kind == "error")
    failed = BuildFailed(
        f"the build of upstream failed: {errors[0].text if errors else f'status {completed.returncode}'}",
        where=[found.where for found in errors[:_SHOWN_ERRORS]] or Location(path=str(project.log)),
        why=_tail(text),
        hint=f"full log: {project.log}; retry: cmake --build {project.build} --target {' '.join(targets)}",
    )
    failed.diagnostics = errors
    failed.log = project.log
    return failed


def _tail(text: str) -> str:
    return "\n".join(line[:200] for line in text.strip().splitlines()[-_SHOWN_LINES:])


def _missing(why: str) -> ToolchainError:
    return ToolchainError(
        "building upstream requires cmake 4 and ninja", code="LIBRARY_TOOLS_MISSING", why=why, hint=_INSTALL
    )


_TARGET = GPU_LIBRARIES["hip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLibrary:
    """The GPU backend library: its file and size, the number of its units, warnings and build time.

    ``cached_by`` is the compiler cache that upstream's CMake found (``ccache``), or None.
    """

    path: Path
    size_bytes: int
    units: int
    cmake: str
    cached_by: str | None
    warnings: tuple[Diagnostic, ...]
    seconds: float


def build_library(tree: Path, folder: Path, arch: str, compiler: Compiler) -> BuiltLibrary:
    """Configure and build ``ggml-hip`` of ``tree`` in ``folder``; a later call rebuilds only what changed.

    Raises as :func:`build_targets`.
    """
    project = _project(tree, folder, arch, compiler)
    began = project.log.stat().st_size if project.log.exists() else 0
    seconds = build_targets(
        project, [_TARGET], what=f"building {_TARGET}", reporter=compiler.reporter, stop=compiler.stop
    )
    with disk_errors(project.log, "reading a build log"), project.log.open("rb") as file:
        file.seek(began)
        output = file.read().decode("utf-8", "replace")
    path, units = _target(project.build)
    return BuiltLibrary(
        path=path,
        size_bytes=path.stat().st_size,
        units=units,
        cmake=str(find_cmake().version),
        cached_by=_compiler_cache(project.build),
        warnings=tuple(found for found in parse_diagnostics(output) if found.kind == "warning"),
        seconds=seconds,
    )


def _project(tree: Path, folder: Path, arch: str, compiler: Compiler) -> Project:
    settings = cmake_settings(compiler.toolchain, [arch])
    upstream = upstream_of(tree).cmake
    return Project(
        source=tree,
        folder=folder,
        entries={
            **settings.cache,
            "CMAKE_BUILD_TYPE": "Release",
            "GGML_HIP": True,
            "GGML_HIP_ROCWMMA_FATTN": rocwmma_for(compiler.toolchain, arch) is not None,
            "GPU_TARGETS": arch,
            **upstream.always,
            **upstream.without_programs,
        },
        environment=settings.environment,
    )


def _target(build: Path) -> tuple[Path, int]:
    """The library's file and the number of its units, from CMake's file API."""
    model = load_reply_dir(build / ".cmake" / "api" / "v1" / "reply").reply.codemodel_v2
    target = None
    if model is not None:
        target = next((one for one in model.configurations[0].targets if one.name == _TARGET), None)
    if target is None or not target.artifacts:
        raise NotConfigured(
            f"upstream's CMake has no target {_TARGET}",
            where=Location(path=str(build)),
        )
    units = sum(source.path.suffix == ".cu" for source in target.sources)
    return build / target.artifacts[0].path, units


def _compiler_cache(build: Path) -> str | None:
    """The compiler cache that upstream uses by default (GGML_CCACHE), or None."""
    text = (build / "CMakeCache.txt").read_text("utf-8", "replace")
    found = re.search(r"^GGML_S?CCACHE_FOUND:\w+=(/.+)$", text, re.MULTILINE)
    return Path(found[1]).name if found else None

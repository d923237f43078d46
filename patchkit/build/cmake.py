"""Upstream's own build of the HIP library, for who wants to see all of it compile and link.

Vocabulary: the *library* is the target ``ggml-hip``, a :class:`patchkit.build.cmake_project.Project` of its
own; what it is made of is read from CMake's file API.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from patchkit.build.cmake_project import Project, build_targets, find_cmake
from patchkit.build.cmake_settings import cmake_settings
from patchkit.build.compiler import Compiler
from patchkit.build.remarks import Diagnostic, parse_diagnostics
from patchkit.build.toolchain import rocwmma_for
from patchkit.errors import Location, ToolchainError
from patchkit.vcs.disk import disk_errors

_TARGET = "ggml-hip"
_LEFT_OUT = (
    "LLAMA_CURL",
    "LLAMA_BUILD_TESTS",
    "LLAMA_BUILD_TOOLS",
    "LLAMA_BUILD_EXAMPLES",
    "LLAMA_BUILD_SERVER",
)


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
        LIBRARY_TOOLS_MISSING, CMAKE_CONFIGURE_FAILED, BuildFailed: as they say.
        ToolTimeout, ToolStopped: it was ended.
        CacheError: the disk refused.
    """
    project = _project(tree, folder, arch, compiler)
    began = project.log.stat().st_size if project.log.exists() else 0
    seconds = build_targets(
        project, [_TARGET], what=f"building {_TARGET}", reporter=compiler.reporter, stop=compiler.stop
    )
    with disk_errors(project.log, "reading a build log"), project.log.open("rb") as file:
        file.seek(began)
        said = file.read().decode("utf-8", "replace")
    path, units = _target(project.build)
    return BuiltLibrary(
        path=path,
        size_bytes=path.stat().st_size,
        units=units,
        cmake=str(find_cmake().version),
        cached_by=_compiler_cache(project.build),
        warnings=tuple(found for found in parse_diagnostics(said) if found.kind == "warning"),
        seconds=seconds,
    )


def _project(tree: Path, folder: Path, arch: str, compiler: Compiler) -> Project:
    settings = cmake_settings(compiler.toolchain, [arch])
    return Project(
        source=tree,
        folder=folder,
        entries={
            **settings.cache,
            "CMAKE_BUILD_TYPE": "Release",
            "GGML_HIP": True,
            "GGML_HIP_ROCWMMA_FATTN": rocwmma_for(compiler.toolchain, arch) is not None,
            "GPU_TARGETS": arch,
            **dict.fromkeys(_LEFT_OUT, False),
        },
        environment=settings.environment,
    )


def _target(build: Path) -> tuple[Path, int]:
    """The library's file and the number of its units, as CMake describes its target."""
    from scikit_build_core.file_api.reply import load_reply_dir  # noqa: PLC0415 - 140 ms

    model = load_reply_dir(build / ".cmake" / "api" / "v1" / "reply").reply.codemodel_v2
    target = None
    if model is not None:
        target = next((one for one in model.configurations[0].targets if one.name == _TARGET), None)
    if target is None or not target.artifacts:
        raise ToolchainError(
            f"upstream's CMake has no target {_TARGET}",
            code="CMAKE_CONFIGURE_FAILED",
            where=Location(path=str(build)),
        )
    units = sum(source.path.suffix == ".cu" for source in target.sources)
    return build / target.artifacts[0].path, units


def _compiler_cache(build: Path) -> str | None:
    """The program that GGML_CCACHE, which is on by default, put in front of the compiler."""
    text = (build / "CMakeCache.txt").read_text("utf-8", "replace")
    found = re.search(r"^GGML_S?CCACHE_FOUND:\w+=(/.+)$", text, re.MULTILINE)
    return Path(found[1]).name if found else None

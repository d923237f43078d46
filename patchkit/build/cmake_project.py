"""One CMake project built with Ninja in a folder of its own: configured once, resumed, logged.

Vocabulary: a *project* is a source folder, a build folder and the cache entries that configure it;
*targets* are what is built of it. scikit-build-core finds a cmake and writes the typed cache entries;
cmake runs through :mod:`patchkit.proc`, with its output in ``configure.log`` and ``build.log`` beside the
build folder, because the library's own ``configure`` and ``build`` write to our stdout and forget the
command when it fails. A build that was interrupted goes on where it was: that is Ninja's own doing.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit.build.compiler import nice
from patchkit.build.ninja import follow
from patchkit.build.parallel import workers
from patchkit.build.remarks import Diagnostic, parse_diagnostics
from patchkit.errors import Location, ToolchainError
from patchkit.proc import Completed, run_logged
from patchkit.report import Reporter
from patchkit.vcs.disk import disk_error_from_git, disk_errors

if TYPE_CHECKING:
    from scikit_build_core.cmake import CMake

# 4.0: older ones do not search Debian's multiarch folder for package files (3.25 measured).
_CMAKE = ">=4.0"
_NINJA = ">=1.11"  # as pyproject.toml asks for
_INSTALL = "pip install 'patchkit[library]'"
_CONFIGURE_S, _BUILD_S = 600.0, 6 * 3600.0
_SHOWN_ERRORS, _SHOWN_LINES = 8, 20


class BuildFailed(ToolchainError):
    """Upstream does not build; ``diagnostics`` are the compiler's errors, ``log`` the whole output."""

    code = "BUILD_FAILED"
    diagnostics: tuple[Diagnostic, ...] = ()
    log: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """``folder`` gets ``build``, ``configure.log`` and ``build.log``; ``entries`` are cache entries."""

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
        """All that Ninja and the compilers said, of every run."""
        return self.folder / "build.log"


def find_cmake() -> CMake:
    """The cmake of the environment or of PATH. Raises LIBRARY_TOOLS_MISSING."""
    try:
        from scikit_build_core.cmake import CMake  # noqa: PLC0415 - 140 ms
        from scikit_build_core.errors import CMakeNotFoundError  # noqa: PLC0415
    except ImportError as error:
        raise _missing("scikit-build-core is not installed") from error
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415

    try:
        return CMake.default_search(version=SpecifierSet(_CMAKE))
    except CMakeNotFoundError as error:
        raise _missing(str(error)) from error


def find_ninja() -> str:
    """The ninja of the environment or of PATH: cmake would look on PATH only.

    Raises:
        LIBRARY_TOOLS_MISSING: there is none.
    """
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415
    from scikit_build_core.program_search import best_program, get_ninja_programs  # noqa: PLC0415

    ninja = best_program(get_ninja_programs(module=True), version=SpecifierSet(_NINJA))
    if ninja is None:
        raise _missing("there is no ninja")
    return str(ninja.path)


def build_targets(
    project: Project,
    targets: Sequence[str],
    *,
    what: str,
    reporter: Reporter,
    stop: threading.Event | None = None,
) -> float:
    """Configure if need be and build ``targets``; returns the seconds that Ninja took.

    Raises:
        LIBRARY_TOOLS_MISSING: no cmake that is new enough, no Ninja, no scikit-build-core.
        CMAKE_CONFIGURE_FAILED, BuildFailed: upstream's CMake or a compiler refused.
        ToolTimeout, ToolStopped: it was ended.
        CacheError: the disk refused.
    """
    cmake = find_cmake()
    with disk_errors(project.folder, "preparing a build"):
        project.build.mkdir(parents=True, exist_ok=True)
    _configure(project, cmake, reporter, stop)
    program = str(cmake.cmake_path)
    argv = [*nice(), program, "--build", str(project.build), "-j", str(workers()), "--target", *targets]
    began = project.log.stat().st_size if project.log.exists() else 0
    with follow(project.log, reporter, what):
        completed = _run(argv, project.log, project, _BUILD_S, reporter, stop)
    if completed.returncode != 0:
        raise _failure(project, completed, began, targets)
    return completed.seconds


def _configure(project: Project, cmake: CMake, reporter: Reporter, stop: threading.Event | None) -> None:
    """Once per set of entries and per cmake: a second run would only make Ninja look at everything."""
    from scikit_build_core.cmake import CMaker  # noqa: PLC0415 - as above

    stamp = project.folder / "configured"
    program, ninja = str(cmake.cmake_path), find_ninja()
    told = json.dumps(
        [sorted(project.entries.items()), program, str(cmake.version), str(project.source), ninja]
    )
    wanted = hashlib.sha256(told.encode()).hexdigest()
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
        raise disk_error_from_git(text, project.folder, "configuring a build") or ToolchainError(
            "upstream's CMake does not configure",
            code="CMAKE_CONFIGURE_FAILED",
            where=Location(path=str(log)),
            why=_tail(text),
            hint="patchkit doctor shows the toolchain; with -v the command is shown",
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
        return run_logged(
            argv,
            stdout=file,
            stderr=file,
            env=project.environment,
            timeout_s=timeout_s,
            reporter=reporter,
            stop=stop,
        )


def _failure(project: Project, completed: Completed, began: int, targets: Sequence[str]) -> ToolchainError:
    with project.log.open("rb") as file:
        file.seek(began)
        text = file.read().decode("utf-8", "replace")
    refused = disk_error_from_git(text, project.folder, "building")
    if refused is not None:
        raise refused
    errors = tuple(found for found in parse_diagnostics(text) if found.kind == "error")
    failed = BuildFailed(
        f"upstream does not build: {errors[0].text if errors else f'status {completed.returncode}'}",
        where=[found.where for found in errors[:_SHOWN_ERRORS]] or Location(path=str(project.log)),
        why=_tail(text),
        hint=f"whole log: {project.log}; again: cmake --build {project.build} --target {' '.join(targets)}",
    )
    failed.diagnostics = errors
    failed.log = project.log
    return failed


def _tail(text: str) -> str:
    return "\n".join(line[:200] for line in text.strip().splitlines()[-_SHOWN_LINES:])


def _missing(why: str) -> ToolchainError:
    return ToolchainError(
        "building upstream needs cmake 4 and ninja", code="LIBRARY_TOOLS_MISSING", why=why, hint=_INSTALL
    )

"""Makes a wheel of programs that were built, which pip installs and which run by their own names."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_error_from_text, disk_errors
from patchkit.base.process import ToolFailed, run_tool
from patchkit.base.reporter import Reporter
from patchkit.toolchain.sides import BuiltSide

_TIMEOUT_S = 1800.0
_MAKING = "making a wheel"
_ELSEWHERE = "name another folder with --out"
_BACKEND = "scikit_build_core.build"
# In a process of its own: a build backend works in the current folder.
_BUILD = f"import sys; from {_BACKEND} import build_wheel; build_wheel(sys.argv[1])"

_CMAKE = """\
cmake_minimum_required(VERSION 3.18...4.4)
project(package LANGUAGES NONE)
install(DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/bin/" DESTINATION "%s/bin" USE_SOURCE_PERMISSIONS)
"""

_INIT = '''\
"""llama.cpp's programs, build {build}, for {what}: made by patchkit."""

import ctypes
import os
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent / "bin"
BACKEND = {backend!r}
INFORMATION = {information}


def _run(name):
    if not {{"-h", "--help", "--version"}} & {{*sys.argv[1:]}}:
        _check()
    program = FOLDER / name
    os.execv(program, [str(program), *sys.argv[1:]])


def _check():
    """The programs go on without a backend that does not load, on the CPU, and do not say so."""
    try:
        ctypes.CDLL(str(FOLDER / BACKEND))
    except OSError as error:
        sys.exit(
            f"error: {{BACKEND}} does not load: {{error}}\\n"
            "why: this wheel is for " + INFORMATION["for"] + ", and needs " + INFORMATION["needs"] + "\\n"
            "hint: install that, or make the wheel where it is to run: patchkit package"
        )
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelContents:
    """What goes into a wheel. ``name`` is the distribution's; ``information`` is kept in the package.

    Of it ``build``, ``for`` and ``needs`` (of the machine that it runs on) must be there.
    """

    name: str
    version: str
    summary: str
    programs: tuple[str, ...]
    licence: Path
    information: dict[str, str]

    @property
    def module(self) -> str:
        """The import name."""
        return self.name.replace("-", "_")


def check_folder(folder: Path) -> None:
    """Refuse a folder that a wheel cannot be put into, before the time for a build is spent; writes nothing.

    Raises:
        CacheError: the disk refused.
    """
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    with disk_errors(folder, _MAKING, _ELSEWHERE), tempfile.TemporaryDirectory(dir=above, prefix=".wheel-"):
        pass


def make_wheel(side: BuiltSide, contents: WheelContents, folder: Path, reporter: Reporter) -> Path:
    """The wheel, in ``folder``; one of that name is replaced.

    Raises:
        WHEEL_NOT_MADE: it refused.
        CacheError: the disk refused.
    """
    with disk_errors(folder, _MAKING, _ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".wheel-", dir=folder))
    try:
        with disk_errors(folder, _MAKING, _ELSEWHERE):
            project = work / "project"
            _write_project(project, side, contents)
            (work / "dist").mkdir()
        _build(project, work / "dist", reporter)
        with disk_errors(folder, _MAKING, _ELSEWHERE):
            (made,) = (work / "dist").glob("*.whl")
            return made.replace(folder / made.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_project(project: Path, side: BuiltSide, contents: WheelContents) -> None:
    package = project / contents.module
    package.mkdir(parents=True)
    binaries = project / "bin"
    binaries.mkdir()
    for path in sorted(side.folder.iterdir()):
        if path.name in contents.programs or (path.name.startswith("lib") and ".so" in path.name):
            shutil.copy2(path, binaries / path.name)  # links become files: a wheel holds none
    shutil.copy2(contents.licence, project / "LICENSE")
    (package / "__init__.py").write_text(init_text(contents, side.module.name), "utf-8")
    (project / "CMakeLists.txt").write_text(_CMAKE % contents.module, "utf-8")
    (project / "pyproject.toml").write_text(_pyproject_text(contents), "utf-8")


def init_text(contents: WheelContents, backend: str) -> str:
    """The package's ``__init__.py``; ``backend`` is the library without which its programs refuse to run."""
    text = _INIT.format(
        backend=backend,
        build=contents.information["build"],
        what=contents.information["for"],
        information=json.dumps(contents.information, indent=4, sort_keys=True),
    )
    entries = "".join(
        f'\n\ndef {_function(name)}():\n    """Run {name}."""\n    _run("{name}")\n'
        for name in contents.programs
    )
    return text + entries


def _pyproject_text(contents: WheelContents) -> str:
    scripts = "\n".join(
        f'{name} = "{contents.module}:{_function(name)}"' for name in sorted(contents.programs)
    )
    return f"""\
[build-system]
requires = ["scikit-build-core"]
build-backend = "{_BACKEND}"

[project]
name = "{contents.name}"
version = "{contents.version}"
description = {json.dumps(contents.summary)}
requires-python = ">=3.9"
license = "MIT"
license-files = ["LICENSE"]

[project.scripts]
{scripts}

[tool.scikit-build]
wheel.packages = ["{contents.module}"]
wheel.py-api = "py3"
wheel.platlib = true
"""


def _function(program: str) -> str:
    return program.replace("-", "_")


def _build(project: Path, dist: Path, reporter: Reporter) -> None:
    try:
        run_tool(
            [sys.executable, "-c", _BUILD, str(dist)], cwd=project, timeout_s=_TIMEOUT_S, reporter=reporter
        )
    except ToolFailed as error:
        text = error.why or ""
        raise disk_error_from_text(text, dist, _MAKING, _ELSEWHERE) or ToolchainError(
            "the wheel could not be made",
            code="WHEEL_NOT_MADE",
            where=Location(path=str(project)),
            why=text,
            hint=error.hint,
        ) from error

"""Packages built programs as a wheel, which pip installs, or as a tar archive, which is unpacked anywhere."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.files import disk_error_from_text, disk_errors, working_folder
from patchkit.base.process import ToolFailed, run_tool
from patchkit.base.reporter import Reporter
from patchkit.toolchain.sides import BuiltSide

_TIMEOUT_S = 1800.0
_MAKING = "packaging the programs"
_ELSEWHERE = "name another folder with --out"
_WORK = ".package-"  # of temporary folders
_BACKEND = "scikit_build_core.build"
# Runs in a separate process, because a build backend uses the current directory.
_BUILD = f"import sys; from {_BACKEND} import build_wheel; build_wheel(sys.argv[1])"

_CMAKE = """\
cmake_minimum_required(VERSION 3.18...4.4)
project(package LANGUAGES NONE)
install(DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/bin/" DESTINATION "%s/bin" USE_SOURCE_PERMISSIONS)
"""

_INIT = '''\
"""llama.cpp's programs, build {build}, for {what}; built by patchkit."""

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
    """Exit with an error if the backend does not load; the programs would silently use the CPU."""
    try:
        ctypes.CDLL(str(FOLDER / BACKEND))
    except OSError as error:
        sys.exit(
            f"error: cannot load {{BACKEND}}: {{error}}\\n"
            "why: this wheel is for " + INFORMATION["for"] + " and requires " + INFORMATION["needs"] + "\\n"
            "hint: install that, or build the wheel on this machine: patchkit package"
        )
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageContents:
    """The contents of a package. ``name`` is that of the distribution; ``information`` is kept inside.

    ``information`` must have ``build``, ``for`` and ``needs`` (requirements on the machine that runs it).
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
    """Check that a package can be written to ``folder``, before spending time on a build; leaves no files.

    Raises:
        CacheError: a disk operation failed.
    """
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    with disk_errors(folder, _MAKING, _ELSEWHERE), tempfile.TemporaryDirectory(dir=above, prefix=_WORK):
        pass


def make_wheel(side: BuiltSide, contents: PackageContents, folder: Path, reporter: Reporter) -> Path:
    """Build the wheel in ``folder``, replacing one of the same name.

    Raises:
        ToolchainError: the build backend failed.
        CacheError: a disk operation failed.
    """
    with working_folder(folder, _WORK, _MAKING, _ELSEWHERE) as work:
        with disk_errors(folder, _MAKING, _ELSEWHERE):
            project = work / "project"
            _write_project(project, side, contents)
            (work / "dist").mkdir()
        _build(project, work / "dist", reporter)
        with disk_errors(folder, _MAKING, _ELSEWHERE):
            (wheel,) = (work / "dist").glob("*.whl")
            return wheel.replace(folder / wheel.name)


def make_archive(side: BuiltSide, contents: PackageContents, folder: Path) -> Path:
    """Write ``NAME-VERSION.tar.gz`` into ``folder``, replacing one of the same name.

    It has one folder with the programs, their libraries, ``LICENSE``, and the ``information`` in
    ``patchkit.json``. The same files give the same bytes.

    Raises:
        CacheError: a disk operation failed.
    """
    name = f"{contents.name}-{contents.version}"
    with (
        working_folder(folder, _WORK, _MAKING, _ELSEWHERE) as work,
        disk_errors(folder, _MAKING, _ELSEWHERE),
    ):
        partial = work / f"{name}.tar.gz"
        with (
            partial.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            _fill(archive, name, side, contents)
        return partial.replace(folder / partial.name)


def _fill(archive: tarfile.TarFile, top: str, side: BuiltSide, contents: PackageContents) -> None:
    text = json.dumps(contents.information, indent=1, sort_keys=True) + "\n"
    for name, data in (("LICENSE", contents.licence.read_bytes()), ("patchkit.json", text.encode())):
        entry = tarfile.TarInfo(f"{top}/{name}")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    for path in _files(side, contents):
        entry = tarfile.TarInfo(f"{top}/{path.name}")
        entry.mode = 0o755
        if path.is_symlink():  # a library's short names
            entry.type, entry.linkname = tarfile.SYMTYPE, os.fspath(path.readlink())
            archive.addfile(entry)
        else:
            entry.size = path.stat().st_size
            with path.open("rb") as stream:
                archive.addfile(entry, stream)


def _files(side: BuiltSide, contents: PackageContents) -> Iterator[Path]:
    """The programs and libraries of a build, by name."""
    for path in sorted(side.folder.iterdir()):
        if path.name in contents.programs or (path.name.startswith("lib") and ".so" in path.name):
            yield path


def _write_project(project: Path, side: BuiltSide, contents: PackageContents) -> None:
    package = project / contents.module
    package.mkdir(parents=True)
    binaries = project / "bin"
    binaries.mkdir()
    for path in _files(side, contents):
        shutil.copy2(path, binaries / path.name)  # links become files: wheels cannot contain links
    shutil.copy2(contents.licence, project / "LICENSE")
    (package / "__init__.py").write_text(init_text(contents, side.module.name), "utf-8")
    (project / "CMakeLists.txt").write_text(_CMAKE % contents.module, "utf-8")
    (project / "pyproject.toml").write_text(_pyproject_text(contents), "utf-8")


def init_text(contents: PackageContents, backend: str) -> str:
    """The package's ``__init__.py``; ``backend`` is the library that must load before a program runs."""
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


def _pyproject_text(contents: PackageContents) -> str:
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
            "building the wheel failed",
            where=Location(path=str(project)),
            why=text,
            hint=error.hint,
        ) from error

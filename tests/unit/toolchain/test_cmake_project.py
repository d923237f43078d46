"""A small project through CMake and Ninja: built, resumed, failing in each way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from refusing import refused

from patchkit.base.process import ToolStopped
from patchkit.base.reporter import NullReporter
from patchkit.toolchain import cmake as cmake_project
from patchkit.toolchain.cmake import BuildFailed, Project, build_targets

CMAKE = """\
cmake_minimum_required(VERSION 3.18...4.4)
project(small LANGUAGES C)
add_executable(small main.c other.c)
add_executable(second other.c main.c)
add_custom_target(slow COMMAND ${CMAKE_COMMAND} -E touch began COMMAND ${CMAKE_COMMAND} -E sleep 600)
"""

_INTERRUPTED = """
import sys
from pathlib import Path
from patchkit.toolchain.cmake import Project, build_targets
from patchkit.base.reporter import NullReporter
source, folder = map(Path, sys.argv[1:])
project = Project(source=source, folder=folder, entries={"CMAKE_BUILD_TYPE": "Release"})
build_targets(project, ["small", "slow"], what="building", reporter=NullReporter())
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(CMAKE)
    (source / "main.c").write_text("int other(void); int main(void) { return other(); }\n")
    (source / "other.c").write_text("int other(void) { return 0; }\n")
    return Project(source=source, folder=tmp_path / "folder", entries={"CMAKE_BUILD_TYPE": "Release"})


def build(project: Project, *targets: str, stop: threading.Event | None = None) -> float:
    return build_targets(project, targets or ("small",), what="building", reporter=NullReporter(), stop=stop)


def test_a_second_build_does_nothing(project: Project) -> None:
    build(project)
    assert (project.build / "small").is_file()
    assert not (project.build / "second").exists()
    configured = (project.folder / "configure.log").stat().st_mtime_ns
    build(project)
    assert (project.folder / "configure.log").stat().st_mtime_ns == configured
    assert "no work to do" in project.log.read_text().splitlines()[-1]
    build(project, "second")
    assert (project.build / "second").is_file()


def test_other_entries_configure_again(project: Project) -> None:
    build(project)
    changed = Project(
        source=project.source, folder=project.folder, entries={**project.entries, "EXTRA": True}
    )
    build(changed)
    assert "EXTRA:BOOL=ON" in (project.build / "CMakeCache.txt").read_text()


def test_a_compile_error_has_its_place_and_the_whole_log(project: Project) -> None:
    (project.source / "other.c").write_text("int other(void) {\n    return unknown_name;\n}\n")
    with pytest.raises(BuildFailed, match="unknown_name") as caught:
        build(project)
    error = caught.value
    assert error.where[0].path == str(project.source / "other.c")
    assert error.where[0].line == 2
    assert error.log == project.log
    assert "unknown_name" in project.log.read_text()
    (project.source / "other.c").write_text("int other(void) { return 0; }\n")
    build(project)  # goes on
    assert (project.build / "small").is_file()


def test_a_project_that_does_not_configure(project: Project) -> None:
    (project.source / "CMakeLists.txt").write_text(CMAKE + 'message(FATAL_ERROR "not here")\n')
    with refused("CMAKE_CONFIGURE_FAILED", match="failed to configure") as caught:
        build(project)
    assert "not here" in (caught.value.why or "")
    (project.source / "CMakeLists.txt").write_text(CMAKE)
    build(project)


def test_a_stopped_build_can_be_resumed(project: Project) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(ToolStopped):
        build(project, stop=stop)
    build(project)
    assert (project.build / "small").is_file()


def test_without_a_ninja(project: Project, monkeypatch) -> None:
    monkeypatch.setattr(cmake_project, "_NINJA", ">=99")
    with refused("LIBRARY_TOOLS_MISSING") as caught:
        build(project)
    assert caught.value.why == "ninja was not found"


def test_ninja_need_not_be_on_the_path(project: Project, monkeypatch, tmp_path: Path) -> None:
    for name in ("cc", "gcc", "ld", "as", "ar", "ranlib", "nice"):
        found = shutil.which(name)
        if found:
            (tmp_path / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    build(project)
    assert (project.build / "small").is_file()


def test_without_a_cmake_that_is_new_enough(project: Project, monkeypatch) -> None:
    monkeypatch.setattr(cmake_project, "_CMAKE", ">=99")
    with refused("LIBRARY_TOOLS_MISSING", match="cmake 4 and ninja") as caught:
        build(project)
    assert "pip install patchkit" in (caught.value.hint or "")


def test_ctrl_c_ends_ninja_and_its_children_and_the_build_goes_on_later(project: Project) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, str(project.source), str(project.folder)],
        env={**os.environ, "PYTHONPATH": str(Path(cmake_project.__file__).parents[2])},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (project.build / "began").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) != 0
    ours = str(project.build).encode()
    deadline = time.monotonic() + 20  # a killed process remains in /proc until it is reaped
    while any(ours in _read(path) for path in Path("/proc").glob("[0-9]*/cmdline")):
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    build(project)
    assert (project.build / "small").is_file()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # ended meanwhile
        return b""

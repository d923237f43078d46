"""A small project through CMake and Ninja: built, resumed, failing in each way."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from patchkit.build import cmake_project
from patchkit.build.cmake import ConfigureFailed, LibraryToolsMissing
from patchkit.build.cmake_project import BuildFailed, Project, build_targets
from patchkit.proc import ToolStopped
from patchkit.report import NullReporter

CMAKE = """\
cmake_minimum_required(VERSION 3.18...4.4)
project(small LANGUAGES C)
add_executable(small main.c other.c)
add_executable(second other.c main.c)
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


def test_a_target_is_built_and_a_second_time_only_looked_at(project: Project) -> None:
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
    with pytest.raises(ConfigureFailed, match="does not configure") as caught:
        build(project)
    assert "not here" in (caught.value.why or "")
    (project.source / "CMakeLists.txt").write_text(CMAKE)
    build(project)


def test_a_build_that_is_told_to_stop_goes_on_later(project: Project) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(ToolStopped):
        build(project, stop=stop)
    build(project)
    assert (project.build / "small").is_file()


def test_without_a_cmake_that_is_new_enough(project: Project, monkeypatch) -> None:
    monkeypatch.setattr(cmake_project, "_CMAKE", ">=99")
    with pytest.raises(LibraryToolsMissing, match="cmake 4 and ninja") as caught:
        build(project)
    assert "patchkit[library]" in (caught.value.hint or "")


def test_entries_are_typed(project: Project) -> None:
    build(project)
    text = (project.build / "CMakeInit.txt").read_text()
    assert "CMAKE_BUILD_TYPE" in text
    assert json.loads((project.build / ".skbuild-info.json").read_text())

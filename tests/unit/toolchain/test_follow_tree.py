"""A folder that is updated from trees: only changed files get a new mtime."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchkit.toolchain.tree import follow_tree

_FILES = {"CMakeLists.txt": "project(x)", "src/a.cu": "a", "src/b.cu": "b", "inc/h.cuh": "h"}
_LONG_AGO = 1_000_000_000


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def _followed(copy: Path) -> dict[str, str]:
    return {str(path.relative_to(copy)): path.read_text() for path in copy.rglob("*") if path.is_file()}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    copy, build = tmp_path / "copy", tmp_path / "build"
    follow_tree(_tree(tmp_path / "one", _FILES), copy, build)
    assert _followed(copy) == _FILES
    for path in copy.rglob("*"):
        os.utime(path, (_LONG_AGO, _LONG_AGO))
    build.mkdir()
    (build / "object").write_text("o")
    return copy


def _newer(copy: Path) -> set[str]:
    files = (path for path in copy.rglob("*") if path.is_file())
    return {str(path.relative_to(copy)) for path in files if path.stat().st_mtime > _LONG_AGO}


def test_only_changed_files_get_a_new_mtime(copy: Path, tmp_path: Path) -> None:
    other = _tree(tmp_path / "other", {**_FILES, "src/a.cu": "changed"})
    old = tmp_path / "other/src/a.cu"
    os.utime(old, (_LONG_AGO - 5, _LONG_AGO - 5))
    follow_tree(other, copy, tmp_path / "build")
    assert _newer(copy) == {"src/a.cu"}
    assert _followed(copy)["src/a.cu"] == "changed"
    assert (tmp_path / "build/object").exists()


def test_an_added_or_removed_file_makes_cmake_run_again(copy: Path, tmp_path: Path) -> None:
    files = {name: text for name, text in _FILES.items() if name != "src/b.cu"} | {"src/c.cu": "c"}
    follow_tree(_tree(tmp_path / "other", files), copy, tmp_path / "build")
    assert _followed(copy) == files
    assert _newer(copy) == {"CMakeLists.txt", "src/c.cu"}
    assert (tmp_path / "build/object").exists()


def test_adding_a_header_with_a_duplicate_name_discards_the_build(copy: Path, tmp_path: Path) -> None:
    follow_tree(_tree(tmp_path / "other", {**_FILES, "src/h.cuh": "nearer"}), copy, tmp_path / "build")
    assert not (tmp_path / "build").exists()

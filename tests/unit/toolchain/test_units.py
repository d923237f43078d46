"""The units that upstream compiles, and the files that each can include."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import refused

from patchkit.toolchain.units import SourceTree, platform_units, units_including

_CMAKE = """
if (FOO)
    file(GLOB HEADERS "../ggml-cuda/*.cuh")
endif()
file(GLOB   GGML_SOURCES_ROCM "../ggml-cuda/*.cu")
if (GGML_CUDA_FA_ALL_QUANTS)
    file(GLOB   SRCS "../ggml-cuda/template-instances/all*.cu")
else()
    file(GLOB   SRCS "../ggml-cuda/template-instances/some*.cu")
endif()
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "ggml/src/ggml-hip/CMakeLists.txt": _CMAKE,
        "ggml/src/ggml-cuda/a.cu": '#include "a.cuh"\n#include <vector>\n',
        "ggml/src/ggml-cuda/b.cu": '#if 0\n#  include "deep/c.cuh"\n#endif\n',
        "ggml/src/ggml-cuda/a.cuh": '#include "ggml.h"\n#include "a.cuh"\n',
        "ggml/src/ggml-cuda/deep/c.cuh": '#include "../a.cuh"\n#include <cub/cub.cuh>\n',
        "ggml/src/ggml-cuda/template-instances/all-1.cu": "",
        "ggml/src/ggml-cuda/template-instances/some-1.cu": '#include "../nowhere.cuh"\n',
        "ggml/include/ggml.h": "",
        "ggml/src/ggml-impl.h": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_units_are_those_of_the_default_options(tree: Path) -> None:
    assert platform_units(tree, "hip") == (
        "ggml/src/ggml-cuda/a.cu",
        "ggml/src/ggml-cuda/b.cu",
        "ggml/src/ggml-cuda/template-instances/some-1.cu",
    )


def test_the_closure_ignores_conditions_and_follows_relative_names(tree: Path) -> None:
    source = SourceTree(tree)
    assert source.closure("ggml/src/ggml-cuda/b.cu") == (
        "ggml/include/ggml.h",
        "ggml/src/ggml-cuda/a.cuh",
        "ggml/src/ggml-cuda/b.cu",
        "ggml/src/ggml-cuda/deep/c.cuh",
    )
    assert source.system_headers("ggml/src/ggml-cuda/b.cu") == ("cub/cub.cuh",)


def test_units_that_reach_a_file(tree: Path) -> None:
    def reaching(file: str) -> list[str]:
        found = units_including(SourceTree(tree), [file], platform_units(tree, "hip"))
        return [unit.rpartition("/")[2] for unit in found]

    assert reaching("ggml/src/ggml-cuda/deep/c.cuh") == ["b.cu"]
    assert reaching("ggml/include/ggml.h") == ["a.cu", "b.cu"]
    assert reaching("ggml/src/ggml-impl.h") == []


def test_a_missing_or_empty_list_is_an_error(tree: Path) -> None:
    with refused("BUILD_LIST_MISSING") as caught:
        platform_units(tree, "musa")
    assert caught.value.where[0].path == "ggml/src/ggml-musa/CMakeLists.txt"
    (tree / "ggml/src/ggml-hip/CMakeLists.txt").write_text("# nothing\n")
    with refused("BUILD_LIST_MISSING"):
        platform_units(tree, "hip")


def test_an_include_by_macro_is_an_error_with_its_line(tree: Path) -> None:
    (tree / "ggml/src/ggml-cuda/a.cu").write_text("\n#include HEADER\n")
    with refused("COMPUTED_INCLUDE") as caught:
        SourceTree(tree).closure("ggml/src/ggml-cuda/a.cu")
    assert str(caught.value.where[0]) == "ggml/src/ggml-cuda/a.cu:2"


def test_units_named_one_by_one_count_where_their_branch_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "ggml/src/ggml-cuda/template-instances"
    folder.mkdir(parents=True)
    for name in ("vec-a", "vec-b", "vec-all", "tile"):
        (folder / f"{name}.cu").write_text("")
    text = """file(GLOB SRCS "../ggml-cuda/template-instances/tile*.cu")
list(APPEND GGML_SOURCES_ROCM ${SRCS})
if (GGML_CUDA_FA_ALL_QUANTS)
    list(APPEND GGML_SOURCES_ROCM ../ggml-cuda/template-instances/vec-all.cu)
else()
    list(APPEND GGML_SOURCES_ROCM
        ../ggml-cuda/template-instances/vec-a.cu
        ../ggml-cuda/template-instances/vec-b.cu)
endif()
"""
    (tmp_path / "ggml/src/ggml-hip").mkdir()
    (tmp_path / "ggml/src/ggml-hip/CMakeLists.txt").write_text(text)
    names = [unit.rpartition("/")[2] for unit in platform_units(tmp_path, "hip")]
    assert names == ["tile.cu", "vec-a.cu", "vec-b.cu"]

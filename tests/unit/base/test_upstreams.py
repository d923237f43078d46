from __future__ import annotations

import pytest

from patchkit.base.errors import ErrorGroup
from patchkit.base.upstreams import (
    build_name,
    find_projects,
    llama_cpp,
    load_upstream,
    load_upstreams,
    recognise,
    upstream_of,
)

SHIPPED = llama_cpp()


@pytest.mark.parametrize(
    ("name", "build", "is_release"),
    [
        ("b11549", 11549, False),
        ("v0.5.0", None, True),
        ("b0", None, False),
        ("b011549", None, False),
        ("b11549-fix", None, False),
        ("v0.5", None, False),
        ("v0.05.0", None, False),
        ("v0.5.0-rc1", None, False),
        ("11549", None, False),
    ],
)
def test_tags_are_read_as_builds_or_releases_or_neither(name, build, is_release):
    assert SHIPPED.tags.build_number(name) == build
    assert SHIPPED.tags.is_release(name) == is_release


@pytest.mark.parametrize(("text", "build"), [("b6900", 6900), ("6900", 6900), ("b", None), ("6900x", None)])
def test_the_letter_of_a_build_is_optional_for_users(text, build):
    assert SHIPPED.tags.parse_build(text) == build
    assert build is None or SHIPPED.tags.build_number(build_name(build)) == build


def test_paths_of_ggmls_own_repository_are_mapped():
    assert SHIPPED.ggml_path("src/ggml-hip/CMakeLists.txt") == "ggml/src/ggml-hip/CMakeLists.txt"
    assert SHIPPED.ggml_path("tests/test-backend-ops.cpp") == "tests/test-backend-ops.cpp"
    assert SHIPPED.gpu_file("mmq.cu") == "ggml/src/ggml-cuda/mmq.cu"
    with pytest.raises(KeyError):
        SHIPPED.ggml_path("scripts/x.py")


def test_versions_are_read_from_cmake():
    ggml = SHIPPED.versions.ggml
    text = b"project(x)\nset(GGML_VERSION_MAJOR 0)\n  set(GGML_VERSION_MINOR 9)\nset(GGML_VERSION_PATCH 4)\n"
    assert ggml.read(text) == "0.9.4"
    assert ggml.read(text.replace(b"PATCH", b"PATCHES")) is None
    assert SHIPPED.versions.project.read(text) is None


def test_a_file_belongs_to_the_target_of_the_first_matching_path():
    expected = {
        "src/llama.cpp": "llama",
        "ggml/src/ggml-cpu/ops.cpp": "ggml-cpu",
        "ggml/src/ggml.c": "ggml",
        "common/arg.cpp": None,
    }
    assert {path: SHIPPED.targets.of(path) for path in expected} == expected


def test_a_project_is_recognised_by_its_files(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "llama.h").touch()
    assert upstream_of(tmp_path).name == "llama.cpp"
    assert recognise({"llama.h"}).name == "llama.cpp"


def test_a_description_with_an_unknown_key_names_it(tmp_path):
    text = (tmp_path / "x.toml", "name = 'x'\nfolder = 'ggml'\n")
    text[0].write_text(text[1])
    with pytest.raises(ErrorGroup) as caught:
        load_upstream(text[0])
    assert "folder" in "\n".join(error.message for error in caught.value.errors)


GPU = "src/ggml-cuda/common.cuh"


@pytest.mark.parametrize(
    ("names", "project", "folder"),
    [
        ({"include/llama.h", f"ggml/{GPU}", "ggml/include/ggml.h"}, "llama.cpp", "ggml/src/ggml-cuda"),
        ({"include/whisper.h", f"ggml/{GPU}", "ggml/include/ggml.h"}, "whisper.cpp", "ggml/src/ggml-cuda"),
        ({"stable-diffusion.h", f"ggml/{GPU}"}, "stable-diffusion.cpp", "ggml/src/ggml-cuda"),
        ({"include/ggml.h", GPU}, "ggml", "src/ggml-cuda"),
        (
            {"ml/backend/ggml/ggml.go", f"ml/backend/ggml/ggml/{GPU}", "ml/backend/ggml/ggml/include/ggml.h"},
            "ollama",
            "ml/backend/ggml/ggml/src/ggml-cuda",
        ),
        (
            {"py/w/include/whisper.h", f"py/w/ggml/{GPU}", "py/w/ggml/include/ggml.h"},
            "whisper.cpp",
            "py/w/ggml/src/ggml-cuda",
        ),
        ({f"x/mine/{GPU}", "x/mine/include/ggml.h"}, "ggml", "x/mine/src/ggml-cuda"),
    ],
)
def test_a_project_is_recognised_in_any_folder(names, project, folder):
    found = recognise(names)
    assert (found.name, found.gpu_folder) == (project, folder)
    assert [each.name for each in find_projects(frozenset(names))] == [project]
    assert found.place("ggml/src/ggml-cuda/mmq.cu") == f"{folder}/mmq.cu"
    assert found.place("ggml/src/ggml-cuda/") == f"{folder}/"


def test_each_copy_in_a_tree_is_found():
    names = {"a/llama.h", f"a/ggml/{GPU}", "b/include/whisper.h", f"b/ggml/{GPU}", f"c/{GPU}"}
    found = find_projects(frozenset(names))
    assert [(each.name, each.root) for each in found] == [("llama.cpp", "a/"), ("whisper.cpp", "b/")]


def test_files_outside_ggml_have_no_place_in_another_project():
    assert recognise({"include/ggml.h", GPU}).place("src/llama-graph.cpp") is None
    assert SHIPPED.place("src/llama-graph.cpp") == "src/llama-graph.cpp"


def test_a_project_below_a_folder_has_all_of_its_paths_there(tmp_path):
    (tmp_path / "v" / "ggml" / "src" / "ggml-cuda").mkdir(parents=True)
    (tmp_path / "v" / "ggml" / GPU).touch()
    (tmp_path / "v" / "whisper.h").touch()
    found = upstream_of(tmp_path)
    assert (found.name, found.root) == ("whisper.cpp", "v/")
    assert found.versions.ggml.file == found.ggml_options == "v/ggml/CMakeLists.txt"
    assert found.targets.of("v/ggml/src/ggml-cpu/ops.cpp") == "ggml-cpu"
    assert all(path.startswith("v/") for path in (*found.folders.include, found.folders.library))


def test_a_project_without_tags_has_no_builds_and_releases():
    (sd,) = (each for each in load_upstreams() if each.name == "stable-diffusion.cpp")
    assert [sd.tags.is_tag(name) for name in ("None1", "b1", "v1.2.3", "1", "Nonev1.2.3")] == [False] * 5
    assert sd.tags.parse_build("7") is None

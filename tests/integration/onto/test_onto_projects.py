"""Clones of other projects on ggml: its folder, one of several copies, a submodule, fetched by a build."""

from __future__ import annotations

import json

import pytest
from demo_world import FOLDER, SOURCE, git

OPTIONS = 'cmake_minimum_required(VERSION 3.14)\noption(GGML_HIP "ggml: use HIP" OFF)\n'
KERNELS = FOLDER.removeprefix("ggml/")  # in ggml's own repository
GGML = {
    f"{KERNELS}/demo.cu": SOURCE,
    f"{KERNELS}/common.cuh": "#pragma once\n#ifdef GGML_USE_HIP\n#endif\n"
    "static float warp_reduce_sum(float x) { return x; }\n",
    "CMakeLists.txt": OPTIONS,
    "include/ggml.h": "#pragma once\n",
}


@pytest.fixture
def project(owner):
    """Replaces what the clone's commit has by these files, and ggml in some folders."""

    def make(*folders, **files):
        owner.git("switch", "-q", "--orphan", "project")
        ggml = {f"{folder}{path}": text for folder in folders for path, text in GGML.items()}
        for path, text in (files | ggml).items():
            place = owner.clone / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        owner.git("add", "-A")
        owner.git("-c", "user.name=owner", "commit", "-q", "-m", "a project")
        return owner

    return make


def patched(owner, at=None, **where):
    """The path of the file that apply changes, and the JSON document."""
    done = json.loads(owner.apply("--json", "--as-build", "b2", at=at, **where).stdout)
    repo = at or owner.clone
    changed = git(repo, "diff", "--name-only", done["base"], done["commits"][-1]["commit"]).split()
    return changed, done


@pytest.mark.parametrize(
    ("folder", "others", "name"),
    [
        ("", {}, "ggml"),
        ("ggml/", {"include/whisper.h": ""}, "whisper.cpp"),
        ("ml/backend/ggml/ggml/", {"ml/backend/ggml/ggml.go": ""}, "ollama"),
        ("py/sd/ggml/", {"py/sd/stable-diffusion.h": ""}, "stable-diffusion.cpp in py/sd/"),
        ("deps/tensors/", {}, "ggml in deps/tensors/"),
    ],
)
def test_the_patch_is_placed_where_the_project_has_the_file(project, folder, others, name):
    owner = project(folder, **others)
    changed, done = patched(owner)
    assert f"{folder}{KERNELS}/demo.cu" in changed
    assert all(path.startswith(f"{folder}{KERNELS}/") for path in changed)
    assert done["onto"]["project"] == name
    assert {each["class"] for each in done["classes"]} == {"clean"}
    assert "128 : 64" in owner.git("show", f"{done['branch']}:{folder}{KERNELS}/demo.cu")


def test_later_commands_find_the_candidate_of_a_project(project):
    owner = project("")
    _, done = patched(owner)
    out = owner.place.run("diff", *owner.here).stdout
    assert f"b/{KERNELS}/demo.cu" in out
    again = json.loads(owner.apply("--json", "--as-build", "b2").stdout)
    assert again["commits"] == done["commits"]
    assert again["unchanged"]


def test_of_several_copies_the_one_in_the_named_folder_is_meant(project):
    owner = project("a/", "b/")
    error = owner.error("--as-build", "b2", code=2)
    assert error["code"] == "ONTO_SEVERAL"
    assert [place["path"] for place in error["where"]] == [f"a/{KERNELS}", f"b/{KERNELS}"]
    changed, _ = patched(owner, at=owner.clone / "b")
    assert f"b/{KERNELS}/demo.cu" in changed
    assert not any(path.startswith("a/") for path in changed)


def test_a_copy_at_the_top_is_preferred_to_one_of_a_dependency(project):
    changed, done = patched(project("", "deps/other/"))
    assert all(path.startswith(f"{KERNELS}/") for path in changed)
    assert done["onto"]["project"] == "ggml"


def test_ggml_as_a_submodule_gets_the_branch(project, tmp_path):
    owner = project("")
    commit = owner.git("rev-parse", "HEAD")
    outer = tmp_path / "outer"
    git(tmp_path, "init", "-q", "-b", "main", str(outer))
    (outer / "stable-diffusion.h").write_text("")
    git(outer, "add", "-A")
    git(outer, "update-index", "--add", "--cacheinfo", f"160000,{commit},ggml")
    git(outer, "commit", "-q", "-m", "one")
    error = owner.error("--as-build", "b2", at=outer, code=2)
    assert error["code"] == "ONTO_NO_SUBMODULE"
    assert "submodule update --init ggml" in error["hint"]
    git(outer, "clone", "-q", "--template=", str(owner.clone), "ggml")
    (outer / "ggml" / "README.md").write_text("newer\n")
    git(outer / "ggml", "add", "-A")
    git(outer / "ggml", "commit", "-q", "-m", "a commit that the project does not name")
    done = owner.apply("--json", "--as-build", "b2", at=outer)
    found = json.loads(done.stdout)
    assert found["base"] == commit
    assert git(outer / "ggml", "merge-base", "patchkit/gfx1151", "HEAD") == commit
    assert git(outer, "branch", "--list", "patchkit/*") == ""


def test_a_project_whose_build_fetches_llama_cpp_names_that_build(project):
    owner = project(LLAMA_CPP_VERSION="b10488\n")
    error = owner.error(code=2)
    assert error["code"] == "ONTO_NOT_LLAMA_CPP"
    assert error["why"] == "the build of ollama fetches llama.cpp b10488"


def test_status_shows_the_project_and_what_is_not_known(project):
    owner = project("", **{"README.md": "x\n"})
    shown = ("status", "--onto", "HEAD", "--repo", str(owner.clone))
    out = owner.place.run(*shown).stdout
    assert "ggml at" in out
    assert "unknown" in out
    document = json.loads(owner.place.run(*shown, "--json").stdout)
    assert (document["project"], document["build"], document["behind"]) == ("ggml", None, None)
    assert owner.place.run(*shown, "--fetch").returncode == 2


FAULT = """
[[fault]]
id = "scales-twice"
title = "it multiplies by two"
builds = { first = 90, why = "the build number has nothing to do with it" }
archs = ["gfx1151"]
symptom = "Twice the value."
does = "wrong results"
seen_on = "hardware"
links = ["https://example.invalid/3"]
code = [
    { file = "ggml/src/ggml-cuda/demo.cu", function = "twin_b", tokens = "scale = 2" },
    { file = "ggml/src/ggml-cuda/demo.cu", function = "twin_a", tokens = "scale = 3", absent = true },
]
"""


def test_a_known_fault_is_found_by_its_code_wherever_the_function_is(project):
    owner = project("")
    rules = owner.place.series / "patches" / "series.toml"
    rules.write_text(rules.read_text() + FAULT)

    def found():
        assert owner.git("status", "--porcelain") == ""
        done = owner.place.run("plan", *owner.here, "--as-build", "b2", "--drop-conflicts", "--json")
        assert done.returncode == 0, done.stderr
        return [each["id"] for each in json.loads(done.stdout)["faults"]]

    assert found() == ["scales-twice"]
    error = owner.error("--as-build", "b2", code=1)
    assert error["code"] == "FAULT_UNMENDED"
    moved = SOURCE[SOURCE.index("static __device__ int twin_b") : SOURCE.index("template<")]
    owner.commit(f"{KERNELS}/parts/twins.inc", moved)
    owner.commit(f"{KERNELS}/demo.cu", SOURCE.replace(moved, '#include "parts/twins.inc"\n\n'))
    assert found() == ["scales-twice"]
    owner.commit(f"{KERNELS}/parts/twins.inc", moved.replace("scale = 2", "scale = 4"))
    assert found() == []
    owner.commit(f"{KERNELS}/parts/twins.inc", moved)
    owner.commit(f"{KERNELS}/demo.cu", SOURCE.replace("int scale = 2", "int scale = 3", 1))
    assert found() == []

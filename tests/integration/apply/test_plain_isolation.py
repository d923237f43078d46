"""What gates see of plain patches: they stand on both sides, and what they change is listed."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from demo_world import FOLDER, World, make_series, make_upstream
from demo_world import SOURCE as DEMO

from patchkit.base.errors import ErrorGroup
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.find import find_candidate
from patchkit.prove.gates.isolation.gate import IsolationGate
from patchkit.prove.gates.touched import unreached_files
from patchkit.prove.subject import Subject, make_subject
from patchkit.toolchain.hip import Toolchain

_EDIT = """
[[edit]]
id = "{id}"
file = "{file}"
function = "{function}"
at = {{ tokens = "{old}" }}
verb = "change_to"
text = "{new}"
"""
HEAD = """\
id = "for-everybody"
title = "for everybody"
guard = "none"
builds = { first = 1, why = "seen there" }
"""
TWIN = _EDIT.format(id="twin", file=f"{FOLDER}/demo.cu", function="twin_a", old="scale = 2", new="scale = 4")
TOOL = _EDIT.format(id="tool", file="common/tool.cpp", function="limit", old="return 1", new="return 2")


@pytest.fixture
def subject_of(tmp_path, checkout):
    """Makes the subject of a candidate that has the plain patch with these edits behind the others."""

    def make(edits: str, *only: str) -> Subject:
        world = World(tmp_path / "world", checkout)
        files = {
            f"{FOLDER}/demo.cu": DEMO,
            f"{FOLDER}/common.cuh": "#pragma once\n",
            "common/tool.cpp": "int limit() { return 1; }\n",
        }
        for name in ("cuda", "hip", "musa"):
            files[f"ggml/src/ggml-{name}/CMakeLists.txt"] = 'file(GLOB SRCS "../ggml-cuda/*.cu")\n'
        make_upstream(world.upstream, {1: files})
        make_series(world, 1, ("gfx1151",), config=False, last=None)
        folder = world.series / "patches" / "0003-for-everybody"
        folder.mkdir()
        (folder / "patch.toml").write_text(HEAD + edits)
        named = [word for name in only for word in ("--only", name)]
        done = world.run("apply", "--arch", "gfx1151", *named)
        assert done.returncode == 0, done.stderr
        workspace = Workspace(
            series=find_series_dir(world.series), cache_root=world.cache, reporter=NullReporter()
        )
        repository, candidate = find_candidate(workspace, ("gfx1151",), "b1")
        return make_subject(workspace, repository, candidate, None)

    return make


def test_the_guarded_part_is_held_against_upstream_with_the_plain_patches(subject_of) -> None:
    subject = subject_of(TWIN + TOOL)
    assert [part.id for part in subject.plain] == ["for-everybody"]
    own = subject.guarded_part
    assert [part.id for part in own.patches] == ["demo-launch-bounds", "demo-twin"]
    text = (own.baseline / FOLDER / "demo.cu").read_text()
    assert "scale = 4" in text
    assert "GGML_USE_HIP" not in text
    assert (own.baseline / "common/tool.cpp").read_text() == "int limit() { return 2; }\n"
    assert (subject.baseline / "common/tool.cpp").read_text() == "int limit() { return 1; }\n"
    assert unreached_files(subject) == ("common/tool.cpp",)


def test_a_candidate_without_plain_patches_is_as_before(subject_of) -> None:
    subject = subject_of(TWIN, "demo-twin")
    assert subject.plain == ()
    assert subject.guarded_part.baseline == subject.baseline


def test_a_plain_patch_alone_changes_every_build_by_declaration(subject_of) -> None:
    subject = subject_of(TWIN + TOOL, "for-everybody")
    # Nothing is compiled: there is nothing to hold apart.
    found = IsolationGate().run(replace(subject, toolchain=cast("Toolchain", object())))
    assert found.verdict == "passed"
    assert found.summary == "changes code for every backend, by declaration: for-everybody"
    assert found.not_run == ("no patch is guarded, so there was nothing to isolate",)
    (line,) = found.lines
    assert line.startswith(
        f"for-everybody changes code for every backend, by declaration: common/tool.cpp, {FOLDER}/demo.cu"
    )
    (declared,) = found.evidence.declared
    assert declared.units == (f"{FOLDER}/demo.cu",)
    assert IsolationGate().run(subject).verdict == "not run"


def test_a_plain_patch_that_stands_on_a_guarded_one_is_an_error(subject_of) -> None:
    on_guarded = TWIN.replace("twin_a", "demo_launch").replace("scale = 2", "128").replace("scale = 4", "256")
    with pytest.raises(ErrorGroup, match="for-everybody"):
        subject_of(on_guarded)

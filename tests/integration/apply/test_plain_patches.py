"""Patches for every backend: placed by structure in C++, by exact lines elsewhere, in any file."""

from __future__ import annotations

import json

import pytest
from demo_world import FOLDER, World, git, make_series, make_upstream
from demo_world import SOURCE as DEMO

CMAKE = 'cmake_minimum_required(VERSION 3.14)\nproject(demo)\noption(DEMO_FAST "it\'s fast" OFF)\n'
TOOL = '#include "tool.h"\n\nint limit() {\n    return 256;\n}\n\nint other() {\n    return 256;\n}\n'

PATCH = f'''\
id = "for-everybody"
title = "a larger limit, fast by default"
guard = "none"
builds = {{ first = 1, last = 2, why = "both were looked at" }}
authors = ["Ann Author <ann@example.invalid>"]

[[edit]]
id = "limit"
file = "common/tool.cpp"
function = "limit"
at = {{ tokens = "return 256" }}
verb = "change_to"
text = "return 1024"

[[edit]]
id = "fast"
file = "CMakeLists.txt"
at = {{ lines = """option(DEMO_FAST "it's fast" OFF)""" }}
verb = "change_to"
text = """option(DEMO_FAST "it's fast" ON)"""

[[edit]]
id = "kernel"
file = "{FOLDER}/demo.cu"
function = "twin_a"
at = {{ tokens = "scale = 2" }}
verb = "change_to"
text = "scale = 4"
'''

_SAID = 'why = "w"\nlinks = ["l"]\nwithout = "x"\nexpected = { effect = "e", source = "s" }\n'
WHOLE = PATCH.replace("guard =", _SAID + "guard =")


@pytest.fixture
def world(tmp_path, checkout) -> World:
    """Two builds of an upstream with a build file and a tool, and the series of two with a plain patch."""
    world = World(tmp_path / "world", checkout)
    first = {
        f"{FOLDER}/demo.cu": DEMO,
        f"{FOLDER}/common.cuh": "#pragma once\n#ifdef GGML_USE_HIP\n#endif\n",
        "CMakeLists.txt": CMAKE,
        "common/tool.cpp": TOOL,
    }
    changed = {"CMakeLists.txt": "# first\n" + CMAKE, "common/tool.cpp": TOOL.replace("other", "another")}
    make_upstream(world.upstream, {1: first, 2: changed})
    git(world.upstream, "checkout", "-q", "b1")
    make_series(world, 1, ("gfx1151",), config=False, last=None)
    add(world, PATCH)
    return world


def add(world: World, text: str) -> None:
    folder = world.series / "patches" / "0003-for-everybody"
    folder.mkdir(exist_ok=True)
    (folder / "patch.toml").write_text(text)


def test_it_is_placed_in_cmake_tool_and_kernel_next_to_guarded_patches(world) -> None:
    done = world.run("apply", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    tip = world.refs()["refs/heads/candidate/gfx1151/b1"]
    base = world.git("rev-parse", f"{tip}~1")
    changed = world.git("diff", "-U0", base, tip)
    lines = [row for row in changed.splitlines() if row[:1] in "+-" and row[:3] not in ("+++", "---")]
    assert lines == [
        '-option(DEMO_FAST "it\'s fast" OFF)',
        '+option(DEMO_FAST "it\'s fast" ON)',
        "-    return 256;",
        "+    return 1024;",
        "-    const int scale = 2;",
        "+    const int scale = 4;",
    ]
    message = world.git("log", "-1", "--format=%B", tip)
    assert message.startswith("for-everybody: a larger limit, fast by default\n\nCo-authored-by: Ann Author")
    shown = world.run("show", "for-everybody")
    assert "What it does\n  (not written yet)\n" in shown.stdout
    assert "change_to (every backend) in limit, common/tool.cpp" in shown.stdout


def test_a_gpu_for_which_no_guarded_patch_is_gets_it_too(world) -> None:
    done = world.run("plan", "--arch", "gfx906", "--json")
    assert done.returncode == 0, done.stderr
    states = {patch["id"]: patch["state"] for patch in json.loads(done.stdout)["patches"]}
    assert states == {"demo-launch-bounds": "skipped", "demo-twin": "skipped", "for-everybody": "apply"}


def test_a_profile_can_leave_it_out(world) -> None:
    profile = world.series / "arch_profiles" / "gfx1151.toml"
    choice = 'for-everybody = { default = "off", why = "not here, please", source = "the test" }'
    profile.write_text(profile.read_text().replace("[patches]\n", f"[patches]\n{choice}\n"))
    done = world.run("plan", "--arch", "gfx1151", "--json")
    states = {patch["id"]: patch["state"] for patch in json.loads(done.stdout)["patches"]}
    assert states["for-everybody"] == "skipped"


def test_recording_its_result_warns_until_it_says_what_it_is_for(world) -> None:
    done = world.run("lock", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    assert "add why, links, without, expected to patch.toml of for-everybody" in done.stderr
    assert "\nnext:  patchkit apply --arch gfx1151  # makes the candidate branch\n" in done.stdout
    add(world, WHOLE)
    done = world.run("lock", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    assert "publish" not in done.stderr


def test_a_line_that_is_no_longer_there_is_an_error_that_names_it(world) -> None:
    add(world, PATCH.replace('fast" OFF)', 'fast" MAYBE)'))
    done = world.run("plan", "--arch", "gfx1151", "--json")
    assert done.returncode == 3
    (error,) = json.loads(done.stdout)["error"]["errors"]
    assert error["code"] == "ANCHOR_NOT_FOUND"
    assert "CMakeLists.txt" in error["message"]


def test_a_bump_carries_it(world) -> None:
    add(world, WHOLE)
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    git(world.upstream, "checkout", "-q", "master")
    done = world.run("bump", "--to", "b2", "--upstream-url", str(world.upstream), "--no-verify", "--json")
    assert done.returncode == 0, done.stdout
    (candidate,) = json.loads(done.stdout)["candidates"]
    assert candidate["applied"] == ["demo-launch-bounds", "demo-twin", "for-everybody"]

"""Which patches have a run-time switch, and what the generated header does with GGML_PATCHES_OFF."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.errors import ErrorGroup
from patchkit.carry.placing.context import make_context, make_guard
from patchkit.carry.placing.templates import PatchRenderer
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.patch import Requirement
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.switches import Switch, Switches, has_switch, member_of, switches_of

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def patches():
    return {patch.id: patch for patch in load_series(ROOT / "patches").patches}


def test_patches_chosen_by_host_code_have_a_switch_and_those_in_kernels_do_not(patches):
    assert has_switch(patches["mmq-batch-limits"])
    assert has_switch(patches["fuse-norm-q8-1"])
    assert has_switch(patches["fattn-vec-gqa-heads"])  # in the kernel, but only in launches of its own
    assert not has_switch(patches["mmq-tile-config"])  # a pair: the host and the kernel must agree
    assert not has_switch(patches["fattn-vec-heads-first"])  # in the kernel only
    assert not has_switch(patches["wmma-tile-params"])  # has a macro that kernels read
    assert not has_switch(patches["patch-switches"])


def test_a_patch_is_off_with_those_that_it_needs_directly_or_not(patches):
    names = ["reuse-q8-1-activations", "mmq-tile-config", "fuse-norm-q8-1", "rope-block-size"]
    # No patch of the series needs another one through a third: let RoPE's need the norm's.
    rope = replace(patches[names[3]], requires=(Requirement(patch=names[2], why="a test"),))
    applied = [patches["patch-switches"], *(patches[name] for name in names[:3]), rope]
    switches = switches_of(applied)
    assert switches == Switches(
        header="ggml/src/ggml-cuda/patches.cuh",
        all=(
            Switch(patch=names[0]),
            Switch(patch=names[2], requires=(names[0],)),
            Switch(patch=names[3], requires=(names[0], names[2])),
        ),
        fixed=("mmq-tile-config",),
    )
    assert switches.of("mmq-tile-config") is None
    assert switches_of(applied[1:]) is None  # nothing adds the header
    assert switches_of([applied[0], applied[2]]) is None  # nothing has a switch


def test_every_patch_of_the_series_with_a_switch_counts_its_uses(patches):
    for patch in patches.values():
        if has_switch(patch):
            texts = " ".join(edit.text or "" for edit in patch.edits)
            assert "switch.ran" in texts or "counts=true" in texts, patch.id


@pytest.mark.parametrize(
    ("patch", "member"),
    [("rope-block-size", "rope_block_size"), ("default", "default_patch"), ("3d-tiles", "patch_3d_tiles")],
)
def test_members_are_names_in_cpp(patch, member):
    assert member_of(patch) == member


# The least that the header takes from ggml.
_COMMON = """#pragma once
#include <cstdio>
#define GGML_LOG_INFO(...) std::printf(__VA_ARGS__)
#define GGML_LOG_WARN(...) std::printf(__VA_ARGS__)
"""
_PROGRAM = """#include "patches.cuh"
int main() {
    ggml_cuda_patches().list(0);
    if (ggml_cuda_patches().outer_fusion.on) {
        ggml_cuda_patches().outer_fusion.runs++;
    }
    return ggml_cuda_patches().batch_limits.use() ? 0 : 3;
}
"""
_ALL = Switches(
    header="patches.cuh",
    all=(
        Switch(patch="batch-limits"),
        Switch(patch="inner-copy"),
        Switch(patch="outer-fusion", requires=("inner-copy",)),
    ),
    fixed=("tile-config",),
)


@pytest.fixture(scope="module")
def program(patches, tmp_path_factory):
    """A program with the header of three patches, compiled as host code of HIP."""
    compiler = shutil.which("c++") or shutil.which("clang++")
    assert compiler, "the tests need a C++ compiler"
    folder = tmp_path_factory.mktemp("switches")
    patch = patches["patch-switches"]
    profile = load_profile(ROOT / "arch_profiles", "gfx1151")
    context = make_context(make_guard(patch.guard, [profile]), [profile], patch.context, switches=_ALL)
    renderer = PatchRenderer(patch, ROOT / "patches" / patch.folder, ROOT / "templates", context)
    (file,) = patch.files
    (folder / "patches.cuh").write_text(renderer.file(file.template, file.where))
    (folder / "common.cuh").write_text(_COMMON)
    (folder / "main.cpp").write_text(_PROGRAM)
    argv = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-DGGML_USE_HIP", "main.cpp", "-o", "main"]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / "main"


def _run(program, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run([program], env=environment, capture_output=True, text=True, check=False)


def test_without_the_variable_every_patch_is_on(program):
    done = _run(program)
    assert done.returncode == 0
    assert done.stdout == (
        "  Patches of device 0: on: batch-limits, inner-copy, outer-fusion; off: none; "
        "without a switch: tile-config\n"
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("off", "on", "is_off"),
    [
        ("batch-limits", "inner-copy, outer-fusion", "batch-limits"),
        ("inner-copy", "batch-limits", "inner-copy, outer-fusion"),
        ("outer-fusion,batch-limits,", "inner-copy", "batch-limits, outer-fusion"),
        ("all", "none", "batch-limits, inner-copy, outer-fusion"),
        ("", "batch-limits, inner-copy, outer-fusion", "none"),
    ],
)
def test_named_patches_and_those_that_need_them_are_off(program, off, on, is_off):
    done = _run(program, GGML_PATCHES_OFF=off)
    assert f"on: {on}; off: {is_off};" in done.stdout
    assert done.returncode == (0 if "batch-limits" in on else 3)


def test_a_name_that_the_build_does_not_have_is_reported(program):
    done = _run(program, GGML_PATCHES_OFF="batch-limit,tile-config,inner-copy")
    assert "names 'batch-limit', which is not a patch of this build that has a switch" in done.stdout
    assert "names 'tile-config'" in done.stdout
    assert "names 'inner-copy'" not in done.stdout


def test_uses_are_counted(program, tmp_path):
    done = _run(program, GGML_PATCHES_COUNT="-", GGML_PATCHES_OFF="batch-limits")
    assert done.stderr == "patch batch-limits 0\npatch inner-copy 0\npatch outer-fusion 1\n"
    file = tmp_path / "uses"
    for _ in range(2):
        assert _run(program, GGML_PATCHES_COUNT=str(file)).stderr == ""
    assert file.read_text() == 2 * "patch batch-limits 1\npatch inner-copy 0\npatch outer-fusion 1\n"


def test_a_count_that_cannot_be_written_is_reported(program, tmp_path):
    done = _run(program, GGML_PATCHES_COUNT=str(tmp_path / "no" / "such"))
    assert f"GGML_PATCHES_COUNT: cannot write {tmp_path}/no/such" in done.stderr
    assert done.returncode == 0


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the shipped series' patches."""
    shutil.copytree(ROOT / "patches", tmp_path / "patches")
    return tmp_path / "patches"


def _problems(folder: Path) -> list[str]:
    with pytest.raises(ErrorGroup) as caught:
        load_series(folder)
    assert {error.code for error in caught.value.errors} == {"PATCH_BAD"}
    return [error.message for error in caught.value.errors]


def test_two_patches_with_switches_are_refused(copied: Path) -> None:
    other = copied / "0020-moe-sum-coalesce" / "patch.toml"
    other.write_text(other.read_text() + '\n[switches]\nheader = "ggml/src/ggml-cuda/others.cuh"\n')
    assert "two patches have [switches]: 'patch-switches' and 'moe-sum-coalesce'" in _problems(copied)


def test_device_code_in_the_switches_patch_is_refused(copied: Path) -> None:
    own = copied / "0000-patch-switches" / "patch.toml"
    before, inserted, after = own.read_text().partition('verb = "insert_after"\nside = "host"')
    own.write_text(before + inserted.replace("host", "device") + after)
    assert _problems(copied) == [
        "an edit of 'patch-switches' is not of host code, but the patch has [switches]"
    ]

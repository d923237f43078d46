"""``apply --picked``: the patches that a machine kept, and what cannot be meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchkit.carry.series.picked import PickedFile, PickedPatch, PickedVerdict, picked_text


def _picked(
    path: Path, *, arch: str = "gfx1151", upstream: str = "b1", verdict: PickedVerdict = "keep"
) -> str:
    patches = (
        PickedPatch(id="demo-twin", verdict=verdict, why="faster"),
        PickedPatch(id="demo-launch-bounds", verdict="leave out", why="slower"),
    )
    path.write_text(
        picked_text(
            PickedFile(
                format=1, archs=(arch,), upstream=upstream, tree="0" * 40, device="here", models=("m",),
                tests=("pp512",), patch=patches,
            )
        )
    )  # fmt: skip
    return str(path)


@pytest.mark.parametrize("named", [(), ("--arch", "gfx1151"), ("--upstream", "b1")])
def test_what_was_kept_is_applied_and_nothing_else(world, tmp_path, named):
    done = world.run("apply", "--picked", _picked(tmp_path / "picked.toml"), "--unlocked", *named)
    assert done.returncode == 0, done.stderr
    subjects = world.git("log", "--format=%s", "--reverse", world.refs()["refs/heads/candidate/gfx1151/b1"])
    assert subjects.splitlines()[1:] == ["demo-twin: scale of the second twin"]


def test_what_a_gpu_has_as_opt_in_is_applied_when_it_was_kept(world, tmp_path):
    profile = world.series / "arch_profiles/gfx1151.toml"
    profile.write_text(
        profile.read_text().replace('demo-twin = { default = "on"', 'demo-twin = { default = "opt-in"')
    )
    done = world.run("apply", "--picked", _picked(tmp_path / "picked.toml"), "--unlocked", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert ([each["id"] for each in told["commits"]], told["opt_in"]) == (["demo-twin"], ["demo-twin"])


@pytest.mark.parametrize(
    ("changes", "more", "code"),
    [
        ({"verdict": "unclear"}, (), "PICKED_NOTHING"),
        ({"arch": "gfx1100"}, ("--arch", "gfx1151"), "PICKED_OTHER"),
        ({"upstream": "onto-0123456789ab"}, (), "PICKED_OTHER"),
        ({}, ("--without", "demo-twin"), "OPTIONS_CONTRADICT"),
        ({}, ("--with-opt-in",), "OPTIONS_CONTRADICT"),
        ({}, ("--trust", "faults"), "OPTIONS_CONTRADICT"),
        ({"upstream": "b77"}, (), "PICKED_OTHER"),
        ({"arch": "../gfx1151"}, (), "PICKED_OTHER"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_made(world, tmp_path, changes, more, code):
    done = world.run("apply", "--picked", _picked(tmp_path / "picked.toml", **changes), *more)
    assert done.returncode == 2
    assert f"error[{code}]" in done.stderr
    assert "refs/heads/candidate/gfx1151/b1" not in world.refs()


def test_a_patch_that_the_series_lacks_is_said_at_its_line(world, tmp_path):
    path = Path(_picked(tmp_path / "picked.toml"))
    path.write_text(path.read_text().replace("demo-twin", "../twin"))
    done = world.run("apply", "--picked", str(path))
    assert done.returncode == 2
    assert "error[UNKNOWN_PATCH]: the series has no patch '../twin'" in done.stderr
    line = path.read_text().splitlines().index("[[patch]]") + 1
    assert f"--> {path}:{line}" in done.stderr
    assert "refs/heads/candidate/gfx1151/b1" not in world.refs()


def test_another_tree_than_was_picked_is_warned_of(world, tmp_path):
    """What was measured is a tree; the file's own is made up here, and then the one that apply gives."""
    path = Path(_picked(tmp_path / "picked.toml"))
    done = world.run("apply", "--picked", str(path), "--unlocked")
    assert done.returncode == 0, done.stderr
    assert "is not the one that pick measured" in done.stderr
    tree = world.git("rev-parse", "candidate/gfx1151/b1^{tree}").strip()
    path.write_text(path.read_text().replace("0" * 40, tree))
    done = world.run("apply", "--picked", str(path), "--unlocked")
    assert done.returncode == 0, done.stderr
    assert "nobody measured" not in done.stderr


def test_a_missing_file_is_said(world, tmp_path):
    done = world.run("apply", "--picked", str(tmp_path / "none.toml"))
    assert "error[TOML_MISSING]" in done.stderr

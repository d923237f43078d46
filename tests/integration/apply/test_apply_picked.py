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
        ({"verdict": "cannot tell"}, (), "PICKED_NOTHING"),
        ({"arch": "gfx1100"}, ("--arch", "gfx1151"), "PICKED_OTHER"),
        ({"upstream": "onto-0123456789ab"}, (), "PICKED_OTHER"),
        ({}, ("--without", "demo-twin"), "OPTIONS_CONTRADICT"),
        ({}, ("--with-opt-in",), "OPTIONS_CONTRADICT"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_made(world, tmp_path, changes, more, code):
    done = world.run("apply", "--picked", _picked(tmp_path / "picked.toml", **changes), *more)
    assert done.returncode == 2
    assert f"error[{code}]" in done.stderr
    assert "refs/heads/candidate/gfx1151/b1" not in world.refs()


def test_a_missing_file_is_said(world, tmp_path):
    done = world.run("apply", "--picked", str(tmp_path / "none.toml"))
    assert "error[TOML_MISSING]" in done.stderr

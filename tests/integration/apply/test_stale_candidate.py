"""The anchors gate holds a candidate to what apply would make now, for the GPUs in its name."""

from __future__ import annotations

import os
import re

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.prove.verify.run import run_verify

ONE, OTHER = "gfx1151", "gfx1100"
_PIN = "b1"


def _ref(*archs: str) -> str:
    return f"refs/heads/candidate/{'+'.join(sorted(archs))}/{_PIN}"


def _verify(world, *archs: str):
    """The gate itself: the command would refuse most of these candidates by their records."""
    series = SeriesDir(root=world.series, origin="named")
    workspace = Workspace(series=series, cache_root=world.cache, reporter=NullReporter())
    report = run_verify(
        workspace, archs=archs, upstream=None, only=("anchors",), full=False, environ=os.environ
    )
    return report.gates[0]


def _told(result) -> list[str]:
    return [f"{problem.code}: {problem.message}" for problem in result.problems]


def _rename(world, *archs: str) -> None:
    """The candidate of the first GPU under the name of all of them."""
    world.git("update-ref", _ref(*archs), world.refs()[_ref(archs[0])])


def _switch_off(world, arch: str, *patches: str) -> None:
    profile = world.series / "arch_profiles" / f"{arch}.toml"
    text = profile.read_text()
    for patch in patches:
        text, changed = re.subn(rf'{patch} = {{ default = "on"', f'{patch} = {{ default = "opt-in"', text)
        assert changed == 1
    profile.write_text(text)


def test_a_candidate_of_one_gpu_under_the_name_of_two_fails(world) -> None:
    assert world.run("apply", "--arch", ONE).returncode == 0
    _rename(world, ONE, OTHER)
    done = _verify(world, ONE, OTHER)
    assert done.verdict == "failed"
    assert any(
        line.startswith("ANCHORS_STALE: ggml/src/ggml-cuda/demo.cu in the candidate") for line in _told(done)
    )
    assert any(
        line.startswith("ANCHORS_STALE: the commit message of demo-launch-bounds differs")
        for line in _told(done)
    )
    assert done.problems[0].hint == f"patchkit apply --arch {OTHER} --arch {ONE}"
    assert _verify(world, ONE).verdict == "passed"


def test_one_that_was_asked_for_by_hand_fails_under_another_name(world) -> None:
    _switch_off(world, ONE, "demo-launch-bounds", "demo-twin")
    _switch_off(world, OTHER, "demo-launch-bounds", "demo-twin")
    assert world.run("apply", "--arch", ONE, "--with", "demo-twin").returncode == 0
    assert _verify(world, ONE).verdict == "passed"
    _rename(world, ONE, OTHER)
    done = _verify(world, ONE, OTHER)
    assert done.verdict == "failed"
    assert {problem.code for problem in done.problems} == {"ANCHORS_STALE"}


def test_a_name_that_apply_would_give_the_same_commits_is_right(world) -> None:
    _switch_off(world, OTHER, "demo-launch-bounds", "demo-twin")
    assert world.run("apply", "--arch", ONE).returncode == 0
    assert world.run("apply", "--arch", ONE, "--arch", OTHER).returncode == 0
    assert world.refs()[_ref(ONE)] == world.refs()[_ref(ONE, OTHER)]
    done = _verify(world, ONE, OTHER)
    assert done.verdict == "passed", _told(done)
    assert f"{OTHER}: no patch is active on it, it gets upstream's code" in done.lines


def test_a_candidate_of_two_gpus_keeps_what_each_has(world) -> None:
    """A patch that is on for one GPU only is not planned for the other because the candidate has it."""
    _switch_off(world, OTHER, "demo-twin")
    assert world.run("apply", "--arch", ONE, "--arch", OTHER).returncode == 0
    done = _verify(world, ONE, OTHER)
    assert done.verdict == "passed", _told(done)
    assert done.lines == ()


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("arch_profiles/gfx1151.toml", "# another reason\n"),
        ("patches/0002-demo-twin/patch.toml", None),
    ],
    ids=["profile", "reason"],
)
def test_commits_that_tell_something_else_are_stale_though_every_file_is_equal(world, file, what) -> None:
    assert world.run("apply", "--arch", ONE).returncode == 0
    path = world.series / file
    text = path.read_text()
    path.write_text(text + what if what else text.replace("another scale", "quite another scale"))
    done = _verify(world, ONE)
    assert done.verdict == "failed"
    assert all("differs from what apply would write" in line for line in _told(done))
    assert any(line.startswith("ANCHORS_STALE: the commit message of demo-twin") for line in _told(done))


def test_a_candidate_made_unlocked_is_the_same_candidate(world) -> None:
    assert world.run("lock", "--arch", ONE).returncode == 0
    path = world.series / "arch_profiles/gfx1151.toml"
    path.write_text(path.read_text() + "# another reason\n")
    assert world.run("apply", "--arch", ONE, "--unlocked").returncode == 0
    assert "Patchkit-Unlocked" in world.git("log", "--format=%B", _ref(ONE))
    done = _verify(world, ONE)
    assert done.verdict == "passed", _told(done)

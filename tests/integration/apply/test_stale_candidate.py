"""The anchors gate holds a candidate to what apply would make now, for the GPUs in its name."""

from __future__ import annotations

import re

import pytest

ONE, OTHER = "gfx1151", "gfx1100"
_PIN = "b1"


def _ref(*archs: str) -> str:
    return f"refs/heads/candidate/{'+'.join(sorted(archs))}/{_PIN}"


def _verify(world, *archs: str):
    named = [word for arch in archs for word in ("--arch", arch)]
    return world.run("verify", "--no-gpu", "--gate", "anchors", *named)


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
    assert done.returncode == 1, done.stderr
    assert "error[ANCHORS_STALE]: ggml/src/ggml-cuda/demo.cu of the candidate" in done.stderr
    assert "error[ANCHORS_STALE]: the commit of demo-launch-bounds does not say" in done.stderr
    assert f"hint: patchkit apply --arch {OTHER} --arch {ONE}" in done.stderr
    assert _verify(world, ONE).returncode == 0


def test_one_that_was_asked_for_by_hand_fails_under_another_name(world) -> None:
    _switch_off(world, ONE, "demo-launch-bounds", "demo-twin")
    _switch_off(world, OTHER, "demo-launch-bounds", "demo-twin")
    assert world.run("apply", "--arch", ONE, "--with", "demo-twin").returncode == 0
    assert _verify(world, ONE).returncode == 0
    _rename(world, ONE, OTHER)
    done = _verify(world, ONE, OTHER)
    assert done.returncode == 1
    assert "error[ANCHORS_STALE]" in done.stderr


def test_a_name_that_apply_would_give_the_same_commits_is_right(world) -> None:
    _switch_off(world, OTHER, "demo-launch-bounds", "demo-twin")
    assert world.run("apply", "--arch", ONE).returncode == 0
    assert world.run("apply", "--arch", ONE, "--arch", OTHER).returncode == 0
    assert world.refs()[_ref(ONE)] == world.refs()[_ref(ONE, OTHER)]
    done = _verify(world, ONE, OTHER)
    assert done.returncode == 0, done.stderr
    assert f"{OTHER}: no patch is live on it, it gets upstream's code" in done.stdout


def test_a_candidate_of_two_gpus_keeps_what_each_has(world) -> None:
    """A patch that is on for one GPU only is not planned for the other because the candidate has it."""
    _switch_off(world, OTHER, "demo-twin")
    assert world.run("apply", "--arch", ONE, "--arch", OTHER).returncode == 0
    done = _verify(world, ONE, OTHER)
    assert done.returncode == 0, done.stderr
    assert "no patch is live" not in done.stdout


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
    assert done.returncode == 1, done.stderr
    assert "of the candidate is not what the series gives now" not in done.stderr
    assert "error[ANCHORS_STALE]: the commit of demo-twin does not say" in done.stderr


def test_a_candidate_made_unlocked_is_the_same_candidate(world) -> None:
    assert world.run("lock", "--arch", ONE).returncode == 0
    path = world.series / "arch_profiles/gfx1151.toml"
    path.write_text(path.read_text() + "# another reason\n")
    assert world.run("apply", "--arch", ONE, "--unlocked").returncode == 0
    assert "Patchkit-Unlocked" in world.git("log", "--format=%B", _ref(ONE))
    done = _verify(world, ONE)
    assert done.returncode == 0, done.stderr

"""A candidate of another series, or with other patches, is not taken for the one that is meant."""

from __future__ import annotations

import json
import shutil

import pytest

LOOKS = {
    "diff": ("diff", "--arch", "gfx1151"),
    "export": ("export", "--arch", "gfx1151", "out"),
    "verify": ("verify", "--arch", "gfx1151", "--no-gpu", "--gate", "anchors"),
}


def look(world, verb, *args):
    done = world.run(*LOOKS[verb], *args, "--json")
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("verb", LOOKS)
def test_a_candidate_of_another_series_is_refused_with_the_command_that_makes_it_right(world, tmp_path, verb):
    other = tmp_path / "other"
    shutil.copytree(world.series, other)
    patch = other / "patches" / "0002-demo-twin" / "patch.toml"
    patch.write_text(patch.read_text().replace("const int scale = 3;", "const int scale = 4;"))
    assert world.run("apply", "--series-dir", str(other), "--arch", "gfx1151").returncode == 0
    code, told, _ = look(world, verb)
    assert (code, told["error"]["code"]) == (5, "CANDIDATE_STALE")
    assert str(other) in told["error"]["why"]
    hint = told["error"]["hint"]
    assert hint == "patchkit apply --arch gfx1151 --upstream b1"
    assert world.run(*hint.split()[1:]).returncode == 0
    assert look(world, verb)[0] == 0


@pytest.mark.parametrize("verb", LOOKS)
def test_a_candidate_whose_series_was_edited_since_is_refused(world, verb):
    world.run("apply", "--arch", "gfx1151")
    patch = world.series / "patches" / "0002-demo-twin" / "patch.toml"
    patch.write_text(patch.read_text().replace("const int scale = 3;", "const int scale = 4;"))
    code, told, _ = look(world, verb)
    assert (code, told["error"]["code"]) == (5, "CANDIDATE_STALE")
    assert "changed since" in told["error"]["why"]


@pytest.mark.parametrize("verb", LOOKS)
def test_options_name_the_patches_that_a_candidate_must_have(world, verb):
    world.run("apply", "--arch", "gfx1151", "--without", "demo-twin")
    code, _, stderr = look(world, verb)
    assert code == 0
    assert "was made with --without demo-twin" in stderr
    assert look(world, verb, "--without", "demo-twin")[0] == 0
    code, told, _ = look(world, verb, "--only", "demo-twin")
    assert (code, told["error"]["code"]) == (5, "CANDIDATE_STALE")
    assert told["error"]["hint"] == "patchkit apply --arch gfx1151 --upstream b1 --only demo-twin"


def test_a_candidate_without_a_record_counts_when_the_lock_has_its_commit(world):
    """As a bump leaves it."""
    world.run("lock", "--arch", "gfx1151")
    world.run("apply", "--arch", "gfx1151")
    world.git("update-ref", "-d", "refs/patchkit/made/gfx1151/b1")
    assert look(world, "diff")[0] == 0
    world.run("apply", "--arch", "gfx1151", "--without", "demo-twin")
    world.git("update-ref", "-d", "refs/patchkit/made/gfx1151/b1")
    code, told, _ = look(world, "diff")
    assert (code, "no record" in told["error"]["why"]) == (5, True)


def test_a_record_that_cannot_be_read_is_none(world):
    world.run("apply", "--arch", "gfx1151")
    blob = world.git("hash-object", "-w", "--stdin")
    world.git("update-ref", "refs/patchkit/made/gfx1151/b1", blob)
    assert look(world, "diff")[0] == 5
    assert world.run("apply", "--arch", "gfx1151").returncode == 0
    assert look(world, "diff")[0] == 0

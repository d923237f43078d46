"""Releases of a small upstream: bumps to them, sweeps from one to another, and what they are called."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from demo_world import git

from patchkit.carry.series.lock import load_lock


@pytest.fixture
def remote(river) -> Path:
    """The upstream with its releases, in an order that is not that of their names; b4 is a release only."""
    path = river.root / "released"
    shutil.copytree(river.upstream.resolve(), path)
    git(path, "tag", "-a", "-m", "Release v0.5.0", "v0.5.0", "b2")
    git(path, "tag", "v0.6.0", "b1")
    git(path, "tag", "v0.5.1", "b4")
    git(path, "tag", "-d", "b4")
    return path


def bump(river, remote, to, *args, code=0):
    done = river.run("bump", "--to", to, "--upstream-url", str(remote), "--no-verify", *args)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def test_a_bump_to_a_release_gives_what_the_build_gives_and_every_verb_knows_both_names(river, remote):
    commit = git(remote, "rev-parse", "b2")
    plain = json.loads(bump(river, remote, "b2", "--keep-default", "--json"))
    assert plain["to"] == {
        "name": "b2",
        "build": 2,
        "releases": ["v0.5.0"],
        "commit": commit,
        "tree": plain["to"]["tree"],
    }
    before = river.state()
    text = bump(river, remote, "v0.5.0")
    assert f"v0.6.0 (b1) -> v0.5.0 (b2, {commit[:12]})" not in text  # nobody asked which release b1 is
    assert f"b1 -> v0.5.0 (b2, {commit[:12]})" in text
    assert "the lock now has v0.5.0 (b2)" in text
    tip = {name: sha for name, sha in river.state().items() if name.endswith("gfx1151/b2")}
    assert tip == {name: sha for name, sha in before.items() if name.endswith("gfx1151/b2")}
    pin = load_lock(river.lock).pin("v0.5.0")
    assert (pin.build, pin.releases) == (2, ("v0.5.0",))
    # Without a network: the lock knows the name.
    for args in (["apply", "--upstream", "v0.5.0"], ["plan", "--upstream", "v0.5.0"]):
        done = river.run(*args, "--arch", "gfx1151")
        assert done.returncode == 0, done.stderr
    made = river.run("apply", "--upstream", "v0.5.0", "--arch", "gfx1151").stdout
    assert "llama.cpp v0.5.0 (b2) with 2 patches for gfx1151" in made
    assert "llama.cpp v0.5.0 (b2)" in river.run("diff", "--upstream", "v0.5.0", "--arch", "gfx1151").stderr
    assert done.stdout.startswith(f"v0.5.0 (b2, {commit[:12]}) for gfx1151")
    assert "v0.5.0 -> " not in bump(river, remote, "v0.5.0")
    status = river.run("status").stdout
    assert re.search(rf"  v0.5.0 \(b2\)  tree {pin.tree[:12]}  .* downloaded  default\n", status)
    assert "Carried patches on v0.5.0 (b2): " in status
    pins = json.loads(river.run("status", "--json").stdout)["pins"]
    assert [(row["build"], row["releases"]) for row in pins] == [(1, []), (2, ["v0.5.0"])]


def test_a_release_without_a_builds_tag_is_pinned_by_the_number_of_its_commit(river, remote):
    found = json.loads(bump(river, remote, "latest-release", "--json"))
    assert (found["to"]["build"], found["to"]["releases"]) == (4, ["v0.5.1"])
    assert "candidate/gfx1151/b4" in river.run("status").stdout
    # As the same commit gives it where a build's tag names it.
    assert (
        found["candidates"][0]["tip"]
        == json.loads(river.run("bump", "--to", "b4", "--no-verify", "--json").stdout)["candidates"][0]["tip"]
    )


def test_a_release_whose_tag_moved_is_refused_with_both_places(river, remote):
    bump(river, remote, "v0.5.0")
    before = river.state()
    git(remote, "tag", "-f", "v0.5.0", "b3")
    error = json.loads(bump(river, remote, "v0.5.0", "--json", code=2))["error"]
    assert error["code"] == "PIN_DIFFERS"
    assert "v0.5.0 is b2 in the lock, but b3 in the remote" in error["message"]
    assert river.state() == before


@pytest.mark.parametrize(
    ("to", "why"),
    [("v0.7.0", "v0.5.0, v0.5.1, v0.6.0"), ("v0.5.0-rc1", "v0.5.0, v0.5.1, v0.6.0"), ("b4", "b5")],
)
def test_an_unknown_release_is_told_with_those_there_are(river, remote, to, why):
    error = json.loads(bump(river, remote, to, "--json", code=2))["error"]
    assert (error["code"], why in error["why"]) == ("BUMP_TARGET_UNKNOWN", True)


def test_a_sweep_goes_from_release_to_release_in_the_order_of_the_main_line(river, remote):
    args = ("sweep", "--arch", "gfx1151", "--upstream-url", str(remote))
    done = river.run(*args, "--from", "v0.6.0", "--to", "v0.5.1", "--json")
    assert done.returncode == 0, done.stderr
    pins = json.loads(done.stdout)["pins"]
    assert [(row["build"], row["releases"]) for row in pins] == [(1, ["v0.6.0"]), (4, ["v0.5.1"])]
    text = river.run(*args, "--from", "v0.5.0", "--to", "latest").stdout
    assert text.splitlines()[1].split()[:2] == ["v0.5.0", "(b2)"]
    # b4 has no tag of its own, and v0.5.1 is no end: nobody asked for it, so the search does not go there.
    assert "demo-twin: good until b3, retired at b5" in text
    done = river.run(*args, "--from", "v0.5.0", "--to", "v0.6.0")
    assert done.returncode == 2
    assert "v0.5.0 (b2) is not before v0.6.0 (b1)" in done.stderr

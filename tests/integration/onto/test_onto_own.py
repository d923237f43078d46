"""Patchkit's own commits below the owner's commit: recognised, and replaced by the current patches."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from demo_world import FOLDER

BRANCH = "refs/heads/patchkit/gfx1151"
DEMO = f"{FOLDER}/demo.cu"
WHO = ("-c", "user.name=owner", "-c", "user.email=owner@example.org")
IDS = ["demo-launch-bounds", "demo-twin"]
WAYS = ["ff", "merge", "cherry-pick", "rebase"]


def take_in(owner, how):
    """Bring the branch into ``mine``, in one of the ways of git."""
    if how == "merge":
        owner.git(*WHO, "merge", "-q", "--no-ff", "-m", "with patches", "patchkit/gfx1151")
    elif how == "cherry-pick":
        owner.commit("notes.txt", "before\n")
        owner.git(*WHO, "cherry-pick", "-x", "mine~1..patchkit/gfx1151")
    else:
        owner.git("merge", "-q", "--ff-only", "patchkit/gfx1151")
    if how == "rebase":
        owner.git(*WHO, "rebase", "-q", "--onto", "b1", "b2", "mine")


def change_twin(owner, old="const int scale = 3;", new="const int scale = 5;"):
    """Another version of the second patch."""
    manifest = owner.place.series / "patches" / "0002-demo-twin" / "patch.toml"
    assert old in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(old, new))


def state(owner):
    return owner.git("for-each-ref"), owner.git("status", "--porcelain"), owner.git("rev-parse", "HEAD")


def demo(owner, revision):
    return owner.git("show", f"{revision}:{DEMO}")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("how", WAYS)
def test_patches_that_are_there_as_they_would_be_made_are_current(owner, how, later):
    owner.apply()
    take_in(owner, how)
    if later:
        owner.commit("README.md", "later work\n")
    before = state(owner)
    done = owner.apply("--replace")
    assert done.stdout.startswith("already applied and current: 2 patches are in ")
    assert "no branch was created" in done.stdout
    told = json.loads(owner.apply("--json").stdout)
    assert (told["branch"], told["current"]) == (None, True)
    assert [each["id"] for each in told["onto"]["replaced"]] == IDS[::-1]
    assert {each["is_copy"] for each in told["onto"]["replaced"]} == {how in {"cherry-pick", "rebase"}}
    assert [each["class"] for each in told["classes"]] == ["clean", "clean"]
    assert state(owner) == before


@pytest.mark.parametrize("how", WAYS)
def test_patches_that_changed_since_are_replaced_on_top_of_the_owners_work(owner, how):
    owner.apply()
    take_in(owner, how)
    work = owner.commit("README.md", "later work\n")
    change_twin(owner)
    before = state(owner)[1:]
    planned = owner.place.run("plan", *owner.here)
    assert planned.returncode == 0, planned.stderr
    done = owner.apply("--replace")
    for text in (planned.stdout, done.stdout):
        assert "Already in your commit, from patchkit" in text
    assert f"2 patches on {work[:12]}" in done.stdout
    assert owner.git("rev-parse", f"{BRANCH}~3") == work
    assert owner.git("log", "-1", "--format=%s %ce", f"{BRANCH}~2") == (
        "Revert 2 patches of patchkit, to apply them again patchkit@localhost"
    )
    text = demo(owner, BRANCH)
    assert "scale = 5" in text
    assert "scale = 3" not in text
    assert "128 : 64" in text
    assert "// mine" in text
    assert "128" not in demo(owner, f"{BRANCH}~2")
    assert state(owner)[1:] == before
    owner.git("fsck", "--strict")
    owner.git("merge", "-q", "--ff-only", "patchkit/gfx1151")
    owner.commit("README.md", "still later\n")
    assert owner.apply("--replace").stdout.startswith("already applied and current: 2 patches")
    change_twin(owner, "scale = 5", "scale = 7")
    owner.apply("--replace")
    assert "scale = 7" in demo(owner, BRANCH)


def test_the_next_commands_find_the_patches_in_the_owners_commit(owner):
    owner.apply()
    take_in(owner, "ff")
    owner.commit("README.md", "later work\n")
    owner.apply("--replace")
    diff = owner.place.run("diff", *owner.here)
    assert "128 : 64" in diff.stdout, diff.stderr
    assert "later work" not in diff.stdout
    verified = owner.place.run("verify", *owner.here, "--no-gpu", "--gate", "anchors", "--json")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["gates"][0]["verdict"] == "passed"


def test_a_patch_that_is_not_chosen_any_more_is_named_and_taken_out(owner):
    owner.apply()
    take_in(owner, "ff")
    done = owner.apply("--without", "demo-twin", "--branch", "fewer")
    assert "Not in the new branch any more: demo-twin" in done.stdout
    assert "scale = 3" not in demo(owner, "fewer")
    assert "128 : 64" in demo(owner, "fewer")


def test_what_the_owner_reverted_is_not_there(owner):
    owner.apply()
    take_in(owner, "ff")
    owner.commit("README.md", "later work\n")
    owner.git(*WHO, "revert", "--no-edit", "HEAD~1")  # demo-twin alone
    told = json.loads(owner.apply("--json", "--branch", "one").stdout)
    assert [each["id"] for each in told["onto"]["replaced"]] == ["demo-launch-bounds"]
    assert [each["id"] for each in told["commits"]] == IDS
    owner.git(*WHO, "revert", "--no-edit", "HEAD~3")  # and the other one
    told = json.loads(owner.apply("--json", "--branch", "both").stdout)
    assert told["onto"]["replaced"] == []
    owner.git(*WHO, "revert", "--no-edit", "HEAD")  # which brings it back
    told = json.loads(owner.apply("--json", "--branch", "again").stdout)
    assert [each["id"] for each in told["onto"]["replaced"]] == ["demo-launch-bounds"]


def test_what_else_is_in_a_rebased_commit_stays(owner):
    owner.apply()
    take_in(owner, "ff")
    path = owner.clone / DEMO
    path.write_text(path.read_text().replace("dst[i] = x[i];", "dst[i] = x[i]; // amended"))
    owner.git(*WHO, "commit", "-q", "--amend", "--no-edit", "-a")
    change_twin(owner)
    owner.apply("--replace")
    text = demo(owner, BRANCH)
    assert "// amended" in text
    assert "scale = 5" in text


def test_rebased_commits_whose_originals_are_gone_are_only_replaced_by_the_same(owner, tmp_path):
    """As in a colleague's clone, who has neither the branch nor the cache."""
    owner.apply()
    take_in(owner, "rebase")
    shutil.rmtree(owner.place.cache)
    clone = tmp_path / "colleague"
    only_mine = ("--branch", "mine", "--single-branch")
    owner.git("clone", "-q", *only_mine, f"file://{owner.clone}", str(clone), at=tmp_path)
    owner.git("tag", "-f", "b2", at=clone)
    other = replace(owner, clone=clone)
    change_twin(owner)
    error = other.error(code=2)
    assert error["code"] == "ONTO_PATCHED"
    assert "neither the clone nor the cache" in error["why"]
    assert owner.git("for-each-ref", "refs/heads/patchkit", at=clone) == ""
    change_twin(owner, "scale = 5", "scale = 3")
    assert other.apply().stdout.startswith("already applied and current: 2 patches")


def test_a_patch_that_the_owner_edited_is_not_replaced_but_by_the_commands_that_are_told(owner):
    owner.apply()
    take_in(owner, "ff")
    text = (owner.clone / DEMO).read_text()
    owner.commit(DEMO, text.replace("128 : 64", "256 : 64"))
    before = state(owner)
    error = owner.error("--replace", code=2)
    assert error["code"] == "ONTO_PATCHED"
    assert [place["label"].split()[1] for place in error["where"]] == ["demo-launch-bounds"]
    assert state(owner) == before
    commands = error["hint"].removeprefix("revert them yourself: ").partition("; then")[0]
    switch, revert = commands.split(" && ")
    owner.git(*switch.split()[3:])
    owner.git(*WHO, *revert.split()[3:], "--no-edit", "-X", "theirs")
    owner.apply("--replace")
    assert "128 : 64" in demo(owner, BRANCH)


def test_commits_for_another_gpu_are_not_taken_out(owner):
    profile = owner.place.series / "arch_profiles" / "gfx1100.toml"
    row = '{ default = "on", why = "for the test", source = "the test" }'
    profile.write_text(profile.read_text() + "\n[patches]\n" + "".join(f"{name} = {row}\n" for name in IDS))
    owner.apply("--arch", "gfx1100")
    owner.git("merge", "-q", "--ff-only", "patchkit/gfx1100+gfx1151")
    owner.commit("README.md", "later work\n")
    error = owner.error(code=2)
    assert (error["code"], error["hint"]) == (
        "ONTO_PATCHED",
        "name all of its GPUs: --arch gfx1100 --arch gfx1151",
    )
    assert owner.apply("--arch", "gfx1100").stdout.startswith("already applied and current: 2 patches")

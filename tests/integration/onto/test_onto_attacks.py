"""What attackers of ``apply --onto`` found in the owner's clone, kept from coming back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from demo_world import FOLDER

BRANCH = "refs/heads/patchkit/gfx1151"


def test_a_damaged_clone_is_called_that_and_nobody_is_told_to_delete_it(owner):
    owner.apply()
    owner.git("commit", "-q", "--allow-empty", "-m", "later")
    (owner.clone / ".git/refs/heads/lost").write_text("12345678" * 5 + "\n")
    error = owner.error("--replace", code=5)
    assert error["code"] == "GIT_OBJECT_DAMAGED"
    assert "delete" not in error["hint"]
    assert str(owner.clone) in error["hint"]


def test_an_object_of_ours_that_broke_there_is_seen_before_the_branch_is_made(owner):
    owner.apply()
    broken = owner.git("rev-parse", f"{BRANCH}~1")
    owner.git("update-ref", "-d", BRANCH)
    path = owner.clone / ".git" / "objects" / broken[:2] / broken[2:]
    path.chmod(0o600)
    path.write_bytes(b"")
    assert owner.error(code=5)["message"] == "your repository is damaged"
    assert not (owner.clone / ".git" / BRANCH).exists()


def test_a_file_with_other_content_than_its_name_never_reaches_the_cache(owner):
    blob = owner.git("rev-parse", "HEAD:README.md")
    other = owner.git("rev-parse", f"HEAD:{FOLDER}/common.cuh")
    objects = owner.clone / ".git" / "objects"
    if not (objects / blob[:2] / blob[2:]).exists():
        pytest.fail("the clone's objects are loose here")
    path = objects / blob[:2] / blob[2:]
    path.chmod(0o600)
    shutil.copyfile(objects / other[:2] / other[2:], path)
    assert owner.error(code=5)["code"] == "GIT_OBJECT_DAMAGED"
    owner.git("fsck", "--connectivity-only", at=owner.place.repository)


def test_a_branch_that_head_names_before_its_first_commit_is_in_use(owner):
    owner.git("switch", "-q", "--orphan", "patchkit/gfx1151")
    assert "checked out" in owner.error(onto="mine", code=5)["message"]


def test_a_branch_that_is_another_name_of_a_branch_is_not_written_through(owner):
    owner.git("symbolic-ref", BRANCH, "refs/heads/nowhere")
    error = owner.error("--replace", code=5)
    assert "other branch" in error["why"]


def test_a_branch_in_the_middle_of_a_rebase_does_not_move(owner):
    owner.apply()
    owner.git("switch", "-q", "patchkit/gfx1151")
    environment = {**os.environ, "GIT_SEQUENCE_EDITOR": "sed -i 1s/pick/edit/"}
    subprocess.run(
        ["git", "-C", str(owner.clone), "-c", "user.email=o@x", "rebase", "-q", "-i", "HEAD~2"],
        env=environment, check=True, capture_output=True,
    )  # fmt: skip
    assert "rebase" in owner.error("--replace", onto="b2", code=5)["why"]


def test_work_in_patchkits_name_without_a_patch_is_somebodys(owner):
    owner.apply()
    owner.git("switch", "-q", "patchkit/gfx1151")
    (owner.clone / "notes.txt").write_text("mine\n")
    owner.git("add", "-A")
    subprocess.run(
        ["git", "-C", str(owner.clone), "commit", "-qm", "work"],
        env={**os.environ, **{f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER")
             for key, value in (("NAME", "patchkit"), ("EMAIL", "patchkit@localhost"))}},
        check=True,
    )  # fmt: skip
    owner.git("switch", "-q", "mine")
    assert owner.error("--replace", onto="b2", code=5)["code"] == "ONTO_BRANCH_TAKEN"


def test_no_program_of_the_clone_is_run_for_a_relative_path(owner, tmp_path):
    real = shutil.which("git")
    tools = owner.place.root / "bin"
    tools.mkdir()
    (tools / "git").symlink_to(real)
    for name in ("git", "env"):
        trap = owner.clone / ".git" / "bin" / name
        trap.parent.mkdir(exist_ok=True)
        trap.write_text(f'#!/bin/sh\ntouch {tmp_path}/ran\nexec {real} "$@"\n')
        trap.chmod(0o755)
    done = owner.place.run(
        "apply", *owner.here,
        env={"PATH": f"bin:{os.environ['PATH']}", "GIT_EDITOR": "x"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_clone_at_a_path_that_is_no_text_works_with_every_verb(owner):
    odd = Path(os.fsdecode(os.fsencode(owner.place.root) + b"/clone-\xff"))
    shutil.copytree(owner.clone, odd, symlinks=True)
    owner.apply(at=odd)
    done = owner.place.run("diff", "--arch", "gfx1151", "--onto", "HEAD", "--repo", str(odd), "--stat")
    assert done.returncode == 0, done.stderr
    assert owner.place.run("status", "--json").returncode == 0


def test_patchkits_own_repository_is_no_clone_of_the_owners(owner):
    owner.apply()
    assert owner.error(at=owner.place.repository, code=5)["code"] == "CLONE_UNUSABLE"


def test_a_commit_from_no_zone_on_earth_dates_the_patches_as_near_as_git_can(owner):
    raw = owner.git("cat-file", "commit", "HEAD").replace("+0000", "+2359")
    sha = subprocess.run(
        ["git", "-C", str(owner.clone), "hash-object", "-t", "commit", "-w", "--stdin", "--literally"],
        input=raw + "\n", capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert json.loads(owner.apply("--json", onto=sha).stdout)["base"] == sha


@pytest.mark.parametrize("name", ["@", "HEAD", "refs/heads/x"])
def test_what_commands_would_take_for_another_ref_is_no_name_of_a_branch(owner, name):
    assert owner.error(f"--branch={name}", code=2)["code"] == "USAGE_VALUE"

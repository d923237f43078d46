"""``apply --onto`` in the owner's clone: the right branch on his commit, and nothing else changed there."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

import pytest
from command_line import run_patchkit
from demo_world import FOLDER, SOURCE

BRANCH = "refs/heads/patchkit/gfx1151"


def snapshot(folder: Path) -> dict[str, str]:
    """Every file of a repository but its objects, by content; what the branch itself is made of aside."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or "/objects/" in f"/{name}" or "patchkit/gfx1151" in name:
            continue
        data = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        found[name] = f"{path.lstat().st_mode} {hashlib.sha256(data).hexdigest()}"
    return found


def test_the_branch_has_the_patches_beside_the_owners_edit_and_nothing_else_changes(owner):
    (owner.clone / "untracked.txt").write_text("work in progress\n")
    with (owner.clone / FOLDER / "demo.cu").open("a") as stream:
        stream.write("// not committed\n")
    before = snapshot(owner.clone)
    done = json.loads(owner.apply("--json").stdout)
    assert snapshot(owner.clone) == before
    head, tip = owner.git("rev-parse", "HEAD"), owner.git("rev-parse", BRANCH)
    assert (done["branch"], done["base"], done["commits"][-1]["commit"]) == (BRANCH, head, tip)
    assert owner.git("rev-parse", f"{tip}~2") == head
    text = owner.git("show", f"{tip}:{FOLDER}/demo.cu")
    assert "// mine" in text
    assert "128 : 64" in text
    assert "not committed" not in text
    assert [each["class"] for each in done["classes"]] == ["clean", "clean"]
    assert done["onto"]["build"] == {"low": 2, "high": 2, "known_by": "b2 and 1 commit"}
    owner.git("fsck", "--strict")


def test_it_merges_fast_forward_and_is_the_same_on_another_machine(make_owner):
    owner, other = make_owner("one"), make_owner("two")
    for each in (owner, other):
        each.apply()
    assert owner.git("rev-parse", BRANCH) == other.git("rev-parse", BRANCH)
    owner.git("merge", "-q", "--ff-only", "patchkit/gfx1151")
    assert owner.git("rev-parse", "HEAD") == owner.git("rev-parse", BRANCH)


def test_an_optional_patch_is_marked_in_the_list(owner):
    profile = owner.place.series / "arch_profiles" / "gfx1151.toml"
    text = profile.read_text()
    profile.write_text(text.replace('demo-twin = { default = "on"', 'demo-twin = { default = "opt-in"'))
    assert profile.read_text() != text
    assert "optional  " not in owner.apply("--branch", "few").stdout
    out = owner.apply("--with-opt-in").stdout
    assert re.search(r"\n  demo-twin +applies  optional  ", out)
    assert re.search(r"\n  demo-launch-bounds +applies {12}", out)


def test_on_upstreams_own_commit_it_is_the_candidate_of_the_lock(owner):
    owner.apply(onto="b1")
    done = owner.place.run("apply", "--arch", "gfx1151", "--json")
    assert json.loads(done.stdout)["commits"][-1]["commit"] == owner.git("rev-parse", BRANCH)


def test_a_second_run_says_that_nothing_changed(owner):
    owner.apply()
    log = owner.git("reflog", "show", BRANCH)
    done = json.loads(owner.apply("--json").stdout)
    assert done["unchanged"]
    assert owner.git("reflog", "show", BRANCH) == log


def test_it_says_the_result_in_a_few_lines_and_more_with_v(owner):
    lines = owner.apply().stdout.splitlines()
    assert len(lines) <= 20, lines
    head = owner.git("rev-parse", "HEAD")[:12]
    where = f"on {head} (upstream b2 and 1 commit), in {owner.clone}"
    assert lines[0] == f"patchkit/gfx1151: created, 2 patches {where}"
    assert f"  git -C {owner.clone} merge --ff-only patchkit/gfx1151" in lines
    assert len(owner.apply("-v").stdout.splitlines()) > len(lines)


def test_without_a_revision_it_is_head_and_the_folder_one_is_in(owner):
    below = owner.clone / "ggml" / "src"
    for args in (("--onto", "--arch", "gfx1151"), ("--arch", "gfx1151", "--onto")):
        done = run_patchkit(*owner.place.words("apply", *args, "--json"), cwd=below)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["base"] == owner.git("rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["HEAD~1", "b2", "mine", "@", "HEAD^{commit}", ":/change 2"])
def test_any_revision_that_git_reads_is_one(owner, name):
    done = json.loads(owner.apply("--json", onto=name).stdout)
    assert done["base"] == owner.git("rev-parse", name)


def test_a_detached_head_and_a_worktree_and_a_bare_repository(owner):
    owner.git("switch", "-q", "--detach", "b2")
    base = owner.git("rev-parse", "b2")
    assert json.loads(owner.apply("--json").stdout)["base"] == base
    tree = owner.place.root / "tree"
    owner.git("worktree", "add", "-q", str(tree), "mine")
    mine = owner.git("rev-parse", "mine")
    assert json.loads(owner.apply("--json", "--branch", "two", at=tree).stdout)["base"] == mine
    assert owner.git("rev-parse", "two~2") == mine
    bare = owner.place.root / "bare.git"
    owner.git("clone", "-q", "--bare", str(owner.clone), str(bare))
    assert json.loads(owner.apply("--json", "--branch", "three", at=bare, onto="mine").stdout)["base"] == mine


def test_a_submodule_is_a_clone_like_any_other(owner):
    outer = owner.place.root / "outer"
    owner.git("init", "-q", str(outer), at=owner.place.root)
    owner.git(
        "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(owner.clone), "llama", at=outer
    )
    owner.git("commit", "-q", "-m", "add", at=outer)
    before = snapshot(outer)
    owner.apply(at=outer / "llama")
    assert owner.git("rev-parse", f"{BRANCH}~2", at=outer / "llama") == owner.git(
        "rev-parse", "HEAD", at=outer / "llama"
    )
    assert snapshot(outer) == before


def test_a_shallow_clone_stays_as_shallow_as_it_was(owner):
    shallow = owner.place.root / "shallow"
    owner.git("clone", "-q", "--depth", "1", f"file://{owner.clone}", str(shallow), at=owner.place.root)
    owner.git("tag", "b2", at=shallow)  # of a clone with --depth 1 the tag is all there is
    before = snapshot(shallow)
    owner.apply(at=shallow)
    assert snapshot(shallow) == before
    owner.git("fsck", at=shallow)
    owner.git("merge", "-q", "--ff-only", "patchkit/gfx1151", at=shallow)


def test_a_partial_clone_that_lacks_files_is_refused_with_the_way_out_and_nothing_is_fetched(owner):
    owner.git("config", "uploadpack.allowFilter", "true")
    partial = owner.place.root / "partial"
    clone = ("clone", "-q", "--filter=blob:none", "--sparse", f"file://{owner.clone}")
    owner.git(*clone, str(partial), at=owner.place.root)
    before = sorted(path.name for path in (partial / ".git").rglob("*"))
    error = owner.error(at=partial, code=5)
    assert error["code"] == "CLONE_UNUSABLE"
    assert sorted(path.name for path in (partial / ".git").rglob("*")) == before
    owner.git("sparse-checkout", "disable", at=partial)
    owner.apply(at=partial)
    owner.git("merge", "-q", "--ff-only", "patchkit/gfx1151", at=partial)


def test_what_is_no_clone_of_llama_cpp_is_refused(owner):
    root = owner.place.root
    owner.git("init", "-q", str(root / "unborn"), at=root)
    owner.git("init", "-q", "--object-format=sha256", str(root / "sha256"), at=root)
    owner.git("init", "-q", str(root / "other"), at=root)
    owner.git("commit", "-q", "--allow-empty", "-m", "x", at=root / "other")
    (root / "none").mkdir()
    told = {
        "unborn": ("ONTO_NO_COMMIT", 2),
        "sha256": ("CLONE_UNUSABLE", 5),
        "other": ("ONTO_NOT_LLAMA_CPP", 2),
        "none": ("CLONE_UNUSABLE", 5),
        "absent": ("CLONE_UNUSABLE", 5),
    }
    for name, (code, exit_code) in told.items():
        error = owner.error(at=root / name, code=exit_code)
        assert (name, error["code"]) == (name, code)
        assert error["hint"]


@pytest.mark.parametrize("name", ["nosuch", "--all", "HEAD HEAD", "b1\nb2", "HEAD:README.md"])
def test_a_revision_that_is_none_is_refused(owner, name):
    assert owner.error(onto=name, code=2)["code"] in {"ONTO_NO_COMMIT", "USAGE_OPTION"}
    assert owner.git("for-each-ref", "refs/heads/patchkit") == ""


def test_a_patch_that_does_not_fit_is_told_with_both_sides_and_left_out_only_when_asked(owner):
    owner.commit(f"{FOLDER}/demo.cu", SOURCE.replace("const int scale = 2", "const int scale = 5"))
    done = owner.apply(code=3)
    assert f"{FOLDER}/demo.cu" in done.stderr
    assert "0002-demo-twin/patch.toml" in done.stderr
    assert "--drop-conflicts" in done.stderr
    assert owner.git("for-each-ref", "refs/heads/patchkit") == ""
    planned = owner.place.run("plan", *owner.here, "--json")
    assert planned.returncode == 3
    assert [each["class"] for each in json.loads(planned.stdout)["classes"]] == ["clean", "conflict"]
    assert "Skipped on request, because of a conflict: demo-twin" in owner.apply("--drop-conflicts").stdout
    assert owner.git("log", "--format=%s", f"HEAD..{BRANCH}").startswith("demo-launch-bounds")
    told = json.loads(owner.apply("--drop-conflicts", "--json").stdout)
    assert told["onto"]["dropped"] == ["demo-twin"]


def test_a_function_that_the_owner_renamed_is_followed_and_later_verbs_know_it(owner):
    owner.commit(f"{FOLDER}/demo.cu", SOURCE.replace("demo_launch", "owners_launch"))
    told = json.loads(owner.apply("--json").stdout)
    assert told["classes"][0]["class"] == "moved"
    repo = owner.here
    assert "128 : 64" in owner.place.run("diff", *repo).stdout
    verified = owner.place.run("verify", *repo, "--no-gpu", "--gate", "anchors", "--json")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["gates"][0]["verdict"] == "passed"


def test_a_change_that_the_owner_has_already_is_left_out_with_the_proof(owner):
    owner.apply("--only", "demo-twin")
    owner.git("merge", "-q", "--squash", "patchkit/gfx1151")
    owner.git("-c", "user.name=owner", "commit", "-q", "-m", "taken over by hand")
    told = json.loads(owner.apply("--json", "--replace").stdout)
    assert [each["class"] for each in told["classes"]] == ["clean", "upstreamed"]
    assert told["classes"][1]["reason"] == "this commit has the change already"
    assert [each["id"] for each in told["commits"]] == ["demo-launch-bounds"]


def test_a_file_that_the_owner_removed_is_told_before_its_patch_is_left_out(owner):
    owner.git("rm", "-q", f"{FOLDER}/demo.cu")
    owner.git("-c", "user.name=owner", "commit", "-q", "-m", "not mine")
    error = owner.error(code=3)
    assert "--without demo-launch-bounds --without demo-twin" in error["errors"][-1]["hint"]


def test_a_function_that_the_owner_changed_is_named_though_its_patch_fits(owner):
    owner.commit(f"{FOLDER}/demo.cu", SOURCE.replace("const int nblocks = 4;", "const int nblocks = 4 + 1;"))
    assert (
        "Please review demo_launch: demo-launch-bounds edits it, and it differs from" in owner.apply().stdout
    )

"""What apply promises about its result: the commits, where they are, and that they are always the same."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from command_line import run_patchkit
from thorough import ordinary

REF = "refs/heads/candidate/gfx1151/b1"


def test_one_commit_per_patch_on_the_pin(finished_world):
    world = finished_world
    tip = world.refs()[REF]
    subjects = world.git("log", "--format=%s", "--reverse", tip).splitlines()
    assert subjects == [
        "change 1",
        "demo-launch-bounds: two waves for the demo kernel",
        "demo-twin: scale of the second twin",
    ]
    base = world.git("rev-parse", "HEAD", at=world.upstream)
    assert world.git("rev-parse", f"{tip}~2") == base
    changed = world.git("diff", "--name-only", base, tip).splitlines()
    assert changed == ["ggml/src/ggml-cuda/demo-config.cuh", "ggml/src/ggml-cuda/demo.cu"]


def test_trailers_name_patch_profile_digest_and_upstream(finished_world):
    world = finished_world
    body = world.git("log", "-1", "--format=%(trailers)", world.refs()[REF])
    names = [line.partition(":")[0] for line in body.splitlines() if line]
    assert [name for name in names if name != "Link"] == [
        "Patchkit-Id", "Patchkit-Profile", "Patchkit-Digest", "Upstream-Commit",
    ]  # fmt: skip
    assert "Patchkit-Id: demo-twin" in body


def test_the_edit_lands_in_its_twin_only(finished_world):
    world = finished_world
    text = world.git("show", f"{REF}:ggml/src/ggml-cuda/demo.cu")
    first, second = text.split("static __device__ int twin_b")
    assert "scale = 3" not in first
    assert second.count("scale = 3") == 1
    assert "#if defined(GGML_USE_HIP) && defined(__gfx1151__)" in second


@pytest.mark.parametrize(
    ("umask", "env"),
    ordinary([
        (0o022, {"GIT_AUTHOR_NAME": "someone", "GIT_DIR": "/nonexistent", "GIT_CONFIG_COUNT": "1",
                 "GIT_CONFIG_KEY_0": "core.autocrlf", "GIT_CONFIG_VALUE_0": "true"}),
        (0o002, {"LC_ALL": "xx_YY.UTF-8", "LANG": "tr_TR.UTF-8"}),
        (0o077, {"LC_ALL": "C"}),
        (0o022, {"TZ": "Pacific/Apia", "HOME": "/nonexistent"}),
    ], kept=2),
)  # fmt: skip
def test_same_hashes_for_every_user(finished_world, tmp_path, umask, env):
    before = f"import os; os.umask({umask})"
    cache = tmp_path / "other cache"
    done = finished_world.process("apply", "--arch", "gfx1151", cache=cache, env=env, before=before)
    assert done.returncode == 0, done.stderr
    assert finished_world.refs(tmp_path / "other cache") == finished_world.refs()


def test_another_clone_of_the_series_gives_the_same_hashes(finished_world, tmp_path):
    import shutil

    shutil.copytree(finished_world.series, tmp_path / "elsewhere")
    words = finished_world.words("apply", "--arch", "gfx1151", cache=tmp_path / "cache")
    words[words.index(str(finished_world.series))] = str(tmp_path / "elsewhere")
    done = run_patchkit(*words)
    assert done.returncode == 0, done.stderr

    def hashes(refs):  # a record names the folder of its series
        return {name: sha for name, sha in refs.items() if "/made/" not in name}

    assert hashes(finished_world.refs(tmp_path / "cache")) == hashes(finished_world.refs())


def test_two_gpus_in_one_binary_are_each_guarded(world):
    done = world.run("apply", "--arch", "gfx1151", "--arch", "gfx1100")
    assert done.returncode == 0, done.stderr
    text = world.git("show", "refs/heads/candidate/gfx1100+gfx1151/b1:ggml/src/ggml-cuda/demo.cu")
    assert "defined(GGML_USE_HIP) && (defined(__gfx1100__) || defined(__gfx1151__))" in text
    assert "cc == GGML_CUDA_CC_OFFSET_AMD + 0x1100 || cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151" in text


def test_a_gpu_without_patches_is_said_so_and_is_no_error(world):
    done = world.run("apply", "--arch", "gfx1030", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["commits"] == []
    assert set(report["skipped"]) == {"demo-launch-bounds", "demo-twin"}


def test_checkout_gives_the_files_of_the_tip(world, tmp_path):
    target = tmp_path / "files"
    done = world.run("apply", "--arch", "gfx1151", "--checkout", str(target))
    assert done.returncode == 0, done.stderr
    assert (target / "ggml/src/ggml-cuda/demo-config.cuh").read_text().endswith("// gfx1151\n")
    assert world.git("status", "--porcelain", at=target) == ""
    assert world.git("rev-parse", "HEAD", at=target) == world.refs()[REF]
    assert world.git("symbolic-ref", "HEAD", at=target) == REF
    assert world.git("remote", "get-url", "origin", at=target) == str(world.upstream)


def test_export_applies_with_plain_git_am(finished_world, tmp_path):
    world, clone = finished_world, tmp_path / "clone"
    done = world.run("export", "--arch", "gfx1151", str(tmp_path / "files"))
    assert done.returncode == 0, done.stderr
    files = sorted(map(str, (tmp_path / "files").glob("*.patch")))
    assert len(files) == 2
    world.git("clone", "-q", str(world.upstream), str(clone), at=tmp_path)
    world.git("-c", "user.name=a", "-c", "user.email=a@b", "am", "-q", *files, at=clone)
    assert world.git("rev-parse", "HEAD^{tree}", at=clone) == world.git("rev-parse", f"{REF}^{{tree}}")


def test_plan_lists_every_failing_place_at_once_and_writes_no_branch(world):
    first = world.series / "patches/0001-demo-launch-bounds/patch.toml"
    first.write_text(
        first.read_text().replace('"demo_kernel"', '"demo_kernal"').replace('"64", of', '"65", of')
    )
    second = world.series / "patches/0002-demo-twin/patch.toml"
    second.write_text(second.read_text().replace("scale = 2", "scale = 7"))
    done = world.run("plan", "--arch", "gfx1151", "--json")
    assert done.returncode == 3
    codes = [error["code"] for error in json.loads(done.stdout)["error"]["errors"]]
    assert codes == ["ENTITY_NOT_FOUND", "ANCHOR_NOT_FOUND", "ANCHOR_NOT_FOUND"]
    assert not any("candidate" in name for name in world.refs())


def test_a_changed_input_is_an_error_that_names_it_until_locked(world):
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    done = world.run("apply", "--arch", "gfx1151", "--json")
    assert json.loads(done.stdout)["lock_state"] == "as the lock records"
    patch = world.series / "patches/0002-demo-twin/patch.toml"
    patch.write_text(patch.read_text().replace("scale = 3", "scale = 5"))
    refused = world.run("apply", "--arch", "gfx1151")
    assert refused.returncode == 2
    assert "LOCK_INPUTS_CHANGED" in refused.stderr
    assert "patches/0002-demo-twin/patch.toml" in refused.stderr
    forced = world.run("apply", "--arch", "gfx1151", "--unlocked")
    assert forced.returncode == 0
    assert "Patchkit-Unlocked" in world.git("log", "-1", "--format=%B", world.refs()[REF])
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    assert world.run("apply", "--arch", "gfx1151").returncode == 0
    assert "Patchkit-Unlocked" not in world.git("log", "-1", "--format=%B", world.refs()[REF])


def test_files_that_changed_for_other_builds_give_what_the_lock_records(world):
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    patch = world.series / "patches/0002-demo-twin/patch.toml"
    text = patch.read_text()
    edit = text[text.index("[[edit]]") :].partition("\n\n")[0]
    later = edit.replace("[[edit]]", "[[edit]]\nfirst_build = 2").replace("scale = 3", "scale = 4")
    patch.write_text(text.replace("[[edit]]", "[[edit]]\nlast_build = 1", 1) + f"\n\n{later}\n")
    done = world.run("apply", "--arch", "gfx1151", "--json")
    assert json.loads(done.stdout)["lock_state"] == "as the lock records", done.stderr
    assert "1 file changed since the lock was written" in done.stderr
    patch.write_text(patch.read_text().replace("scale = 3", "scale = 5"))
    assert "LOCK_INPUTS_CHANGED" in world.run("apply", "--arch", "gfx1151").stderr


def test_a_lock_of_a_version_that_took_the_rules_as_they_are_written_still_holds(world):
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    lock, rules = world.series / "patches/upstream.lock", world.series / "patches/series.toml"
    written = hashlib.sha256(rules.read_bytes()).hexdigest()
    text = re.sub(r'(?<="patches/series.toml" = ")[0-9a-f]{64}', written, lock.read_text())
    lock.write_text(text)
    done = world.run("apply", "--arch", "gfx1151", "--json")
    assert json.loads(done.stdout)["lock_state"] == "as the lock records"
    rules.write_text(rules.read_text() + "# more\n")
    # Now the digest is another one, of a file that gives the same bytes.
    done = world.run("apply", "--arch", "gfx1151", "--json")
    assert json.loads(done.stdout)["lock_state"] == "as the lock records"
    assert "1 file changed since the lock was written, but the candidate is still " in done.stderr
    assert (lock.read_text(), done.returncode) == (text, 0)


def test_a_lock_that_records_another_tree_names_both_hashes(world):
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    lock = world.series / "patches/upstream.lock"
    text = lock.read_text()
    tree = world.git("rev-parse", world.run("apply", "--arch", "gfx1151") and f"{REF}^{{tree}}")
    wrong = "0" * 39 + "1"
    head, _, tail = text.rpartition(tree)
    lock.write_text(head + wrong + tail)
    done = world.run("apply", "--arch", "gfx1151")
    assert done.returncode == 70
    assert tree in done.stderr
    assert wrong in done.stderr


def test_splitting_a_pair_is_refused_with_the_reason(world):
    patch = world.series / "patches/0002-demo-twin/patch.toml"
    patch.write_text(
        patch.read_text()
        + '\n[[requires]]\npatch = "demo-launch-bounds"\nwhy = "one without the other is wrong"\n'
    )
    done = world.run("apply", "--arch", "gfx1151", "--only", "demo-twin")
    assert done.returncode == 2
    assert "PATCH_PAIR_SPLIT" in done.stderr
    assert "one without the other is wrong" in done.stderr
    assert f"{Path('0002-demo-twin') / 'patch.toml'}:" in done.stderr


def test_plan_prints_the_command_that_makes_the_branch(finished_world):
    text = finished_world.run("plan", "--arch", "gfx1151", "--without", "demo-twin").stdout
    assert text.endswith("\nNext: create this branch\n  patchkit apply --arch gfx1151 --without demo-twin\n")
    assert "(file)" not in text


def test_apply_names_both_ways_to_get_the_branch(finished_world):
    text = finished_world.run("apply", "--arch", "gfx1151").stdout
    assert "Get it: add --checkout DIR to this command, or run in your clone of llama.cpp:" in text
    assert "Build it in the parent folder of that clone (needs ROCm)" in text


def test_plan_shows_the_rendered_text_on_request(finished_world):
    done = finished_world.run("plan", "--arch", "gfx1151", "--show-text")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "    | (cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151) ? 128 : 64" in lines
    # What told each place, and where that stands.
    patch = finished_world.series / "patches" / "0001-demo-launch-bounds" / "patch.toml"
    by = next(line for line in lines if line.startswith("    selected by { "))
    selector, place = by.removeprefix("    selected by ").split(" in ", 1)
    number = int(place.removeprefix(f"{patch}:").partition(":")[0])
    assert patch.read_text().splitlines()[number - 1].startswith("id = ")
    assert f"at = {selector}" in patch.read_text()
    assert "    | " not in finished_world.run("plan", "--arch", "gfx1151").stdout


def test_checkout_into_the_series_is_refused(world):
    done = world.run("apply", "--arch", "gfx1151", "--checkout", str(world.series / "patches" / "0003-files"))
    assert done.returncode == 2, done.stderr
    assert not (world.series / "patches" / "0003-files").exists()


def test_a_branch_of_the_checkout_that_another_worktree_shows_does_not_move(world, tmp_path):
    here, beside = tmp_path / "here", tmp_path / "beside"
    assert world.run("apply", "--arch", "gfx1151", "--checkout", str(here)).returncode == 0
    both = ("apply", "--arch", "gfx1151", "--arch", "gfx1100", "--checkout", str(here))
    assert world.run(*both).returncode == 0
    world.git("worktree", "add", "-q", str(beside), "candidate/gfx1151/b1", at=here)
    patch = world.series / "patches" / "0001-demo-launch-bounds" / "patch.toml"
    patch.write_text(patch.read_text().replace("(128, 2)", "(128, 3)"))
    done = world.run("apply", "--arch", "gfx1151", "--checkout", str(here), "--unlocked", "--json")
    assert "is checked out elsewhere" in json.loads(done.stdout)["error"]["message"]
    assert world.git("status", "--porcelain", at=beside) == ""


def test_with_opt_in_adds_all_that_is_opt_in_and_says_so(world):
    profile = world.series / "arch_profiles" / "gfx1151.toml"
    profile.write_text(
        profile.read_text().replace('demo-twin = { default = "on"', 'demo-twin = { default = "opt-in"')
    )
    told = json.loads(world.run("apply", "--arch", "gfx1151", "--json").stdout)
    assert ([each["id"] for each in told["commits"]], told["opt_in"]) == (["demo-launch-bounds"], [])
    done = world.run("apply", "--arch", "gfx1151", "--with-opt-in")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\n  demo-twin +optional  ", done.stdout)
    assert re.search(r"\n  demo-launch-bounds {12}", done.stdout)
    assert "demo-twin is optional and included on your request" in done.stdout
    assert "was made with --with demo-twin" in world.run("diff", "--arch", "gfx1151").stderr


def test_a_candidate_without_commits_leaves_no_file_of_an_earlier_one(world):
    first = json.loads(world.run("apply", "--arch", "gfx1151", "--unlocked", "--json").stdout)
    assert Path(first["handover"]["path"]).is_file()
    left_out = ("--without", "demo-launch-bounds", "--without", "demo-twin")
    assert world.run("apply", "--arch", "gfx1151", "--unlocked", *left_out).returncode == 0
    assert not Path(first["handover"]["path"]).exists()

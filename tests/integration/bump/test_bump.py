"""Following a small upstream: what is done, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from demo_world import pin_at

from patchkit.carry.series.lock import SdistSource, load_lock, write_lock


def bump(river, *args):
    done = river.run("bump", *args, "--json")
    document = json.loads(done.stdout)
    return done.returncode, document


def classes(document):
    (made,) = document["candidates"]
    return {patch["id"]: patch["class"] for patch in made["patches"]}


def test_a_bump_moves_lock_and_branch_together_and_the_same_again_changes_nothing(river):
    code, document = bump(river, "--to", "2", "--no-verify")
    assert code == 0
    assert document["state"] == "done"
    assert classes(document) == {"demo-launch-bounds": "clean", "demo-twin": "clean"}
    lock = load_lock(river.lock)
    assert (lock.default, [pin.build for pin in lock.pins]) == ("b2", [1, 2])
    assert lock.pin("b2").commit == river.git("rev-parse", "b2", at=river.upstream)
    (made,) = document["candidates"]
    assert river.state()["refs/heads/candidate/gfx1151/b2"] == made["tip"]
    recorded = lock.result("b2", ("gfx1151",), ("demo-launch-bounds", "demo-twin"))
    assert recorded.commit == made["tip"]
    assert river.left_over() == []
    # What the lock now says is what apply makes, to the last byte, in an empty cache too.
    again = river.run("apply", "--arch", "gfx1151", "--json", "--cache-dir", str(river.root / "empty"))
    assert json.loads(again.stdout)["commits"][-1]["commit"] == made["tip"]
    assert json.loads(again.stdout)["lock_state"] == "as the lock records"
    before = river.state()
    assert bump(river, "--to", lock.pin("b2").commit[:10], "--no-verify")[1]["to"]["build"] == 2
    assert river.state() == before


def test_the_default_may_stay(river):
    assert bump(river, "--to", "b2", "--no-verify", "--keep-default")[0] == 0
    assert load_lock(river.lock).default == "b1"


def test_with_commit_the_lock_is_on_a_branch_and_the_files_stay(river):
    before = river.state()
    code, document = bump(river, "--to", "b2", "--no-verify", "--commit")
    assert code == 0
    after = river.state()
    assert after["lock"] == before["lock"]
    assert river.git("status", "--porcelain", at=river.home) == ""
    assert document["commit"]["branch"] == "bump/b2"
    assert after["home refs/heads/bump/b2"] == document["commit"]["commit"]
    assert after["home refs/heads/main"] == before["home refs/heads/main"]
    shown = river.git("show", "--stat", "--format=%s%n%b", "bump/b2", at=river.home)
    assert "Bump llama.cpp to b2" in shown
    assert "demo-twin: clean" in shown
    assert "no gate was run" in shown
    assert f"Commit {document['candidates'][0]['tip']}" in shown
    assert "1 file changed" in shown
    text = river.git("show", "bump/b2:patches/upstream.lock", at=river.home)
    assert 'default = "b2"' in text


def test_a_series_that_cannot_be_committed_is_told_before_the_work(river, tmp_path):
    path = river.home / "patches" / "0002-demo-twin" / "patch.toml"
    path.write_text(path.read_text() + "# mine\n")
    code, document = bump(river, "--to", "b2", "--no-verify", "--commit")
    assert (code, document["error"]["code"]) == (5, "BUMP_SERIES_UNUSABLE")
    (river.home / ".git").rename(tmp_path / "elsewhere.git")
    code, document = bump(river, "--to", "b2", "--no-verify", "--commit")
    assert (code, document["error"]["code"]) == (5, "BUMP_SERIES_UNUSABLE")


def test_drift_of_an_edited_function_needs_the_gates(river):
    before = river.state()
    code, document = bump(river, "--to", "b3", "--no-verify")
    assert code == 2
    assert document["error"]["code"] == "BUMP_GATES_NEEDED"
    assert (document["state"], classes(document)["demo-launch-bounds"]) == ("unverified", "clean")
    assert Path(document["report"]).name == "bump-b1-b3-unverified.json"
    assert "demo-launch-bounds: demo_kernel" in document["error"]["why"]
    assert river.state() == before
    assert river.left_over() == []


def test_a_build_that_is_not_proven_gives_a_branch_that_says_so(river):
    lock = river.lock.read_bytes()
    words = ("--upstream", "b3", "--upstream-url", str(river.upstream), "--json")
    applied = river.run("apply", "--arch", "gfx1151", *words)
    assert applied.returncode == 0, applied.stderr
    assert json.loads(applied.stdout)["branch"] == "refs/heads/candidate/gfx1151/b3-unproven"
    assert river.lock.read_bytes() == lock
    code, document = bump(river, "--to", "b3", "--accept-not-run")
    assert (code, document["state"]) == (0, "done")
    (made,) = document["candidates"]
    assert made["branch"] == "candidate/gfx1151/b3-unproven"
    assert river.state()["refs/heads/candidate/gfx1151/b3-unproven"] == made["tip"]
    assert "refs/heads/candidate/gfx1151/b3" not in river.state()
    # The lock remembers it, until a bump to that build does not skip the gates.
    again = json.loads(river.run("apply", "--arch", "gfx1151", "--json").stdout)
    assert (again["branch"], again["unchanged"]) == ("refs/heads/candidate/gfx1151/b3-unproven", True)
    assert "refs/heads/candidate/gfx1151/b3" not in river.state()
    # Both are the same tree, and verify checks that branch.
    assert json.loads(applied.stdout)["tree"] == made["tree"]
    checked = river.run("verify", "--arch", "gfx1151", "--upstream", "b3", "--gate", "anchors", "--json")
    assert checked.returncode == 0, checked.stderr + checked.stdout
    assert bump(river, "--to", "b3", "--no-verify")[0] == 0
    proven = json.loads(river.run("apply", "--arch", "gfx1151", "--json").stdout)
    assert (proven["branch"], proven["tree"]) == ("refs/heads/candidate/gfx1151/b3", made["tree"])


def test_wrong_gates_are_told_before_anything_is_placed(river):
    rules = river.home / "patches" / "series.toml"
    rules.write_text(f'{rules.read_text()}\n[gates]\nrequired = ["anchors"]\nwhy = "w"\n')
    done = river.run("bump", "--to", "b2")
    assert done.returncode == 2
    assert "why: gates that are neither required nor optional: " in done.stderr
    assert "placing" not in done.stderr


def test_a_renamed_function_is_followed_and_the_lock_has_its_name(river):
    code, document = bump(river, "--to", "b4", "--no-verify")
    assert (code, document["state"]) == (0, "done")
    assert classes(document) == {"demo-launch-bounds": "moved", "demo-twin": "clean"}
    (made,) = document["candidates"]
    (move,) = made["patches"][0]["moves"]
    assert (move["how"], "'demo_launch' is now 'demo_run'" in move["detail"]) == ("renamed", True)
    (followed,) = load_lock(river.lock).pin("b4").followed
    assert (followed.function, followed.now_function) == ("demo_launch", "demo_run")
    assert made["followed"][0]["now_function"] == "demo_run"
    # patch.toml says the old name still; what the lock says is enough for apply, and only at that pin.
    again = river.run("apply", "--arch", "gfx1151", "--json", "--cache-dir", str(river.root / "empty"))
    assert json.loads(again.stdout)["commits"][-1]["commit"] == made["tip"]
    assert river.run("plan", "--arch", "gfx1151", "--upstream", "b1").returncode == 0
    # From there on the new name is the old one, and no move any more.
    code, document = bump(river, "--to", "b5", "--no-verify")
    assert (code, classes(document)["demo-launch-bounds"]) == (0, "clean")
    assert load_lock(river.lock).pin("b5").followed == ()


def test_a_patch_whose_function_is_gone_is_retired_by_its_range_with_the_commit_that_took_it(river):
    code, document = bump(river, "--to", "latest", "--no-verify")
    assert (code, document["to"]["build"]) == (0, 5)
    assert classes(document) == {"demo-launch-bounds": "clean", "demo-twin": "retired"}
    (made,) = document["candidates"]
    assert made["applied"] == ["demo-launch-bounds"]
    assert made["history"] == f"searched at {river.upstream.resolve()}"
    (gone,) = next(patch for patch in made["patches"] if patch["id"] == "demo-twin")["gone"]
    commit = river.git("rev-parse", "b5", at=river.upstream)
    assert gone["upstream_commit"] == {"commit": commit, "subject": "change 5"}
    assert not list(river.cache.glob("history-*"))


def test_a_patch_that_claims_a_build_without_its_function_blocks(river):
    path = river.home / "patches" / "0002-demo-twin" / "patch.toml"
    path.write_text(path.read_text().replace("last = 4, ", ""))
    assert river.run("lock", "--arch", "gfx1151").returncode == 0
    before = river.state()
    code, document = bump(river, "--to", "b5", "--no-verify")
    assert (code, document["state"]) == (3, "blocked")
    assert classes(document)["demo-twin"] == "retired"
    (first,) = document["candidates"][0]["blocked"]
    assert "[builds] last = 1 in patches/0002-demo-twin/patch.toml" in first
    assert river.state() == before
    commit = river.git("rev-parse", "b5", at=river.upstream)
    removal = f"function twin_b in ggml/src/ggml-cuda/demo.cu was removed by {commit[:12]} (change 5)"
    assert removal in river.run("bump", "--to", "b5", "--no-verify").stdout


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["--to", "b77"], "BUMP_TARGET_UNKNOWN", 2),
        (["--to", "nonsense"], "BUMP_TARGET_UNKNOWN", 2),
        (["--to", "b2", "--source", "sdist"], "BUMP_TARGET_UNKNOWN", 2),
        (["--to", "latest", "--upstream-url", "nowhere"], "REMOTE_HAS_NO_BUILDS", 7),
        (["--to", "latest", "--upstream-url", "ext::sh"], "REMOTE_URL_BAD", 7),
    ],
)
def test_a_target_that_nobody_knows_is_told_with_what_is_near(river, args, code, exit_code):
    before = river.state()
    done = river.run("bump", *args, "--no-verify", "--json")
    error = json.loads(done.stdout)["error"]
    assert (error["code"], done.returncode) == (code, exit_code)
    assert error["hint"]
    assert river.state() == before


def test_a_build_that_is_pinned_otherwise_is_refused(river):
    assert bump(river, "--to", "b2", "--no-verify")[0] == 0
    river.lock.write_text(
        river.lock.read_text().replace(river.git("rev-parse", "b2^{tree}", at=river.upstream), "1" * 40)
    )
    done = river.run("bump", "--to", "b2", "--upstream-url", str(river.upstream), "--no-verify", "--json")
    assert done.returncode == 2


def test_a_pin_whose_commit_the_lock_does_not_know_stays_as_it_is(river):
    """What a remote knows besides must not reach a result: nobody else could make it from the lock."""
    lock = load_lock(river.lock)
    package = SdistSource(package="some", version="1", sha256="2" * 64, subdir="src", omit=())
    pin = replace(pin_at(river.upstream, 2), commit=None, sources=(package,))
    write_lock(river.lock, replace(lock, pins=(*lock.pins, pin)))
    code, document = bump(river, "--to", "b2", "--upstream-url", str(river.upstream), "--no-verify")
    assert (code, document["to"]["commit"]) == (0, None)
    (made,) = document["candidates"]
    assert river.git("log", "--reverse", "--format=%s", made["tip"]).splitlines()[0] == "llama.cpp b2"
    assert load_lock(river.lock).pin("b2") == pin


def test_without_a_recorded_candidate_the_gpu_must_be_named(river):
    text = river.lock.read_text()
    river.lock.write_text(text[: text.index("[[result]]")])
    done = river.run("bump", "--to", "b2", "--no-verify", "--json")
    assert done.returncode == 2
    assert "--arch" in json.loads(done.stdout)["error"]["hint"]
    assert bump(river, "--to", "b2", "--no-verify", "--arch", "gfx1151")[0] == 0


def test_a_bump_whose_remote_lost_its_history_says_so_and_is_done(river, tmp_path):
    bare = tmp_path / "shallow.git"
    clone = ("clone", "-q", "--bare", "--depth=1", "--branch=b5")
    river.git(*clone, f"file://{river.upstream}", str(bare), at=tmp_path)
    code, document = bump(river, "--to", "b5", "--upstream-url", str(bare), "--no-verify")
    assert (code, document["state"]) == (0, "done")
    (made,) = document["candidates"]
    assert made["history"].startswith("not available: ")
    assert classes(document)["demo-twin"] == "retired"


def test_a_gpu_without_a_patch_has_nothing_to_prove(river):
    """No compiler is here, and none is needed: nothing of upstream itself is proven."""
    env = {"ROCM_PATH": "/nowhere"}
    done = river.run("bump", "--to", "b2", "--arch", "gfx1030", "--keep-default", "--json", env=env)
    assert done.returncode == 0, done.stderr
    (made,) = json.loads(done.stdout)["candidates"]
    assert (made["applied"], made["gates"]["ok"], made["gates"]["nothing_to_prove"]) == ([], False, True)
    assert {row["verdict"] for row in made["gates"]["gates"]} == {"not run"}
    shown = river.run("bump", "--to", "b3", "--arch", "gfx1030", "--keep-default", env=env).stdout
    assert "no gate was run: the candidate has no patches. No pin of the lock has a patch" in shown


def test_a_build_that_computes_wrong_results_is_not_followed_unless_accepted(river):
    path = river.series / "patches" / "series.toml"
    path.write_text(
        path.read_text()
        + '\n[[fault]]\nid = "off-by-one"\ntitle = "it adds one"\nbuilds = { first = 2, why = "the test" }\n'
        'archs = ["gfx1151"]\nsymptom = "Off by one."\ndoes = "wrong results"\nseen_on = "hardware"\n'
        'links = ["https://example.invalid/2"]\n'
    )
    before = river.state()
    code, document = bump(river, "--to", "2", "--no-verify")
    assert (code, document["state"]) == (1, "faulty")
    assert document["candidates"][0]["faults"][0]["refused"] is True
    assert "--accept-fault off-by-one" in document["next"]
    assert river.state() == before
    code, document = bump(river, "--to", "2", "--no-verify", "--accept-fault", "off-by-one")
    assert (code, document["state"]) == (0, "done")
    assert "--accept-fault off-by-one" in document["candidates"][0]["made_by"]
    told = river.run("status")
    assert "known fault of candidate/gfx1151/b2: off-by-one on gfx1151" in told.stderr

"""A bump follows every set of patches that the lock has, and loses none of them without a word.

The river's profile is changed so that the second patch is opt-in; the lock then has two sets of gfx1151.
"""

from __future__ import annotations

import json
import shlex
import shutil

import pytest

from patchkit.carry.series.lock import load_lock

BOUNDS = "patches/0001-demo-launch-bounds/patch.toml"
TWIN = "patches/0002-demo-twin/patch.toml"
WITH = "--with=demo-twin"


def bump(river, *args):
    done = river.run("bump", *args, "--no-verify", "--json")
    return done.returncode, json.loads(done.stdout)


def rows(document):
    return {tuple(made["with"]): made for made in document["candidates"]}


def edit(river, path, old, new):
    text = (river.home / path).read_text()
    assert old in text
    (river.home / path).write_text(text.replace(old, new))


def record(river, *requests):
    for request in requests:
        done = river.run("lock", "--arch", "gfx1151", *request)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def opted(river):
    """The second patch is opt-in, and the lock has both sets at b1."""
    twin = "demo-twin = { default = "
    edit(river, "arch_profiles/gfx1151.toml", f'{twin}"on"', f'{twin}"opt-in"')
    text = river.lock.read_text()
    river.lock.write_text(text[: text.index("[[result]]")])
    record(river, (), (WITH,))
    assert river.run("apply", "--arch", "gfx1151").returncode == 0
    return river


def test_each_set_of_the_lock_is_followed_and_the_branch_is_the_default_ones(opted):
    code, document = bump(opted, "--to", "b2")
    assert (code, document["state"]) == (0, "done")
    plain, twin = rows(document)[()], rows(document)["demo-twin",]
    assert (plain["applied"], twin["applied"]) == (
        ["demo-launch-bounds"],
        ["demo-launch-bounds", "demo-twin"],
    )
    assert (plain["branch"], twin["branch"]) == ("candidate/gfx1151/b2", None)
    assert opted.refs()["refs/heads/candidate/gfx1151/b2"] == plain["tip"]
    lock = load_lock(opted.lock)
    for made in (plain, twin):
        assert lock.result("b2", ("gfx1151",), made["applied"]).commit == made["tip"]
    # What has no branch is made by the command that the report names.
    again = opted.run(*shlex.split(twin["made_by"])[1:], "--json", "--cache-dir", str(opted.root / "empty"))
    assert json.loads(again.stdout)["commits"][-1]["commit"] == twin["tip"]


def test_a_set_that_is_recorded_at_a_newer_pin_than_the_default_is_followed_from_there(opted):
    assert bump(opted, "--to", "b2", "--keep-default")[0] == 0
    before = load_lock(opted.lock)
    kept = [each for each in before.results if (each.build, "demo-twin" in each.patches) != (1, True)]
    text = opted.lock.read_text()
    head, *results = text.split("[[result]]")
    assert len(results) == 4
    results = [each for each in results if not ('pin = "b1"\n' in each and '"demo-twin"]' in each)]
    opted.lock.write_text("[[result]]".join([head, *results]))
    assert len(load_lock(opted.lock).results) == len(kept)
    code, document = bump(opted, "--to", "b4", "--keep-default", "--drop-conflicts")
    assert code == 0
    found = rows(document)
    assert (found[()]["compared_with"], found["demo-twin",]["compared_with"]) == ([1, 2], [2])


def test_a_break_of_an_opt_in_patch_blocks_the_bump_of_everything(opted):
    edit(opted, TWIN, "last = 4, ", "")
    record(opted, (), (WITH,))
    before = opted.state()
    code, document = bump(opted, "--to", "b5")
    assert (code, document["state"]) == (3, "blocked")
    assert rows(document)[()]["blocked"] == []
    assert "demo-twin: retired" in rows(document)["demo-twin",]["blocked"][0]
    assert opted.state() == before


def test_what_is_named_is_all_that_is_followed(opted):
    code, document = bump(opted, "--to", "b2", "--arch", "gfx1151")
    assert (code, list(rows(document))) == (0, [()])
    code, document = bump(opted, "--to", "b2", "--arch", "gfx1151", WITH)
    assert (code, list(rows(document))) == (0, [("demo-twin",)])
    (made,) = document["candidates"]
    assert opted.refs()["refs/heads/candidate/gfx1151/b2"] == made["tip"]


def test_gpus_that_the_lock_has_at_newer_pins_only_are_named(opted):
    assert bump(opted, "--to", "b3", "--arch", "gfx1200", "--keep-default")[0] == 0
    code, document = bump(opted, "--to", "b2", "--keep-default")
    assert code == 0
    assert document["not_followed"] == [["gfx1200"]]
    assert {tuple(made["archs"]) for made in document["candidates"]} == {("gfx1151",)}


@pytest.fixture
def ended(river):
    """Both patches end with b1, and upstream is as they need it for long."""
    edit(river, TWIN, "last = 4, ", "last = 1, ")
    edit(river, BOUNDS, "last = 9, ", "last = 1, ")
    record(river, ())
    return river


def test_an_end_of_range_is_no_proof_and_nothing_moves(ended):
    before = ended.state()
    code, document = bump(ended, "--to", "b2")
    assert (code, document["state"]) == (9, "fewer")
    (made,) = document["candidates"]
    assert made["before"] == ["demo-launch-bounds", "demo-twin"]
    assert [(loss["id"], loss["how"]) for loss in made["lost"]] == [
        ("demo-launch-bounds", "unproven"),
        ("demo-twin", "unproven"),
    ]
    assert "b1 to b1 only" in made["lost"][0]["why"]
    assert made["tip"] is None
    assert ended.state() == before
    # The next command is told, to the last word; it is what the next test does.
    told = "patchkit bump --to b2 --no-verify --without demo-launch-bounds --without demo-twin"
    assert document["next"] == told
    text = ended.run("bump", "--to", "b2", "--no-verify").stdout
    assert "FEWER PATCHES: nothing was changed" in text
    assert "demo-twin: LOST, with no proof that upstream made it unnecessary" in text
    assert told in text


def test_each_loss_has_to_be_named_and_then_it_is_done(ended):
    code, document = bump(ended, "--to", "b2", "--without", "demo-twin")
    assert code == 9
    assert [loss["how"] for loss in document["candidates"][0]["lost"]] == ["unproven", "accepted"]
    both = ("--without", "demo-twin", "--without", "demo-launch-bounds")
    done = ended.run("bump", "--to", "b2", "--no-verify", *both)
    assert done.returncode == 0, done.stderr
    assert "this candidate no longer has any patches; before the bump it had 2" in done.stdout
    assert load_lock(ended.lock).default == "b2"
    base = ended.git("rev-parse", "b2", at=ended.upstream)
    assert ended.refs()["refs/heads/candidate/gfx1151/b2"] == base


def test_without_leaves_out_what_would_apply_and_the_lock_records_that(river):
    code, document = bump(river, "--to", "b2", "--without", "demo-twin")
    assert code == 0
    (made,) = document["candidates"]
    assert made["applied"] == ["demo-launch-bounds"]
    assert made["made_by"].endswith("--upstream b2 --without demo-twin")
    assert load_lock(river.lock).result("b2", ("gfx1151",), ["demo-launch-bounds"]).commit == made["tip"]


def test_a_patch_that_the_series_lost_is_missed_too(river):
    shutil.rmtree(river.home / "patches" / "0002-demo-twin")
    edit(river, "arch_profiles/gfx1151.toml", "demo-twin = ", "# demo-twin = ")
    code, document = bump(river, "--to", "b2")
    assert code == 9
    assert document["candidates"][0]["lost"][0]["why"] == "the series no longer has this patch"
    assert bump(river, "--to", "b2", "--without", "demo-twin")[0] == 0


def test_an_end_of_range_whose_ground_is_only_renamed_is_not_proven(river):
    """The function is not there under its name, and is there under another one: nothing retired the patch."""
    edit(river, BOUNDS, "last = 9, ", "last = 3, ")
    record(river, ())
    code, document = bump(river, "--to", "b4")
    assert code == 9
    (loss,) = document["candidates"][0]["lost"]
    assert (loss["id"], loss["how"]) == ("demo-launch-bounds", "unproven")


REPLACED = """
[[replaced_by]]
file = "ggml/src/ggml-cuda/demo.cu"
function = "twin_a"
tokens = "x += 1"
why = "the sum does it"
"""


def test_what_a_patch_names_as_its_end_proves_its_loss_behind_its_range_too(river):
    edit(river, TWIN, "last = 4, ", "last = 1, ")
    edit(river, TWIN, "[[edit]]", f"{REPLACED.strip()}\n\n[[edit]]")
    record(river, ())
    code, document = bump(river, "--to", "b2")
    assert code == 0
    (loss,) = document["candidates"][0]["lost"]
    assert (loss["how"], loss["why"]) == ("proven", "superseded: the sum does it")


def test_zero_patches_that_are_proven_needless_is_done_and_said_in_words(opted):
    edit(opted, BOUNDS, 'macros = ["GGML_USE_HIP"]', 'macros = ["GGML_GONE"]')
    edit(opted, BOUNDS, "last = 9, ", "last = 1, ")
    record(opted, ())
    done = opted.run("bump", "--to", "b2", "--no-verify", "--arch", "gfx1151")
    assert done.returncode == 0, done.stdout
    assert "this candidate no longer has any patches; before the bump it had 1" in done.stdout
    assert "opt-in patches: --with demo-twin" in done.stdout


@pytest.fixture
def broken(river):
    """A remote whose b6 lacks the place of the second patch, and has all else as b1 has it."""
    clone = river.root / "broken"
    river.git("clone", "-q", str(river.upstream.resolve()), str(clone), at=river.root)
    river.git("config", "uploadpack.allowAnySHA1InWant", "true", at=clone)
    river.git("checkout", "-q", "-b", "other", "b2", at=clone)
    path = clone / "ggml/src/ggml-cuda/demo.cu"
    head, twin, tail = path.read_text().partition("int twin_b(int x) {")
    path.write_text(head + twin + tail.replace("const int scale = 2;", "const int scale = x > 2;", 1))
    river.git("commit", "-q", "-a", "-m", "another scale", at=clone)
    river.git("tag", "b6", at=clone)
    edit(river, TWIN, "last = 4, ", "")
    record(river, ())
    return ("--to", "b6", "--upstream-url", str(clone))


def test_a_conflict_blocks_and_is_no_loss_yet(river, broken):
    before = river.state()
    code, document = bump(river, *broken)
    assert (code, document["state"], document["candidates"][0]["lost"]) == (3, "blocked", [])
    assert river.state() == before


def test_dropped_conflicts_leave_the_rest_and_end_with_9(river, broken):
    done = river.run("bump", *broken, "--drop-conflicts", "--no-verify")
    assert done.returncode == 9, done.stderr
    assert "FEWER PATCHES: excluded: demo-twin" in done.stdout
    made = load_lock(river.lock).result("b6", ("gfx1151",), ["demo-launch-bounds"])
    assert river.refs()["refs/heads/candidate/gfx1151/b6"] == made.commit
    (row,) = load_lock(river.lock).pin("b6").dropped
    assert (row.patch, row.archs, row.why.partition(":")[0]) == ("demo-twin", ("gfx1151",), "conflict")
    code, document = bump(river, *broken, "--drop-conflicts")
    (again,) = document["candidates"]
    assert (code, document["state"]) == (9, "done")
    assert [(loss["id"], loss["how"]) for loss in again["lost"]] == [("demo-twin", "dropped")]
    assert again["dropped"][0]["patch"] == "demo-twin"
    assert river.run(*shlex.split(again["made_by"])[1:]).returncode == 0


def test_what_is_left_out_stays_out_at_that_pin_until_it_is_mended(river, broken):
    assert bump(river, *broken, "--drop-conflicts")[0] == 9
    done = river.run("apply", "--arch", "gfx1151", "--json", "--cache-dir", str(river.root / "empty"))
    assert json.loads(done.stdout)["lock_state"] == "as the lock records"
    assert "demo-twin: dropped at b6 until its files change: conflict" in done.stderr
    assert river.run("lock", "--all").returncode == 0
    assert "dropped for gfx1151: demo-twin: conflict: " in river.run("status").stdout
    # Who names it sees why; at the pin before it is in, as ever.
    assert river.run("plan", "--arch", "gfx1151", "--with", "demo-twin").returncode == 3
    earlier = json.loads(river.run("plan", "--arch", "gfx1151", "--upstream", "b1", "--json").stdout)
    assert [patch["state"] for patch in earlier["patches"]] == ["apply", "apply"]
    edit(river, TWIN, 'statement = "const int scale = 2"', 'statement = "const int scale = x > 2"')
    edit(river, TWIN, "first = 1", "first = 6")
    done = river.run("lock", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    lock = load_lock(river.lock)
    assert lock.pin("b6").dropped == ()
    assert lock.result("b6", ("gfx1151",), ["demo-launch-bounds", "demo-twin"]) is not None


def test_the_next_bump_tries_again_what_was_left_out_against_where_it_was_last_in(river, broken):
    """b7 is as b2 was: the patch is carried again by itself, and both derivations are asked."""
    assert bump(river, *broken, "--drop-conflicts")[0] == 9
    clone = river.root / "broken"
    river.git("checkout", "-q", "b2", "--", "ggml", at=clone)
    river.git("commit", "-q", "-m", "back", at=clone)
    river.git("tag", "b7", at=clone)
    code, document = bump(river, "--to", "b7", *broken[2:], "--drop-conflicts")
    (made,) = document["candidates"]
    assert (code, made["applied"]) == (0, ["demo-launch-bounds", "demo-twin"])
    (twin,) = (patch for patch in made["patches"] if patch["id"] == "demo-twin")
    assert twin["agreement"]["verdict"] == "agree"
    assert load_lock(river.lock).pin("b7").dropped == ()


def test_what_upstream_made_needless_does_not_block_either_and_is_no_loss(river):
    edit(river, TWIN, "last = 4, ", "")
    record(river, ())
    code, document = bump(river, "--to", "b5", "--drop-conflicts")
    (made,) = document["candidates"]
    assert (code, made["applied"], [loss["how"] for loss in made["lost"]]) == (
        0,
        ["demo-launch-bounds"],
        ["proven"],
    )
    assert made["dropped"][0]["why"].startswith("retired: ")
    assert river.run("apply", "--arch", "gfx1151").returncode == 0


def test_the_end_of_a_range_is_left_out_on_request_and_named(ended):
    code, document = bump(ended, "--to", "b2", "--drop-conflicts")
    (made,) = document["candidates"]
    assert (code, document["state"]) == (9, "done")
    assert {loss["how"] for loss in made["lost"]} == {"dropped"}
    assert load_lock(ended.lock).pin("b2").dropped == ()  # the range says it already


def test_what_requires_a_dropped_patch_is_dropped_with_it(river, broken):
    requires = '[[requires]]\npatch = "demo-twin"\nwhy = "one without the other is wrong"\n\n'
    path = river.home / BOUNDS
    path.write_text(path.read_text().replace("[[edit]]", f"{requires}[[edit]]", 1))
    record(river, ())
    code, document = bump(river, *broken, "--drop-conflicts")
    (made,) = document["candidates"]
    assert (code, made["applied"]) == (9, [])
    assert {loss["id"]: loss["how"] for loss in made["lost"]} == dict.fromkeys(made["before"], "dropped")


def test_a_conflict_that_is_named_is_left_out_and_done(river, broken):
    code, document = bump(river, *broken, "--without", "demo-twin")
    assert (code, document["state"]) == (0, "done")
    assert document["candidates"][0]["lost"][0]["how"] == "accepted"


def test_of_a_candidate_whose_last_patch_was_left_out_nothing_is_proven(river, broken):
    named = ("--without", "demo-launch-bounds", "--drop-conflicts")
    done = river.run("bump", *broken, *named, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["candidates"][0]["applied"]) == (9, [])
    gates = document["candidates"][0]["gates"]
    assert (gates["ok"], gates["nothing_to_prove"]) == (False, True)
    assert {gate["verdict"] for gate in gates["gates"]} == {"not run"}

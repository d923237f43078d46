"""--trust on the command line: what apply makes, what it says, and who is asked for the same again."""

from __future__ import annotations

import json

import pytest

CLAIM = """\
[[claim]]
archs = ["gfx1151"]
kind = "{kind}"
says = "{says}"
who = "{who}"
link = "https://example.invalid/{who}"
figure = "prompts +3 %"
"""


def claims(world, *rows: tuple[str, str, str]) -> None:
    """Give the second patch these claims, and take the profile's word on it away."""
    texts = [CLAIM.format(kind=kind, says=says, who=who) for kind, says, who in rows]
    (world.series / "patches" / "0002-demo-twin" / "evidence.toml").write_text("\n".join(texts))
    profile = world.series / "arch_profiles" / "gfx1151.toml"
    lines = profile.read_text().splitlines(keepends=True)
    profile.write_text("".join(line for line in lines if not line.startswith("demo-twin = ")))


def made(world, *args: str) -> tuple[list[str], dict[str, object]]:
    done = world.run("apply", "--arch", "gfx1151", *args, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return [each["id"] for each in told["commits"]], told


def test_a_modelled_patch_comes_with_the_word_and_apply_says_so_before(world) -> None:
    claims(world, ("modelled", "gain", "patchkit"))
    ids, told = made(world)
    assert ids == ["demo-launch-bounds"]
    assert (told["trust"], told["more_trust"]["level"]) == ("published", "modelled")
    said = world.run("apply", "--arch", "gfx1151").stdout
    assert "--trust modelled would add 1 optional patch with a gain predicted by the timing model" in said
    assert made(world, "--trust", "modelled")[0] == ["demo-launch-bounds", "demo-twin"]
    look = world.run("verify", "--arch", "gfx1151", "--no-gpu", "--gate", "anchors", "--trust", "modelled")
    assert look.returncode == 0, look.stderr
    other = world.run("diff", "--arch", "gfx1151", "--trust", "published", "--json")
    assert json.loads(other.stdout)["error"]["code"] == "CANDIDATE_STALE"
    assert "--trust published" in json.loads(other.stdout)["error"]["hint"]


def test_evidence_changes_what_is_in_and_no_byte_of_it(world) -> None:
    claims(world, ("hardware", "gain", "ann"), ("hardware", "gain", "bob"))
    ids, before = made(world)
    assert ids == ["demo-launch-bounds", "demo-twin"]
    assert world.run("lock", "--arch", "gfx1151").returncode == 0
    claims(world, ("hardware", "gain", "ann"), ("hardware", "gain", "bob"), ("modelled", "gain", "patchkit"))
    _, after = made(world)
    assert after["lock_state"] == "as the lock records"
    assert after["commits"] == before["commits"]
    rows = [("hardware", "gain", "ann"), ("hardware", "gain", "bob")]
    claims(world, *rows, ("hardware", "loss", "cid"), ("hardware", "loss", "dan"))
    ids, told = made(world)
    assert ids == ["demo-launch-bounds"]
    why = "optional for gfx1151 (measured slower by cid and dan): add --with demo-twin"
    assert told["skipped"]["demo-twin"] == why


def test_less_trust_leaves_out_what_only_the_series_owner_says(world) -> None:
    claims(world, ("hardware", "gain", "ann"), ("hardware", "gain", "bob"))
    ids, told = made(world, "--trust", "measured")
    assert ids == ["demo-twin"]
    assert (told["trust"], told["more_trust"]["patches"]) == ("measured", ["demo-launch-bounds"])


@pytest.mark.parametrize("verb", ["apply", "plan", "try", "lock", "bump", "verify"])
def test_a_word_that_is_none_is_refused_with_those_that_are(world, verb: str) -> None:
    done = world.run(verb, "--arch", "gfx1151", "--trust", "hearsay")
    assert done.returncode == 2
    assert "'measured', 'published', 'modelled', 'faults'" in done.stderr


def test_lock_all_has_no_trust_of_its_own(world) -> None:
    done = world.run("lock", "--all", "--trust", "modelled")
    assert (done.returncode, "--all cannot be combined with --trust" in done.stderr) == (2, True)

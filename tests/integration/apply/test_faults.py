"""A build that is known to compute wrong results: what is said, refused, accepted, and mended."""

from __future__ import annotations

import json

import pytest

FAULT = """
[[fault]]
id = "{id}"
title = "the twin scales by two"
builds = {{ first = 1, why = "for the test" }}
archs = ["gfx1151"]
symptom = "Everything is a third too small."
does = "wrong results"
seen_on = "hardware"
links = ["https://example.invalid/9"]
{patch}
"""


@pytest.fixture
def faulty(world):
    """The world, its upstream with one fault that demo-twin mends."""
    return with_faults(world, FAULT.format(id="twin-scale", patch='patch = "demo-twin"'))


def with_faults(world, text):
    path = world.series / "patches" / "series.toml"
    path.write_text(path.read_text() + text)
    return world


def run(world, *args):
    return world.run(*args, "--arch", "gfx1151", "--unlocked")


def test_a_patch_that_mends_it_makes_it_no_fault(faulty):
    done = run(faulty, "apply", "--json")
    assert done.returncode == 0, done.stderr
    (fault,) = json.loads(done.stdout)["faults"]
    assert (fault["id"], fault["archs"], fault["fixed"]) == ("twin-scale", [], ["gfx1151"])
    assert "known fault" not in done.stderr


@pytest.mark.parametrize(("does", "is_told"), [("aborts", True), ("no harm seen", False)])
def test_what_ends_the_program_is_told_and_refuses_nothing(world, does, is_told):
    fault = FAULT.format(id="twin-scale", patch="").replace("wrong results", does)
    done = run(with_faults(world, fault), "apply")
    assert done.returncode == 0, done.stderr
    assert (f"known fault of b1: twin-scale on gfx1151 ({does})" in done.stderr) is is_told


def test_without_the_patch_nothing_is_made(faulty):
    before = faulty.refs()
    done = run(faulty, "apply", "--without", "demo-twin")
    assert done.returncode == 1
    assert "error[FAULT_UNMENDED]: b1 computes wrong results on gfx1151" in done.stderr
    assert "Everything is a third too small." in done.stderr
    assert faulty.refs() == before
    # Looking is not making.
    planned = run(faulty, "plan", "--without", "demo-twin", "--json")
    assert planned.returncode == 0
    assert json.loads(planned.stdout)["faults"][0]["refused"] is True
    assert "known fault of b1: twin-scale on gfx1151" in planned.stderr


def test_accepted_by_name_it_is_made_and_said(faulty):
    done = run(faulty, "apply", "--without", "demo-twin", "--accept-fault", "twin-scale", "--json")
    assert done.returncode == 0, done.stderr
    assert [made["id"] for made in json.loads(done.stdout)["commits"]] == ["demo-launch-bounds"]
    assert "known fault of b1: twin-scale on gfx1151" in done.stderr
    assert run(faulty, "apply", "--accept-fault", "twin").returncode == 2


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (FAULT.format(id="twin-scale", patch="") * 2, "FAULT_BAD"),
        (FAULT.format(id="twin-scale", patch='patch = "demo-twins"'), "PATCH_BAD"),
        (FAULT.format(id="twin-scale", patch="patches = 1"), "CONFIG_VALUE"),
    ],
)
def test_a_fault_that_is_not_in_order_is_refused_with_its_place(world, text, code):
    done = with_faults(world, text).run("plan", "--arch", "gfx1151")
    assert done.returncode == 2
    assert f"error[{code}]" in done.stderr
    assert "series.toml:" in done.stderr


def test_what_was_accepted_is_told_when_the_candidate_is_verified(faulty):
    run(faulty, "apply", "--without", "demo-twin", "--accept-fault", "twin-scale")
    asked = ("--gate", "anchors", "--without", "demo-twin")
    done = faulty.run("verify", "--arch", "gfx1151", *asked)
    assert "Known fault of this build: twin-scale on gfx1151 (wrong results)" in done.stdout
    told = faulty.run("verify", "--arch", "gfx1151", *asked, "--json")
    assert json.loads(told.stdout)["known_faults"][0].startswith("twin-scale on gfx1151")

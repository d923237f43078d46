"""A candidate without a patch is upstream itself: nothing is proven of it, and every command says so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from demo_world import FOLDER, git, make_upstream, pin_text

WITHOUT = "gfx1030"  # no patch of the small series is for it
ON = '[patches]\ndemo-twin = {{ default = "{default}", why = "for the test", source = "the test" }}\n\n'
VERIFY = ("verify", "--no-gpu", "--arch", WITHOUT)
_NO_ROCM = {"ROCM_PATH": "/nowhere"}
LADDER = {
    *("anchors", "isolation", "compile", "resources", "launch"),
    *("numerics", "backend-ops", "logits", "bench"),
}


@pytest.fixture
def empty(world):
    """A candidate of a GPU that no patch is for."""
    done = world.run("apply", "--arch", WITHOUT)
    assert done.returncode == 0, done.stderr
    return world


def _opt_in(world, default: str = "opt-in") -> None:
    path = world.series / "arch_profiles" / f"{WITHOUT}.toml"
    text = re.sub(r"(?ms)^\[patches\]\n.*?(?=^\[|\Z)", "", path.read_text())
    path.write_text(f"{text.rstrip()}\n\n{ON.format(default=default)}")


def _second_pin(world) -> None:
    make_upstream(world.upstream.parent / "later", {2: {f"{FOLDER}/demo.cu": "int a;\n"}})
    later = pin_text(world.upstream.parent / "later", 2).partition("\n\n")[2]
    world.lock.write_text(f"{world.lock.read_text()}\n{later}")


def test_no_gate_runs_no_compiler_is_needed_and_the_answer_is_no_yes(empty) -> None:
    done = empty.run(*VERIFY, env=_NO_ROCM)
    assert done.returncode == 10, done.stderr
    assert "Proven" not in done.stdout
    last = done.stdout.rstrip().splitlines()[-1]
    assert last.startswith("NOTHING TO PROVE: the candidate has no patch.")
    assert last.endswith(f"No pin of the lock has a patch for {WITHOUT}.")
    told = empty.run(*VERIFY, "--json", env=_NO_ROCM)
    document = json.loads(told.stdout)
    assert (told.returncode, document["ok"], document["nothing_to_prove"]) == (10, False, True)
    assert {row["gate"] for row in document["gates"]} == LADDER
    assert {(row["verdict"], row["summary"], row["evidence"]) for row in document["gates"]} == {
        ("not run", "nothing to prove: the candidate has no patch, it is upstream's own tree", None)
    }
    assert document["tree"] == empty.git("rev-parse", "refs/patchkit/pin/b1^{tree}")


def test_one_gate_alone_has_nothing_to_prove_either(empty) -> None:
    for gate in ("anchors", "isolation", "launch"):
        done = empty.run(*VERIFY, "--gate", gate, env=_NO_ROCM)
        assert (done.returncode, "NOTHING TO PROVE" in done.stdout) == (10, True)


def test_what_there_is_for_the_gpu_can_be_typed_as_it_is_told(empty) -> None:
    _opt_in(empty)
    last = empty.run(*VERIFY).stdout.rstrip().splitlines()[-1]
    command = re.search(rf"There are patches for {WITHOUT}: patchkit (apply .*) \(opt-in\)\.$", last)
    assert command is not None
    assert empty.run(*command[1].split()).returncode == 0
    assert empty.run(*VERIFY, "--gate", "anchors").returncode == 0


def test_another_pin_with_a_patch_is_told_with_its_option(empty) -> None:
    _second_pin(empty)
    _opt_in(empty, default="on")
    text = (empty.series / "patches/0002-demo-twin/patch.toml").read_text()
    (empty.series / "patches/0002-demo-twin/patch.toml").write_text(
        text.replace("builds = { first = 1", "builds = { first = 2")
    )
    last = empty.run(*VERIFY).stdout.rstrip().splitlines()[-1]
    assert last.endswith(f"patchkit apply --arch {WITHOUT} --upstream b2 (1 patch).")


@pytest.mark.parametrize("accept", [(), ("--accept-not-run",)])
def test_nothing_is_published_whatever_is_accepted(empty, accept: tuple[str, ...]) -> None:
    before = empty.refs()
    done = empty.run(*VERIFY, "--publish", *accept)
    assert done.returncode == 10
    assert "error[PUBLISH_NOTHING]" in done.stderr
    assert "No pin of the lock has a patch" in done.stderr
    assert empty.refs() == before
    told = json.loads(empty.run(*VERIFY, "--publish", *accept, "--json").stdout)
    assert told["error"]["code"] == "PUBLISH_NOTHING"


def test_old_evidence_of_that_tree_is_gone(empty) -> None:
    """An earlier patchkit ran the gates on upstream's tree, and said that they passed."""
    tree = empty.git("rev-parse", "refs/patchkit/pin/b1^{tree}")
    folder = empty.cache / "evidence" / tree
    folder.mkdir(parents=True)
    for gate in ("anchors", "isolation", "logits@cpu"):
        (folder / f"{gate}.json").write_text(json.dumps({"gate": gate, "verdict": "passed"}))
    assert empty.run(*VERIFY).returncode == 10
    assert [path.name for path in Path(folder).iterdir()] == ["report.json"]


def test_a_candidate_with_a_patch_is_as_before(empty) -> None:
    assert empty.run("apply", "--arch", "gfx1151").returncode == 0
    done = empty.run("verify", "--no-gpu", "--arch", "gfx1151", "--gate", "anchors", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"], document["nothing_to_prove"]) == (0, True, False)
    assert git(empty.repository, "cat-file", "-t", document["tip"]) == "commit"

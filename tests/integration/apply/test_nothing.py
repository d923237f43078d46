"""A candidate without a patch is upstream itself: nothing is proven of it, and every command says so."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from demo_world import FOLDER, git, make_upstream, pin_text

from patchkit.prove.gates.registry import gate_names

WITHOUT = "gfx1030"  # no patch of the small series is for it
ON = '[patches]\ndemo-twin = {{ default = "{default}", why = "for the test", source = "the test" }}\n\n'
VERIFY = ("verify", "--no-gpu", "--arch", WITHOUT)
_NO_ROCM = {"ROCM_PATH": "/nowhere"}
GATES = gate_names()


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
    assert "Nothing to prove: the candidate has no patch" in done.stdout
    assert f"No pin of the lock has a patch for {WITHOUT}." in " ".join(done.stdout.split())
    told = empty.run(*VERIFY, "--json", env=_NO_ROCM)
    document = json.loads(told.stdout)
    assert (told.returncode, document["ok"], document["nothing_to_prove"]) == (10, False, True)
    assert {row["gate"] for row in document["gates"]} == set(GATES)
    assert {(row["verdict"], row["summary"], row["evidence"]) for row in document["gates"]} == {
        ("not run", "nothing to prove: the candidate has no patch, it is upstream's own tree", None)
    }
    assert document["tree"] == empty.git("rev-parse", "refs/patchkit/pin/b1^{tree}")


def test_one_gate_alone_has_nothing_to_prove_either(empty) -> None:
    for gate in ("anchors", "isolation", "launch"):
        done = empty.run(*VERIFY, "--gate", gate, env=_NO_ROCM)
        assert (done.returncode, "Nothing to prove" in done.stdout) == (10, True)


def test_what_there_is_for_the_gpu_can_be_typed_as_it_is_told(empty) -> None:
    _opt_in(empty)
    empty.run("apply", "--arch", WITHOUT)
    text = empty.run(*VERIFY).stdout
    command = re.search(
        rf"^There are patches for {WITHOUT}: patchkit (apply .*) \(opt-in\)\.$", text, re.MULTILINE
    )
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
    empty.run("apply", "--arch", WITHOUT)
    text = empty.run(*VERIFY).stdout
    assert f"patchkit apply --arch {WITHOUT} --upstream b2 (1 patch).\n" in text


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


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_a_report_for_people_says_it_first(empty, form: str) -> None:
    _opt_in(empty)
    empty.run("apply", "--arch", WITHOUT)
    assert empty.run(*VERIFY).returncode == 10
    done = empty.run("report", "--arch", WITHOUT, "--format", form)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "Nothing to prove: the candidate has no patch" in text
    assert "--with demo-twin" in text
    shown = re.sub(r"(?s)<style>.*?</style>", "", text)
    assert not [mark for mark in ("ok     ", "✅", "✓") if mark in shown]


def test_a_report_for_programs_has_no_test_that_passed(empty) -> None:
    junit, sarif = empty.root / "r.xml", empty.root / "r.sarif"
    assert empty.run(*VERIFY, "--junit", str(junit), "--sarif", str(sarif)).returncode == 10
    (suite,) = ET.parse(junit).getroot()
    cases = list(suite.iter("testcase"))
    assert {case.get("name") for case in cases} == set(GATES)
    assert {case[0].tag for case in cases} == {"skipped"}
    assert all("nothing to prove" in (case[0].get("message") or "") for case in cases)
    assert suite.get("skipped") == suite.get("tests") == str(len(GATES))
    (run,) = json.loads(sarif.read_text())["runs"]
    told = run["invocations"][0]["toolExecutionNotifications"]
    assert told[0]["message"]["text"].startswith("Nothing to prove")
    assert (len(told), run["results"]) == (1 + len(GATES), [])
    document = json.loads(empty.run("report", "--arch", WITHOUT, "--json").stdout)
    assert (document["ok"], document["nothing_to_prove"]) == (False, True)


def test_evidence_that_says_upstream_itself_passed_is_refused(empty) -> None:
    assert empty.run(*VERIFY).returncode == 10
    tree = empty.git("rev-parse", "refs/patchkit/pin/b1^{tree}")
    path = empty.cache / "evidence" / tree / "report.json"
    told = json.loads(path.read_text())
    del told["nothing_to_prove"], told["available"]  # as an earlier patchkit wrote it
    told["ok"] = True
    told["gates"][0]["verdict"] = "passed"
    path.write_text(json.dumps(told))
    done = empty.run("report", "--arch", WITHOUT, "--format", "junit")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[EVIDENCE_CONTRADICTS]" in done.stderr
    assert "gates that ran: anchors" in done.stderr


def test_evidence_of_another_gpu_with_the_same_tree_is_not_shown_for_this_one(empty) -> None:
    assert empty.run(*VERIFY).returncode == 10
    assert empty.run("apply", "--arch", "gfx906").returncode == 0
    done = empty.run("report", "--arch", "gfx906")
    assert done.returncode == 2
    assert (
        "no evidence of candidate/gfx906/b1: the evidence of its tree is of candidate/gfx1030/b1"
        in done.stderr
    )
    assert "patchkit verify --no-gpu --arch gfx906 --upstream b1" in done.stderr


def test_a_candidate_with_a_patch_is_as_before(empty) -> None:
    assert empty.run("apply", "--arch", "gfx1151").returncode == 0
    done = empty.run("verify", "--no-gpu", "--arch", "gfx1151", "--gate", "anchors", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"], document["nothing_to_prove"]) == (0, True, False)
    assert git(empty.repository, "cat-file", "-t", document["tip"]) == "commit"

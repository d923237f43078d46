"""The matrix of a small upstream: from a file of pins, from a git remote by halving."""

from __future__ import annotations

import json
import re

import pytest

from patchkit.base.errors import ExitCode
from patchkit.cli.app import main


def classes(document):
    return {pin["build"]: [patch["class"] for patch in pin["patches"]] for pin in document["pins"]}


def test_a_remote_is_searched_for_the_first_break_of_each_patch(river):
    done = river.run("sweep", "--arch", "gfx1151", "--from", "b1", "--to", "latest", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    found = classes(document)
    assert (found[1], found[5]) == (["clean", "clean"], ["clean", "retired"])
    (only,) = document["breaks"]
    assert (only["patch"], only["good"], only["bad"], only["class"]) == ("demo-twin", 4, 5, "retired")
    commit = river.git("rev-parse", "b5", at=river.upstream)
    assert only["upstream_commit"] == {"commit": commit, "subject": "change 5"}
    text = river.run("sweep", "--arch", "gfx1151", "--from", "b1", "--to", "b5").stdout
    assert f"demo-twin: good until b4, retired at b5 by {commit[:12]} (change 5)" in text


def test_a_sweep_moves_nothing_that_anybody_sees(river):
    before = river.state()
    assert river.run("sweep", "--arch", "gfx1151", "--from", "b1", "--to", "b3").returncode == 0
    after = {name: sha for name, sha in river.state().items() if not name.startswith("refs/patchkit/pin/")}
    assert after == {name: sha for name, sha in before.items() if not name.startswith("refs/patchkit/pin/")}


@pytest.fixture
def pins(river):
    """Two pins in a file of their own."""
    assert river.run("bump", "--to", "b2", "--no-verify", "--keep-default").returncode == 0
    path = river.root / "pins.toml"
    path.write_bytes(river.lock.read_bytes())
    return path


def test_a_file_of_pins_gives_the_same_matrix_in_every_form(river, pins):
    done = river.run("sweep", "--arch", "gfx1151", "--corpus", str(pins), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert classes(document) == {1: ["clean", "clean"], 2: ["clean", "clean"]}
    assert [pin["compared_with"] for pin in document["pins"]] == [None, 1]
    text = river.run("sweep", "--arch", "gfx1151", "--corpus", str(pins), "--jobs", "1").stdout
    assert re.search(r"^b2 +clean +clean$", text, re.MULTILINE)
    table = river.run("sweep", "--arch", "gfx1151", "--corpus", str(pins), "--markdown").stdout
    assert "| b2 | clean | clean |" in table


def test_a_conflict_is_exit_code_3_with_both_sides_and_the_intent(river, pins):
    path = river.home / "patches" / "0002-demo-twin" / "patch.toml"
    path.write_text(path.read_text().replace("const int scale = 2", "const int scale = 77"))
    done = river.run("sweep", "--arch", "gfx1151", "--corpus", str(pins))
    assert done.returncode == 3
    assert "b2 demo-twin: conflict" in done.stdout
    assert "ANCHOR_NOT_FOUND" in done.stdout
    assert "ggml/src/ggml-cuda/demo.cu:" in done.stdout
    assert "intent: The twin needs another scale." in done.stdout


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--from", "b77"], "SWEEP_BUILD_UNKNOWN"),
        (["--from", "b3", "--to", "b2"], "SWEEP_BUILD_UNKNOWN"),
        (["--from", "b1", "--corpus", "x.toml"], "OPTIONS_CONTRADICT"),
    ],
)
def test_what_cannot_be_swept_is_said(river, pins, args, code):
    extra = [] if "--from" in args else ["--corpus", str(pins)]
    done = river.run("sweep", "--arch", "gfx1151", *args, *extra, "--json")
    assert done.returncode == 2, done.stderr
    assert json.loads(done.stdout)["error"]["code"] == code


def test_gates_without_a_compiler_are_refused_with_the_way_to_get_one(river, pins, capsys, monkeypatch):
    monkeypatch.setattr("patchkit.toolchain.hip.rocm_locations", lambda _: [])
    argv = river.words(
        "sweep", "--arch", "gfx1151", "--corpus", str(pins), "--jobs", "1", "--gates", "--json"
    )
    assert main(argv) == ExitCode.TOOLCHAIN
    error = json.loads(capsys.readouterr().out)["error"]
    assert "patchkit sdk install" in error["hint"]


def test_gates_on_pins_without_a_patch_prove_nothing_and_need_no_compiler(river, pins, capsys, monkeypatch):
    monkeypatch.setattr("patchkit.toolchain.hip.rocm_locations", lambda _: [])
    argv = river.words("sweep", "--arch", "gfx1030", "--corpus", str(pins), "--jobs", "1", "--gates")
    assert main(argv) == ExitCode.NOTHING
    lines = capsys.readouterr().out.splitlines()
    for pin in ("b1", "b2"):
        assert f"{pin}  nothing to prove: no patch applies, so no gate ran" in lines
    assert main([*argv, "--json"]) == ExitCode.NOTHING
    document = json.loads(capsys.readouterr().out)
    assert [(row["ok"], row["nothing_to_prove"]) for row in document["gates"]] == [(False, True)] * 2


def test_a_name_that_was_followed_goes_on_into_the_next_job(river):
    assert river.run("bump", "--to", "b4", "--no-verify", "--keep-default").returncode == 0
    text = river.lock.read_text()
    corpus = river.root / "corpus.toml"
    # The pins alone, as a corpus has them: what the lock found out about b4 is not in it.
    corpus.write_text(re.sub(r"(?ms)^\[\[pin\.followed\]\]\n.*?\n\n(?=\[)", "", text))
    assert "now_function" not in corpus.read_text()
    commit = river.git("rev-parse", "b5", at=river.upstream)
    tree = river.git("rev-parse", "b5^{tree}", at=river.upstream)
    last = (
        f'[[pin]]\nname = "b5"\ncommit = "{commit}"\ntree = "{tree}"\n'
        'committed = "2025-01-05T03:04:05+00:00"\n'
    )
    source = f'\n[[pin.source]]\nkind = "git"\nurl = "{river.upstream}"\n'
    corpus.write_text(corpus.read_text() + "\n" + last + source)
    found = {}
    for jobs in ("1", "2"):
        done = river.run("sweep", "--arch", "gfx1151", "--corpus", str(corpus), "--jobs", jobs, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        found[jobs] = classes(json.loads(done.stdout))
    assert found["1"] == found["2"]
    assert found["1"] == {1: ["clean", "clean"], 4: ["moved", "clean"], 5: ["clean", "retired"]}

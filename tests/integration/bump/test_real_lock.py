"""The lock of this project on real trees: what the README's bump does, and what a bad night is told.

The trees come from the cache that the corpus uses. What is written there is the report of the bump, and
branches of candidates that other tests make anew.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys

import pytest
from command_line import run_patchkit
from demo_world import git
from filelock import FileLock
from shipped import LOCK, ROOT, recorded, recorded_opt_in

pytestmark = [pytest.mark.upstream, pytest.mark.network]

SWITCHES = "patch-switches"
SEEDS = [name for name in recorded("gfx1151", 6900).patches if name != SWITCHES]
ON = [name for name in recorded("gfx1151", 11549).patches if name != SWITCHES]
OPT_IN = [*recorded_opt_in("gfx1151", 11549)]
PLACE = "if (GGML_CUDA_CC_IS_AMD(cc)) {"


@pytest.fixture
def series(tmp_path):
    """The shipped series before the default pin moved from where it began."""
    folder = tmp_path / "series"
    for name in ("patches", "templates", "arch_profiles"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
    lock = folder / "patches" / "upstream.lock"
    text = lock.read_text("utf-8").replace(f'default = "{LOCK.default}"\n', 'default = "b6900"\n')
    lock.write_text(text, "utf-8")
    return folder


@pytest.fixture
def corpus(test_cache):
    """The cache of the corpus, held for one test."""
    with FileLock(test_cache / "corpus.lock"):
        yield test_cache / "corpus"


@pytest.fixture
def bump(series, corpus):
    def run(*args):
        done = run_patchkit("bump", "--json", "--series-dir", series, "--cache-dir", corpus, *args)
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.mark.thorough
def test_the_bump_to_the_newest_pin_follows_each_set_and_says_which_patches_are_needless(bump, series):
    before = (series / "patches" / "upstream.lock").read_bytes()
    code, document = bump("--to", "b11549", "--no-verify")
    # A function that the switches are listed in has changed upstream, so gates have to run.
    assert (code, document["state"]) == (2, "unverified")
    assert (series / "patches" / "upstream.lock").read_bytes() == before
    rows = {(*made["archs"], *made["with"]): made for made in document["candidates"]}
    assert set(rows) == {
        ("gfx1100",),
        ("gfx1151",),
        ("gfx1151", *OPT_IN),
        ("gfx1200", "mmvq-decode-warps"),
        ("gfx1201", "mmvq-decode-warps"),
    }
    seeds = rows["gfx1151",]
    assert seeds["before"] == [SWITCHES, *SEEDS, *ON]
    assert [(loss["id"], loss["how"]) for loss in seeds["lost"]] == [(name, "proven") for name in SEEDS]
    drifted = {
        one["id"]: [each["entity"] for each in one["drift"]] for one in seeds["patches"] if one["drift"]
    }
    assert drifted == {SWITCHES: ["ggml_cuda_init"]}
    assert {one["class"] for one in seeds["patches"] if one["id"] in {SWITCHES, *ON}} == {"clean"}


@pytest.mark.thorough
def test_patches_whose_range_ends_while_their_ground_is_there_are_not_lost_silently(bump, series):
    before = (series / "patches" / "upstream.lock").read_bytes()
    argv = ("--to", "b9538", "--arch", "gfx1151", "--no-verify")
    code, document = bump(*argv)
    assert (code, document["state"]) == (9, "fewer")
    (made,) = document["candidates"]
    lost = [(loss["id"], loss["how"]) for loss in made["lost"]]
    assert lost == [(SWITCHES, "proven"), *((name, "unproven") for name in SEEDS)]  # switches of nothing
    assert (series / "patches" / "upstream.lock").read_bytes() == before
    # Accepted by name it is done, with none, and what is opt-in there is told.
    code, document = bump(*argv, *(f"--without={name}" for name in SEEDS))
    assert (code, document["state"]) == (0, "done")
    (made,) = document["candidates"]
    assert made["applied"] == []
    assert {loss["how"] for loss in made["lost"] if loss["id"] != SWITCHES} == {"accepted"}
    assert sorted(made["opt_in"]) == ["softmax-norm-barriers", "ssm-conv-tail", "ssm-scan-barrier"]


@pytest.fixture
def broken(tmp_path, corpus):
    """A remote whose b11600 is b11549 with another condition where fattn-tile-config has its place."""
    tip = git(corpus / "upstream.git", "for-each-ref", "--format=%(refname)", "refs/patchkit/pin/b11549")
    if not tip:
        argv = ("--arch", "gfx1151", "--upstream", "b11549", "--cache-dir", corpus)
        assert run_patchkit("apply", *argv).returncode == 0
    folder = tmp_path / "remote"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "other")
    git(folder, "fetch", "-q", "--depth=1", str(corpus / "upstream.git"), "refs/patchkit/pin/b11549:master")
    git(folder, "checkout", "-q", "master")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    path = folder / "ggml/src/ggml-cuda/fattn-tile.cuh"
    text = path.read_text()
    assert text.count(PLACE) == 1
    path.write_text(text.replace(PLACE, "if (has_tile_rows(cc)) {"))
    git(folder, "commit", "-q", "-a", "-m", "rows of its own", date="2026-10-12T00:00:00Z")
    git(folder, "tag", "b11600")
    return folder


@pytest.mark.extra_tools  # bash
def test_the_canary_sees_the_break_of_an_opt_in_patch(broken, series, corpus, tmp_path, checkout):
    command = tmp_path / "patchkit"
    command.write_text(f'#!/usr/bin/env bash\nexec {sys.executable} -m patchkit "$@"\n')
    command.chmod(0o755)
    report = tmp_path / "canary.json"
    done = subprocess.run(
        [str(ROOT / "ci/shell/canary.sh"), str(command), str(report), "--upstream-url", str(broken)],
        cwd=series,
        env={**os.environ, "PYTHONPATH": str(checkout), "PATCHKIT_CACHE": str(corpus)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "code=3\n", done.stderr
    document = json.loads(report.read_text())
    assert document["state"] == "blocked"
    (blocked,) = (made for made in document["candidates"] if made["blocked"])
    assert blocked["with"] == OPT_IN
    assert blocked["blocked"] == ["fattn-tile-config: an edit cannot be placed"]
    read_news = runpy.run_path(str(ROOT / "ci" / "canary_issue.py"))["read_news"]
    told = read_news(report.read_bytes(), "3").lines
    assert f"- gfx1151 with {', '.join(OPT_IN)}: `fattn-tile-config: an edit cannot be placed`" in told

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
from pathlib import Path

import pytest
from command_line import run_patchkit
from demo_world import git
from filelock import FileLock

from patchkit.series.lock import load_lock

pytestmark = [pytest.mark.upstream, pytest.mark.network]

ROOT = Path(__file__).resolve().parents[3]
SEEDS = ["wmma-tile-params", "tile-unprune", "fattn-decode-tile", "tile-config-guard"]
OPT_IN = ["fattn-d256-tile", "fattn-tile-rows", "mmq-tile-table", "mmvq-batch-limits"]
PLACE = "amd_wmma_available(cc) && gqa_opt_applies && Q->ne[0] <= 256"


@pytest.fixture
def series(tmp_path):
    folder = tmp_path / "series"
    for name in ("patches", "templates", "arch_profiles"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
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
def test_the_bump_of_the_readme_follows_each_set_and_says_that_four_patches_are_needless(bump, series):
    code, document = bump("--to", "b11549", "--no-verify")
    assert (code, document["state"]) == (0, "done")
    rows = {(*made["archs"], *made["with"]): made for made in document["candidates"]}
    assert set(rows) == {
        ("gfx1100",),
        ("gfx1151",),
        ("gfx1151", *OPT_IN),
        ("gfx1200", "mmvq-decode-warps"),
        ("gfx1201", "mmvq-decode-warps"),
    }
    seeds = rows["gfx1151",]
    assert (seeds["before"], seeds["applied"]) == (SEEDS, [])
    assert [(loss["id"], loss["how"]) for loss in seeds["lost"]] == [(name, "proven") for name in SEEDS]
    assert sorted(seeds["opt_in"]) == [*OPT_IN, "ssm-conv-tail"]
    assert sorted(rows["gfx1151", *OPT_IN]["applied"]) == OPT_IN
    # Made again, what the lock had is what it has.
    recorded = {each.key: each for each in load_lock(ROOT / "patches" / "upstream.lock").results}
    now = {each.key: each for each in load_lock(series / "patches" / "upstream.lock").results}
    assert {key: now[key].commit for key in recorded} == {key: each.commit for key, each in recorded.items()}


@pytest.mark.thorough
def test_a_patch_whose_range_ends_while_its_ground_is_there_is_not_lost_silently(bump, series):
    before = (series / "patches" / "upstream.lock").read_bytes()
    code, document = bump("--to", "b7551", "--arch", "gfx1151", "--no-verify")
    assert (code, document["state"]) == (9, "fewer")
    (made,) = document["candidates"]
    assert [(loss["id"], loss["how"]) for loss in made["lost"]] == [("tile-config-guard", "unproven")]
    assert (series / "patches" / "upstream.lock").read_bytes() == before


@pytest.fixture
def broken(tmp_path, corpus, bump):
    """A remote whose b11600 is b11549 with another condition where fattn-d256-tile has its place."""
    tip = git(corpus / "upstream.git", "for-each-ref", "--format=%(refname)", "refs/patchkit/pin/b11549")
    if not tip:
        bump("--to", "b11549", "--no-verify", "--keep-default", "--arch", "gfx1151")
    folder = tmp_path / "remote"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "other")
    git(folder, "fetch", "-q", "--depth=1", str(corpus / "upstream.git"), "refs/patchkit/pin/b11549:master")
    git(folder, "checkout", "-q", "master")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    path = folder / "ggml/src/ggml-cuda/fattn.cu"
    text = path.read_text()
    assert text.count(PLACE) == 1
    path.write_text(text.replace(PLACE, "amd_wmma_available(cc) && wide_tiles(Q, 256)"))
    git(folder, "commit", "-q", "-a", "-m", "wide tiles", date="2026-10-12T00:00:00Z")
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
    assert blocked["blocked"] == ["fattn-d256-tile: an edit cannot be placed"]
    read_news = runpy.run_path(str(ROOT / "ci" / "canary_issue.py"))["read_news"]
    told = read_news(report.read_bytes(), "3").lines
    assert f"- gfx1151 with {', '.join(OPT_IN)}: `fattn-d256-tile: an edit cannot be placed`" in told

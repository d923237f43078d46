"""The series on fourteen real trees from 2025-09 to 2026-10: each edit is placed and confirmed, or refused.

Never something between: a tree on which an edit cannot be placed is an anchor error, not a guess. The
trees are downloaded once into the test cache.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest
from command_line import run_patchkit
from shipped import recorded_opt_in
from thorough import ordinary

OPT_IN = recorded_opt_in("gfx1151", 11549)
MENDS = ("ssm-scan-barrier", "ssm-group-barrier", "softmax-norm-barriers", "ssm-conv-tail")
MODELLED = (
    *("fattn-vec-heads-first", "reuse-q8-1-activations", "moe-sum-coalesce", "fattn-wmma-prefill"),
    *("mul-mat-wmma-prefill", "fuse-norm-q8-1", "fuse-qkv-rope-kv-store", "rope-block-size"),
    "fattn-vec-gqa-heads",
)
WITH_ALL = [f"--with={name}" for name in OPT_IN + MENDS + MODELLED]
RDNA4 = ("--arch=gfx1200", "--with=mmvq-decode-warps")

CORPUS = tomllib.loads((Path(__file__).parent / "corpus.toml").read_text())["pin"]
pytestmark = [pytest.mark.upstream, pytest.mark.network]

BUILDS = [int(row["name"][1:]) for row in CORPUS]


@pytest.fixture(scope="session")
def corpus_series(checkout, test_cache, tmp_path_factory):
    """The series with a pin for each tree of the corpus, and a cache that keeps those trees."""
    folder = tmp_path_factory.mktemp("corpus") / "series"
    folder.mkdir()
    for name in ("patches", "templates", "arch_profiles"):
        if (checkout / name).is_dir():
            shutil.copytree(checkout / name, folder / name)
    (folder / "templates").mkdir(exist_ok=True)
    shutil.copy(Path(__file__).parent / "corpus.toml", folder / "patches" / "upstream.lock")
    return folder


@pytest.fixture(scope="session")
def all_builds(corpus_series):
    """The same series with the build range of every patch opened, to see what places outside its era."""
    folder = corpus_series.parent / "open"
    shutil.copytree(corpus_series, folder)
    for path in (folder / "patches").glob("*/patch.toml"):
        lines = path.read_text().splitlines()
        lines = [
            "first = 1" if line.startswith("first = ") else line
            for line in lines
            if not line.startswith("last = ")
        ]
        path.write_text("\n".join(lines) + "\n")
    return folder


def plan(series, test_cache, build, *args):
    """What the command says; it locks the cache itself while it fetches a tree, and only reads after that."""
    where = ("--series-dir", series, "--cache-dir", test_cache / "corpus")
    done = run_patchkit("plan", *where, "--upstream", f"b{build}", "--json", *args)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("build", ordinary(BUILDS, (6900,)))
def test_inside_its_era_every_patch_places(corpus_series, test_cache, build):
    code, report = plan(corpus_series, test_cache, build, "--arch=gfx1151", *WITH_ALL)
    assert code == 0, report
    states = {patch["id"]: patch["state"] for patch in report["patches"]}
    inside = {
        "patch-switches": 6900 <= build <= 9093 or build >= 10039,  # with fattn-decode-tile and later ones
        "wmma-tile-params": 6900 <= build <= 9093,
        "fattn-keep-gqa-tiles": 6900 <= build <= 9093,
        "fattn-decode-tile": 6900 <= build <= 9093,
        "fattn-tile-config": build >= 10229,
        "fattn-vec-heads-first": build >= 10566,
        "mmq-batch-limits": build >= 10229,
        "mmq-tile-config": build >= 10229,
        "mmvq-batch-limits": build >= 11549,
        "mmvq-decode-warps": False,  # RDNA4's
        "ssm-scan-barrier": 6900 <= build <= 9712,
        "ssm-group-barrier": 6900 <= build <= 7551,
        "softmax-norm-barriers": 7827 <= build <= 10565,
        "ssm-conv-tail": build >= 8672,
        "integrated-host-buffers": 10039 <= build <= 11062,
        "mmq-wmma-batches": build >= 10229,
        "mmq-rolled-loops": build >= 10229,
        "reuse-q8-1-activations": build >= 11549,
        "moe-sum-coalesce": build >= 11549,
        "fattn-wmma-prefill": build >= 11549,
        "mul-mat-wmma-prefill": build >= 11549,
        "fuse-norm-q8-1": build >= 11549,
        "fuse-qkv-rope-kv-store": build >= 11549,
        "rope-block-size": build >= 11549,
        "fattn-vec-gqa-heads": build >= 11549,
    }
    assert states == {name: "apply" if applies else "skipped" for name, applies in inside.items()}


@pytest.mark.parametrize("build", ordinary(BUILDS, (11549,)))
def test_the_patch_for_rdna4_is_on_its_builds_and_alone(corpus_series, test_cache, build):
    code, report = plan(corpus_series, test_cache, build, *RDNA4)
    assert code == 0, report
    applied = [patch["id"] for patch in report["patches"] if patch["state"] == "apply"]
    assert applied == (["mmvq-decode-warps"] if build >= 9586 else [])


@pytest.mark.parametrize("build", ordinary(BUILDS, (7551,)))
def test_outside_its_era_an_edit_is_confirmed_or_refused(all_builds, test_cache, build):
    confirmed_or_refused(all_builds, test_cache, build, RDNA4)


@pytest.mark.thorough
@pytest.mark.parametrize("build", BUILDS)
def test_outside_their_era_all_edits_are_confirmed_or_refused(all_builds, test_cache, build):
    confirmed_or_refused(all_builds, test_cache, build, ("--arch=gfx1151", *WITH_ALL))


def confirmed_or_refused(all_builds, test_cache, build, asked):
    code, report = plan(all_builds, test_cache, build, *asked)
    arch = asked[0].removeprefix("--arch=")
    if code == 0:
        for patch in report["patches"]:
            for edit in patch["edits"]:
                assert edit["entity"] == "(file)" or f"{edit['side']} {arch}" in edit["seen_in"]
        return
    errors = report["error"]["errors"]
    assert errors
    for error in errors:
        assert error["exit_code"] == 3, error
        assert error["where"], error

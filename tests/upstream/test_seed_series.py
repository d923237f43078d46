"""The main job on the real pin: what the README promises, on llama.cpp itself."""

from __future__ import annotations

import json
import re

import pytest
from command_line import run_patchkit
from demo_world import git
from shipped import SEED

from patchkit.carry.series.lock import load_lock

PIN = "c22473b580807929fd9e3a3344a48e8cfbe6c88f"
TREE = "825d48d696e3989507318cae2a9d8e6e0c601eef"


def patchkit(cache, *args):
    done = run_patchkit(*args, "--cache-dir", cache)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def repository(candidate_cache):
    return candidate_cache / "upstream.git"


def test_the_commits_on_the_real_commit_touch_only_the_cuda_folder(repository, applied):
    assert applied["base"] == PIN
    assert git(repository, "rev-parse", f"{PIN}^{{tree}}") == TREE
    assert [made["id"] for made in applied["commits"]] == [
        "patch-switches",
        "wmma-tile-params",
        "fattn-keep-gqa-tiles",
        "fattn-decode-tile",
    ]
    changed = git(repository, "diff", "--name-only", PIN, applied["branch"]).splitlines()
    assert changed == [
        "ggml/src/ggml-cuda/fattn-tile.cuh",
        "ggml/src/ggml-cuda/fattn-wmma-config.cuh",
        "ggml/src/ggml-cuda/fattn-wmma-f16.cu",
        "ggml/src/ggml-cuda/fattn.cu",
        "ggml/src/ggml-cuda/ggml-cuda.cu",
        "ggml/src/ggml-cuda/patches.cuh",
    ]


def test_the_result_is_the_one_the_lock_records(checkout, applied):
    assert applied["lock_state"] == "as the lock records"
    lock = load_lock(checkout / "patches" / "upstream.lock")
    recorded = lock.result("b6900", ("gfx1151",), tuple(made["id"] for made in applied["commits"]))
    assert recorded is not None
    assert (recorded.tree, recorded.commit) == (applied["tree"], applied["commits"][-1]["commit"])


_SEED_PATCHES = ("wmma-tile-params", "fattn-keep-gqa-tiles", "fattn-decode-tile")

# Every function an edit of the series resolves to at build 6900, with the number of places in it.
ANCHORS = {
    ("patch-switches", "include"): ("(file)", 1),
    ("patch-switches", "list"): ("ggml_cuda_init", 1),
    ("wmma-tile-params", "include-config"): ("(file)", 1),
    ("wmma-tile-params", "unnamed-template-params"): ("flash_attn_ext_f16", 1),
    ("wmma-tile-params", "launch-bounds"): ("flash_attn_ext_f16", 1),
    ("wmma-tile-params", "kernel-parameters"): ("flash_attn_ext_f16", 1),
    ("wmma-tile-params", "stride-may-be-below-head-size"): ("flash_attn_ext_f16", 1),
    ("wmma-tile-params", "kernel-stride"): ("flash_attn_ext_f16", 15),
    ("wmma-tile-params", "launch-nwarps"): ("ggml_cuda_flash_attn_ext_wmma_f16_case", 1),
    ("wmma-tile-params", "launch-stride"): ("ggml_cuda_flash_attn_ext_wmma_f16_case", 1),
    ("fattn-keep-gqa-tiles", "keep-grouped-variants"): ("flash_attn_tile", 1),
    ("fattn-decode-tile", "skip-wmma-for-decode"): ("ggml_cuda_get_best_fattn_kernel", 1),
}


def test_every_anchor_resolves_to_its_entity_and_clang_sees_it(candidate_cache):
    plan = json.loads(patchkit(candidate_cache, "plan", *SEED, "--json"))
    found = {
        (patch["id"], edit["id"]): (edit["entity"], len(edit["locations"]))
        for patch in plan["patches"]
        for edit in patch["edits"]
    }
    assert found == ANCHORS
    for patch in plan["patches"]:
        for edit in patch["edits"]:
            if edit["entity"] != "(file)":
                assert f"{edit['side']} gfx1151" in edit["seen_in"], edit["id"]


def test_no_knob_is_changed_on_one_side_only(repository, applied):
    text = git(repository, "show", f"{applied['branch']}:ggml/src/ggml-cuda/fattn-wmma-f16.cu")
    kernel, launcher = text.split("ggml_cuda_flash_attn_ext_wmma_f16_case", maxsplit=1)
    # Upstream's name is left in the alias and in the assert that the guard removes (twice: its text).
    assert len(re.findall(r"\bFATTN_KQ_STRIDE\b", kernel)) == 3
    for knob in ("nwarps", "kq_stride"):
        getter = f"ggml_cuda_fattn_wmma_get_{knob}("
        assert getter in kernel
        assert getter in launcher


@pytest.mark.thorough
def test_several_gpus_share_one_branch(candidate_cache, repository):
    with_all = [f"--with={name}" for name in _SEED_PATCHES]
    archs = ["--arch", "gfx90a", "--arch", "gfx1100", *SEED]
    applied = json.loads(patchkit(candidate_cache, "apply", *archs, *with_all, "--json"))
    header = git(
        candidate_cache / "upstream.git",
        "show",
        f"{applied['branch']}:ggml/src/ggml-cuda/fattn-wmma-config.cuh",
    )
    assert "get_config_gfx1100(" in header
    assert "get_config_gfx1151(" in header
    assert "gfx90a" not in header
    assert "-DGPU_TARGETS=gfx1100;gfx1151;gfx90a" in applied["cmake"]

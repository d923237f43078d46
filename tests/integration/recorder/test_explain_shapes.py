"""patchkit explain through the command line, on the real candidate: shapes of every kind of answer.

Only shapes whose kernels are in touched units: their device code is what other tests compile anyway.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run_patchkit
from filelock import FileLock
from shipped import SEED

pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture
def explain(gates_cache: Path) -> Callable[..., str]:
    """Applies and runs the command; gives what it printed. Other tests move the branch: hence the lock."""
    cache = ("--cache-dir", gates_cache)

    def run(*options: str) -> str:
        with FileLock(gates_cache.with_name("gates.lock")):
            assert run_patchkit("apply", *SEED, "--unlocked", *cache).returncode == 0
            done = run_patchkit("explain", *SEED, *options, *cache)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_decode_leaves_wmma_at_the_branch_that_the_patch_changed(explain: Callable[..., str]) -> None:
    text = explain("--head-size", "80", "--gqa", "4", "--kv", "4096")
    lines = text.splitlines()
    assert lines[0] == "D=80 gqa=4 kv=4096 tokens=1 f16 on gfx1151, candidate/gfx1151/b6900"
    assert lines[3] == "WMMA before the patches, TILE after"
    assert lines[4].startswith("  the selection differs from ggml/src/ggml-cuda/fattn.cu:")
    is_target = "cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151 && ggml_cuda_patches().fattn_decode_tile.use()"
    assert f"false, by !(({is_target})" in text
    assert "return BEST_FATTN_KERNEL_WMMA_F16" in text
    assert "return BEST_FATTN_KERNEL_TILE" in text


def test_prefill_keeps_its_kernel_and_shows_what_the_table_changed(explain: Callable[..., str]) -> None:
    document = json.loads(
        explain("--head-size", "80", "--gqa", "1", "--kv", "4096", "--tokens", "512", "--json")
    )
    assert document["turn"] is None
    before, after = (
        next(launch for launch in account["launches"] if launch["family"] == "wmma")
        for account in document["accounts"]
    )
    assert before["kernel"] == after["kernel"] == "flash_attn_ext_f16<80, 32, 4, 16, float, false>"
    assert (before["block"], after["block"]) == ([32, 4, 1], [32, 8, 1])  # warps of the profile's table
    assert before["vgpr_spills"] > 0
    assert after["vgpr_spills"] == 0
    assert before["resident"] >= 1


def test_a_head_size_that_the_backend_does_not_have_is_left_to_the_cpu(explain: Callable[..., str]) -> None:
    text = explain("--head-size", "72", "--kv", "4096")
    assert text.splitlines()[3] == "not supported, before and after"
    assert text.count("return BEST_FATTN_KERNEL_NONE") == 2
    assert text.count("default") == 2


def test_a_kernel_that_would_stop_the_gpu_is_called_a_trap(explain: Callable[..., str]) -> None:
    # 4000 rows are no multiple of 256: TILE without grouping, which upstream prunes for soft cap and D=64.
    text = explain("--head-size", "64", "--kv", "4000", "--softcap", "10")
    assert text.splitlines()[3] == "TILE (compiled to a trap), before and after"
    assert text.count("COMPILED TO A TRAP") == 2

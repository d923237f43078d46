"""patchkit explain on the real candidate, as two GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run_patchkit
from filelock import FileLock
from shipped import SEED

pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture
def document(gates_cache: Path) -> dict:
    """What the command says. Other tests move the branch: hence the lock."""
    cache = ("--cache-dir", gates_cache)
    with FileLock(gates_cache.with_name("gates.lock")):
        assert run_patchkit("apply", *SEED, "--unlocked", *cache).returncode == 0
        done = run_patchkit(
            "explain",
            *SEED,
            "--gpu",
            "gfx1030",
            "--json",
            *cache,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_operation_has_its_kernels_by_type_and_batch(document: dict) -> None:
    lines = {(line["gpu"], line["op"], line["what"]): line for line in document["lines"]}

    def route(op: str, what: str, tokens: int, side: str = "after", gpu: str = "gfx1151") -> list[str]:
        spans = lines[gpu, op, what][side]
        (span,) = [one for one in spans if one["first"] <= tokens <= one["last"]]
        return span["route"]

    # Build 6900: vector kernels for few columns, then integer tiles, then BLAS on what was made to halves.
    for kind in ("q4_0", "q4_K", "q6_K", "q8_0", "mxfp4"):
        assert route("MUL_MAT", kind, 1) == ["quantize_q8_1", "mul_mat_vec_q"]
        assert "mul_mat_q" in route("MUL_MAT", kind, 16)
        assert route("MUL_MAT", kind, 512)[-1] == "hipblasGemmEx"
        assert route("MUL_MAT_ID", kind, 1) == ["quantize_q8_1", "mul_mat_vec_q"]
    assert route("MUL_MAT", "f32", 512) == ["hipblasSgemm"]
    assert route("GET_ROWS", "q4_K", 1) == []
    # Operations of later models: this build has some of them.
    assert route("SSM_CONV", "10240 values per token", 32) == ["ssm_conv_f32"]
    assert route("SSM_CONV", "10240 values per token", 33) == ["ssm_conv_long_token_f32"]
    assert route("LIGHTNING_INDEXER", "64 heads f16", 1) == []
    assert route("others", "CONT", 1) == ["hipMemcpy"]
    # Attention: the patches send decode of grouped heads to TILE, on their GPU only.
    decode = ("FLASH_ATTN_EXT", "D=128 gqa=4 f16", 1)
    assert "flash_attn_ext_vec (VEC)" in route(*decode, side="before")
    assert "flash_attn_tile (TILE)" in route(*decode)
    assert "flash_attn_ext_f16 (WMMA)" in route("FLASH_ATTN_EXT", "D=128 gqa=4 f16", 512)
    assert "flash_attn_tile (TILE)" in route("FLASH_ATTN_EXT", "D=128 gqa=4 f16", 512, gpu="gfx1030")
    changed = {(line["gpu"], line["op"]) for line in document["lines"] if line["changed"]}
    assert changed == {("gfx1151", "FLASH_ATTN_EXT")}
    assert any("blas" in each.lower() for each in document["not_known"])

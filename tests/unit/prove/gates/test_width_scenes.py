"""Which models and operations the gate width runs."""

from __future__ import annotations

from patchkit.prove.gates.width_scenes import SCENE, WIDTHS, cases, choose, models

CUDA = "ggml/src/ggml-cuda/"
OTHERS = {"gemma3", "gemma4", "gpt-oss", "glm4moe", "deepseek2", "deepseek4"}


def test_there_is_a_model_of_each_family_and_a_token_in_several_places() -> None:
    families = {one.model.architecture for one in models()}
    assert {"llama", *OTHERS, "mamba2", "qwen3next", "qwen35", "qwen35moe", "qwen4exp"} <= families
    assert any("moe" in one.model.name for one in models())
    # With these widths, token 7 is in place 1, 1, 3, 2, 1, 0 and 7 of its batch.
    assert SCENE.steps >= max(WIDTHS)
    assert len({7 % width for width in WIDTHS}) > 4


def test_a_sample_runs_what_changed_files_serve() -> None:
    chosen = choose([CUDA + "fattn.cu"], is_sample=True)
    assert all("attention" in one.kinds for one in chosen.models)
    assert {one.model.architecture for one in chosen.models} == {"llama", *OTHERS}
    assert {case.op for group in chosen.cases for case in group} == {"FLASH_ATTN_EXT"}
    assert "mamba" in chosen.left
    assert "MUL_MAT_ID (6 cases)" in chosen.left
    quantized = choose([CUDA + "mmvq.cu"], is_sample=True)
    assert {one.model.architecture for one in quantized.models} == {"llama", *OTHERS}
    assert {case.op for group in quantized.cases for case in group} >= {
        "MUL_MAT",
        "MUL_MAT_ID",
        "GLU",
        "NORM",
    }


def test_a_file_that_could_serve_anything_and_a_full_run_leave_nothing_out() -> None:
    for chosen in (choose([CUDA + "common.cuh"], is_sample=True), choose([], is_sample=False)):
        assert (chosen.models, chosen.cases, chosen.left) == (models(), cases(), ())

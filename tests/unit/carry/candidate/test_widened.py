"""Guards of a candidate's files that also hold on NVIDIA GPUs."""

from __future__ import annotations

import pytest

from patchkit.carry.candidate.widened import widened_text
from patchkit.carry.placing.guard import Guard, GuardedGpu

GUARD = Guard(macros=("GGML_USE_HIP",), targets=(GuardedGpu.named("gfx1151"),))


@pytest.mark.parametrize("condition", [GUARD.device, GUARD.region])
def test_code_is_compiled_for_cuda_and_as_before_for_hip(condition: str) -> None:
    text = f"#if {condition}\nint a;\n#endif // {condition}\n"
    wide = widened_text(text, GUARD)
    first = wide.splitlines()[0]
    assert first == f"#if (!defined(GGML_USE_HIP) && !defined(GGML_USE_MUSA)) || ({condition})"
    assert wide.count("GGML_USE_MUSA") == 2


def test_upstreams_code_is_left_out_for_cuda_where_a_patch_replaces_it() -> None:
    wide = widened_text(f"#if !({GUARD.device})\nold();\n#endif\n", GUARD)
    assert wide.startswith("#if !((!defined(GGML_USE_HIP) && !defined(GGML_USE_MUSA)) || (")


@pytest.mark.parametrize(
    "cc",
    [
        "cc",
        "ggml_cuda_info().devices[ctx.device].cc",
        "ggml_cuda_info().devices[cuda_ctx->device].cc",
        "ggml_cuda_info().devices[ggml_cuda_get_device()].cc",
    ],
)
def test_the_host_asks_for_either_gpu(cc: str) -> None:
    wide = widened_text(f"if ({GUARD.host(cc)} && is_small) {{", GUARD)
    assert wide == (
        f"if (((GGML_CUDA_CC_IS_NVIDIA({cc}) || {cc} == GGML_CUDA_CC_OFFSET_AMD + 0x1151)) && is_small) {{"
    )


def test_other_gpus_and_upstreams_own_conditions_stay() -> None:
    text = "#if defined(GGML_USE_HIP)\nif (cc == GGML_CUDA_CC_OFFSET_AMD + 0x11510) {}\n#endif\n"
    assert widened_text(text, GUARD) == text

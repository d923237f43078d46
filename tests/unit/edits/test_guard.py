"""Guards for one GPU and for several."""

from __future__ import annotations


def test_one_gpu(guard):
    assert guard.device == "defined(GGML_USE_HIP) && defined(__gfx1151__)"
    assert (
        guard.region == "defined(GGML_USE_HIP) && (!defined(__HIP_DEVICE_COMPILE__) || defined(__gfx1151__))"
    )
    assert guard.host() == "(cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151)"


def test_several_gpus(two_gpus):
    macros = "defined(GGML_USE_HIP) && defined(GGML_HIP_ROCWMMA_FATTN)"
    archs = "defined(__gfx1151__) || defined(__gfx90a__)"
    assert two_gpus.device == f"{macros} && ({archs})"
    assert two_gpus.region == f"{macros} && (!defined(__HIP_DEVICE_COMPILE__) || {archs})"
    amd = "GGML_CUDA_CC_OFFSET_AMD"
    assert two_gpus.host("info.cc") == f"(info.cc == {amd} + 0x1151 || info.cc == {amd} + 0x90a)"

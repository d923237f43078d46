"""The families of later builds: rows of upstream's tables, legal settings, and an own first row."""

from __future__ import annotations

import pytest
from refusing import refused

from patchkit.base.occupancy import limits_of
from patchkit.carry.series.profile import load_profile
from patchkit.tune import mmq
from patchkit.tune.family import Candidate, binding_bounds
from patchkit.tune.table import local_includes, table_rows, with_own_row

# In upstream's form, with rows of our own.
CONFIG = b"""static constexpr config ggml_cuda_mmq_get_config_rdna3_5(ggml_type type, int J, bool fallback) {
    CASE(GGML_TYPE_Q4_K, 128, 2,  64,  16, GGML_CUDA_MMQ_SRAM_LAYOUT_Q8_1, MMQ_ITER_K, false, true);
    CASE(GGML_TYPE_Q4_K, 256, 2, 128, 128, GGML_CUDA_MMQ_SRAM_LAYOUT_Q8_1, MMQ_ITER_K, false, false);
    CASE(GGML_TYPE_Q2_K, 256, 2, 128, 128, GGML_CUDA_MMQ_SRAM_LAYOUT_Q2_K, MMQ_ITER_K, false, false);
}
"""
KERNEL = b"""#pragma once
#include "common.cuh"
#include "mmq-config-rdna3-5.cuh"
#include "mmq-load-tiles.cuh"
template <ggml_type type, int J, bool fallback, ggml_prec prec_src1> static __global__ void mul_mat_q(int x) {
    x = J;
}
static void launches() {}
"""


@pytest.fixture
def limits(checkout):
    return limits_of(load_profile(checkout / "arch_profiles", "gfx1151"))


@pytest.fixture
def matrix(limits):
    files = {
        mmq.MMQ_FILE: KERNEL,
        mmq.config_file("rdna3_5"): CONFIG,
        **dict.fromkeys(mmq.MMQ_PARTS, b'#pragma once\n#include "mmq.cuh"\n#include "vecdotq.cuh"\n'),
    }
    return mmq.make_mmq_family(limits, files, "rdna3_5")


def test_only_bounds_that_can_have_an_effect_are_tried(limits, checkout) -> None:
    assert binding_bounds(limits, 2) == (2, 6, 7, 8)  # 256 registers leave five waves of 1536
    small = limits_of(load_profile(checkout / "arch_profiles", "gfx1150"))
    assert binding_bounds(small, 7) == (5, 6, 7, 8)


def test_rows_of_a_block_follow_from_its_threads(matrix) -> None:
    assert matrix.variants == ("Q4_K-16-fallback", "Q4_K-128", "Q2_K-128")
    assert matrix.baseline("Q4_K-128") == (256, 2)
    assert matrix.legal("Q4_K-128") == tuple(
        (threads, bound) for threads in (64, 128, 256) for bound in (2, 6, 7, 8)
    )
    # 128 rows of 100 words and 128 columns are more than 64 KiB: of 256 threads only the row as it is stays.
    assert [bound for threads, bound in matrix.legal("Q2_K-128") if threads == 256] == [2]
    unit = matrix.sources({"Q4_K-128": [(128, 6)]})[matrix.unit(Candidate("Q4_K-128", (128, 6)))].decode()
    assert "#define PATCHKIT_I 64\n" in unit
    assert "#define PATCHKIT_J 128\n" in unit
    assert "#define PATCHKIT_FALLBACK false\n" in unit
    assert "mul_mat_q<GGML_TYPE_Q4_K, 128, false, GGML_PREC_Q8>" in unit


def test_lds_of_the_matmul_is_that_of_the_host_code(matrix) -> None:
    # By hand: 128 indices, 128 rows of 76 words, 128 blocks of 144 bytes padded to 256 threads of 4 bytes.
    traits = matrix.traits(Candidate("Q4_K-128", (256, 2)))
    assert traits.launch_lds_bytes == 512 + 128 * 76 * 4 + 18432
    assert (traits.rows, traits.columns, traits.tiles) == (256, 128 * 128, 4 * 32)


def test_copies_of_the_matmul_include_each_other_and_upstreams_other_files(matrix) -> None:
    files = matrix.sources({"Q4_K-128": [(128, 2)]})
    folder = "ggml/src/ggml-cuda/patchkit-tune/mmq"
    assert b"launches" not in files[f"{folder}/mmq.cuh"]
    assert b'#include "mmq-config-rdna3-5.cuh"' in files[f"{folder}/mmq.cuh"]
    assert b'#include "../../common.cuh"' in files[f"{folder}/mmq.cuh"]
    assert files[f"{folder}/mmq-vec-dot.cuh"].count(b'"mmq.cuh"') == 1
    table = files[f"{folder}/mmq-config-rdna3-5.cuh"].decode()
    assert table.index("#ifdef PATCHKIT_OWN_ROW") < table.index("CASE(GGML_TYPE_Q4_K")


def test_without_the_newer_parameter_the_kernel_is_named_without_it(matrix, limits) -> None:
    files = {**matrix.files, mmq.MMQ_FILE: KERNEL.replace(b", ggml_prec prec_src1", b"")}
    older = mmq.make_mmq_family(limits, files, "rdna3_5")
    unit = older.sources({"Q4_K-128": []})[older.unit(Candidate("Q4_K-128", (256, 2)))]
    assert b"mul_mat_q<GGML_TYPE_Q4_K, 128, false>" in unit


def test_a_missing_table_is_an_error(limits, matrix) -> None:
    with refused("TUNE_KERNEL_UNTUNABLE", match="rdna3_5"):
        list(table_rows("x.cuh", KERNEL, "ggml_cuda_mmq_get_config_rdna3_5", "CASE"))
    with refused("TUNE_KERNEL_UNTUNABLE"):
        with_own_row("x.cuh", CONFIG + CONFIG, "ggml_cuda_mmq_get_config_rdna3_5", "CASE", ["1"])
    empty = {**matrix.files, mmq.config_file("rdna3_5"): CONFIG.replace(b"CASE", b"ROW")}
    with refused("TUNE_KERNEL_UNTUNABLE", match="no rows"):
        mmq.make_mmq_family(limits, empty, "rdna3_5")


def test_includes_of_a_copy_are_moved_except_those_of_other_copies() -> None:
    text = b'#include "a.cuh"\n  # include "b.cuh"\n#include <c>\n#include "d/e.cuh"\n'
    assert local_includes(text, ["b.cuh"]) == text.replace(b'"a.cuh"', b'"../../a.cuh"')

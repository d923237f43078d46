"""The table of the TILE kernel for RDNA: rows, legal settings, and units."""

from __future__ import annotations

import pytest
from refusing import refused
from strix_halo import LIMITS

from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.modelled.shape import load_models
from patchkit.tune.family import Candidate
from patchkit.tune.tile import TILE_FILE, make_tile_family

# In upstream's form, with rows of our own.
FILE = b"""
static constexpr int ggml_cuda_fattn_tile_get_config_amd(const int DKQ, const int DV, const int ncols) {
    GGML_CUDA_FATTN_TILE_CONFIG_CASE(256, 256, 32,  64, 1,  32,  32)
}
static constexpr int ggml_cuda_fattn_tile_get_config_amd_rdna(const int DKQ, const int DV, const int ncols) {
    GGML_CUDA_FATTN_TILE_CONFIG_CASE( 64,  64, 32, 128, 2,  64,  64)
    GGML_CUDA_FATTN_TILE_CONFIG_CASE(256, 256,  4, 128, 2,  64,  64)
    GGML_CUDA_FATTN_TILE_CONFIG_CASE(256, 256, 32, 256, 3,  64, 128)
    GGML_CUDA_FATTN_TILE_CONFIG_CASE(192, 128, 32, 256, 3,  64,  64)
}
template<int DKQ, int DV> static __global__ void flash_attn_tile(int x) {
    x = 1;
}
static void launches() {}
"""
ROW = (256, 3, 64, 128)


def test_only_the_rows_of_rdna_are_variants() -> None:
    family = make_tile_family(LIMITS, FILE)
    assert family.variants == ("256-32",)
    assert family.baseline("256-32") == ROW


def test_every_legal_setting_keeps_the_rules() -> None:
    family = make_tile_family(LIMITS, FILE)
    legal = family.legal("256-32")
    assert ROW in legal
    assert len(legal) == len(set(legal)) > 100
    for nthreads, occupancy, rows, halves in legal:
        waves = nthreads // 32
        assert 32 % waves == 0
        assert 1 <= occupancy <= 8
        assert rows % 32 == 0
        assert halves % 8 == 0
        assert halves <= 256


def test_waves_that_share_a_column_take_their_rows_at_once() -> None:
    family = make_tile_family(LIMITS, FILE.replace(b"256, 256, 32, 256", b"256, 256,  8, 256"))
    # 512 threads are 16 waves, two on each of the 8 columns: 64 rows at once
    assert {rows for nthreads, _, rows, _ in family.legal("256-8") if nthreads == 512} == {64, 128, 256}


def test_a_unit_defines_its_row_and_the_kernel_reads_it() -> None:
    family = make_tile_family(LIMITS, FILE)
    candidate = Candidate("256-32", (128, 4, 64, 64))
    files = family.sources({"256-32": [candidate.setting]})
    kernel = files["ggml/src/ggml-cuda/patchkit-tune/tile/kernel.cuh"].decode()
    own = kernel.index("PATCHKIT_HEAD_SIZE, PATCHKIT_COLUMNS, PATCHKIT_NTHREADS, PATCHKIT_OCCUPANCY")
    assert kernel.index("get_config_amd_rdna") < own < kernel.index("CASE( 64,  64, 32,")
    assert "CASE(256, 256, 32,  64, 1,  32,  32)" in kernel  # the other table is as it was
    assert "launches" not in kernel
    unit = files[family.unit(candidate)].decode()
    assert "#define PATCHKIT_NBATCH_K 64\n" in unit
    assert "flash_attn_tile<256, 256, 4, 8, false>" in unit
    shared = [files[path].decode() for path in family.checks(candidate)]
    kernels = [f"<256, 256, {32 // heads}, {heads}, false>" for heads in (4, 2, 1)]
    kernels += [f"<256, 256, {32 // heads}, {heads}, true>" for heads in (8, 4, 2, 1)]
    assert [next(each for each in kernels if each in text) for text in shared] == kernels
    assert family.unit(Candidate("256-32", ROW)) in files
    assert family.traits(candidate).rows == 64


@pytest.mark.parametrize(
    "text", [b"", FILE.replace(b"_rdna", b"_other"), FILE.replace(b"256, 256, 32", b"72, 72, 32")]
)
def test_a_file_without_the_rows_is_an_error(text) -> None:
    with refused("TUNE_KERNEL_UNTUNABLE") as caught:
        make_tile_family(LIMITS, text)
    assert caught.value.where[0].path == TILE_FILE


@pytest.fixture
def models(checkout):
    return load_models(checkout / "arch_profiles")


def test_a_variant_is_timed_with_tokens_that_fill_its_columns_and_the_widest_with_prompts(models) -> None:
    both = FILE.replace(b"192, 128, 32, 256", b"256, 256,  8, 128")
    family = make_tile_family(LIMITS, both, models)
    # of the list gemma3 4B has 8 heads on 4 and Qwen3.6-35B-A3B 16 on 2; eight share a block at most
    found = {(case.kv_heads, case.gqa, case.tokens, case.kv) for case in family.cases("256-8")}
    rows = (256, 4352, 16640, 65792)
    assert found == {(*layer, kv) for layer in ((4, 2, 4), (2, 8, 1)) for kv in rows}
    assert {(case.tokens, case.kv) for case in family.cases("256-32")} == {
        (512, 512),
        (512, 4608),
        (512, 16896),
        (512, 66048),
        (2048, 2048),
    }
    assert make_tile_family(LIMITS, both).cases("256-8") == ()


def test_the_setting_is_put_into_the_requested_rows_of_rdna() -> None:
    family = make_tile_family(LIMITS, FILE)
    (text,) = family.with_settings({"256-32": (128, 6, 64, 64)}).values()
    was, now = FILE.decode().splitlines(), text.decode().splitlines()
    changed = [line for before, line in zip(was, now, strict=True) if line != before]
    assert changed == ["    GGML_CUDA_FATTN_TILE_CONFIG_CASE(256, 256, 32, 128, 6, 64, 64)"]
    assert list(family.with_settings({}).values()) == [FILE]


@pytest.mark.parametrize(
    ("mangled", "is_its"),
    [
        ("_ZL15flash_attn_tileILi256ELi256ELi4ELi8ELb0EEvPKc", True),
        ("_ZL15flash_attn_tileILi256ELi256ELi16ELi2ELb0EEvPKc", True),
        ("_ZL15flash_attn_tileILi256ELi256ELi2ELi8ELb0EEvPKc", False),  # 16 columns
        ("_ZL15flash_attn_tileILi128ELi128ELi4ELi8ELb0EEvPKc", False),
        ("_ZL18flash_attn_ext_f16ILi256ELi256ELi4ELi8ELb0ELb0ELb0EEvPKc", False),
    ],
)
def test_a_kernel_is_the_variants_by_its_head_size_and_columns(mangled, is_its) -> None:
    assert make_tile_family(LIMITS, FILE).is_kernel(read_name(mangled), "256-32") is is_its
